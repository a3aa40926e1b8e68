/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocking requests.
 *
 * The server tries to answer a blocking request at once. If it cannot, it keeps the request as a `pending` of the
 * connection and registers a waiter in the keyspace. When the keyspace wakes the waiter:
 * - WAIT and BARRIER are answered with one byte;
 * - RDZV requests, which are answered with values, are executed again after the request that woke them. If a key was
 *   deleted in between, they wait again.
 * WATCH_KEY stays and sends a message for each change. When a client leaves or cancels, its waiters are removed.
 * A request over more keys than fit into a slice is handled in slices (pending_large.c).
 */
#include "server/pending.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

/* ---- the blocking operations -------------------------------------------------------------------------------- */

struct blocking {
  bool (*answer)(struct conn *conn, const struct wire_request *request, struct wire_writer *out);
  bool again; /* woken, it is executed again */
};

/* The request's keys as an array; NULL: no memory. */
static const rdzv_bytes *key_array(struct rdzv_server *server, const struct wire_request *request) {
  rdzv_bytes *keys = server_bytes(server, request->count);
  rdzv_bytes list = request->list;
  for (size_t i = 0; keys && i < request->count; i++) keys[i] = wire_list_next(&list);
  return keys;
}

/* Registers the waiter of a request that could not be answered. */
static int list(struct rdzv_server *server, struct ks_waiter *waiter, const struct wire_request *request) {
  if (request->op == WIRE_OP_WAIT_CHANGED) return ks_wait_change(server->ks, waiter, request->key);
  if (request->op == WIRE_OP_QUEUE_POP_WAIT) return ks_wait(server->ks, waiter, KS_WANT_QUEUE, &request->key, 1);
  const rdzv_bytes *keys = key_array(server, request);
  return keys ? ks_wait(server->ks, waiter, pending_wants(request->op), keys, request->count) : RDZV_E_NO_MEMORY;
}

static bool wait_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  rdzv_bytes list = request->list;
  for (size_t i = 0; i < request->count; i++)
    if (!ks_present(conn->server->ks, wire_list_next(&list))) return false;
  wire_put8(out, WIRE_BYTE_DONE);
  return true;
}

static bool get_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  struct rdzv_server *server = conn->server;
  rdzv_bytes list = request->list, value;
  size_t total = 0;
  for (size_t i = 0; i < request->count; i++) {
    const rdzv_bytes key = wire_list_next(&list);
    natives_look(server, key);
    if (ks_get(server->ks, key, &value) == 0) return false;
    total += value.len + 8;
    if (total > server->limits.max_message) {
      refuse(conn, RDZV_E_LIMIT, "the values are longer than an answer may be");
      return true;
    }
  }
  wire_put8(out, WIRE_BYTE_DONE);
  list = request->list;
  for (size_t i = 0; i < request->count; i++) {
    const rdzv_bytes key = wire_list_next(&list);
    ks_get(server->ks, key, &value);
    answer_value(conn, out, key, value);
  }
  return true;
}

static bool pop_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  struct keyspace *ks = conn->server->ks;
  if (ks_queue_len(ks, request->key) == 0) return false;
  if (!pop_done(conn, request->op, 0, ks_queue_front(ks, request->key))) {
    refuse(conn, RDZV_E_NO_MEMORY, "no memory is left for its item");
    ks_queue_pass_on(ks, request->key);
    return true;
  }
  wire_put8(out, WIRE_BYTE_DONE);
  wire_put_bytes(out, ks_queue_front(ks, request->key));
  ks_queue_drop(ks, request->key);
  return true;
}

static bool changed_answer(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  rdzv_bytes value;
  if (conn->server->native_runs > 0) natives_await_at(conn->server, request->key);
  const uint64_t version = ks_get(conn->server->ks, request->key, &value);
  if (version == request->number) return false;
  wire_put8(out, WIRE_BYTE_DONE);
  wire_put64(out, version);
  answer_value(conn, out, request->key, value);
  return true;
}

