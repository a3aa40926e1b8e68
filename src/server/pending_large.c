/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WAIT and GET_WAIT over more keys than fit into a slice.
 *
 * The request's bytes are taken from the connection. In later iterations, slice by slice, GET_WAIT looks up all keys.
 * If one has no value, it registers a waiter for each key, as WAIT does from the beginning. From then on the request
 * waits like a small one; when it is woken, GET_WAIT looks the keys up again. The client's next requests are executed
 * when the waiters are registered or the request is answered.
 */
#include "server/pending.h"

#include <stdlib.h>
#include <utlist.h>

void pending_large_free(struct pending *pending) {
  struct budget *budget = &pending->conn->server->budget;
  struct large *large = pending->large;
  if (!large) return;
  budget_give(budget, large->bytes.cap);
  buf_free(&large->bytes);
  chain_free(&large->values, budget);
  free(large);
  pending->large = NULL;
}

bool pending_put_off(struct conn *conn, const struct wire_request *request, const uint8_t *data) {
  struct multi *multi = malloc(sizeof *multi);
  if (!multi) {
    pending_give_up(conn, NULL);
    return false;
  }
  *multi = (struct multi){.op = request->op,
                          .size = request->size,
                          .at = (size_t)((const uint8_t *)request->list.data - data),
                          .left = request->count};
  conn->multi = multi;
  return true;
}

void pending_begin_large(struct conn *conn, enum wire_op op, size_t size, size_t first, size_t count) {
  struct pending *pending = pending_new(conn, op, count, NULL, 0);
  struct large *large = pending ? calloc(1, sizeof *large) : NULL;
  if (!large || !conn_take_front(conn, size, &large->bytes)) {
    free(large);
    buf_consume(&conn->in, size);
    pending_give_up(conn, pending);
    return;
  }
  pending->large = large;
  large->first = large->at = first;
  large->left = count;
  large->listing = op == WIRE_OP_WAIT;
  conn->holder = pending;
  pending_run_later(pending);
}

/* Lets the client's next requests be executed. */
static void release(struct conn *conn, const struct pending *pending) {
  if (conn->holder != pending) return;
  conn->holder = NULL;
  schedule_conn(conn);
}

static void rewind_to(struct pending *pending, bool listing) {
  pending->large->at = pending->large->first;
  pending->large->left = pending->keys;
  pending->large->listing = listing;
  pending->large->listed = false;
}

static rdzv_bytes next_key(struct large *large) {
  rdzv_bytes list = {large->bytes.data + large->at, large->bytes.len - large->at};
  const rdzv_bytes key = wire_list_next(&list);
  large->at = large->bytes.len - list.len;
  large->left--;
  return key;
}

/* Looks one key up, or registers a waiter for it. Negative: an error. */
static int look_or_list_one(struct rdzv_server *server, struct pending *pending) {
  struct large *large = pending->large;
  const rdzv_bytes key = next_key(large);
  rdzv_bytes value;
  if (large->listing) return ks_wait_add(server->ks, &pending->waiter, pending_wants(pending->op), key);
  natives_look(server, key);
  if (ks_get(server->ks, key, &value) == 0) {
    chain_free(&large->values, &server->budget);
    rewind_to(pending, true);
    return 0;
  }
  if (value.len + 8 > server->limits.max_message - large->values.len) return RDZV_E_LIMIT;
  return chain_put_found(&large->values, server, key, value) ? 0 : RDZV_E_NO_MEMORY;
}

static void answer_large(struct pending *pending) {
  struct conn *conn = pending->conn;
  struct chain values = pending->large->values;
  const uint8_t done = WIRE_BYTE_DONE;
  pending->large->values = (struct chain){0};
  release(conn, pending);
  pending_free(pending);
  conn_send(conn, &done, sizeof done);
  conn_send_chain(conn, &values);
}

static int run_slice(struct rdzv_server *server, struct pending *pending) {
  struct large *large = pending->large;
  const size_t began = large->at;
  int result = 0;
  if (large->listing && !large->listed) result = ks_wait_open(server->ks, &pending->waiter, pending->keys);
  if (large->listing && result == 0) large->listed = true;
  const bool listing = large->listing;
  for (size_t n = 0; n < SLICE_KEYS && large->left > 0 && large->at - began < SLICE_BYTES && result == 0; n++) {
    result = look_or_list_one(server, pending);
    if (large->listing != listing) break;
  }
  return result;
}

static void run_large(struct rdzv_server *server, struct pending *pending) {
  struct large *large = pending->large;
  struct conn *conn = pending->conn;
  if (run_slice(server, pending) < 0) {
    release(conn, pending);
    pending_give_up(conn, pending);
  } else if (large->left > 0) {
    pending_run_later(pending);
  } else if (large->listing && ks_wait_close(server->ks, &pending->waiter)) {
    release(conn, pending);
    if (pending->op == WIRE_OP_WAIT)
      pending_large_free(pending);
    else
      rewind_to(pending, false); /* when it is woken */
  } else if (!large->listing || pending->op == WIRE_OP_WAIT) {
    answer_large(pending);
  } else {
    rewind_to(pending, false);
    pending_run_later(pending);
  }
}

void pending_run_large(struct rdzv_server *server) {
  struct pending *pending = server->large;
  if (!pending) return;
  pending_run_not(pending);
  if (!pending->conn->is_doomed) run_large(server, pending);
}
