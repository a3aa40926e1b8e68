/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which client is served when. A client's requests are executed as they come, but only for a slice of time. The rest is
 * done in later iterations of the loop, so that all other clients are served in between. What can be left to do:
 *   for a client      requests that have come, a request over many keys, answers to send
 *   in the keyspace   waiters to wake and watchers to tell
 *   for the server    a list of all keys, clients that have gone and what they waited for
 * Each iteration gives slices to all of them in order, until its time is over; the next one goes on where it stopped.
 */
#include "server/server.h"

#include <utlist.h>

static void on_idle(uv_idle_t *handle);

enum {
  SLICE_NS = 200 * 1000,      /* for one client */
  ITERATION_NS = 1000 * 1000, /* for all that is left, between two looks at the sockets */
  WAKES_AT_ONCE = 64,
};

bool slice_is_over_by_clock(struct rdzv_server *server) {
  const uint64_t now = uv_hrtime();
  if (server->slice_end == 0) server->slice_end = now + SLICE_NS;
  server->slice_units = 0;
  return now > server->slice_end;
}

void schedule_work(struct rdzv_server *server) {
  if (!server->stopping) uv_idle_start(&server->scheduler, on_idle);
}

void schedule_conn(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  if (conn->is_ready || conn->is_doomed) return;
  conn->is_ready = true;
  DL_APPEND2(server->ready, conn, ready_prev, ready_next);
  schedule_work(server);
}

void schedule_forget(struct conn *conn) {
  if (conn->is_ready) DL_DELETE2(conn->server->ready, conn, ready_prev, ready_next);
  conn->is_ready = false;
}

void schedule_wake(struct rdzv_server *server) {
  if (ks_is_busy(server->ks)) server->slice_units += ks_settle(server->ks, WAKES_AT_ONCE);
  if (server->again) server->slice_units += pending_run(server, WAKES_AT_ONCE);
  if (ks_is_busy(server->ks) || server->again) schedule_work(server);
}

static void serve_next(struct rdzv_server *server) {
  struct conn *conn = server->ready;
  if (!conn) return;
  schedule_forget(conn);
  conn_go_on(conn);
}

static bool is_work_left(const struct rdzv_server *server) {
  return server->ready || server->again || server->large || ks_is_busy(server->ks) || server->doomed ||
         server->leaving || listing_is_busy(&server->listing);
}

static void on_idle(uv_idle_t *handle) {
  struct rdzv_server *server = handle->data;
  const uint64_t until = uv_hrtime() + ITERATION_NS;
  do {
    schedule_wake(server);
    pending_run_large(server);
    serve_next(server);
    listing_go_on(server);
    conn_reap(server, REAP_AT_ONCE);
  } while (is_work_left(server) && uv_hrtime() < until);
  if (!is_work_left(server)) uv_idle_stop(handle);
}

int schedule_init(struct rdzv_server *server) {
  server->scheduler.data = server;
  return uv_idle_init(&server->loop, &server->scheduler);
}
