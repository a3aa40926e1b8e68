/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of others, for people. Whatever a terminal would obey, or a reader take for another line, is shown by its
 * number instead. */
#include "base/text/printable.h"

#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The character that begins there; gives its length, 0 where it is not UTF-8. */
static size_t decode(const unsigned char *at, size_t left, uint32_t *out) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const size_t len = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
  if (len == 0 || len > left) return 0;
  *out = len == 1 ? at[0] : at[0] & (0xffU >> (len + 1));
  for (size_t i = 1; i < len; i++) {
    if (at[i] >> 6 != 2) return 0;
    *out = *out << 6 | (at[i] & 0x3f);
  }
  const bool valid = *out >= least[len] && *out <= 0x10ffff && (*out < 0xd800 || *out > 0xdfff);
  return valid ? len : 0;
}

/* Controls, line ends, and marks that turn the direction of writing. */
static bool is_harmless(uint32_t c) {
  if (c == '\t') return true;
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
  return !(c == 0x2028 || c == 0x2029 || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0xfeff);
}

size_t rdzv_printable(rdzv_bytes text, char *out, size_t size) {
  const unsigned char *data = text.data;
  size_t used = 0;
  for (size_t i = 0; i < text.len;) {
    uint32_t c = 0;
    char piece[16];
    const size_t len = decode(data + i, text.len - i, &c);
    const bool harmless = len > 0 && is_harmless(c);
    const int wide = harmless              ? snprintf(piece, sizeof piece, "%.*s", (int)len, (const char *)data + i)
                     : len > 0 && c > 0xff ? snprintf(piece, sizeof piece, "\\u%04x", c)
                     : len > 0             ? snprintf(piece, sizeof piece, "\\x%02x", c)
                                           : snprintf(piece, sizeof piece, "\\x%02x", data[i]);
    if (used + (size_t)wide + 1 > size) break; /* never half a character */
    memcpy(out + used, piece, (size_t)wide);
    used += (size_t)wide;
    i += len > 0 ? len : 1;
  }
  if (size > 0) out[used] = '\0';
  return used;
}

static bool is_plain(const char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e) return false;
  return true;
}

void printable_in_place(char *text, size_t size) {
  if (is_plain(text)) return;
  char copy[PRINTABLE_MOST];
  snprintf(copy, sizeof copy, "%s", text);
  rdzv_printable(rdzv_str(copy), text, size);
}
