/* SPDX-License-Identifier: BSD-3-Clause */
/* One call on a tcp handle: calls run one at a time, and a try whose connection is lost is repeated where that is safe.
 */
#ifndef RDZV_STORE_TCP_CALL_H
#define RDZV_STORE_TCP_CALL_H

#include "store/tcp/tcp.h"

/* Flags. */
enum tcp_kind {
  TCP_REPEATABLE = 0,  /* doing it twice is as good as once */
  TCP_ONCE = 1 << 0,   /* it writes: repeated in its session, else RDZV_E_OUTCOME_UNKNOWN where it may be done */
  TCP_BLOCKS = 1 << 1, /* it waits for something, as long as the call says */
};

enum { TCP_MAX_REPEATS = 5 }; /* after a lost connection, of a request that was not done */

/* The arguments of an operation, and places for its results; each operation uses some of them. */
struct tcp_args {
  const rdzv_bytes *keys;
  size_t count;             /* of keys */
  const rdzv_bytes *values; /* to write; of compare_set: expected, desired */
  uint64_t number;

  rdzv_value *out; /* list_keys allocates it */
  uint64_t number_out;
  bool flag_out;
};

/* Makes one try at an operation on an open connection: writes the request, sends it, reads the answer. A try that
 * returns RDZV_E_CONNECTION may be followed by another one on a new connection. */
typedef int tcp_try(struct tcp_store *tcp, struct tcp_args *args);

struct tcp_op {
  const char *what; /* begins the sentence of an error: "add to 'k' at 'localhost:29400': …" */
  unsigned kind;    /* enum tcp_kind */
  tcp_try *try;
};

/* Waits until no other call holds the handle, connects, and tries the operation until a try does not lose the
 * connection, or another one would not be safe. */
int tcp_run(rdzv_store *store, const struct tcp_op *op, struct tcp_args *args, const struct store_call *call);

/* ---- the operations, in ops/ ---- */
STORE_BASIC_OPS(STORE_OP_DECLARE, tcp)
STORE_QUEUE_OPS(STORE_OP_DECLARE, tcp)
STORE_VERSION_OPS(STORE_OP_DECLARE, tcp)

#endif
