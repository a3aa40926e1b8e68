/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that take too long. The timeout of a list is the same for all its clients, so each list is in the order in
 * which the clients are due, and only its head is checked.
 *
 * The lists, and other things that time makes obsolete, are checked by a tick. It runs only while there is something to
 * check: an armed timer makes each wait for events take longer.
 */
#include "server/server.h"

#include <utlist.h>

static int64_t now_ms(const struct rdzv_server *server) { return (int64_t)uv_now(&server->loop); }

static void close_unfinished(struct rdzv_server *server, int64_t now) {
  struct conn *conn;
  while ((conn = server->unfinished) && now - conn->since >= server->options.request_timeout_ms) {
    timeouts_forget(conn);
    conn_doom(conn, RDZV_E_TIMEOUT,
              conn->out ? "it did not read its answer in time" : "it did not finish its request in time");
  }
}

/* A client that has asked for something is not: its answer may be sent in a later iteration of the loop. */
static bool is_idle(const struct conn *conn) {
  const bool waits = conn->pending || conn->watches || conn->is_node;
  return !waits && !conn->out && !conn->is_ready && !conn->is_unfinished;
}

static void close_idle(struct rdzv_server *server, int64_t now) {
  struct conn *conn;
  while ((conn = server->idle) && now - conn->last_request >= server->options.idle_timeout_ms) {
    if (is_idle(conn)) {
      timeouts_forget(conn);
      conn_doom(conn, RDZV_E_TIMEOUT, "it was idle for too long");
    } else {
      timeouts_note(conn);
    }
  }
}

static bool is_tick_needed(const struct rdzv_server *server) {
  return server->unfinished || server->cover.unproven || server->idle || server->sessions.left ||
         server->accept_rests || server->listing.keys;
}

static void on_tick(uv_timer_t *timer) {
  struct rdzv_server *server = timer->data;
  const int64_t now = now_ms(server);
  close_unfinished(server, now);
  cover_tick(server, now);
  if (server->options.idle_timeout_ms > 0) close_idle(server, now);
  sessions_forget(&server->sessions, now - server->options.session_timeout_ms);
  listen_again(server);
  listing_tidy(server);
  conn_reap(server, REAP_AT_ONCE);
  if (!is_tick_needed(server)) uv_timer_stop(timer);
}

static uint64_t tick_period(const rdzv_server_options *options) {
  enum { SHORTEST = 10, LONGEST = 1000 };
  int64_t period = options->request_timeout_ms;
  if (options->idle_timeout_ms > 0 && options->idle_timeout_ms < period) period = options->idle_timeout_ms;
  if (options->session_timeout_ms < period) period = options->session_timeout_ms;
  period /= 4;
  return (uint64_t)(period < SHORTEST ? SHORTEST : period > LONGEST ? LONGEST : period);
}

void timeouts_tick(struct rdzv_server *server) {
  if (server->stopping || uv_is_active((const uv_handle_t *)&server->tick)) return;
  const uint64_t period = tick_period(&server->options);
  uv_timer_start(&server->tick, on_tick, period, period);
}

int timeouts_init(struct rdzv_server *server) {
  server->tick.data = server;
  return uv_timer_init(&server->loop, &server->tick);
}

void timeouts_restart(struct conn *conn) {
  if (conn->is_unfinished) DL_DELETE2(conn->server->unfinished, conn, unfinished_prev, unfinished_next);
  conn->is_unfinished = false;
}

/* A request that was finished in between restarts the clock. */
static void note_unfinished(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  const bool unfinished = conn->out ? outbox_is_stuck(conn) : conn->in.len > 0 && conn->reading;
  if (conn->is_unfinished && unfinished && conn->requests_seen == conn->decoder.requests) return;
  timeouts_restart(conn);
  if (!unfinished) return;
  conn->is_unfinished = true;
  conn->since = now_ms(server);
  conn->requests_seen = conn->decoder.requests;
  DL_APPEND2(server->unfinished, conn, unfinished_prev, unfinished_next);
  timeouts_tick(server);
}

static void note_idle(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  if (server->options.idle_timeout_ms <= 0) return;
  if (conn->idle_prev) DL_DELETE2(server->idle, conn, idle_prev, idle_next);
  conn->last_request = now_ms(server);
  DL_APPEND2(server->idle, conn, idle_prev, idle_next);
  timeouts_tick(server);
}

void timeouts_note(struct conn *conn) {
  note_unfinished(conn);
  note_idle(conn);
}

void timeouts_forget(struct conn *conn) {
  timeouts_restart(conn);
  if (conn->idle_prev) DL_DELETE2(conn->server->idle, conn, idle_prev, idle_next); /* NOLINT: see utlist */
  conn->idle_prev = NULL;
}
