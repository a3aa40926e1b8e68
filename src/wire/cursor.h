/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Takes fields off the front of a message that has come whole. The first field that is not there, or not as it must be,
 * is noted by name, and all later ones are 0 or "": callers check once, at the end.
 */
#ifndef RDZV_WIRE_CURSOR_H
#define RDZV_WIRE_CURSOR_H

#include "wire/scan.h"

#include <rdzv/error.h>

struct wire_cursor {
  const uint8_t *at;
  size_t left;
  const char *bad; /* the name of the first bad field; NULL: none */
};

static inline struct wire_cursor wire_cursor(rdzv_bytes bytes) {
  return (struct wire_cursor){.at = bytes.data, .left = bytes.len};
}

/* NULL: they are not there. */
const uint8_t *wire_take(struct wire_cursor *cursor, size_t len, const char *name);
uint8_t wire_take8(struct wire_cursor *cursor, uint8_t most, const char *name);
uint64_t wire_take64(struct wire_cursor *cursor, const char *name);

/* A number between these. */
int64_t wire_take_number(struct wire_cursor *cursor, int64_t least, int64_t most, const char *name);

/* A number in as few bytes as it needs, 7 bits in each; and one with a sign. */
uint64_t wire_take_short(struct wire_cursor *cursor, const char *name);
int64_t wire_take_signed(struct wire_cursor *cursor, const char *name);

/* A text: u16 length, UTF-8 without a byte 0, and a byte 0 that the length does not count. */
const char *wire_take_text(struct wire_cursor *cursor, size_t least, size_t most, const char *name);

void wire_note_bad(struct wire_cursor *cursor, const char *name);

/* RDZV_E_PROTOCOL: a field was bad, or something follows the last one. `what` names the message. */
int wire_cursor_end(const struct wire_cursor *cursor, const char *what, rdzv_error *error);

#endif
