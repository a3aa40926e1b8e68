/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/call.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"

#include <string.h>
#include <time.h>

enum {
  MAX_REPEATS = 3,     /* of a request on which the connection is lost, unless it may have been done */
  FIRST_PAUSE_MS = 20, /* between the repetitions of one that may */
  LONGEST_PAUSE_MS = 1000,
  CANCEL_MS = 1000, /* for the answer to CANCEL_WAIT */
  GRACE_MS = 2000,  /* beyond the end of a wait, for what belongs to it */
};

/* ---- requests ---------------------------------------------------------------------------------------------- */

void tcp_put_op(struct tcp_store *tcp, enum wire_op op) { wire_put_op(&tcp->conn.out, tcp->conn.dialect, op); }

/* PyTorch's clients put a slash before each key, so that theirs and ours are the same. */
void tcp_put_key(struct tcp_store *tcp, rdzv_bytes key) {
  wire_put64(&tcp->conn.out, key.len + 1);
  wire_put8(&tcp->conn.out, '/');
  wire_put(&tcp->conn.out, key.data, key.len);
}

void tcp_put_value(struct tcp_store *tcp, rdzv_bytes value) { wire_put_bytes(&tcp->conn.out, value); }
void tcp_put_number(struct tcp_store *tcp, uint64_t number) { wire_put64(&tcp->conn.out, number); }

void tcp_put_keys(struct tcp_store *tcp, enum wire_op op, const rdzv_bytes *keys, size_t count) {
  tcp_put_op(tcp, op);
  wire_put64(&tcp->conn.out, count);
  for (size_t i = 0; i < count; i++) tcp_put_key(tcp, keys[i]);
}

/* A server that is there but silent counts as a lost connection. */
static int silence_is_loss(struct tcp_store *tcp, int result, struct store_call *call) {
  if (result != RDZV_E_TIMEOUT) return result;
  return error_set(call->error, RDZV_E_CONNECTION, "no answer in %lld ms", (long long)(tcp->until - tcp->began));
}

/* ---- answers ----------------------------------------------------------------------------------------------- */

int tcp_more(struct tcp_store *tcp, const char *fields, uint64_t items, struct store_call *call) {
  const int result = tcp_conn_receive(&tcp->conn, fields, items, tcp->until, call->cancel, call->error);
  return silence_is_loss(tcp, result, call);
}

/* The codes that our server refuses with. */
static bool is_refusal(int code) {
  return code == RDZV_E_LIMIT || code == RDZV_E_NOT_A_NUMBER || code == RDZV_E_NO_MEMORY || code == RDZV_E_PROTOCOL ||
         code == RDZV_E_STOPPED || code == RDZV_E_TIMEOUT;
}

/* A status of our server that is an error: its code and sentence become ours. Whatever was refused was not done. That
 * the server lost patience with this connection is no more than a lost connection. */
static int receive_refusal(struct tcp_store *tcp, int code, struct store_call *call) {
  const int result = tcp_more(tcp, "v", 0, call);
  if (result < 0) return result;
  const rdzv_bytes text = wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data);
  if (!is_refusal(code)) code = RDZV_E_PROTOCOL;
  if (code == RDZV_E_TIMEOUT) code = RDZV_E_CONNECTION;
  if (code == RDZV_E_NOT_A_NUMBER)
    error_set(call->error, code, "%s", rdzv_error_text(code));
  else
    error_set(call->error, code, "refused by the server: %.*s", (int)(text.len < 200 ? text.len : 200),
              (const char *)text.data);
  tcp_conn_consume(&tcp->conn);
  tcp->refused = true;
  return code;
}

/* The answer to a SESSION that was sent before the request: which write was the last one done. All that was sent on
 * other connections is done or never will be. The number of an error is the length of its text, the connection is of no
 * more use, and what was sent behind is not done. */
static int receive_session(struct tcp_store *tcp, deadline until, struct store_call *call) {
  struct tcp_session *session = &tcp->conn.session;
  const int result = tcp_conn_receive(&tcp->conn, "bn", 0, until, call->cancel, call->error);
  if (result < 0) return result;
  const int code = -(int)tcp->conn.scan.field[0].number;
  const uint64_t done = tcp->conn.scan.field[1].number;
  tcp_conn_consume(&tcp->conn);
  session->owed = false;
  tcp->forgotten = code == RDZV_E_OUTCOME_UNKNOWN;
  tcp->refused = code < 0;
  if (tcp->forgotten || code == RDZV_E_TIMEOUT)
    return error_set(call->error, RDZV_E_CONNECTION, "the server has forgotten the session of this client");
  if (code < 0)
    return error_set(call->error, is_refusal(code) ? code : RDZV_E_PROTOCOL, "the server refuses the session: %s",
                     rdzv_error_text(code));
  if (!tcp->write) session->unsettled = false;
  if (tcp->write && done >= tcp->write && !tcp->in_flight) { /* it would be answered as another one was */
    tcp->refused = true;
    return error_set(call->error, RDZV_E_PROTOCOL, "the server has done a write with the number of this one");
  }
  if (done < tcp->write) tcp->in_flight = false;
  return 0;
}

