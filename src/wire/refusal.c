/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/refusal.h"

#include "wire/scan.h"

#include <rdzv/error.h>
#include <string.h>

enum { NATIVE_BYTES = 1 + 8 }; /* before the text: the operation and the number */

/* By status: the code that a caller gets. 0: no code has this status. */
#define SAME(name) [-RDZV_E_##name] = RDZV_E_##name
static const int8_t codes[UINT8_MAX + 1] = {
    [-RDZV_E_INVALID] = 0, /* WIRE_BYTE_CANCELED */
    SAME(NO_MEMORY),
    [-RDZV_E_TIMEOUT] = RDZV_E_CONNECTION,
    [-RDZV_E_CANCELED] = RDZV_E_PROTOCOL,
    SAME(CONNECTION),
    SAME(ADDRESS),
    SAME(OUTCOME_UNKNOWN),
    SAME(PROTOCOL),
    SAME(UNSUPPORTED),
    SAME(NOT_A_NUMBER),
    SAME(LIMIT),
    SAME(EMPTY),
    SAME(IO),
    SAME(NO_SPACE),
    SAME(CORRUPT),
    SAME(STALE),
    SAME(IN_USE),
    SAME(STOPPED),
    SAME(DATA_LOST),
    SAME(CLOSED),
    SAME(GRACEFUL_EXIT),
};
#undef SAME

uint8_t wire_status_of(int code) {
  const bool has_status = code < 0 && code >= -UINT8_MAX && codes[-code] != 0;
  return (uint8_t) - (has_status ? code : RDZV_E_PROTOCOL);
}

int wire_code_of(uint8_t status) { return codes[status] != 0 ? -(int)status : RDZV_E_PROTOCOL; }

int wire_refusal_code(uint8_t status) { return codes[status] != 0 ? codes[status] : RDZV_E_PROTOCOL; }

void wire_put_refusal(struct wire_writer *out, int code, const char *text) {
  wire_put8(out, wire_status_of(code));
  wire_put_bytes(out, rdzv_str(text));
}

void wire_put_native_refusal(struct wire_writer *out, enum wire_op op, uint64_t number, int code, const char *text) {
  const size_t len = strnlen(text, WIRE_MAX_REFUSAL - NATIVE_BYTES);
  wire_put8(out, wire_status_of(code));
  wire_put64(out, len + NATIVE_BYTES);
  wire_put_op(out, WIRE_DIALECT_RDZV, op);
  wire_put64(out, number);
  wire_put(out, text, len);
}

/* A sentence alone is ASCII, so it does not begin with the number of an operation of native nodes. */
bool wire_read_refusal(rdzv_bytes value, struct wire_refusal *out) {
  const uint8_t *data = value.data;
  const int op = value.len > 0 ? wire_op_of(WIRE_DIALECT_RDZV, data[0]) : -1;
  *out = (struct wire_refusal){.asked = op >= WIRE_OP_NODE_JOIN ? op : -1, .text = value};
  if (out->asked < 0) return true;
  if (value.len < NATIVE_BYTES) return false;
  out->number = wire_load64(data + 1);
  out->text = (rdzv_bytes){data + NATIVE_BYTES, value.len - NATIVE_BYTES};
  return true;
}
