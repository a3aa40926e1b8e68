/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/scan.h"

static enum wire_result over_limit(struct wire_scan *scan, const char *why, uint64_t size, uint64_t limit) {
  scan->why = why;
  scan->over_limit = true;
  scan->size = size;
  scan->limit = limit;
  return WIRE_RESULT_BAD;
}

/* True when `need` bytes are there from pos on; else notes how long the message will be at least. */
static inline bool have(struct wire_scan *scan, size_t len, size_t need) {
  const size_t want = scan->pos + need;
  if (len >= want) return true;
  scan->want = want;
  return false;
}

static inline struct wire_field *note(struct wire_scan *scan, size_t at, size_t len, uint64_t number) {
  struct wire_field *field = &scan->field[scan->count++];
  *field = (struct wire_field){at, len, number};
  return field;
}

static inline enum wire_result number_field(struct wire_scan *scan, const uint8_t *data, size_t len, size_t size) {
  if (!have(scan, len, size)) return WIRE_RESULT_MORE;
  const uint8_t *at = data + scan->pos;
  note(scan, scan->pos, size, size == 1 ? *at : size == 4 ? wire_load32(at) : wire_load64(at));
  scan->pos += size;
  return WIRE_RESULT_DONE;
}

/* One length and its bytes; on WIRE_RESULT_DONE pos is behind them and *size their number. */
static inline enum wire_result sized(struct wire_scan *scan, const struct wire_limits *limits, const uint8_t *data,
                                     size_t len, bool key, size_t *size) {
  if (!have(scan, len, 8)) return WIRE_RESULT_MORE;
  const uint64_t bytes = wire_load64(data + scan->pos);
  if (key && bytes > 0 && bytes - 1 > limits->max_key)
    return over_limit(scan, "a key is too long", bytes - 1, limits->max_key);
  if (!key && bytes > limits->max_value) return over_limit(scan, "a value is too long", bytes, limits->max_value);
  const size_t room = limits->max_message > scan->pos ? limits->max_message - scan->pos : 0;
  if (room < 8 || bytes > room - 8)
    return over_limit(scan, "a message is too long", scan->pos + bytes, limits->max_message);
  if (!have(scan, len, 8 + (size_t)bytes)) return WIRE_RESULT_MORE;
  scan->pos += 8 + (size_t)bytes;
  *size = (size_t)bytes;
  return WIRE_RESULT_DONE;
}

static inline enum wire_result bytes_field(struct wire_scan *scan, const struct wire_limits *limits,
                                           const uint8_t *data, size_t len, bool key) {
  size_t size;
  const enum wire_result result = sized(scan, limits, data, len, key, &size);
  if (result == WIRE_RESULT_DONE) note(scan, scan->pos - size, size, 0);
  return result;
}

/* K and P carry their count; that of V is known beforehand. */
static enum wire_result list_begin(struct wire_scan *scan, const struct wire_limits *limits, const uint8_t *data,
                                   size_t len, char kind) {
  uint64_t count = scan->items;
  if (kind != 'V') {
    if (!have(scan, len, 8)) return WIRE_RESULT_MORE;
    count = wire_load64(data + scan->pos);
    scan->pos += 8;
  }
  if (count > limits->max_count || (kind == 'P' && count > UINT64_MAX / 2))
    return over_limit(scan, "too many keys", count, limits->max_count);
  note(scan, scan->pos, 0, count);
  scan->items = kind == 'P' ? 2 * count : count;
  scan->in_list = true;
  return WIRE_RESULT_DONE;
}

static enum wire_result list_field(struct wire_scan *scan, const struct wire_limits *limits, const uint8_t *data,
                                   size_t len, char kind) {
  if (!scan->in_list) {
    const enum wire_result result = list_begin(scan, limits, data, len, kind);
    if (result != WIRE_RESULT_DONE) return result;
  }
  for (; scan->items > 0; scan->items--) {
    const bool key = kind == 'K' || (kind == 'P' && scan->items % 2 == 0);
    size_t size;
    const enum wire_result result = sized(scan, limits, data, len, key, &size);
    if (result != WIRE_RESULT_DONE) return result;
  }
  struct wire_field *list = &scan->field[scan->count - 1];
  list->len = scan->pos - list->at;
  scan->in_list = false;
  return WIRE_RESULT_DONE;
}

static inline enum wire_result one_field(struct wire_scan *scan, const struct wire_limits *limits, const uint8_t *data,
                                         size_t len, char kind) {
  switch (kind) {
    case 'k': return bytes_field(scan, limits, data, len, true);
    case 'v': return bytes_field(scan, limits, data, len, false);
    case 'n': return number_field(scan, data, len, 8);
    case 'w': return number_field(scan, data, len, 4);
    case 'b': return number_field(scan, data, len, 1);
    default: return list_field(scan, limits, data, len, kind);
  }
}

enum wire_result wire_scan(struct wire_scan *scan, const struct wire_limits *limits, const uint8_t *data, size_t len) {
  for (; *scan->fields; scan->fields++) {
    const enum wire_result result = one_field(scan, limits, data, len, *scan->fields);
    if (result != WIRE_RESULT_DONE) return result;
  }
  return WIRE_RESULT_DONE;
}
