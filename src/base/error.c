/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"

#include "base/text/printable.h"

#include <errno.h>
#include <rdzv/bytes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct row {
  int code;
  rdzv_error_class class_;
  const char *name;
  const char *text;
};

static const struct row rows[] = {{RDZV_OK, RDZV_ERROR_CLASS_OK, "OK", "no error"},
#define ROW(name, number, class_, text) {number, RDZV_ERROR_CLASS_##class_, #name, text},
                                  RDZV_ERROR_LIST(ROW)
#undef ROW
};

/* The codes are 0, -1, -2 … in the order of the list, so that a code is an index. */
#define CHECK_ORDER(name, number, class_, text) ERROR_INDEX_##name,
enum { ERROR_INDEX_OK, RDZV_ERROR_LIST(CHECK_ORDER) };
#undef CHECK_ORDER
#define CHECK_ORDER(name, number, class_, text) \
  _Static_assert(ERROR_INDEX_##name == -(number), "error " #name " is out of order");
RDZV_ERROR_LIST(CHECK_ORDER)
#undef CHECK_ORDER

static const struct row unknown = {0, RDZV_ERROR_CLASS_UNCERTAIN, "UNKNOWN", "unknown error"};

static const struct row *row_of(int code) {
  const int count = (int)(sizeof rows / sizeof rows[0]);
  return code <= 0 && code > -count ? &rows[-code] : &unknown;
}

const char *rdzv_error_text(int code) { return row_of(code)->text; }
const char *rdzv_error_name(int code) { return row_of(code)->name; }
rdzv_error_class rdzv_error_class_of(int code) { return row_of(code)->class_; }

_Static_assert(sizeof(rdzv_error) == 1024, "a program that was compiled before has room for so much");

/* ---- filling -------------------------------------------------------------------------------------------------- */

static bool is_inside_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* Copies a text; of one that is too long begin and end, for the innermost cause is last. Never half a character. */
static void copy_ends(char out[RDZV_MESSAGE_SIZE], const char *text) {
  static const char gap[] = " ... ";
  const size_t len = strlen(text);
  if (len < RDZV_MESSAGE_SIZE) {
    memcpy(out, text, len + 1);
    return;
  }
  size_t head = RDZV_MESSAGE_SIZE / 4;
  while (is_inside_character(text[head])) head--;
  const char *tail = text + len - (RDZV_MESSAGE_SIZE - head - sizeof gap);
  while (is_inside_character(*tail)) tail++;
  snprintf(out, RDZV_MESSAGE_SIZE, "%.*s%s%s", (int)head, text, gap, tail);
}

/* For a text that is long, or is not plain. False: no memory. */
RDZV_PRINTF(2, 0)
static bool put_long(char out[RDZV_MESSAGE_SIZE], const char *format, va_list args) {
  enum { MOST_WIDE = 4 }; /* "\\x1b" for one byte */
  char *text;
  const int len = vasprintf(&text, format, args);
  if (len < 0) return false;
  const size_t size = MOST_WIDE * (size_t)len + 1;
  char *shown = malloc(size);
  if (shown) {
    rdzv_printable((rdzv_bytes){text, (size_t)len}, shown, size);
    copy_ends(out, shown);
  }
  free(shown);
  free(text);
  return shown != NULL;
}

int error_set(rdzv_error *error, int code, const char *format, ...) {
  if (!error) return code;
  error->code = code;
  memset(error->reserved, 0, sizeof error->reserved);
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int len = vsnprintf(error->message, sizeof error->message, format, args);
  const bool fits = (size_t)len < sizeof error->message && is_plain(error->message);
  if (!fits && !put_long(error->message, format, again)) printable_in_place(error->message, sizeof error->message);
  va_end(again);
  va_end(args);
  return code;
}

static void describe_limit(char *out, size_t size) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  snprintf(out, size, " (the limit is %llu, see ulimit -n)", (unsigned long long)limit.rlim_cur);
}

int error_errno(rdzv_error *error, int code, int errnum, const char *format, ...) {
  if (!error) return code;
  char what[RDZV_MESSAGE_SIZE], cause[128];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  char limit[64] = "";
  if (errnum == EMFILE) describe_limit(limit, sizeof limit);
  return error_set(error, code, "%s: %s%s", what, strerror_r(errnum, cause, sizeof cause), limit);
}

int error_prefix(rdzv_error *error, int code, const char *format, ...) {
  if (!error) return code;
  char inner[RDZV_MESSAGE_SIZE], outer[RDZV_MESSAGE_SIZE];
  const bool filled = error->code < 0;
  /* A creator or backend of others may have filled it without an end. */
  snprintf(inner, sizeof inner, "%.*s", (int)sizeof inner - 1, filled ? error->message : rdzv_error_text(code));
  va_list args;
  va_start(args, format);
  vsnprintf(outer, sizeof outer, format, args);
  va_end(args);
  return error_set(error, filled ? error->code : code, "%s: %s", outer, inner);
}

void error_append(rdzv_error *error, const char *format, ...) {
  if (!error) return;
  const size_t len = strlen(error->message);
  va_list args;
  va_start(args, format);
  vsnprintf(error->message + len, sizeof error->message - len, format, args);
  va_end(args);
  printable_in_place(error->message, sizeof error->message);
}

int error_no_memory(rdzv_error *error) { return error_set(error, RDZV_E_NO_MEMORY, "out of memory"); }

int error_null(rdzv_error *error, const char *call, const char *name) {
  return error_set(error, RDZV_E_INVALID, "%s: '%s' is NULL", call, name);
}

int error_timeout(rdzv_error *error, int64_t timeout_ms) {
  return error_set(error, RDZV_E_INVALID, "invalid timeout of %lld ms: it is negative", (long long)timeout_ms);
}
