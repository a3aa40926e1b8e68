/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/base64.h"

static const char digits[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool base64_encode(rdzv_bytes bytes, struct buf *out) {
  if (bytes.len > SIZE_MAX / 2 || !buf_reserve(out, (bytes.len + 2) / 3 * 4 + 1)) return false;
  const uint8_t *from = bytes.data;
  uint8_t *to = out->data + out->len;
  size_t left = bytes.len;
  for (; left >= 3; left -= 3, from += 3) {
    const uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
    for (int shift = 18; shift >= 0; shift -= 6) *to++ = (uint8_t)digits[bits >> shift & 63];
  }
  if (left > 0) {
    const uint32_t bits = (uint32_t)from[0] << 16 | (left == 2 ? (uint32_t)from[1] << 8 : 0);
    *to++ = (uint8_t)digits[bits >> 18];
    *to++ = (uint8_t)digits[bits >> 12 & 63];
    *to++ = left == 2 ? (uint8_t)digits[bits >> 6 & 63] : '=';
    *to++ = '=';
  }
  *to = '\0';
  out->len = (size_t)(to - out->data);
  return true;
}

enum { NO_DIGIT = 64 };

static void fill(uint8_t values[256]) {
  for (int i = 0; i < 256; i++) values[i] = NO_DIGIT;
  for (int i = 0; i < NO_DIGIT; i++) values[(uint8_t)digits[i]] = (uint8_t)i;
}

/* Four digits, of which the last `padding` are '='. False: they are none, or bits that no byte has are set. */
static bool decode_four(const uint8_t values[256], const uint8_t four[4], int padding, uint8_t three[3]) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t value = i >= 4 - padding ? 0 : values[four[i]];
    if (value == NO_DIGIT) return false;
    bits = bits << 6 | value;
  }
  if (padding > 0 && (bits & ((1U << 8 * padding) - 1)) != 0) return false;
  for (int i = 0; i < 3; i++) three[i] = (uint8_t)(bits >> (16 - 8 * i));
  return true;
}

bool base64_decode(rdzv_bytes text, struct buf *out, bool *valid) {
  const uint8_t *from = text.data;
  uint8_t values[256];
  *valid = text.len % 4 == 0;
  if (!*valid || text.len == 0) return true;
  if (!buf_reserve(out, text.len / 4 * 3)) return false;
  const int padding = from[text.len - 1] != '=' ? 0 : from[text.len - 2] != '=' ? 1 : 2;
  uint8_t *to = out->data + out->len;
  fill(values);
  for (size_t at = 0; *valid && at < text.len; at += 4, to += 3)
    *valid = decode_four(values, from + at, at + 4 == text.len ? padding : 0, to);
  if (*valid) out->len = (size_t)(to - out->data) - (size_t)padding;
  return true;
}

bool base64_decode_value(rdzv_bytes text, rdzv_value *out, bool *valid) {
  struct buf bytes = {0};
  bool done = base64_decode(text, &bytes, valid);
  if (done && *valid) done = value_copy(out, bytes.data, bytes.len);
  buf_free(&bytes);
  return done;
}
