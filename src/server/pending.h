/* SPDX-License-Identifier: BSD-3-Clause */
/* What pending.c and pending_large.c share. */
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
  size_t keys;         /* that it waits for or watches */
  uint64_t write;      /* its number, if it is a write of a session */
  struct large *large; /* NULL: it is not */
  size_t size;         /* of the request, which is kept for being executed again */
  uint8_t request[];   /* none for WAIT, BARRIER, WATCH_KEY */
};

/* A WAIT or GET_WAIT over more keys than a slice has. */
struct large {
  struct buf bytes; /* the request */
  size_t first;     /* where its keys begin */
  size_t at, left;  /* the next one, and how many are left of them */
  bool listing;     /* it is being listed; else it is looked whether the keys are there */
  bool listed;      /* ks_wait_open was called */
  struct chain values;
};

/* Adds one to its connection's, with a copy of its request. NULL: no memory. */
struct pending *pending_new(struct conn *conn, enum wire_op op, size_t keys, const uint8_t *data, size_t size);
void pending_free(struct pending *pending);

/* Refuses it for want of memory, and frees it; NULL is fine. */
void pending_give_up(struct conn *conn, struct pending *pending);

/* Has it executed in a later iteration, or not any more. */
void pending_run_later(struct pending *pending);
void pending_run_not(struct pending *pending);

/* ---- pending_large.c ---- */

/* Leaves a request where it is until its bytes are in front of conn->in, from where they can be taken. False: refused.
 */
bool pending_put_off(struct conn *conn, const struct wire_request *request, const uint8_t *data);
void pending_large_free(struct pending *pending);

#endif
