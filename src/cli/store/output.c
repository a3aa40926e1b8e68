/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/store/output.h"

#include "cli/cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIECE = 1024 };

/* Takes over the object. */
static int print_json(json_t *object, FILE *to) {
  const int failed = json_dumpf(object, to, JSON_COMPACT);
  json_decref(object);
  return failed || fputc('\n', to) == EOF ? -1 : 0;
}

/* A full disk or a closed pipe behind stdout must not look like success. */
static int finish(int failed, int code) {
  if (!failed && fflush(stdout) == 0) return code;
  complain("rdzv store", "cannot write the answer: %s", strerror(errno));
  return EXIT_IO;
}

static json_t *hex(rdzv_bytes bytes) {
  static const char digits[] = "0123456789abcdef";
  char *text = malloc(2 * bytes.len + 1);
  if (!text) return NULL;
  for (size_t i = 0; i < bytes.len; i++) {
    const unsigned char byte = ((const unsigned char *)bytes.data)[i];
    text[2 * i] = digits[byte >> 4];
    text[2 * i + 1] = digits[byte & 15];
  }
  json_t *string = json_stringn(text, 2 * bytes.len);
  free(text);
  return string;
}

static void put_bytes(json_t *object, const char *name, rdzv_bytes bytes) {
  json_t *text = json_stringn(bytes.data, bytes.len);
  if (text) {
    json_object_set_new(object, name, text);
    return;
  }
  char hex_name[32];
  snprintf(hex_name, sizeof hex_name, "%s_hex", name);
  json_object_set_new(object, hex_name, hex(bytes));
}

/* On a terminal, where it is neither obeyed nor mistaken: each line by itself, in pieces. */
static int print_shown(rdzv_bytes bytes, bool lines) {
  const char *at = bytes.data, *end = at + bytes.len;
  while (at < end) {
    const char *line_end = lines ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    const size_t left = (size_t)((line_end ? line_end : end) - at);
    size_t len = left < PIECE ? left : PIECE;
    for (int i = 0; i < 3 && len < left && (at[len] & 0xc0) == 0x80; i++) len--; /* not within a character */
    char text[6 * PIECE + 1];
    rdzv_printable((rdzv_bytes){at, len}, text, sizeof text);
    if (fputs(text, stdout) == EOF || (line_end && len == left && fputc('\n', stdout) == EOF)) return -1;
    at += len + (line_end && len == left);
  }
  return fputc('\n', stdout) == EOF ? -1 : 0;
}

static int print_bytes(rdzv_bytes bytes, bool raw) {
  if (!raw && isatty(STDOUT_FILENO)) return print_shown(bytes, true);
  const bool written = fwrite(bytes.data, 1, bytes.len, stdout) == bytes.len;
  return written && (raw || fputc('\n', stdout) != EOF) ? 0 : -1;
}

int output_done(bool json) { return finish(json ? print_json(json_pack("{s:b}", "ok", 1), stdout) : 0, EXIT_YES); }

int output_flag(bool json, const char *name, bool flag) {
  return finish(json ? print_json(json_pack("{s:b}", name, flag), stdout) : 0, flag ? EXIT_YES : EXIT_NO);
}

int output_number(bool json, const char *name, int64_t number) {
  if (json) return finish(print_json(json_pack("{s:I}", name, (json_int_t)number), stdout), EXIT_YES);
  return finish(printf("%lld\n", (long long)number) < 0, EXIT_YES);
}

static json_t *pair(rdzv_bytes key, rdzv_bytes value) {
  json_t *object = json_object();
  put_bytes(object, "key", key);
  put_bytes(object, "value", value);
  return object;
}

int output_value(bool json, bool raw, rdzv_bytes key, rdzv_bytes value) {
  return finish(json ? print_json(pair(key, value), stdout) : print_bytes(value, raw), EXIT_YES);
}

int output_swap(bool json, bool raw, rdzv_bytes key, rdzv_bytes value, bool swapped) {
  const int code = swapped ? EXIT_YES : EXIT_NO;
  if (!json) return finish(print_bytes(value, raw), code);
  json_t *object = pair(key, value);
  json_object_set_new(object, "swapped", json_boolean(swapped));
  return finish(print_json(object, stdout), code);
}

int output_values(bool json, const rdzv_bytes *keys, const rdzv_value *values, size_t count) {
  int failed = 0;
  json_t *array = json ? json_array() : NULL;
  for (size_t i = 0; i < count && !failed; i++) {
    if (json)
      json_array_append_new(array, pair(keys[i], rdzv_value_bytes(&values[i])));
    else
      failed = print_bytes(rdzv_value_bytes(&values[i]), false);
  }
  if (json) failed = print_json(json_pack("{s:o}", "values", array), stdout);
  return finish(failed, EXIT_YES);
}

int output_keys(bool json, const rdzv_value *keys, size_t count) {
  int failed = 0;
  json_t *array = json ? json_array() : NULL;
  for (size_t i = 0; i < count && !failed; i++) {
    json_t *text = json ? json_stringn(keys[i].data, keys[i].len) : NULL;
    if (json)
      json_array_append_new(array, text ? text : json_pack("{s:o}", "key_hex", hex(rdzv_value_bytes(&keys[i]))));
    else
      failed = isatty(STDOUT_FILENO) ? print_shown(rdzv_value_bytes(&keys[i]), false)
                                     : print_bytes(rdzv_value_bytes(&keys[i]), false);
  }
  if (json) failed = print_json(json_pack("{s:o}", "keys", array), stdout);
  return finish(failed, EXIT_YES);
}

void output_error(bool json, const char *command, const rdzv_error *error) {
  if (!json) {
    complain(command, "%s", error->message);
    return;
  }
  json_t *inner = json_pack("{s:s, s:s}", "code", rdzv_error_name(error->code), "message", error->message);
  print_json(json_pack("{s:o}", "error", inner), stderr);
}