static const struct blocking blocking[WIRE_OP_COUNT] = {
    [WIRE_OP_WAIT] = {wait_answer, false},
    [WIRE_OP_GET_WAIT] = {get_answer, true},
    [WIRE_OP_QUEUE_POP_WAIT] = {pop_answer, true},
    [WIRE_OP_WAIT_CHANGED] = {changed_answer, true},
};

/* ---- keeping them ------------------------------------------------------------------------------------------- */

static struct pending **list_of(struct pending *pending) {
  return pending->op == WIRE_OP_WATCH_KEY ? &pending->conn->watches : &pending->conn->pending;
}

struct pending *pending_new(struct conn *conn, enum wire_op op, size_t keys, const uint8_t *data, size_t size) {
  struct budget *budget = &conn->server->budget;
  struct pending *pending = NULL;
  if (budget_take(budget, sizeof *pending + size) && !(pending = calloc(1, sizeof *pending + size)))
    budget_give(budget, sizeof *pending + size);
  if (!pending) return NULL;
  pending->conn = conn;
  pending->op = op;
  pending->write = conn->write;
  pending->keys = keys;
  pending->size = size;
  bytes_copy(pending->request, data, size);
  DL_APPEND(*list_of(pending), pending);
  conn->waits += keys;
  return pending;
}

static struct pending **runners(const struct pending *pending) {
  struct rdzv_server *server = pending->conn->server;
  return pending->large ? &server->large : &server->again;
}

void pending_run_later(struct pending *pending) {
  pending->is_again = true;
  DL_APPEND2(*runners(pending), pending, again_prev, again_next);
  schedule_work(pending->conn->server);
}

void pending_run_not(struct pending *pending) {
  if (pending->is_again) DL_DELETE2(*runners(pending), pending, again_prev, again_next);
  pending->is_again = false;
}

/* Decodes the request that was kept to be executed again. */
static struct wire_request request_of(const struct pending *pending) {
  struct wire_decoder decoder = {.dialect = WIRE_DIALECT_RDZV};
  struct wire_request request;
  wire_decode(&decoder, &pending->conn->server->limits, pending->request, pending->size, &request);
  return request;
}

/* Wakes the next waiter for an item that this pop was woken for and does not take. */
static void pass_on(const struct pending *pending) {
  if (pending->op == WIRE_OP_QUEUE_POP_WAIT) ks_queue_pass_on(pending->conn->server->ks, request_of(pending).key);
}

void pending_free(struct pending *pending) {
  struct conn *conn = pending->conn;
  struct rdzv_server *server = conn->server;
  if (pending->is_again) pass_on(pending);
  ks_cancel(server->ks, &pending->waiter);
  pending_run_not(pending);
  if (conn->holder == pending) conn->holder = NULL;
  conn->waits -= pending->keys;
  pending_large_free(pending);
  DL_DELETE(*list_of(pending), pending);
  budget_give(&server->budget, sizeof *pending + pending->size);
  free(pending);
}

void pending_give_up(struct conn *conn, struct pending *pending) {
  if (pending) pending_free(pending);
  refuse(conn, RDZV_E_LIMIT, "no memory is left for its wait");
}

/* False: the request is refused. */
static bool may_wait(struct conn *conn, size_t keys) {
  struct rdzv_server *server = conn->server;
  const size_t most = server->options.max_waits;
  if (keys <= most && conn->waits <= most - keys) return true;
  snprintf(server->doom_text, sizeof server->doom_text, "it waits for and watches too many keys: %zu (limit %zu)",
           conn->waits + keys, most);
  refuse(conn, RDZV_E_LIMIT, server->doom_text);
  return false;
}

bool pending_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data) {
  struct rdzv_server *server = conn->server;
  const struct blocking *row = &blocking[request->op];
  if (is_large(request)) return !may_wait(conn, request->count) || !pending_put_off(conn, request, data);
  if (row->answer(conn, request, &server->answers)) return true;
  const size_t keys = request->count ? request->count : 1;
  if (!may_wait(conn, keys)) return true;
  struct pending *pending = pending_new(conn, request->op, keys, data, row->again ? request->size : 0);
  if (!pending || list(server, &pending->waiter, request) < 0) pending_give_up(conn, pending);
  return true;
}

