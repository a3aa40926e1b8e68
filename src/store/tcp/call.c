/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/call.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/thread.h"
#include "base/wait/waiting.h"

#include <string.h>

enum {
  FIRST_PAUSE_MS = 20,
  LONGEST_PAUSE_MS = 1000,
  LOOK_MS = 50,    /* how often a call that waits for the handle looks whether it is canceled */
  SLACK_MS = 1000, /* beyond its own time, for the call that holds the handle */
  GRACE_MS = 2000, /* beyond the end of a wait, for what belongs to it */
};

/* ---- the lock of the handle -------------------------------------------------------------------------------- */

static int lock_handle(struct tcp_store *tcp, const struct store_call *call) {
  int64_t wait = call->timeout_ms > tcp->options.timeout_ms ? call->timeout_ms : tcp->options.timeout_ms;
  if (store_call_limit() >= 0) wait = store_call_limit();
  const deadline until = deadline_after(wait < INT64_MAX - SLACK_MS ? wait + SLACK_MS : wait);
  pthread_mutex_lock(&tcp->lock);
  bool canceled = false;
  while (tcp->busy && !canceled && deadline_left(until) > 0)
    if (!thread_cond_wait(&tcp->not_busy, &tcp->lock, deadline_sooner(deadline_after(LOOK_MS), until)))
      canceled = flag_canceled(call->cancel);
  const bool locked = !tcp->busy;
  if (locked) tcp->busy = true;
  pthread_mutex_unlock(&tcp->lock);
  if (!locked && canceled) return error_set(call->error, RDZV_E_CANCELED, "canceled");
  return locked ? 0 : error_set(call->error, RDZV_E_TIMEOUT, "another call on this handle did not end in time");
}

static void unlock_handle(struct tcp_store *tcp) {
  pthread_mutex_lock(&tcp->lock);
  tcp->busy = false;
  pthread_cond_signal(&tcp->not_busy);
  pthread_mutex_unlock(&tcp->lock);
}

/* ---- tries ------------------------------------------------------------------------------------------------- */

static int open_connection(struct tcp_store *tcp) {
  if (!tcp->conn.cancel_owed) tcp_conn_drop_if_dead(&tcp->conn);
  const int result = tcp_conn_open(&tcp->conn, tcp->until, tcp->call.cancel, tcp->call.error);
  pthread_mutex_lock(&tcp->lock);
  tcp->facts.dialect = tcp->conn.dialect;
  memcpy(tcp->facts.peer, tcp->conn.peer, sizeof tcp->facts.peer);
  pthread_mutex_unlock(&tcp->lock);
  return result;
}

/* At our own server a write gets its number here. It keeps the number only while the server may have done the write:
 * otherwise the session may be another one by now. */
static void enter_session(struct tcp_store *tcp) {
  struct tcp_session *session = &tcp->conn.session;
  if (!tcp->in_flight) tcp->write = 0;
  if (!session->offered) return;
  if ((tcp->kind & TCP_ONCE) && !tcp->in_flight) tcp->write = tcp_session_number(session);
  tcp_session_put(session, tcp->write, &tcp->conn.out);
}

/* What a try at a write leaves behind. A try that sent nothing settles no earlier write, and the server has not counted
 * it. */
static void leave_session(struct tcp_store *tcp, bool in_order) {
  struct tcp_session *session = &tcp->conn.session;
  if (tcp->forgotten) {
    tcp_session_forget(session);
    tcp->write = 0;
  }
  if (!tcp->write) return;
  if (tcp->conn.sent)
    session->unsettled = !in_order && (tcp->in_flight || !tcp->refused);
  else
    session->attached = false;
}

static int try_on_open(struct tcp_store *tcp, const struct tcp_op *op, struct tcp_args *args) {
  tcp->conn.sent = tcp->taken_back = tcp->forgotten = tcp->refused = false;
  enter_session(tcp);
  const int result = op->try(tcp, args);
  const bool in_order = result == 0 || result == RDZV_E_TIMEOUT || result == RDZV_E_EMPTY ||
                        result == RDZV_E_NOT_A_NUMBER || result == RDZV_E_UNSUPPORTED ||
                        (result == RDZV_E_CANCELED && tcp->taken_back);
  if (!in_order) tcp_conn_drop(&tcp->conn);
  leave_session(tcp, in_order);
  const bool lost = result == RDZV_E_CONNECTION || result == RDZV_E_NO_MEMORY;
  if (in_order)
    tcp->in_flight = false;
  else if (lost && (tcp->kind & TCP_ONCE) && tcp->conn.sent && !tcp->refused)
    tcp->in_flight = true;
  return result;
}

/* A write that the server may have done is sent again only in its session, which knows whether it was done. */
static int try_connected(struct tcp_store *tcp, const struct tcp_op *op, struct tcp_args *args) {
  if (!tcp->in_flight || (tcp->write && tcp->conn.session.offered)) return try_on_open(tcp, op, args);
  tcp->write = 0;
  return error_set(tcp->call.error, RDZV_E_CONNECTION, "the connection was lost, and the server has no session");
}

