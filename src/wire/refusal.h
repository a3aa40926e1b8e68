/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Refusals: the answers of RDZV whose status is an error. The status is the code of rdzv/error.h, negated, and a value
 * follows with the sentence. One table says which status each code is sent with, and what a caller gets for it.
 */
#ifndef RDZV_WIRE_REFUSAL_H
#define RDZV_WIRE_REFUSAL_H

#include "wire/writer.h"

#include <rdzv/bytes.h>

enum { WIRE_MAX_REFUSAL = 4096 }; /* bytes of the value */

/* The status of a code. RDZV_E_INVALID has none, since 1 is WIRE_BYTE_CANCELED: it is sent as RDZV_E_PROTOCOL, and so
 * is what is no code. */
uint8_t wire_status_of(int code);

/* The code of a status; RDZV_E_PROTOCOL for one that this version does not know. */
int wire_code_of(uint8_t status);

/* What a caller gets whose request was refused, or its connection: the code of the status, but
 *   RDZV_E_CONNECTION for RDZV_E_TIMEOUT: the server gave the connection up;
 *   RDZV_E_PROTOCOL for RDZV_E_CANCELED: the caller did not cancel. */
int wire_refusal_code(uint8_t status);

void wire_put_refusal(struct wire_writer *out, int code, const char *text);

/* Refuses a request of a native node (wire/native.h): the number of the join, the epoch of the resumption, the number
 * of the query, or 0. A long text is cut. */
void wire_put_native_refusal(struct wire_writer *out, enum wire_op op, uint64_t number, int code, const char *text);

/* The value of a refusal. */
struct wire_refusal {
  int asked; /* the operation (enum wire_op) of native nodes that is refused; -1: another one, or the connection */
  uint64_t number; /* of that request; 0: it has none, or it could not be read */
  rdzv_bytes text;
};

/* False: it is cut off. */
bool wire_read_refusal(rdzv_bytes value, struct wire_refusal *out);

#endif
