/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of peers, for people. What a terminal would obey, or a reader mistake for another line, is replaced by its
 * number. */
#include "base/text/printable.h"

#include "base/text/utf8.h"

#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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
    char piece[16];
    const size_t len = utf8_length(data + i, text.len - i);
    const uint32_t c = len > 0 ? utf8_next(&(rdzv_bytes){data + i, len}) : 0;
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

bool is_plain(const char *text) {
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
