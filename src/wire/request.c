/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/request.h"

static enum wire_result bad(struct wire_decoder *decoder, const char *why) {
  decoder->scan.why = why;
  decoder->scan.over_limit = false;
  return WIRE_RESULT_BAD;
}

/* A V2 client begins with VALIDATE. In V1 a first byte 0 is SET, and the magic would be a key of 1 GB; any other
 * first byte is V1. */
static enum wire_result find_dialect(struct wire_decoder *decoder, const uint8_t *data, size_t len) {
  const size_t hello = 5;
  decoder->scan.want = hello;
  if (data[0] != 0) {
    decoder->dialect = WIRE_DIALECT_V1;
  } else if (len < hello) {
    return WIRE_RESULT_MORE;
  } else {
    decoder->dialect = wire_load32(data + 1) == WIRE_MAGIC ? WIRE_DIALECT_V2 : WIRE_DIALECT_V1;
  }
  return WIRE_RESULT_DONE;
}

static enum wire_result begin(struct wire_decoder *decoder, const uint8_t *data, size_t len) {
  if (decoder->dialect == WIRE_DIALECT_UNKNOWN) {
    const enum wire_result result = find_dialect(decoder, data, len);
    if (result != WIRE_RESULT_DONE) return result;
  }
  decoder->op = wire_op_of(decoder->dialect, data[0]);
  if (decoder->op < 0) return bad(decoder, "an unknown operation");
  if (decoder->op == WIRE_OP_VALIDATE && decoder->requests > 0) return bad(decoder, "a second VALIDATE");
  wire_scan_start(&decoder->scan, wire_ops[decoder->op].fields, 1);
  decoder->started = true;
  return WIRE_RESULT_DONE;
}

static void clear(struct wire_request *out) {
  out->key = out->value = out->desired = out->list = (rdzv_bytes){0};
  out->number = out->epoch = 0;
  out->count = 0;
}

static void fill(const struct wire_decoder *decoder, const uint8_t *data, struct wire_request *out) {
  const struct wire_scan *scan = &decoder->scan;
  clear(out);
  out->size = scan->pos;
  const char *fields = wire_ops[decoder->op].fields;
  bool value_seen = false, number_seen = false;
  for (int i = 0; i < scan->count; i++) {
    const rdzv_bytes bytes = wire_field_bytes(scan, i, data);
    if (fields[i] == 'k') {
      out->key = bytes;
    } else if (fields[i] == 'v') {
      *(value_seen ? &out->desired : &out->value) = bytes;
      value_seen = true;
    } else if (fields[i] == 'K' || fields[i] == 'P') {
      out->list = bytes;
      out->count = (size_t)scan->field[i].number;
    } else {
      *(number_seen ? &out->epoch : &out->number) = scan->field[i].number;
      number_seen = true;
    }
  }
}

/* Takes a length and its bytes, if all of them have come and they are not over `most`. */
static inline bool take(const uint8_t *data, size_t len, size_t *pos, size_t most, rdzv_bytes *out) {
  if (len - *pos < 8) return false;
  const uint64_t size = wire_load64(data + *pos);
  if (size > most || size > len - *pos - 8) return false;
  *out = (rdzv_bytes){data + *pos + 8, (size_t)size};
  *pos += 8 + (size_t)size;
  return true;
}

/* Decodes a request of few fields that has come whole, as most have, without noting how far it went. False: it is
 * another one, and wire_scan walks it. */
static bool decode_whole(const char *fields, const struct wire_limits *limits, const uint8_t *data, size_t len,
                         struct wire_request *out) {
  size_t pos = 1;
  rdzv_bytes *value = &out->value;
  uint64_t *number = &out->number;
  clear(out);
  for (; *fields; fields++) {
    if (*fields == 'k') {
      if (!take(data, len, &pos, limits->max_key, &out->key)) return false;
    } else if (*fields == 'v') {
      if (!take(data, len, &pos, limits->max_value, value)) return false;
      value = &out->desired;
    } else if (*fields == 'n' && len - pos >= 8) {
      *number = wire_load64(data + pos);
      number = &out->epoch;
      pos += 8;
    } else if (*fields == 'K' && len - pos >= 8 && wire_load64(data + pos) == 1 && limits->max_count > 0) {
      out->count = 1;
      pos += 8;
      if (!take(data, len, &pos, limits->max_key, &out->list)) return false;
      out->list = (rdzv_bytes){data + 9, pos - 9};
    } else {
      return false;
    }
  }
  out->size = pos;
  return pos <= limits->max_message;
}

enum wire_result wire_decode(struct wire_decoder *decoder, const struct wire_limits *limits, const uint8_t *data,
                             size_t len, struct wire_request *out) {
  if (len == 0) return WIRE_RESULT_MORE;
  if (!decoder->started) {
    const enum wire_result result = begin(decoder, data, len);
    if (result != WIRE_RESULT_DONE) return result;
  }
  if (decoder->scan.pos > 1 || !decode_whole(decoder->scan.fields, limits, data, len, out)) {
    const enum wire_result result = wire_scan(&decoder->scan, limits, data, len);
    if (result != WIRE_RESULT_DONE) return result;
    fill(decoder, data, out);
  }
  out->op = (enum wire_op)decoder->op;
  decoder->started = false;
  decoder->requests++;
  return WIRE_RESULT_DONE;
}
