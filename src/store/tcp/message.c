/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/message.h"

#include "base/buf.h"
#include "base/error.h"
#include "store/tcp/call.h"
#include "wire/refusal.h"

enum { CANCEL_MS = 1000 }; /* for the answer to CANCEL_WAIT */

/* ---- writing a request ------------------------------------------------------------------------------------- */

void tcp_put_op(struct tcp_store *tcp, enum wire_op op) { wire_put_op(&tcp->conn.out, tcp->conn.dialect, op); }

/* PyTorch's clients put a slash before each key; with it the keys are the same for both. */
void tcp_put_key(struct tcp_store *tcp, rdzv_bytes key) {
  wire_put64(&tcp->conn.out, key.len + 1);
  wire_put8(&tcp->conn.out, '/');
  wire_put(&tcp->conn.out, key.data, key.len);
}

void tcp_put_op_on(struct tcp_store *tcp, enum wire_op op, rdzv_bytes key) {
  tcp_put_op(tcp, op);
  tcp_put_key(tcp, key);
}

void tcp_put_value(struct tcp_store *tcp, rdzv_bytes value) { wire_put_bytes(&tcp->conn.out, value); }
void tcp_put_number(struct tcp_store *tcp, uint64_t number) { wire_put64(&tcp->conn.out, number); }

void tcp_put_keys(struct tcp_store *tcp, const rdzv_bytes *keys, size_t count) {
  wire_put64(&tcp->conn.out, count);
  for (size_t i = 0; i < count; i++) tcp_put_key(tcp, keys[i]);
}

/* A silent server counts as a lost connection. */
static int silence_is_loss(struct tcp_store *tcp, int result) {
  if (result != RDZV_E_TIMEOUT) return result;
  return error_set(tcp->call.error, RDZV_E_CONNECTION, "no answer in %lld ms", (long long)(tcp->until - tcp->began));
}

/* ---- reading an answer in its dialect
 * ----------------------------------------------------------------------------------------------- */

int tcp_more(struct tcp_store *tcp, const char *fields, uint64_t items) {
  const int result = tcp_conn_receive(&tcp->conn, fields, items, tcp->until, tcp->call.cancel, tcp->call.error);
  return silence_is_loss(tcp, result);
}

static int receive_number(struct tcp_store *tcp, const char *fields, deadline until, uint64_t *out) {
  const int result = tcp_conn_receive(&tcp->conn, fields, 0, until, tcp->call.cancel, tcp->call.error);
  if (result < 0) return result;
  *out = tcp_number(tcp, 0);
  tcp_conn_consume(&tcp->conn);
  return 0;
}

/* Our server refused the request: its code and text become ours. A refused request was not done. */
static int receive_refusal(struct tcp_store *tcp, uint8_t status) {
  enum { LONGEST = 600 };
  const int result = tcp_more(tcp, "v", 0);
  if (result < 0) return result;
  struct wire_refusal refusal;
  if (!wire_read_refusal(wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data), &refusal))
    return error_set(tcp->call.error, RDZV_E_PROTOCOL, "the refusal of the server is cut off");
  const int code = wire_refusal_code(status), len = (int)(refusal.text.len < LONGEST ? refusal.text.len : LONGEST);
  if (code == RDZV_E_NOT_A_NUMBER)
    error_set(tcp->call.error, code, "%s", rdzv_error_text(code));
  else
    error_set(tcp->call.error, code, "refused by the server: %.*s", len, (const char *)refusal.text.data);
  tcp_conn_consume(&tcp->conn);
  tcp->refused = true;
  return code;
}

/* The answer to a SESSION that was sent before the request: the number of the last write that was done. What was sent
 * on other connections is done by now, or never will be. After an error the connection is useless, and the server does
 * not do what was sent behind it. */
