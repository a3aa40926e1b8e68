/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call at a TCPStore server: whose turn it is, what a lost connection means, requests and their answers.
 * store/tcp/try.h has what each operation says.
 */
#ifndef RDZV_STORE_TCP_CALL_H
#define RDZV_STORE_TCP_CALL_H

#include "store/store.h"
#include "store/tcp/conn.h"

#include <pthread.h>

/* What not all servers of PyTorch 2.x have. */
enum { TCP_QUEUES = 1 << 0, TCP_LIST_KEYS = 1 << 1 };

struct tcp_store {
  rdzv_store base;
  struct tcp_conn conn; /* of the call whose turn it is, and so is what follows */
  rdzv_tcp_options options;
  int64_t began;     /* the call under way */
  deadline until;    /* for all that it does but wait for a key */
  unsigned kind;     /* of it */
  uint64_t write;    /* its number in the session; 0: it has none */
  int closings;      /* how often the server closed on an operation that it may not know */
  bool in_flight;    /* a request of it that was lost may be done, now or later */
  bool refused;      /* the last one was, so it has not been done */
  bool forgotten;    /* its session is */
  bool taken_back;   /* its wait, when it was canceled: the connection is in order */
  char never[16];    /* random bytes that are no key's value */
  bool gets_by_swap; /* see tcp_try.c, read_v2 */
  unsigned newer;    /* TCP_QUEUES, TCP_LIST_KEYS: the server has shown that it has them */

  /* Held for moments only. It guards whose turn it is, and what is known of the server for those who ask meanwhile. */
  pthread_mutex_t lock;
  pthread_cond_t turn_is_over;
  bool turn_is_taken;
  struct {
    enum wire_dialect dialect;
    char peer[ENDPOINT_TEXT_SIZE];
  } facts;
};

static inline bool tcp_is_ours(const struct tcp_store *tcp) { return tcp->conn.dialect == WIRE_RDZV; }

/* Makes an attempt at an operation on a connection that is open. It may run several times. */
typedef int tcp_attempt(struct tcp_store *tcp, void *args, struct store_call *call);

/* What kind of operation it is: flags. */
enum {
  TCP_REPEATABLE = 0,  /* doing it twice is as good as once */
  TCP_ONCE = 1 << 0,   /* it writes: repeated in its session, else RDZV_E_OUTCOME_UNKNOWN where it may be done */
  TCP_BLOCKS = 1 << 1, /* it waits for something, as long as the call says */
};

/* Takes the handle's turn, connects, and makes the attempt until it does not lose the connection. `what` and the keys
 * begin the error's sentence: "add to 'k' at 'localhost:29400': …". */
int tcp_run(rdzv_store *store, const char *what, const rdzv_bytes *keys, size_t count, unsigned kind,
            tcp_attempt *attempt, void *args, struct store_call *call);

/* ---- for attempts. RDZV_E_CONNECTION from any of these ends the attempt; tcp_run knows what to do. ---- */

void tcp_put_op(struct tcp_store *tcp, enum wire_op op);
void tcp_put_key(struct tcp_store *tcp, rdzv_bytes key);
void tcp_put_value(struct tcp_store *tcp, rdzv_bytes value);
void tcp_put_number(struct tcp_store *tcp, uint64_t number);
void tcp_put_keys(struct tcp_store *tcp, enum wire_op op, const rdzv_bytes *keys, size_t count);

int tcp_send(struct tcp_store *tcp, struct store_call *call);

/* An answer that comes at once: its status where it has one, then the fields, which stay in conn.scan until
 * tcp_conn_consume. */
int tcp_answer(struct tcp_store *tcp, const char *fields, uint64_t items, struct store_call *call);

/* More fields of the answer that has begun. */
int tcp_more(struct tcp_store *tcp, const char *fields, uint64_t items, struct store_call *call);

/* An answer of one number, consumed. */
int tcp_answer_number(struct tcp_store *tcp, const char *fields, uint64_t *number, struct store_call *call);

/* The answer to a request that blocks, awaited until `until`; RDZV_E_TIMEOUT leaves the connection in order. Not V1. */
int tcp_blocking_answer(struct tcp_store *tcp, const char *fields, uint64_t items, deadline until,
                        struct store_call *call);

#endif