/* One byte: done, canceled, or in our dialect an error. */
static int receive_byte(struct tcp_store *tcp, deadline until, struct store_call *call) {
  const int result = tcp_conn_receive(&tcp->conn, "b", 0, until, call->cancel, call->error);
  if (result < 0) return result;
  const int status = (int)tcp->conn.scan.field[0].number;
  tcp_conn_consume(&tcp->conn);
  if (status <= WIRE_CANCELED_BYTE) return status;
  if (tcp_is_ours(tcp)) return receive_refusal(tcp, -status, call);
  return error_set(call->error, RDZV_E_PROTOCOL, "an answer that no TCPStore gives: %d", status);
}

/* The same of a request that may have a SESSION before it. */
static int receive_status(struct tcp_store *tcp, deadline until, struct store_call *call) {
  const int result = tcp->conn.session.owed ? receive_session(tcp, until, call) : 0;
  return result < 0 ? result : receive_byte(tcp, until, call);
}

/* A server of ours that refuses a request before it has come whole says why and closes: the reason is there to be read
 * although sending fails. */
static int reason_of_loss(struct tcp_store *tcp, struct store_call *call) {
  rdzv_error lost = *call->error;
  const int result = receive_status(tcp, clock_now_ms(), call);
  if (result != RDZV_E_TIMEOUT && is_refusal(result)) return result;
  *call->error = lost;
  return RDZV_E_CONNECTION;
}

/* Reads the answer to a CANCEL_WAIT that crossed with the wait's own, before anything else is sent. */
static int settle(struct tcp_store *tcp, struct store_call *call) {
  if (!tcp->conn.cancel_owed) return 0;
  const int status = silence_is_loss(tcp, receive_byte(tcp, tcp->until, call), call);
  if (status < 0) return status;
  tcp->conn.cancel_owed = false;
  if (status == WIRE_CANCELED_BYTE) return 0;
  return error_set(call->error, RDZV_E_PROTOCOL, "a canceled wait was answered twice");
}

int tcp_send(struct tcp_store *tcp, struct store_call *call) {
  int result = settle(tcp, call);
  if (result < 0) return result;
  result = tcp_conn_send(&tcp->conn, tcp->until, call->cancel, call->error);
  if (result == RDZV_E_CONNECTION && tcp_is_ours(tcp)) return reason_of_loss(tcp, call);
  return silence_is_loss(tcp, result, call);
}

int tcp_answer(struct tcp_store *tcp, const char *fields, uint64_t items, struct store_call *call) {
  if (tcp_is_ours(tcp)) {
    const int status = silence_is_loss(tcp, receive_status(tcp, tcp->until, call), call);
    if (status < 0) return status;
    if (status > 0) return error_set(call->error, RDZV_E_PROTOCOL, "an answer out of turn");
  }
  return tcp_more(tcp, fields, items, call);
}

int tcp_answer_number(struct tcp_store *tcp, const char *fields, uint64_t *number, struct store_call *call) {
  const int result = tcp_answer(tcp, fields, 0, call);
  if (result < 0) return result;
  *number = tcp->conn.scan.field[0].number;
  tcp_conn_consume(&tcp->conn);
  return 0;
}

/* Takes a wait back, or goes on with that where it was interrupted: there is one CANCEL_WAIT for a wait, and its answer
 * is the last one. The wait's own may cross with it: then it comes first, and that to the cancel is owed. */
static int cancel_wait(struct tcp_store *tcp, struct store_call *call) {
  if (!tcp->conn.cancel_owed) {
    tcp_put_op(tcp, WIRE_CANCEL_WAIT);
    const int sent = tcp_send(tcp, call);
    if (sent < 0) return sent;
    tcp->conn.cancel_owed = true;
  }
  const int result = receive_status(tcp, deadline_after(CANCEL_MS), call);
  if (result == WIRE_CANCELED_BYTE) {
    tcp->conn.cancel_owed = false;
  } else if (result == RDZV_E_TIMEOUT) { /* it does not even answer that */
    tcp_conn_drop(&tcp->conn);
    if ((tcp->kind & TCP_ONCE) || deadline_left(call->until) > 0) return silence_is_loss(tcp, result, call);
  } else {
    return result;
  }
  return error_set(call->error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)call->timeout_ms);
}

