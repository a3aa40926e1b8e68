/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's side of a session at our own server (docs/wire.md, "Sessions"): it numbers the writes of a handle, so
 * that one whose answer was lost can be sent again with its number on a new connection, and is done once.
 *
 * Each connection to our server begins in a session of its own, in which the server counts the writes as they come. A
 * handle stays in the session of its first connection as long as a write is unsettled: sent, and not answered. Then a
 * new connection takes that session over before anything else is sent, and this ends all that were made before at the
 * server: what arrives there late is never done, since each takeover has a higher epoch than those before. Where
 * nothing is unsettled the new connection's own session is as good.
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
  bool attached; /* the connection is in this session, and then */
  uint64_t next; /* is the number that the server gives to the next write that comes */
  bool owed;     /* the server will answer a SESSION */
};

/* A connection to a server that has sessions was made, and is in that one. */
void tcp_session_offer(struct tcp_session *session, const uint8_t token[WIRE_TOKEN_BYTES]);

/* The connection is gone. */
void tcp_session_drop(struct tcp_session *session);

/* Nothing is left of it at the server: the next connection begins another one. */
void tcp_session_forget(struct tcp_session *session);

/* The number for a new write. */
uint64_t tcp_session_number(struct tcp_session *session);

/* Puts what must come before a request: a SESSION where the connection is not in this session, or counts otherwise. The
 * request is a write with that number; 0: it is none. */
void tcp_session_put(struct tcp_session *session, uint64_t write, struct wire_writer *out);

#endif
