/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/net/net.h"
#include "handler/dynamic/native/native.h"
#include "wire/native.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { MESSAGE_ROOM = WIRE_NATIVE_MAX_MESSAGE + WIRE_NATIVE_HEAD_BYTES };

/* ---- connecting ----------------------------------------------------------------------------------------------- */

void link_drop(struct link *link) {
  tcp_conn_drop(&link->conn);
  link->fresh = false;
  link->asked_us = 0;
}

/* What was received in the greeting took more room than messages do. */
static void trim(struct link *link) {
  if (link->conn.in.len == 0) buf_free(&link->conn.in);
  if (link->conn.out.buf.len == 0) buf_free(&link->conn.out.buf);
}

int link_connect(struct link *link, deadline until, const struct flag *wake, rdzv_error *error) {
  if (link->fresh) tcp_conn_drop_if_dead(&link->conn);
  link->fresh = false;
  link->asked_us = 0;
  const int result = tcp_conn_try(&link->conn, until, wake, error);
  if (result < 0) return result;
  trim(link);
  const unsigned timeout_ms = (unsigned)link->timeout_ms;
  setsockopt(link->conn.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  if (link->conn.native) return 0;
  link_drop(link);
  return error_set(error, RDZV_E_UNSUPPORTED, "the server at '%s' does not support native rounds", link->conn.name);
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

int link_flush(struct link *link, rdzv_error *error) { return tcp_io_send_some(&link->conn, error); }

int link_put(struct link *link, const struct member_update *update, rdzv_error *error) {
  struct wire_writer *out = &link->conn.out;
  const struct native_join *join = &update->join;
  if (update->doing & MEMBER_DO_JOIN) wire_put_native_join(out, join);
  if (update->doing & MEMBER_DO_RESUME) wire_put_native_resume(out, join->run_id, &join->session);
  if (update->doing & MEMBER_DO_LEAVE) wire_put_native_leave(out);
  if (update->doing & MEMBER_DO_CLOSE) wire_put_native_close(out, join->run_id, update->reason);
  if (update->doing & MEMBER_DO_BEAT) {
    wire_put_native_beat(out, update->wants_answer, update->trip_us);
    if (update->wants_answer) link->asked_us = clock_now_us();
  }
  return out->failed ? error_no_memory(error) : link_flush(link, error);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

int link_receive(struct link *link, rdzv_error *error) { return tcp_io_receive_some(&link->conn, MESSAGE_ROOM, error); }

static enum member_request request_of(int op) {
  switch (op) {
    case WIRE_OP_NODE_JOIN: return MEMBER_DO_JOIN;
    case WIRE_OP_NODE_RESUME: return MEMBER_DO_RESUME;
    case WIRE_OP_NODE_LEAVE: return MEMBER_DO_LEAVE;
    case WIRE_OP_NODE_CLOSE: return MEMBER_DO_CLOSE;
    default: return MEMBER_DO_BEAT;
  }
}

static int refused(struct link *link, const struct wire_native_message *message, struct link_message *out,
                   rdzv_error *error) {
  const int len = (int)(message->body.len < 600 ? message->body.len : 600);
  if (message->asked < 0)
    return error_set(error, message->code, "refused by the server at '%s': %.*s", link->conn.name, len,
                     (const char *)message->body.data);
  error_set(&out->error, message->code, "%.*s", len, (const char *)message->body.data);
  out->event.kind = MEMBER_EV_REFUSED;
  out->event.refused = request_of(message->asked);
  out->event.number = message->number;
  return 1;
}

static int answered(struct link *link, const struct wire_native_message *message, struct link_message *out,
                    rdzv_error *error) {
  struct member_event *event = &out->event;
  int result = 0;
  switch (message->kind) {
    case WIRE_NATIVE_JOINED:
      event->kind = MEMBER_EV_JOINED;
      result = wire_native_joined(message->body, &out->joined, error);
      break;
    case WIRE_NATIVE_RESUMED:
      event->kind = MEMBER_EV_RESUMED;
      result = wire_native_resumed(message->body, &event->number, error);
      break;
    case WIRE_NATIVE_NEWS:
      event->kind = MEMBER_EV_NEWS;
      result = wire_native_news(message->body, &out->news, error);
      break;
    case WIRE_NATIVE_BEAT:
      event->kind = MEMBER_EV_BEAT;
      event->trip_us = link->asked_us > 0 ? clock_now_us() - link->asked_us : -1;
      link->asked_us = 0;
      break;
    case WIRE_NATIVE_LEFT: event->kind = MEMBER_EV_LEFT; break;
    case WIRE_NATIVE_CLOSED: event->kind = MEMBER_EV_CLOSED; break;
    default: event->kind = MEMBER_EV_HEARD; break;
  }
  return result < 0 ? result : 1;
}

int link_next(struct link *link, struct link_message *out, rdzv_error *error) {
  struct wire_native_message message;
  size_t want;
  const struct buf *in = &link->conn.in;
  const enum wire_result found = wire_native_next(in->data, in->len, WIRE_NATIVE_MAX_MESSAGE, &message, &want);
  if (found == WIRE_RESULT_MORE) return 0;
  if (found == WIRE_RESULT_BAD)
    return error_set(error, RDZV_E_PROTOCOL, "the server at '%s' sent an invalid message", link->conn.name);
  out->event = (struct member_event){.joined = &out->joined, .news = &out->news, .error = &out->error};
  out->size = message.size;
  return message.code < 0 ? refused(link, &message, out, error) : answered(link, &message, out, error);
}

void link_consume(struct link *link, const struct link_message *message) {
  buf_consume(&link->conn.in, message->size);
  if (link->conn.in.len == 0) buf_free(&link->conn.in);
}
