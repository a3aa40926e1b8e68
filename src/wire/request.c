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

static void fill(const struct wire_decoder *decoder, const uint8_t *data, struct wire_request *out) {
  const struct wire_scan *scan = &decoder->scan;
  out->op = (enum wire_op)decoder->op;
  out->size = scan->pos;
  out->key = out->value = out->desired = out->list = (rdzv_bytes){0};
  out->number = out->epoch = 0;
  out->count = 0;
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

enum wire_result wire_decode(struct wire_decoder *decoder, const struct wire_limits *limits, const uint8_t *data,
                             size_t len, struct wire_request *out) {
  if (len == 0) return WIRE_RESULT_MORE;
  if (!decoder->started) {
    const enum wire_result result = begin(decoder, data, len);
    if (result != WIRE_RESULT_DONE) return result;
  }
  const enum wire_result result = wire_scan(&decoder->scan, limits, data, len);
  if (result != WIRE_RESULT_DONE) return result;
  fill(decoder, data, out);
  decoder->started = false;
  decoder->requests++;
  return WIRE_RESULT_DONE;
}
