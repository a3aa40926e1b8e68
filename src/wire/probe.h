/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a server a TCPStore? Questions that a TCPStore answers at once, one for each connection, and no other server
 * alike. */
#ifndef RDZV_WIRE_PROBE_H
#define RDZV_WIRE_PROBE_H

#include <rdzv/bytes.h>
#include <stdbool.h>

enum { PROBE_QUESTIONS = 2 };
rdzv_bytes probe_question(int which);
bool probe_is_store(int which, rdzv_bytes answer);

#endif
