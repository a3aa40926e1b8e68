/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by pending.c and pending_large.c. */
#ifndef RDZV_SERVER_PENDING_H
#define RDZV_SERVER_PENDING_H

#include "server/server.h"

struct pending {
  struct ks_waiter waiter;
  struct conn *conn;
  struct pending *prev, *next;             /* of conn->pending */
  struct pending *again_prev, *again_next; /* of server->again or server->large */
  bool is_again;
  enum wire_op op;
  size_t keys;         /* number of keys that it waits for or watches */
  uint64_t write;      /* number of the write in its session */
  struct large *large; /* NULL: it fits into a slice */
  size_t size;         /* of the request, which is kept to be executed again */
  uint8_t request[];   /* empty for WAIT, BARRIER, WATCH_KEY */
};

/* What WAIT and GET_WAIT want of their keys. */
static inline enum ks_want pending_wants(enum wire_op op) {
  return op == WIRE_OP_WAIT ? KS_WANT_PRESENT : KS_WANT_VALUE;
}

/* A WAIT or GET_WAIT over more keys than fit into a slice. */
struct large {
  struct buf bytes; /* the request */
  size_t first;     /* offset of its first key */
  size_t at, left;  /* offset of its next key, number of keys left */
  bool listing;     /* waiters are being registered; false: the keys are being looked up */
  bool listed;      /* ks_wait_open was called */
  struct chain values;
};

/* Adds a pending to its connection, with a copy of its request. NULL: no memory. */
struct pending *pending_new(struct conn *conn, enum wire_op op, size_t keys, const uint8_t *data, size_t size);
void pending_free(struct pending *pending);

/* Refuses the request because memory has run out, and frees the pending; NULL is fine. */
void pending_give_up(struct conn *conn, struct pending *pending);

/* Executes it in a later iteration; pending_run_not withdraws it. */
void pending_run_later(struct pending *pending);
void pending_run_not(struct pending *pending);

/* ---- pending_large.c ---- */

/* Makes the request wait until its bytes are at the front of conn->in, from where they can be taken. False: refused. */
bool pending_put_off(struct conn *conn, const struct wire_request *request, const uint8_t *data);
void pending_large_free(struct pending *pending);

#endif