void pending_keep(struct conn *conn, const struct wire_request *request) {
  struct keyspace *ks = conn->server->ks;
  if (!may_wait(conn, 1)) return;
  struct pending *pending = pending_new(conn, request->op, 1, NULL, 0);
  int result = RDZV_E_NO_MEMORY;
  if (pending && request->op == WIRE_OP_WATCH_KEY) result = ks_watch(ks, &pending->waiter, request->key);
  if (pending && request->op == WIRE_OP_BARRIER) result = ks_wait_barrier(ks, &pending->waiter, request->key);
  if (result < 0) pending_give_up(conn, pending);
}

/* Frees pendings of a list, up to *most keys, and subtracts them from *most. */
static void free_some(struct pending **list, size_t *most) {
  while (*list && *most > 0) {
    struct pending *pending = *list;
    *most -= ks_cancel_some(pending->conn->server->ks, &pending->waiter, *most);
    if (pending->waiter.links) return;
    pending_free(pending);
    *most -= *most > 0;
  }
}

bool pending_cancel_some(struct conn *conn, size_t most) {
  free_some(&conn->pending, &most);
  return conn->pending != NULL;
}

bool pending_drop_some(struct conn *conn, size_t most) {
  free_some(&conn->pending, &most);
  free_some(&conn->watches, &most);
  return conn->pending || conn->watches;
}

/* ---- waking them -------------------------------------------------------------------------------------------- */

static void wake(void *user, struct ks_waiter *waiter) {
  (void)user;
  struct pending *pending = (struct pending *)waiter; /* its first field */
  struct conn *conn = pending->conn;
  if (blocking[pending->op].again) {
    pending_run_later(pending);
    return;
  }
  pending_free(pending);
  if (conn->is_doomed) return;
  const uint8_t done = WIRE_BYTE_DONE;
  conn_send(conn, &done, sizeof done);
}

static bool put_news(struct chain *chain, struct budget *budget, const struct ks_news *news) {
  const uint8_t change = (uint8_t)news->change;
  const uint64_t len = htole64(news->key.len);
  return chain_put(chain, budget, &change, sizeof change) && chain_put(chain, budget, &len, sizeof len) &&
         chain_put(chain, budget, news->key.data, news->key.len) && chain_put_value(chain, budget, news->before) &&
         chain_put_value(chain, budget, news->after);
}

static void changed(void *user, struct ks_waiter *waiter, const struct ks_news *news) {
  struct rdzv_server *server = user;
  struct conn *conn = ((struct pending *)waiter)->conn;
  struct chain chain = {0};
  if (conn->is_doomed) return;
  if (!news || !put_news(&chain, &server->budget, news)) {
    chain_free(&chain, &server->budget);
    conn_doom(conn, RDZV_E_NO_MEMORY, "no memory is left for its watch");
    return;
  }
  conn_send_chain(conn, &chain);
}

const struct ks_events pending_events = {.wake = wake, .changed = changed, .owner = tenants_owner};

/* ---- once more ---------------------------------------------------------------------------------------------- */

static void run_again(struct rdzv_server *server, struct pending *pending) {
  struct conn *conn = pending->conn;
  if (conn->is_doomed) {
    pass_on(pending);
    return;
  }
  const struct wire_request request = request_of(pending);
  struct wire_writer out = {0};
  conn->write = pending->write;
  if (!blocking[pending->op].answer(conn, &request, &out)) {
    if (list(server, &pending->waiter, &request) < 0) pending_give_up(conn, pending);
    return;
  }
  pending_free(pending);
  if (out.failed)
    conn_doom(conn, RDZV_E_CONNECTION, "no memory is left for its answer");
  else
    conn_send(conn, out.buf.data, out.buf.len);
  buf_free(&out.buf);
}

size_t pending_run(struct rdzv_server *server, size_t most) {
  size_t done = 0;
  for (; done < most && server->again; done++) {
    struct pending *pending = server->again;
    pending_run_not(pending); /* NOLINT: off the list, so that what run_again frees is not its head */
    run_again(server, pending);
  }
  return done;
}
