/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that are answered later.
 *
 * A blocking request is tried at once. If it cannot be answered yet, it is kept as a `pending` of its connection and
 * listed in the keyspace. When the keyspace wakes it:
 * - WAIT and BARRIER are over, and one byte says so;
 * - those of our dialect, which answer with values, are executed again when the request that woke them is done: if a
 *   key has gone again meanwhile, they are listed anew.
 * WATCH_KEY stays and sends a message for each change. A client that goes, or cancels, takes its own off the keyspace.
 */
#include "server/server.h"

#include <stdlib.h>
#include <utlist.h>

struct pending {
  struct ks_waiter waiter;
  struct conn *conn;
  struct pending *prev, *next;             /* of conn->pending */
  struct pending *again_prev, *again_next; /* of server->again */
  bool is_again;
  enum wire_op op;
  uint64_t write;    /* its number, if it is a write of a session */
  size_t size;       /* of the request, which is kept for being executed again */
  uint8_t request[]; /* none for WAIT, BARRIER, WATCH_KEY */
};

/* ---- the blocking operations -------------------------------------------------------------------------------- */

struct blocking {
  bool (*answer)(struct conn *conn, const struct wire_request *request, struct wire_writer *out);
  int (*list)(struct rdzv_server *server, struct ks_waiter *waiter, const struct wire_request *request);
  bool again;
};

/* The request's keys as an array; NULL: no memory. */
static const rdzv_bytes *key_array(struct rdzv_server *server, const struct wire_request *request) {
  rdzv_bytes *keys = server_bytes(server, request->count);
  rdzv_bytes list = request->list;
  for (size_t i = 0; keys && i < request->count; i++) keys[i] = wire_list_next(&list);
  return keys;
}

static int list_keys(struct rdzv_server *server, struct ks_waiter *waiter, const struct wire_request *request,
                     enum ks_want want) {
  const rdzv_bytes *keys = key_array(server, request);
  return keys ? ks_wait(server->ks, waiter, want, keys, request->count) : RDZV_E_NO_MEMORY;
}

static bool wait_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  rdzv_bytes list = request->list;
  for (size_t i = 0; i < request->count; i++)
    if (!ks_present(conn->server->ks, wire_list_next(&list))) return false;
  wire_put8(out, WIRE_DONE_BYTE);
  return true;
}

static int wait_list(struct rdzv_server *server, struct ks_waiter *waiter, const struct wire_request *request) {
  return list_keys(server, waiter, request, KS_WANT_PRESENT);
}

static bool get_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  const struct rdzv_server *server = conn->server;
  rdzv_bytes list = request->list, value;
  size_t total = 0;
  for (size_t i = 0; i < request->count; i++) {
    if (ks_get(server->ks, wire_list_next(&list), &value) == 0) return false;
    total += value.len + 8;
    if (total > server->limits.max_message) {
      refuse(conn, RDZV_E_LIMIT, "the values are longer than an answer may be");
      return true;
    }
  }
  wire_put8(out, WIRE_DONE_BYTE);
  list = request->list;
  for (size_t i = 0; i < request->count; i++) {
    ks_get(server->ks, wire_list_next(&list), &value);
    wire_put_bytes(out, value);
  }
  return true;
}

static int get_list(struct rdzv_server *server, struct ks_waiter *waiter, const struct wire_request *request) {
  return list_keys(server, waiter, request, KS_WANT_VALUE);
}

static bool pop_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  struct keyspace *ks = conn->server->ks;
  if (ks_queue_len(ks, request->key) == 0) return false;
  if (!took(conn, request->op, 0, ks_queue_front(ks, request->key))) {
    refuse(conn, RDZV_E_NO_MEMORY, "no memory is left for its item");
    ks_queue_pass_on(ks, request->key);
    return true;
  }
  wire_put8(out, WIRE_DONE_BYTE);
  wire_put_bytes(out, ks_queue_front(ks, request->key));
  ks_queue_drop(ks, request->key);
  return true;
}

static int pop_list(struct rdzv_server *server, struct ks_waiter *waiter, const struct wire_request *request) {
  return ks_wait(server->ks, waiter, KS_WANT_QUEUE, &request->key, 1);
}

static bool changed_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  rdzv_bytes value;
  const uint64_t version = ks_get(conn->server->ks, request->key, &value);
  if (version == request->number) return false;
  wire_put8(out, WIRE_DONE_BYTE);
  wire_put64(out, version);
  wire_put_bytes(out, value);
  return true;
}

static int changed_list(struct rdzv_server *server, struct ks_waiter *waiter, const struct wire_request *request) {
  return ks_wait_change(server->ks, waiter, request->key);
}

static const struct blocking blocking[WIRE_OP_COUNT] = {
    [WIRE_WAIT] = {wait_answer, wait_list, false},
    [WIRE_GET_WAIT] = {get_answer, get_list, true},
    [WIRE_QUEUE_POP_WAIT] = {pop_answer, pop_list, true},
    [WIRE_WAIT_CHANGED] = {changed_answer, changed_list, true},
};