static bool is_worth_repeating(const struct tcp_store *tcp, int result, int repeats) {
  if (result != RDZV_E_CONNECTION || deadline_left(tcp->until) == 0) return false;
  return tcp->in_flight ? tcp->write != 0 : repeats < TCP_MAX_REPEATS;
}

/* RDZV_E_DATA_LOST stays: whether the write was done or not, its effect is gone. */
static int conclude(struct tcp_store *tcp, int result) {
  if (result == 0 || !tcp->in_flight || result == RDZV_E_CANCELED || result == RDZV_E_DATA_LOST) return result;
  tcp->call.error->code = RDZV_E_OUTCOME_UNKNOWN;
  return error_prefix(tcp->call.error, RDZV_E_OUTCOME_UNKNOWN, "it may or may not have taken effect");
}

static int repeat(struct tcp_store *tcp, const struct tcp_op *op, struct tcp_args *args) {
  struct backoff backoff = {FIRST_PAUSE_MS, LONGEST_PAUSE_MS};
  for (int repeats = 0;; repeats++) {
    int result = open_connection(tcp);
    if (result < 0) return conclude(tcp, result); /* tried until the deadline */
    result = try_connected(tcp, op, args);
    if (!is_worth_repeating(tcp, result, repeats)) return conclude(tcp, result);
    log_line(&tcp->base.log, RDZV_LOG_INFO, "connecting to '%s' again: %s", tcp->conn.name, tcp->call.error->message);
    if (repeats == 0) continue; /* the first time at once */
    result = flag_pause(tcp->call.cancel, deadline_sooner(backoff_next(&backoff), tcp->until));
    if (result < 0) return error_set(tcp->call.error, result, "%s", rdzv_error_text(result));
  }
}

/* ---- one call ---------------------------------------------------------------------------------------------- */

/* One deadline for all of a call's sending, receiving and connecting again: the end of a wait and a little more, else
 * the timeout that the store was opened with. */
static deadline request_deadline(struct tcp_store *tcp, unsigned kind, const struct store_call *call) {
  if (!(kind & TCP_BLOCKS)) return deadline_after(store_request_time(&tcp->base, tcp->options.timeout_ms));
  return call->until < INT64_MAX - GRACE_MS ? call->until + GRACE_MS : INT64_MAX;
}

static void begin_call(struct tcp_store *tcp, unsigned kind, const struct store_call *call) {
  tcp->call = *call;
  tcp->kind = kind;
  tcp->began = clock_now_ms();
  tcp->until = request_deadline(tcp, kind, call);
  tcp->write = 0;
  tcp->closings = 0;
  tcp->in_flight = false;
}

/* Says what the request is for, and that it has no answer yet unless another cause is known. */
struct request_wait {
  const struct tcp_store *tcp;
  const struct tcp_op *op;
  const struct tcp_args *args;
};

static void tell_of_request(struct waiting *waiting, void *user) {
  const struct request_wait *wait = user;
  const bool has_more = waiting->phase[0] || waiting->cause[0];
  waiting_about(waiting, "%s%s%s at '%s'%s", wait->op->what, wait->args->count ? " " : "",
                store_key_list(wait->args->keys, wait->args->count).text, wait->tcp->conn.name,
                has_more ? "" : ": no answer yet");
}

/* Names the operation and the server, unless there is no connection: that error names the server. */
static int fail_call(const struct tcp_store *tcp, const struct tcp_op *op, const struct tcp_args *args, int result,
                     rdzv_error *error) {
  static const char unconnected[] = "cannot connect to '";
  const bool connects = strncmp(error->message, unconnected, sizeof unconnected - 1) == 0;
  const struct key_list_text keys = store_key_list(args->keys, args->count);
  if (connects && args->count == 0) return result;
  if (connects) return error_prefix(error, result, "%s %s", op->what, keys.text);
  return error_prefix(error, result, "%s%s%s at '%s'", op->what, args->count ? " " : "", keys.text, tcp->conn.name);
}

int tcp_run(rdzv_store *store, const struct tcp_op *op, struct tcp_args *args, const struct store_call *call) {
  struct tcp_store *tcp = (struct tcp_store *)store;
  rdzv_error unused;
  struct store_call inner = *call;
  if (!inner.error) inner.error = &unused;
  struct waiting waiting;
  struct request_wait request = {tcp, op, args};
  const bool tells = !(op->kind & TCP_BLOCKS) && !flag_waiting(call->cancel);
  const struct flag telling = flag_with(call->cancel, tells ? &waiting : flag_waiting(call->cancel));
  inner.cancel = &telling;
  int result = flag_need_fd(inner.cancel, inner.error);
  if (result == 0) result = lock_handle(tcp, &inner);
  if (result == 0) {
    begin_call(tcp, op->kind, &inner);
    waiting_begin(&waiting, &store->log, tcp->until);
    waiting.refresh = tell_of_request;
    waiting.user = &request;
    result = repeat(tcp, op, args);
    unlock_handle(tcp);
  }
  return result == 0 ? 0 : fail_call(tcp, op, args, result, inner.error);
}