/* A wait that only this call's own flag ended: the connection is worth more than the moment that taking it back costs.
 * Its answer, if it crossed with that, counts. `own` is the call without its flag. */
static int take_back(struct tcp_store *tcp, struct store_call *own, struct store_call *call) {
  rdzv_error canceled = *call->error;
  const int result = cancel_wait(tcp, own);
  if (result != RDZV_E_TIMEOUT) return result;
  tcp->taken_back = true;
  *call->error = canceled;
  return RDZV_E_CANCELED;
}

int tcp_blocking_answer(struct tcp_store *tcp, const char *fields, uint64_t items, deadline until,
                        struct store_call *call) {
  struct store_call own = *call, *rest = call;
  own.cancel = &tcp->base.cancel;
  int result = receive_status(tcp, until, call);
  if (result == WIRE_CANCELED_BYTE) return error_set(call->error, RDZV_E_PROTOCOL, "an answer out of turn");
  if (result == RDZV_E_TIMEOUT) result = cancel_wait(tcp, call);
  if (result == RDZV_E_CANCELED && !flag_raised(own.cancel)) {
    result = take_back(tcp, &own, call);
    rest = &own;
  }
  return result < 0 ? result : tcp_more(tcp, fields, items, rest);
}

/* ---- one call ---------------------------------------------------------------------------------------------- */

static int take_turn(struct tcp_store *tcp, struct store_call *call) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  const int64_t wait = call->timeout_ms > tcp->options.timeout_ms ? call->timeout_ms : tcp->options.timeout_ms;
  at.tv_sec += (time_t)(wait / 1000 + 1);
  pthread_mutex_lock(&tcp->lock);
  int late = 0;
  while (tcp->turn_is_taken && !late) late = pthread_cond_timedwait(&tcp->turn_is_over, &tcp->lock, &at);
  const bool ours = !tcp->turn_is_taken;
  if (ours) tcp->turn_is_taken = true;
  pthread_mutex_unlock(&tcp->lock);
  return ours ? 0 : error_set(call->error, RDZV_E_TIMEOUT, "another call on this handle did not end in time");
}

static void end_turn(struct tcp_store *tcp) {
  pthread_mutex_lock(&tcp->lock);
  tcp->turn_is_taken = false;
  pthread_cond_signal(&tcp->turn_is_over);
  pthread_mutex_unlock(&tcp->lock);
}

/* One deadline for all of a call's sending, receiving and connecting again: a wait's own end and a little more, else
 * the timeout that the store was opened with. */
static void set_deadline(struct tcp_store *tcp, unsigned kind, const struct store_call *call) {
  tcp->began = clock_now_ms();
  if (!(kind & TCP_BLOCKS))
    tcp->until = deadline_after(store_request_time(&tcp->base, tcp->options.timeout_ms));
  else
    tcp->until = call->until < INT64_MAX - GRACE_MS ? call->until + GRACE_MS : INT64_MAX;
}

static int open_connection(struct tcp_store *tcp, struct store_call *call) {
  if (!tcp->conn.cancel_owed) tcp_conn_drop_if_dead(&tcp->conn);
  const int result = tcp_conn_open(&tcp->conn, tcp->until, call->cancel, call->error);
  pthread_mutex_lock(&tcp->lock);
  tcp->facts.dialect = tcp->conn.dialect;
  memcpy(tcp->facts.peer, tcp->conn.peer, sizeof tcp->facts.peer);
  pthread_mutex_unlock(&tcp->lock);
  return result;
}

/* At our own server a write gets its number here, and what must come before the request is put before it. A number is
 * kept only as long as the write may have been done with it: the session may be another one by now. */
static void enter_session(struct tcp_store *tcp) {
  struct tcp_session *session = &tcp->conn.session;
  if (!tcp->in_flight) tcp->write = 0;
  if (!session->offered) return;
  if ((tcp->kind & TCP_ONCE) && !tcp->in_flight) tcp->write = tcp_session_number(session);
  tcp_session_put(session, tcp->write, &tcp->conn.out);
}

/* What an attempt at a write leaves behind. Whether an earlier write is settled, one that sent nothing does not tell;
 * nor has the server counted it. */
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