/* ---- keeping them ------------------------------------------------------------------------------------------- */

static struct pending *pending_new(struct conn *conn, enum wire_op op, const uint8_t *data, size_t size) {
  struct budget *budget = &conn->server->budget;
  struct pending *pending = NULL;
  if (budget_take(budget, sizeof *pending + size) && !(pending = calloc(1, sizeof *pending + size)))
    budget_give(budget, sizeof *pending + size);
  if (!pending) return NULL;
  pending->conn = conn;
  pending->op = op;
  pending->write = conn->write;
  pending->size = size;
  bytes_copy(pending->request, data, size);
  DL_APPEND(conn->pending, pending);
  return pending;
}

static void pending_free(struct pending *pending) {
  struct rdzv_server *server = pending->conn->server;
  ks_cancel(server->ks, &pending->waiter);
  if (pending->is_again) DL_DELETE2(server->again, pending, again_prev, again_next);
  DL_DELETE(pending->conn->pending, pending);
  budget_give(&server->budget, sizeof *pending + pending->size);
  free(pending);
}

static void give_up(struct conn *conn, struct pending *pending) {
  if (pending) pending_free(pending);
  refuse(conn, RDZV_E_LIMIT, "no memory is left for its wait");
}

void pending_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data) {
  struct rdzv_server *server = conn->server;
  const struct blocking *row = &blocking[request->op];
  if (row->answer(conn, request, &server->answers)) return;
  struct pending *pending = pending_new(conn, request->op, data, row->again ? request->size : 0);
  if (!pending || row->list(server, &pending->waiter, request) < 0) give_up(conn, pending);
}

void pending_keep(struct conn *conn, const struct wire_request *request) {
  struct keyspace *ks = conn->server->ks;
  struct pending *pending = pending_new(conn, request->op, NULL, 0);
  int result = RDZV_E_NO_MEMORY;
  if (pending && request->op == WIRE_WATCH_KEY) result = ks_watch(ks, &pending->waiter, request->key);
  if (pending && request->op == WIRE_BARRIER) result = ks_wait_barrier(ks, &pending->waiter, request->key);
  if (result < 0) give_up(conn, pending);
}

void pending_cancel(struct conn *conn, bool all) {
  struct pending *pending, *next;
  DL_FOREACH_SAFE(conn->pending, pending, next)
  if (all || pending->op != WIRE_WATCH_KEY) pending_free(pending);
}

/* ---- waking them -------------------------------------------------------------------------------------------- */

static void wake(void *user, struct ks_waiter *waiter) {
  struct rdzv_server *server = user;
  struct pending *pending = (struct pending *)waiter; /* its first member */
  struct conn *conn = pending->conn;
  if (blocking[pending->op].again) {
    pending->is_again = true;
    DL_APPEND2(server->again, pending, again_prev, again_next);
    return;
  }
  pending_free(pending);
  const uint8_t done = WIRE_DONE_BYTE;
  conn_send(conn, &done, sizeof done);
}

static void changed(void *user, struct ks_waiter *waiter, enum ks_change change, rdzv_bytes key, rdzv_bytes before,
                    rdzv_bytes after) {
  struct rdzv_server *server = user;
  struct conn *conn = ((struct pending *)waiter)->conn;
  struct wire_writer *out = &server->aside;
  wire_put8(out, (uint8_t)change);
  wire_put_bytes(out, key);
  wire_put_bytes(out, before);
  wire_put_bytes(out, after);
  if (out->failed)
    conn_doom(conn, RDZV_E_NO_MEMORY, "no memory is left for its watch");
  else
    conn_send(conn, out->buf.data, out->buf.len);
  out->buf.len = 0;
  out->failed = false;
}

const struct ks_events pending_events = {.wake = wake, .changed = changed};

static void run_again(struct rdzv_server *server, struct pending *pending) {
  struct conn *conn = pending->conn;
  struct wire_decoder decoder = {.dialect = WIRE_RDZV};
  struct wire_request request;
  wire_decode(&decoder, &server->limits, pending->request, pending->size, &request); /* it was whole before */
  if (conn->is_doomed) { /* what it was woken for is for the next */
    if (pending->op == WIRE_QUEUE_POP_WAIT) ks_queue_pass_on(server->ks, request.key);
    return;
  }
  const struct blocking *row = &blocking[pending->op];
  struct wire_writer out = {0};
  conn->write = pending->write;
  if (!row->answer(conn, &request, &out)) {
    if (row->list(server, &pending->waiter, &request) < 0) give_up(conn, pending);
    return;
  }
  pending_free(pending);
  if (out.failed)
    conn_doom(conn, RDZV_E_NO_MEMORY, "no memory is left for its answer");
  else
    conn_send(conn, out.buf.data, out.buf.len);
  buf_free(&out.buf);
}

void pending_run(struct rdzv_server *server) {
  while (server->again) {
    struct pending *pending = server->again;
    DL_DELETE2(server->again, pending, again_prev, again_next);
    pending->is_again = false;
    run_again(server, pending);
  }
}
