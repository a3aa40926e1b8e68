/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/utf8.h"

/* How many bytes a character has that begins so; 0: none does. */
static size_t length_of(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0; /* not the first of any, or overlong */
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

static bool is_character(const uint8_t *at, size_t size) {
  for (size_t i = 1; i < size; i++)
    if ((at[i] & 0xc0) != 0x80) return false;
  if (at[0] == 0xe0) return at[1] >= 0xa0; /* else overlong */
  if (at[0] == 0xed) return at[1] < 0xa0;  /* else a surrogate */
  if (at[0] == 0xf0) return at[1] >= 0x90; /* else overlong */
  return at[0] != 0xf4 || at[1] < 0x90;    /* else over U+10FFFF */
}

size_t utf8_length(const void *data, size_t left) {
  const size_t size = length_of(*(const uint8_t *)data);
  return size <= left && (size <= 1 || is_character(data, size)) ? size : 0;
}

bool utf8_is_valid(rdzv_bytes text) {
  const uint8_t *at = text.data;
  for (size_t left = text.len, size; left > 0; at += size, left -= size) {
    size = utf8_length(at, left);
    if (size == 0) return false;
  }
  return true;
}

uint32_t utf8_next(rdzv_bytes *text) {
  const uint8_t *at = text->data;
  const size_t size = length_of(*at);
  uint32_t point = size == 1 ? *at : *at & (0x7fu >> size);
  for (size_t i = 1; i < size; i++) point = point << 6 | (at[i] & 0x3fu);
  *text = (rdzv_bytes){at + size, text->len - size};
  return point;
}
