/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's side of a session at our own server (docs/wire.md, "Sessions"). A session numbers the writes of a
 * handle. A write whose answer was lost is sent again with its number on a new connection, and the server does it once.
 *
 * Each connection to our server begins in a new session, in which the server counts the writes as they come. A handle
 * keeps its session while a write is unsettled: sent, and not answered. The next connection then takes the session
 * over before it sends anything else. Each takeover has a higher epoch than the one before, so the server ignores
 * whatever still arrives on older connections. Where nothing is unsettled the handle changes to the new session.
 */
#ifndef RDZV_STORE_TCP_SESSION_H
#define RDZV_STORE_TCP_SESSION_H

#include "wire/writer.h"

#include <stdbool.h>

struct tcp_session {
  uint8_t token[WIRE_TOKEN_BYTES];
  uint64_t number; /* of the last write that was begun */
  uint64_t epoch;  /* of the last takeover that was begun */
  bool unsettled;  /* a write was sent, and its outcome is not known */

  /* Of the connection: */
  bool offered;  /* the server has sessions */
  bool attached; /* the connection is in this session */
  uint64_t next; /* then: the number that the server gives to the next write */
  bool owed;     /* the answer to a SESSION is still to come */
};

/* A new connection is in the session with that token. */
void tcp_session_offer(struct tcp_session *session, const uint8_t token[WIRE_TOKEN_BYTES]);

/* The connection was lost. */
void tcp_session_drop(struct tcp_session *session);

/* The server has forgotten the session: the next connection begins another one. */
void tcp_session_forget(struct tcp_session *session);

/* The number for a new write. */
uint64_t tcp_session_number(struct tcp_session *session);

/* Puts a SESSION before a request where the connection is not in this session, or the server counts otherwise. `write`
 * is the number of the request; 0: it is not a write. */
void tcp_session_put(struct tcp_session *session, uint64_t write, struct wire_writer *out);

#endif
