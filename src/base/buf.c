/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

static bool resize(struct buf *buf, size_t cap) {
  uint8_t *data = realloc(buf->data, cap);
  if (!data) return false;
  buf->data = data;
  buf->cap = cap;
  return true;
}

bool buf_grow(struct buf *buf, size_t more) {
  if (more > SIZE_MAX / 2 - buf->len) return false;
  size_t cap = buf->cap ? buf->cap : 64;
  while (cap < buf->len + more) cap *= 2;
  return resize(buf, cap);
}

bool buf_reserve_exactly(struct buf *buf, size_t more) {
  if (more <= buf->cap - buf->len) return true;
  return more <= SIZE_MAX / 2 - buf->len && resize(buf, buf->len + more);
}

void buf_consume(struct buf *buf, size_t len) {
  buf->len -= len;
  if (buf->len > 0) memmove(buf->data, buf->data + len, buf->len);
}

void buf_free(struct buf *buf) {
  free(buf->data);
  *buf = (struct buf){0};
}

bool value_copy(rdzv_value *out, const void *data, size_t len) {
  char *copy = malloc(len + 1);
  if (!copy) return false;
  bytes_copy(copy, data, len);
  copy[len] = '\0';
  *out = (rdzv_value){copy, len};
  return true;
}

void rdzv_value_free(rdzv_value *value) {
  if (!value) return;
  free(value->data);
  *value = (rdzv_value){0};
}

void rdzv_values_free(rdzv_value *values, size_t count) {
  for (size_t i = 0; values && i < count; i++) free(values[i].data);
  free(values);
}

struct quoted bytes_quote(rdzv_bytes bytes) {
  struct quoted quoted;
  const unsigned char *data = bytes.data;
  const size_t room = sizeof quoted.text - 4; /* for "…" and the end */
  size_t at = 0, i = 0;
  for (; i < bytes.len; i++) {
    const bool plain = data[i] >= 0x20 && data[i] < 0x7f && data[i] != '\\' && data[i] != '\'';
    if (at + (plain ? 1 : 4) > room) break;
    if (plain)
      quoted.text[at++] = (char)data[i];
    else
      at += (size_t)snprintf(quoted.text + at, 5, "\\x%02x", data[i]);
  }
  snprintf(quoted.text + at, sizeof quoted.text - at, "%s", i < bytes.len ? "…" : "");
  return quoted;
}
