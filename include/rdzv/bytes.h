/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * Keys and values: bytes that are borrowed, bytes that are owned. Plain values, without effects on the process. */
#ifndef RDZV_BYTES_H
#define RDZV_BYTES_H

#include <rdzv/api.h>
#include <stddef.h>
#include <string.h>

/** Borrowed bytes: another object owns them. */
typedef struct rdzv_bytes {
  const void *data; /**< The first byte. May be NULL if len is 0. */
  size_t len;       /**< The number of bytes. */
} rdzv_bytes;

/** Owned bytes. Free them with rdzv_value_free. */
typedef struct rdzv_value {
  char *data; /**< The first byte; never NULL after a call succeeded. A zero byte, which len does not count, follows the
                 last byte, so text can be used as a C string. */
  size_t len; /**< The number of bytes. */
} rdzv_value;

RDZV_BEGIN

/** Returns the bytes of a C string without its terminating zero. */
static inline rdzv_bytes rdzv_str(const char *text) {
  rdzv_bytes bytes = {text, strlen(text)};
  return bytes;
}

/** Returns the bytes of a value. They are valid as long as the value is. */
static inline rdzv_bytes rdzv_value_bytes(const rdzv_value *value) {
  rdzv_bytes bytes = {value->data, value->len};
  return bytes;
}

/** Frees the bytes of a value and makes it empty. An empty value and NULL are ignored. */
RDZV_API void rdzv_value_free(rdzv_value *value);

/** Frees each of count values, then the array itself, which a call returned. */
RDZV_API void rdzv_values_free(rdzv_value *values, size_t count);

/** Copies a text so that it is safe to show on a terminal and stays on one line. Bytes that are not UTF-8, and control
 * characters other than a tab, become "\\x1b"; marks that change the direction of writing become "\\u202e". Writes at
 * most `size` bytes including the terminating zero, never half a character, and returns the number of bytes before the
 * zero. Keys, names and addresses come from other processes. Errors and log lines of this library are printable
 * already. */
RDZV_API size_t rdzv_printable(rdzv_bytes text, char *out, size_t size);

RDZV_END

#endif
