/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handle of a tcp store. tcp.c opens and frees handles, call.c runs one call at a time on a handle and decides what
 * a lost connection means, message.c writes requests and reads answers, conn.c connects and finds the server's dialect.
 * ops/ has the operations: each one whole, with its requests and answers in every dialect.
 */
#ifndef RDZV_STORE_TCP_TCP_H
#define RDZV_STORE_TCP_TCP_H

#include "store/store.h"
#include "store/tcp/conn.h"

#include <pthread.h>

struct tcp_store {
  rdzv_store base;
  rdzv_tcp_options options;

  /* For the call that holds the handle only, from here to `newer`. */
  struct tcp_conn conn;
  struct store_call call; /* its error is never NULL */
  unsigned kind;          /* of its operation: enum tcp_kind */
  int64_t began;          /* when it began */
  deadline until;         /* for everything but waiting for a key */
  uint64_t write;         /* the number of its write in the session; 0: none */
  int closings;           /* how often the server closed on an operation that it may not know */
  bool in_flight;         /* its request was lost, and the server may have done it or may do it later */
  bool refused;           /* the server refused its last request, and so has not done it */
  bool forgotten;         /* the server has forgotten its session */
  bool taken_back;        /* its wait was canceled, and the connection is still usable */
  char never[16];         /* random bytes that no key has as its value */
  bool gets_by_swap;      /* see ops/pytorch.c, read_v2 */
  unsigned newer;         /* which newer operations the server has shown to know: enum pytorch_newer */

  /* Held for moments only. Guards what follows. */
  pthread_mutex_t lock;
  pthread_cond_t not_busy;
  bool busy; /* a call holds the handle */
  struct {   /* what is known of the server, for calls that do not hold the handle */
    enum wire_dialect dialect;
    char peer[ENDPOINT_TEXT_SIZE];
  } facts;
};

static inline bool tcp_is_ours(const struct tcp_store *tcp) { return tcp->conn.dialect == WIRE_DIALECT_RDZV; }

/* Splits the connection off a handle that no call uses: *to has it, and whatever is needed to connect there again. The
 * handle connects again when it is used. False: no memory, and nothing has changed. */
bool tcp_store_split(rdzv_store *store, struct tcp_conn *to);

/* A further handle at the same server that connects when it is used first. `instance`: it fails with RDZV_E_DATA_LOST
 * if the server is another one by then; 0: whichever that is. */
int tcp_store_clone_idle(rdzv_store *store, uint64_t instance, rdzv_store **out, rdzv_error *error);

/* Asks our server of a run: NODE_QUERY of docs/wire.md. *out is the whole value of the answer. */
int tcp_node_query(rdzv_store *store, const char *run_id, uint64_t round, rdzv_value *out, struct store_call *call);

/* The dialect of the server as last seen. Needs no hold on the handle. */
enum wire_dialect tcp_dialect(struct tcp_store *tcp);

#endif
