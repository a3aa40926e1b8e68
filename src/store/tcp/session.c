/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/session.h"

#include <string.h>

void tcp_session_offer(struct tcp_session *session, const uint8_t token[WIRE_TOKEN_BYTES]) {
  session->offered = true;
  session->owed = false;
  session->attached = !session->unsettled;
  if (session->unsettled) return;
  memcpy(session->token, token, WIRE_TOKEN_BYTES);
  session->number = session->epoch = 0;
  session->next = 1;
}

void tcp_session_drop(struct tcp_session *session) { session->offered = session->attached = session->owed = false; }

void tcp_session_forget(struct tcp_session *session) { *session = (struct tcp_session){0}; }

uint64_t tcp_session_number(struct tcp_session *session) { return ++session->number; }

void tcp_session_put(struct tcp_session *session, uint64_t write, struct wire_writer *out) {
  const uint64_t next = write ? write : session->number + 1;
  if (!session->attached || (write && session->next != write)) {
    wire_put_op(out, WIRE_DIALECT_RDZV, WIRE_OP_SESSION);
    wire_put_bytes(out, (rdzv_bytes){session->token, sizeof session->token});
    wire_put64(out, next);
    wire_put64(out, ++session->epoch);
    session->attached = session->owed = true;
    session->next = next;
  }
  if (write) session->next = write + 1;
}