static int try_on_open(struct tcp_store *tcp, tcp_attempt *attempt, void *args, struct store_call *call) {
  tcp->conn.sent = tcp->taken_back = tcp->forgotten = tcp->refused = false;
  enter_session(tcp);
  const int result = attempt(tcp, args, call);
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

/* A write that may have been done is sent again only to the session that would know. */
static int try_connected(struct tcp_store *tcp, tcp_attempt *attempt, void *args, struct store_call *call) {
  if (!tcp->in_flight || (tcp->write && tcp->conn.session.offered)) return try_on_open(tcp, attempt, args, call);
  tcp->write = 0;
  return error_set(call->error, RDZV_E_CONNECTION, "the connection was lost, and the server has no session for it");
}

static bool is_worth_repeating(const struct tcp_store *tcp, int result, int repeats) {
  if (result != RDZV_E_CONNECTION || deadline_left(tcp->until) == 0) return false;
  return tcp->in_flight ? tcp->write != 0 : repeats < MAX_REPEATS;
}

/* Once at once, then after pauses that grow. */
static int pause_before(int repeats, deadline until, struct store_call *call) {
  int64_t pause = FIRST_PAUSE_MS;
  if (repeats == 0) return 0;
  while (--repeats > 0 && pause < LONGEST_PAUSE_MS) pause *= 2;
  const deadline next = deadline_after(jitter(pause));
  const int result = flag_pause(call->cancel, next < until ? next : until);
  return result < 0 ? error_set(call->error, result, "%s", rdzv_error_text(result)) : 0;
}

/* That the server lost its data is sure: whether the write was done or not, it is gone. */
static int conclude(struct tcp_store *tcp, int result, struct store_call *call) {
  if (result == 0 || !tcp->in_flight || result == RDZV_E_CANCELED || result == RDZV_E_DATA_LOST) return result;
  call->error->code = RDZV_E_OUTCOME_UNKNOWN;
  return error_prefix(call->error, RDZV_E_OUTCOME_UNKNOWN, "it may or may not have taken effect");
}

static int repeat(struct tcp_store *tcp, tcp_attempt *attempt, void *args, struct store_call *call) {
  tcp->write = 0;
  tcp->closings = 0;
  tcp->in_flight = false;
  for (int repeats = 0;; repeats++) {
    int result = open_connection(tcp, call);
    if (result < 0) return conclude(tcp, result, call); /* it was tried until the deadline */
    result = try_connected(tcp, attempt, args, call);
    if (!is_worth_repeating(tcp, result, repeats)) return conclude(tcp, result, call);
    log_line(&tcp->base.log, RDZV_LOG_INFO, "connecting to '%s' again: %s", tcp->conn.name, call->error->message);
    result = pause_before(repeats, tcp->until, call);
    if (result < 0) return result;
  }
}

/* What a request is for, and that it has no answer yet, if nobody waits for more than that. */
struct request_wait {
  const struct tcp_store *tcp;
  const char *what;
  const rdzv_bytes *keys;
  size_t count;
};

static void tell_of_request(struct waiting *waiting, void *user) {
  const struct request_wait *wait = user;
  const bool has_more = waiting->phase[0] || waiting->cause[0];
  waiting_about(waiting, "%s%s%s at '%s'%s", wait->what, wait->count ? " " : "",
                store_key_list(wait->keys, wait->count).text, wait->tcp->conn.name, has_more ? "" : ": no answer yet");
}

int tcp_run(rdzv_store *store, const char *what, const rdzv_bytes *keys, size_t count, unsigned kind,
            tcp_attempt *attempt, void *args, struct store_call *call) {
  struct tcp_store *tcp = (struct tcp_store *)store;
  rdzv_error own;
  struct store_call inner = *call;
  if (!inner.error) inner.error = &own;
  struct waiting waiting;
  struct request_wait request = {tcp, what, keys, count};
  const bool tells = !(kind & TCP_BLOCKS) && !flag_waiting(call->cancel);
  const struct flag telling = flag_with(call->cancel, tells ? &waiting : flag_waiting(call->cancel));
  inner.cancel = &telling;
  int result = take_turn(tcp, &inner);
  if (result == 0) {
    tcp->kind = kind;
    set_deadline(tcp, kind, &inner);
    waiting_begin(&waiting, &store->log, tcp->until);
    waiting.refresh = tell_of_request;
    waiting.user = &request;
    result = repeat(tcp, attempt, args, &inner);
    end_turn(tcp);
  }
  if (result == 0) return 0;
  return error_prefix(inner.error, result, "%s%s%s at '%s'", what, count ? " " : "", store_key_list(keys, count).text,
                      tcp->conn.name);
}