static int receive_session(struct tcp_store *tcp, deadline until) {
  struct tcp_session *session = &tcp->conn.session;
  uint64_t status, done = 0;
  int result = receive_number(tcp, "b", until, &status);
  if (result < 0) return result;
  session->owed = false;
  tcp->forgotten = status == -RDZV_E_OUTCOME_UNKNOWN;
  tcp->refused = status != 0;
  if (tcp->forgotten || status == -RDZV_E_TIMEOUT)
    return error_set(tcp->call.error, RDZV_E_CONNECTION, "the server has forgotten the session of this client");
  result = status != 0 ? receive_refusal(tcp, (uint8_t)status) : receive_number(tcp, "n", until, &done);
  if (result < 0) return result;
  if (!tcp->write) session->unsettled = false;
  if (tcp->write && done >= tcp->write && !tcp->in_flight) { /* its answer would be that of another write */
    tcp->refused = true;
    return error_set(tcp->call.error, RDZV_E_PROTOCOL, "the server has already done another write with this number");
  }
  if (done < tcp->write) tcp->in_flight = false;
  return 0;
}

/* One byte: done, canceled, or in our dialect an error. */
static int receive_byte(struct tcp_store *tcp, deadline until) {
  uint64_t status;
  const int result = receive_number(tcp, "b", until, &status);
  if (result < 0) return result;
  if (status <= WIRE_BYTE_CANCELED) return (int)status;
  if (tcp_is_ours(tcp)) return receive_refusal(tcp, (uint8_t)status);
  return error_set(tcp->call.error, RDZV_E_PROTOCOL, "the answer %d is not a TCPStore's", (int)status);
}

/* The same, for a request that may have a SESSION before it. */
static int receive_status(struct tcp_store *tcp, deadline until) {
  const int result = tcp->conn.session.owed ? receive_session(tcp, until) : 0;
  return result < 0 ? result : receive_byte(tcp, until);
}

/* Our server says why it refuses a request and closes, maybe before the whole request has arrived. Then sending fails,
 * and the reason can still be read. */
static int reason_of_loss(struct tcp_store *tcp) {
  rdzv_error lost = *tcp->call.error;
  const int result = receive_status(tcp, clock_now_ms());
  if (tcp->refused) return result;
  *tcp->call.error = lost;
  return RDZV_E_CONNECTION;
}

/* Reads the answer to a CANCEL_WAIT that crossed with the answer to the wait, before the next request. */
static int settle(struct tcp_store *tcp) {
  if (!tcp->conn.cancel_owed) return 0;
  const int status = silence_is_loss(tcp, receive_byte(tcp, tcp->until));
  if (status < 0) return status;
  tcp->conn.cancel_owed = false;
  if (status == WIRE_BYTE_CANCELED) return 0;
  return error_set(tcp->call.error, RDZV_E_PROTOCOL, "a canceled wait was answered twice");
}

int tcp_send(struct tcp_store *tcp) {
  int result = settle(tcp);
  if (result < 0) return result;
  result = tcp_conn_send(&tcp->conn, tcp->until, tcp->call.cancel, tcp->call.error);
  if (result == RDZV_E_CONNECTION && tcp_is_ours(tcp)) return reason_of_loss(tcp);
  return silence_is_loss(tcp, result);
}

int tcp_ask(struct tcp_store *tcp, const char *fields, uint64_t items) {
  const int result = tcp_send(tcp);
  return result < 0 ? result : tcp_answer(tcp, fields, items);
}

int tcp_answer(struct tcp_store *tcp, const char *fields, uint64_t items) {
  if (tcp_is_ours(tcp)) {
    const int status = silence_is_loss(tcp, receive_status(tcp, tcp->until));
    if (status < 0) return status;
    if (status > 0)
      return error_set(tcp->call.error, RDZV_E_PROTOCOL,
                       "the server answered a wait that was not canceled as canceled");
  }
  return tcp_more(tcp, fields, items);
}

int tcp_ask_number(struct tcp_store *tcp, const char *fields, uint64_t *number) {
  const int result = tcp_ask(tcp, fields, 0);
  if (result < 0) return result;
  *number = tcp_number(tcp, 0);
  tcp_conn_consume(&tcp->conn);
  return 0;
}

