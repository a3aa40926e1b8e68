/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scans the fields of one message, request or answer, from any split of the stream, without copying. The scanner keeps
 * offsets and continues where it stopped, so a message that arrives byte by byte is scanned once. Each length and count
 * is checked against its limit before it is used. After WIRE_RESULT_BAD the scanner must be started again.
 */
#ifndef RDZV_WIRE_SCAN_H
#define RDZV_WIRE_SCAN_H

#include <endian.h>
#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wire_limits {
  size_t max_key;     /* bytes in a key, without the slash that clients put before each */
  size_t max_value;   /* bytes in a value */
  size_t max_count;   /* keys in a list */
  size_t max_message; /* bytes in a whole message */
};

enum wire_result { WIRE_RESULT_MORE, WIRE_RESULT_DONE, WIRE_RESULT_BAD };

enum { WIRE_MAX_FIELDS = 4 };

struct wire_field {
  size_t at;       /* offset of the bytes, behind their length */
  size_t len;      /* of a list: all its bytes */
  uint64_t number; /* the number, or the count of a list */
};

struct wire_scan {
  const char *fields; /* still to scan: those of wire/op.h, b for one byte, V for a list of `items` values */
  size_t pos;         /* bytes scanned */
  size_t want;        /* after WIRE_RESULT_MORE: the message is at least this long */
  uint64_t items;     /* left in the list under way */
  bool in_list;
  int count; /* of fields scanned */
  struct wire_field field[WIRE_MAX_FIELDS];
  const char *why; /* after WIRE_RESULT_BAD */
  bool over_limit; /* the reason is that `size` is over `limit` */
  uint64_t size, limit;
};

static inline void wire_scan_start(struct wire_scan *scan, const char *fields, size_t pos) {
  scan->fields = fields; /* the other members are written before they are read: this is done for each request */
  scan->pos = pos;
  scan->items = 0;
  scan->in_list = false;
  scan->count = 0;
}

/* `data` is the message as far as it has come. It may have moved since the last call, but must begin the same. */
enum wire_result wire_scan(struct wire_scan *scan, const struct wire_limits *limits, const uint8_t *data, size_t len);

/* The bytes of a field that was scanned. */
static inline rdzv_bytes wire_field_bytes(const struct wire_scan *scan, int i, const uint8_t *data) {
  return (rdzv_bytes){data + scan->field[i].at, scan->field[i].len};
}

static inline uint32_t wire_load32(const uint8_t *data) {
  uint32_t number;
  memcpy(&number, data, sizeof number);
  return le32toh(number);
}

static inline uint64_t wire_load64(const uint8_t *data) {
  uint64_t number;
  memcpy(&number, data, sizeof number);
  return le64toh(number);
}

/* Takes the first item off a list that was scanned. */
static inline rdzv_bytes wire_list_next(rdzv_bytes *list) {
  const uint8_t *data = list->data;
  const size_t len = (size_t)wire_load64(data);
  *list = (rdzv_bytes){data + 8 + len, list->len - 8 - len};
  return (rdzv_bytes){data + 8, len};
}

#endif
