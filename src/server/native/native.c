/* SPDX-License-Identifier: BSD-3-Clause */
#include "server/native/native.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/clock.h"
#include "wire/native.h"

#include <stdlib.h>
#include <time.h>
#include <utlist.h>

struct moment natives_now(void) {
  return (struct moment){clock_now_ms(), clock_wall_us()};
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* A client that does not read is not read from either: its keep-alives are not heard, and its session ends. Until then
 * it is sent at most this. */
enum { MOST_UNREAD = 64 * 1024 };

void natives_send(struct conn *conn, bool unasked) {
  struct wire_writer *out = &conn->server->aside;
  conn->unread = conn->out ? conn->unread : 0;
  if (unasked && conn->out) conn->unread += out->buf.len;
  if (out->failed)
    conn_doom(conn, RDZV_E_CONNECTION, "no memory is left for its answers");
  else if (conn->unread > MOST_UNREAD)
    conn_doom(conn, RDZV_E_CONNECTION, "it does not read its messages");
  else
    conn_send(conn, out->buf.data, out->buf.len);
  out->buf.len = 0;
  out->failed = false;
}

void natives_refuse(struct conn *conn, enum wire_op op, uint64_t number, int code, const char *why) {
  wire_put_native_refusal(&conn->server->aside, op, number, code, why);
  natives_send(conn, false);
}

/* ---- effects -------------------------------------------------------------------------------------------------- */

static enum wire_op op_of(enum coordinator_event_kind asked) {
  switch (asked) {
    case COORDINATOR_EV_JOIN: return WIRE_OP_NODE_JOIN;
    case COORDINATOR_EV_RESUME: return WIRE_OP_NODE_RESUME;
    case COORDINATOR_EV_LEAVE: return WIRE_OP_NODE_LEAVE;
    default: return WIRE_OP_NODE_CLOSE;
  }
}

bool natives_may_log(struct rdzv_server *server) {
  enum { LINES = 10 };
  struct natives *natives = server->natives;
  const int64_t second = (int64_t)(uv_now(&server->loop) / 1000);
  if (second != natives->lines_second) natives->lines = 0;
  natives->lines_second = second;
  return natives->lines++ < LINES;
}

/* A wrong token may be an attack. */
static void log_failure(struct rdzv_server *server, const struct coordinator_effect *effect) {
  const bool odd = effect->error->code == RDZV_E_IN_USE || effect->error->code == RDZV_E_STALE;
  if (natives_may_log(server))
    log_line(&server->log, odd ? RDZV_LOG_WARNING : RDZV_LOG_INFO, "a node is refused: %s", effect->error->message);
}

static void fail(struct conn *conn, const struct coordinator_effect *effect) {
  log_failure(conn->server, effect);
  natives_refuse(conn, op_of(effect->asked), effect->number, effect->error->code, effect->error->message);
}

/* What was sent before goes out first, as far as the socket takes it. */
static void drop(struct conn *conn) {
  conn->is_node = false;
  if (conn != conn->server->active) outbox_flush(conn);
  conn_doom(conn, RDZV_E_CONNECTION, NULL);
}

static void tell_conn(struct conn *conn, const struct coordinator_effect *effect) {
  struct wire_writer *out = &conn->server->aside;
  switch (effect->kind) {
    case COORDINATOR_DO_JOINED: wire_put_native_joined(out, effect->joined); break;
    case COORDINATOR_DO_RESUMED: wire_put_native_resumed(out, effect->number); break;
    case COORDINATOR_DO_LEFT: wire_put_native_done(out, WIRE_NATIVE_LEFT); break;
    case COORDINATOR_DO_CLOSED: wire_put_native_done(out, WIRE_NATIVE_CLOSED); break;
    case COORDINATOR_DO_TELL: wire_put_native_news(out, effect->news); break;
    case COORDINATOR_DO_FAIL: fail(conn, effect); return;
    default: drop(conn); return;
  }
  natives_send(conn, effect->kind == COORDINATOR_DO_TELL);
}

static void carry_out(void *user, const struct coordinator_effect *effect) {
  struct rdzv_server *server = user;
  if (effect->kind == COORDINATOR_DO_CHANGED)
    natives_changed(server, effect->run);
  else if (effect->kind == COORDINATOR_DO_SAVE)
    natives_save(server, effect->run);
  else
    tell_conn(effect->link, effect);
}

static void trace(void *user, const char *line) {
  const struct rdzv_server *server = user;
  log_line(&server->log, RDZV_LOG_DEBUG, "%s", line);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

/* What the coordinator holds is known only afterwards; requests that would make it hold more ask before. */
static void charge(struct natives *natives) {
  struct budget *budget = &natives->server->budget;
  const size_t held = coordinator_bytes(natives->coordinator);
  budget->used = budget->used - natives->charged + held;
  natives->charged = held;
}

static void on_timer(uv_timer_t *timer);

static void arm(struct natives *natives) {
  const int64_t wake = coordinator_wake(natives->coordinator);
  if (wake == INT64_MAX || natives->server->stopping || uv_is_active((uv_handle_t *)&natives->judge)) return;
  const int64_t left = deadline_left(wake);
  const uint64_t delay = left > 0 ? (uint64_t)left : 1;
  if (!uv_is_active((uv_handle_t *)&natives->timer) || uv_timer_get_due_in(&natives->timer) > delay)
    uv_timer_start(&natives->timer, on_timer, delay, 0);
}

static void step(struct natives *natives, const struct coordinator_event *event) {
  rdzv_error error;
  if (coordinator_step(natives->coordinator, event, &error) < 0)
    log_line(&natives->server->log, RDZV_LOG_WARNING, "cannot update a rendezvous: %s", error.message);
}

void natives_step(struct rdzv_server *server, struct coordinator_event event) {
  struct natives *natives = server->natives;
  event.now = natives_now();
  step(natives, &event);
  if (event.kind == COORDINATOR_EV_HEARD) return; /* which changes nothing */
  if (coordinator_nodes(natives->coordinator) == 0 && coordinator_runs(natives->coordinator) > 0)
    step(natives, &(struct coordinator_event){.kind = COORDINATOR_EV_TIMER, .now = event.now}); /* they go */
  server->native_runs = coordinator_runs(natives->coordinator);
  charge(natives);
  arm(natives);
}

void natives_loaded(struct rdzv_server *server) {
  server->native_runs = coordinator_runs(server->natives->coordinator);
  charge(server->natives);
  arm(server->natives);
}

void natives_lost(struct conn *conn) {
  if (!conn->is_node || conn->server->stopping) return;
  conn->is_node = false;
  natives_step(conn->server, (struct coordinator_event){.kind = COORDINATOR_EV_LOST, .link = conn});
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

static void on_nudge(uv_idle_t *idle) { (void)idle; }

/* The sockets have been looked at. */
static void on_judge(uv_check_t *check) {
  struct natives *natives = check->data;
  uv_check_stop(check);
  uv_idle_stop(&natives->nudge);
  natives_step(natives->server, (struct coordinator_event){.kind = COORDINATOR_EV_TIMER});
  conn_reap(natives->server, REAP_AT_ONCE);
}

static void on_timer(uv_timer_t *timer) {
  struct natives *natives = timer->data;
  uv_idle_start(&natives->nudge, on_nudge);
  uv_check_start(&natives->judge, on_judge);
}

/* While thousands of nodes only keep themselves alive, to be woken for each keep-alive costs more than the keep-alive
 * itself. So the loop then lets some more of them come. A request of another kind that comes meanwhile is as late, and
 * ends the lull. */
static void on_lull(uv_prepare_t *prepare) {
  enum { MANY_NODES = 2000, LULL_NS_A_NODE = 400, LONGEST_LULL_NS = 4000000 };
  struct natives *natives = prepare->data;
  const size_t nodes = coordinator_nodes(natives->coordinator);
  const bool works =
      uv_is_active((uv_handle_t *)&natives->server->scheduler) || uv_is_active((uv_handle_t *)&natives->nudge);
  const bool quiet = natives->was_beat && !natives->server->was_asked && !works; /* what is left to send goes first */
  natives->was_beat = natives->server->was_asked = false;
  if (!quiet || nodes < MANY_NODES) return;
  const size_t rest_ns = nodes * LULL_NS_A_NODE;
  const struct timespec rest = {.tv_nsec = (long)(rest_ns < LONGEST_LULL_NS ? rest_ns : LONGEST_LULL_NS)};
  nanosleep(&rest, NULL);
  uv_update_time(&natives->server->loop);
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

bool natives_new(struct rdzv_server *server) {
  struct natives *natives = server->natives = calloc(1, sizeof *natives);
  if (!natives) return false;
  natives->server = server;
  natives->coordinator = coordinator_new(carry_out, server, log_on(&server->log, RDZV_LOG_DEBUG) ? trace : NULL);
  natives->timer.data = natives->changes.data = natives->nudge.data = natives->judge.data = natives->lull.data =
      natives;
  return natives->coordinator != NULL;
}

int natives_init(struct rdzv_server *server) {
  struct natives *natives = server->natives;
  int result = uv_timer_init(&server->loop, &natives->timer);
  if (result == 0) result = uv_timer_init(&server->loop, &natives->changes);
  if (result == 0) result = uv_idle_init(&server->loop, &natives->nudge);
  if (result == 0) result = uv_check_init(&server->loop, &natives->judge);
  if (result == 0) result = uv_prepare_init(&server->loop, &natives->lull);
  if (result == 0) result = uv_prepare_start(&natives->lull, on_lull);
  return result;
}

void natives_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle)) {
  struct natives *natives = server->natives;
  if (!natives) return;
  close_handle(&natives->timer);
  close_handle(&natives->changes);
  close_handle(&natives->nudge);
  close_handle(&natives->judge);
  close_handle(&natives->lull);
}

void natives_free(struct rdzv_server *server) {
  struct natives *natives = server->natives;
  if (!natives) return;
  coordinator_free(natives->coordinator);
  struct native_run *run, *next;
  DL_FOREACH_SAFE(natives->runs, run, next) free(run);
  buf_free(&natives->pickle);
  buf_free(&natives->text);
  free(natives);
  server->natives = NULL;
}
