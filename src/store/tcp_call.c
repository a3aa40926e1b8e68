/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp_call.h"

#include "base/error.h"
#include "base/log.h"

#include <time.h>

enum {
  MAX_REPEATS = 3,           /* of a request on which the connection is lost */
  CANCEL_MS = 1000,          /* for the answer to CANCEL_WAIT */
  RECONNECT_LEAST_MS = 2000, /* for connecting again in a call whose own timeout is shorter */
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
  return error_set(call->error, RDZV_E_CONNECTION, "no answer in %lld ms", (long long)tcp->options.timeout_ms);
}

int tcp_send(struct tcp_store *tcp, struct store_call *call) {
  tcp->io_until = deadline_after(tcp->options.timeout_ms);
  return silence_is_loss(tcp, tcp_conn_send(&tcp->conn, tcp->io_until, call->cancel, call->error), call);
}

/* ---- answers ----------------------------------------------------------------------------------------------- */

int tcp_more(struct tcp_store *tcp, const char *fields, uint64_t items, struct store_call *call) {
  const int result = tcp_conn_receive(&tcp->conn, fields, items, tcp->io_until, call->cancel, call->error);
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
  error_set(call->error, code, "%s: the server says: %.*s", rdzv_error_text(code),
            (int)(text.len < 200 ? text.len : 200), (const char *)text.data);
  tcp_conn_consume(&tcp->conn);
  tcp->conn.sent = false;
  return code;
}

/* One byte: done, canceled, or in our dialect an error. */
static int receive_status(struct tcp_store *tcp, deadline until, struct store_call *call) {
  const int result = tcp_conn_receive(&tcp->conn, "b", 0, until, call->cancel, call->error);
  if (result < 0) return result;
  const int status = (int)tcp->conn.scan.field[0].number;
  tcp_conn_consume(&tcp->conn);
  if (status <= WIRE_CANCELED_BYTE) return status;
  if (tcp_is_ours(tcp)) return receive_refusal(tcp, -status, call);
  return error_set(call->error, RDZV_E_PROTOCOL, "an answer that no TCPStore gives: %d", status);
}

int tcp_answer(struct tcp_store *tcp, const char *fields, uint64_t items, struct store_call *call) {
  if (tcp_is_ours(tcp)) {
    const int status = silence_is_loss(tcp, receive_status(tcp, tcp->io_until, call), call);
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

/* Takes a wait back. The answer may cross with it: then it comes first, and that to the cancel later. */
static int cancel_wait(struct tcp_store *tcp, struct store_call *call) {
  tcp_put_op(tcp, WIRE_CANCEL_WAIT);
  int result = tcp_send(tcp, call);
  if (result < 0) return result;
  tcp->cancel_owed = true;
  result = receive_status(tcp, deadline_after(CANCEL_MS), call);
  if (result == 0 || result == RDZV_E_CANCELED) return result;
  if (result == WIRE_CANCELED_BYTE)
    tcp->cancel_owed = false;
  else
    tcp_conn_drop(&tcp->conn); /* it does not even answer that */
  return error_set(call->error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)call->timeout_ms);
}

int tcp_blocking_answer(struct tcp_store *tcp, const char *fields, uint64_t items, deadline until,
                        struct store_call *call) {
  int result = receive_status(tcp, until, call);
  if (result == RDZV_E_TIMEOUT) result = cancel_wait(tcp, call);
  if (result < 0) return result;
  tcp->io_until = deadline_after(tcp->options.timeout_ms);
  return tcp_more(tcp, fields, items, call);
}

/* ---- one call ---------------------------------------------------------------------------------------------- */

static int take_turn(struct tcp_store *tcp, struct store_call *call) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  const int64_t wait = call->timeout_ms > tcp->options.timeout_ms ? call->timeout_ms : tcp->options.timeout_ms;
  at.tv_sec += (time_t)(wait / 1000 + 1);
  if (pthread_mutex_clocklock(&tcp->lock, CLOCK_MONOTONIC, &at) == 0) return 0;
  return error_set(call->error, RDZV_E_TIMEOUT, "another call on this handle did not end in time");
}

/* Connecting may take as long as the store was opened with, but not longer than the call itself wants to take. */
static deadline open_until(const struct tcp_store *tcp, const struct store_call *call) {
  const deadline longest = deadline_after(tcp->options.timeout_ms);
  const deadline least = deadline_after(RECONNECT_LEAST_MS);
  const deadline wanted = call->until > least ? call->until : least;
  return wanted < longest ? wanted : longest;
}

/* Reads the answer to a CANCEL_WAIT that crossed with the wait's own. */
static int settle(struct tcp_store *tcp, struct store_call *call) {
  if (!tcp->cancel_owed) return 0;
  tcp->io_until = deadline_after(tcp->options.timeout_ms);
  const int result = tcp_more(tcp, "b", 0, call);
  if (result < 0) return result;
  tcp_conn_consume(&tcp->conn);
  tcp->cancel_owed = false;
  return 0;
}

static int try_on_open(struct tcp_store *tcp, tcp_attempt *attempt, void *args, struct store_call *call) {
  tcp->conn.sent = false;
  int result = settle(tcp, call);
  if (result == 0) result = attempt(tcp, args, call);
  const bool in_order = result == 0 || result == RDZV_E_TIMEOUT || result == RDZV_E_EMPTY ||
                        result == RDZV_E_NOT_A_NUMBER || result == RDZV_E_UNSUPPORTED;
  if (!in_order) tcp_conn_drop(&tcp->conn);
  return result;
}

static int repeat(struct tcp_store *tcp, enum tcp_safety safety, tcp_attempt *attempt, void *args,
                  struct store_call *call) {
  const deadline until = open_until(tcp, call);
  for (int repeats = 0;; repeats++) {
    if (tcp->conn.fd < 0) tcp->cancel_owed = false;
    if (!tcp->cancel_owed) tcp_conn_drop_if_dead(&tcp->conn);
    int result = tcp_conn_open(&tcp->conn, until, call->cancel, call->error);
    if (result < 0) return result;
    result = try_on_open(tcp, attempt, args, call);
    if (result != RDZV_E_CONNECTION) return result;
    if (safety == TCP_ONCE && tcp->conn.sent) {
      call->error->code = RDZV_E_OUTCOME_UNKNOWN;
      return error_prefix(call->error, RDZV_E_OUTCOME_UNKNOWN, "it may or may not have taken effect");
    }
    if (repeats == MAX_REPEATS) return result;
    log_line(&tcp->base.log, RDZV_LOG_INFO, "connecting to '%s' again: %s", tcp->conn.name, call->error->message);
  }
}

int tcp_run(rdzv_store *store, const char *what, const rdzv_bytes *keys, size_t count, enum tcp_safety safety,
            tcp_attempt *attempt, void *args, struct store_call *call) {
  struct tcp_store *tcp = (struct tcp_store *)store;
  rdzv_error own;
  struct store_call inner = *call;
  if (!inner.error) inner.error = &own;
  int result = take_turn(tcp, &inner);
  if (result == 0) {
    result = repeat(tcp, safety, attempt, args, &inner);
    pthread_mutex_unlock(&tcp->lock);
  }
  if (result == 0) return 0;
  return error_prefix(inner.error, result, "%s%s%s at '%s'", what, count ? " " : "", store_key_list(keys, count).text,
                      tcp->conn.name);
}
