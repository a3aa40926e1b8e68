/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BYTES_H
#define RDZV_BYTES_H

#include <rdzv/api.h>
#include <stddef.h>
#include <string.h>

/* Bytes that somebody else owns. data may be NULL where len is 0. */
typedef struct rdzv_bytes {
  const void *data;
  size_t len;
} rdzv_bytes;

/* Bytes that the caller owns, to be freed with rdzv_value_free. data is never NULL after success, and one zero byte
 * that len does not count stands behind the last, so that text can be used as text. */
typedef struct rdzv_value {
  char *data;
  size_t len;
} rdzv_value;

RDZV_BEGIN

/* The bytes of a C string, without its end. */
static inline rdzv_bytes rdzv_str(const char *text) {
  rdzv_bytes bytes = {text, strlen(text)};
  return bytes;
}

/* The bytes of a value, valid as long as it is. */
static inline rdzv_bytes rdzv_value_bytes(const rdzv_value *value) {
  rdzv_bytes bytes = {value->data, value->len};
  return bytes;
}

/* Frees what a call put there and empties it; an empty value or NULL is fine. */
RDZV_API void rdzv_value_free(rdzv_value *value);

/* rdzv_value_free for each of count values, then frees the array itself, which a call made. */
RDZV_API void rdzv_values_free(rdzv_value *values, size_t count);

/* Writes the text so that it is harmless on a terminal and stays on one line: what is not UTF-8, and controls other
 * than a tab, become "\\x1b", marks that turn the direction of writing "\\u202e". At most `size` bytes with the zero at
 * the end, never half a character; gives the number of bytes before the zero. Keys, names and addresses come from
 * others: errors and log lines of this library are printable already. */
RDZV_API size_t rdzv_printable(rdzv_bytes text, char *out, size_t size);

RDZV_END

#endif