int tcp_ask_done(struct tcp_store *tcp) {
  if (!tcp_is_ours(tcp)) tcp_put_op(tcp, WIRE_OP_NUM_KEYS);
  const int result = tcp_ask(tcp, tcp_is_ours(tcp) ? "" : "n", 0);
  if (result == 0) tcp_conn_consume(&tcp->conn);
  return result;
}

int tcp_take_value(struct tcp_store *tcp, int i, rdzv_value *out) {
  const rdzv_bytes bytes = wire_field_bytes(&tcp->conn.scan, i, tcp->conn.in.data);
  rdzv_value copy;
  if (!value_copy(&copy, bytes.data, bytes.len)) return error_no_memory(tcp->call.error);
  rdzv_value_free(out);
  *out = copy;
  tcp_conn_consume(&tcp->conn);
  return 0;
}

int tcp_take_values(struct tcp_store *tcp, rdzv_value *out, size_t count) {
  rdzv_bytes list = wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data);
  for (size_t i = 0; i < count; i++) {
    const rdzv_bytes item = wire_list_next(&list);
    rdzv_value_free(&out[i]);
    if (!value_copy(&out[i], item.data, item.len)) return error_no_memory(tcp->call.error);
  }
  tcp_conn_consume(&tcp->conn);
  return 0;
}

/* ---- requests that block ----------------------------------------------------------------------------------- */

/* Takes a wait back, or goes on where that was interrupted. There is one CANCEL_WAIT for a wait, and its answer is the
 * last one. If the answer to the wait crossed with it, that comes first, and the other one is owed. */
static int cancel_wait(struct tcp_store *tcp) {
  if (!tcp->conn.cancel_owed) {
    tcp_put_op(tcp, WIRE_OP_CANCEL_WAIT);
    const int sent = tcp_send(tcp);
    if (sent < 0) return sent;
    tcp->conn.cancel_owed = true;
  }
  const int result = receive_status(tcp, deadline_after(CANCEL_MS));
  if (result == WIRE_BYTE_CANCELED) {
    tcp->conn.cancel_owed = false;
  } else if (result == RDZV_E_TIMEOUT) { /* the server does not answer that either */
    tcp_conn_drop(&tcp->conn);
    if ((tcp->kind & TCP_ONCE) || deadline_left(tcp->call.until) > 0) return silence_is_loss(tcp, result);
  } else {
    return result;
  }
  return error_set(tcp->call.error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)tcp->call.timeout_ms);
}

/* Takes back a wait that the call's own flag ended, not the handle's: a usable connection is worth the moment that this
 * costs. The answer of the wait counts where it crossed with the CANCEL_WAIT. */
static int take_back(struct tcp_store *tcp, const char *fields, uint64_t items) {
  rdzv_error canceled = *tcp->call.error;
  const struct flag *own = tcp->call.cancel;
  tcp->call.cancel = &tcp->base.cancel;
  int result = cancel_wait(tcp);
  if (result == 0) result = tcp_more(tcp, fields, items);
  tcp->call.cancel = own;
  if (result != RDZV_E_TIMEOUT) return result;
  tcp->taken_back = true;
  *tcp->call.error = canceled;
  return RDZV_E_CANCELED;
}

int tcp_ask_blocking(struct tcp_store *tcp, const char *fields, uint64_t items, deadline until) {
  int result = tcp_send(tcp);
  if (result < 0) return result;
  result = receive_status(tcp, until);
  if (result == WIRE_BYTE_CANCELED)
    return error_set(tcp->call.error, RDZV_E_PROTOCOL, "the server answered a wait that was not canceled as canceled");
  if (result == RDZV_E_TIMEOUT) result = cancel_wait(tcp);
  if (result == RDZV_E_CANCELED && !flag_raised(&tcp->base.cancel)) return take_back(tcp, fields, items);
  return result < 0 ? result : tcp_more(tcp, fields, items);
}
