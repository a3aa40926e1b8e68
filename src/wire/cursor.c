/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/cursor.h"

#include "base/error.h"
#include "base/text/utf8.h"

void wire_note_bad(struct wire_cursor *cursor, const char *name) {
  if (!cursor->bad) cursor->bad = name;
  cursor->left = 0;
}

const uint8_t *wire_take(struct wire_cursor *cursor, size_t len, const char *name) {
  const uint8_t *at = cursor->at;
  if (cursor->bad || len > cursor->left) {
    wire_note_bad(cursor, name);
    return NULL;
  }
  cursor->at += len;
  cursor->left -= len;
  return at;
}

uint8_t wire_take8(struct wire_cursor *cursor, uint8_t most, const char *name) {
  const uint8_t *at = wire_take(cursor, 1, name);
  if (!at) return 0;
  if (*at > most) wire_note_bad(cursor, name);
  return *at > most ? 0 : *at;
}

uint64_t wire_take64(struct wire_cursor *cursor, const char *name) {
  const uint8_t *at = wire_take(cursor, 8, name);
  return at ? wire_load64(at) : 0;
}

int64_t wire_take_number(struct wire_cursor *cursor, int64_t least, int64_t most, const char *name) {
  const int64_t number = (int64_t)wire_take64(cursor, name);
  if (!cursor->bad && (number < least || number > most)) wire_note_bad(cursor, name);
  return cursor->bad ? 0 : number;
}

uint64_t wire_take_short(struct wire_cursor *cursor, const char *name) {
  uint64_t number = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const uint8_t *at = wire_take(cursor, 1, name);
    if (!at) return 0;
    if (shift == 63 && *at > 1) break;
    number |= (uint64_t)(*at & 0x7f) << shift;
    if (!(*at & 0x80)) return number;
  }
  wire_note_bad(cursor, name);
  return 0;
}

int64_t wire_take_signed(struct wire_cursor *cursor, const char *name) {
  const uint64_t number = wire_take_short(cursor, name);
  return (int64_t)(number >> 1 ^ (0 - (number & 1)));
}

const char *wire_take_text(struct wire_cursor *cursor, size_t least, size_t most, const char *name) {
  const uint8_t *size = wire_take(cursor, 2, name);
  const size_t len = size ? size[0] | (size_t)size[1] << 8 : 0;
  if (len < least || len > most) wire_note_bad(cursor, name);
  const uint8_t *text = wire_take(cursor, len + 1, name);
  if (text && (memchr(text, 0, len) || text[len] != 0 || !utf8_is_valid((rdzv_bytes){text, len})))
    wire_note_bad(cursor, name);
  return cursor->bad ? "" : (const char *)text;
}

int wire_cursor_end(const struct wire_cursor *cursor, const char *what, rdzv_error *error) {
  if (cursor->bad) return error_set(error, RDZV_E_PROTOCOL, "%s is invalid: %s", what, cursor->bad);
  if (cursor->left > 0)
    return error_set(error, RDZV_E_PROTOCOL, "%s is invalid: %zu bytes too many", what, cursor->left);
  return 0;
}
