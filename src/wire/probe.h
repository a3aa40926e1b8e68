/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that show whether a server is a TCPStore: a TCPStore answers them at once, and no other server the same way.
 * Each needs its own connection. */
#ifndef RDZV_WIRE_PROBE_H
#define RDZV_WIRE_PROBE_H

#include <rdzv/bytes.h>
#include <stdbool.h>

enum { PROBE_QUESTIONS = 2 };
rdzv_bytes probe_question(int which);
bool probe_is_store(int which, rdzv_bytes answer);

/* The begin of the greeting of RDZV, alone on its connection: by it, a client with TLS asks a server with which it had
 * no handshake whether that is a store without TLS. */
rdzv_bytes probe_greeting(void);
bool probe_is_greeting(rdzv_bytes bytes);
bool probe_is_plain_store(rdzv_bytes answer);

#endif
