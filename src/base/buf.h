/* SPDX-License-Identifier: BSD-3-Clause */
/* A growing buffer. All zero is an empty one. */
#ifndef RDZV_BASE_BUF_H
#define RDZV_BASE_BUF_H

#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
  uint8_t *data;
  size_t len; /* used, <= cap */
  size_t cap;
};

/* Makes room for `more` bytes after the used ones. False: no memory, and nothing has changed. */
static inline bool buf_reserve(struct buf *buf, size_t more);

/* The same, without spare room. */
bool buf_reserve_exactly(struct buf *buf, size_t more);
static inline bool buf_append(struct buf *buf, const void *data, size_t len);

/* Drops the first `len` used bytes. */
void buf_consume(struct buf *buf, size_t len);
void buf_free(struct buf *buf);

/* Copies bytes for a caller of the library, with a byte 0 behind them. False: no memory, and *out is unchanged. */
bool value_copy(rdzv_value *out, const void *data, size_t len);

static inline bool bytes_equal(rdzv_bytes a, rdzv_bytes b) {
  return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* memcpy that also takes a NULL source where the length is 0. */
static inline void bytes_copy(void *to, const void *from, size_t len) {
  if (len > 0) memcpy(to, from, len); /* NOLINT: a buffer with room has data */
}

/* Inline, since each answer of the server consists of a few short pieces. buf_grow is the rest of buf_reserve. */
bool buf_grow(struct buf *buf, size_t more);

static inline bool buf_reserve(struct buf *buf, size_t more) {
  return more <= buf->cap - buf->len || buf_grow(buf, more);
}

static inline bool buf_append(struct buf *buf, const void *data, size_t len) {
  if (!buf_reserve(buf, len)) return false;
  bytes_copy(buf->data + buf->len, data, len);
  buf->len += len;
  return true;
}

/* A key in a message: bytes that are not printable ASCII are \xNN, and a long key ends with "…". */
struct quoted {
  char text[96];
};
struct quoted bytes_quote(rdzv_bytes bytes);

#endif
