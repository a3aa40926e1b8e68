/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both request targets: a stream that is decoded in one piece and the same stream decoded as it comes in pieces, in
 * ever new memory, give the same requests and the same end; and no request reaches out of its stream or its limits.
 */
#ifndef RDZV_FUZZ_REQUEST_H
#define RDZV_FUZZ_REQUEST_H

#include "fuzz.h"
#include "wire/request.h"

static const struct wire_limits fuzz_limits = {.max_key = 64, .max_value = 256, .max_count = 16, .max_message = 1024};

static inline void check_bytes(rdzv_bytes bytes, const uint8_t *at, size_t size, size_t most) {
  if (!bytes.data) return; /* the request has no such field */
  CHECK(bytes.len <= most);
  CHECK((const uint8_t *)bytes.data > at && (const uint8_t *)bytes.data + bytes.len <= at + size);
}

static inline void check_request(const struct wire_request *request, const uint8_t *at, size_t len) {
  const struct wire_limits *limits = &fuzz_limits;
  const bool pairs = strcmp(wire_ops[request->op].fields, "P") == 0;
  CHECK(request->size >= 1 && request->size <= len && request->size <= limits->max_message + 16);
  check_bytes(request->key, at, request->size, limits->max_key + 1);
  check_bytes(request->value, at, request->size, limits->max_value);
  check_bytes(request->desired, at, request->size, limits->max_value);
  check_bytes(request->list, at, request->size, request->size);
  CHECK(request->count <= limits->max_count);
  rdzv_bytes list = request->list;
  for (size_t i = 0; i < request->count * (pairs ? 2 : 1); i++)
    check_bytes(wire_list_next(&list), at, request->size, pairs ? limits->max_value : limits->max_key + 1);
  CHECK(list.len == 0);
}

/* As the server does: the second request may ask for our own dialect. */
static inline void note_hello(struct wire_decoder *decoder, const struct wire_request *request) {
  if (decoder->dialect == WIRE_DIALECT_V2 && decoder->requests == 2 && request->op == WIRE_OP_PING &&
      request->number == WIRE_HELLO_NONCE)
    decoder->dialect = WIRE_DIALECT_RDZV;
}

/* Decodes the next request as it comes in pieces. The pieces before the last must not be enough. */
static inline enum wire_result decode_pieces(struct wire_decoder *decoder, const uint8_t *data, size_t len,
                                             uint64_t *seed, struct wire_request *out, uint8_t **memory) {
  size_t come = 0;
  for (;;) {
    if (come < len) come += fuzz_step(seed, len - come);
    *memory = fuzz_copy(data, come);
    const enum wire_result result = wire_decode(decoder, &fuzz_limits, *memory, come, out);
    if (result == WIRE_RESULT_MORE && come > 0) CHECK(decoder->scan.want > come);
    if (result != WIRE_RESULT_MORE || come == len) return result;
    free(*memory);
  }
}

static inline bool same_place(rdzv_bytes a, const uint8_t *a_start, rdzv_bytes b, const uint8_t *b_start) {
  if (!a.data || !b.data) return !a.data && !b.data;
  return a.len == b.len && (const uint8_t *)a.data - a_start == (const uint8_t *)b.data - b_start;
}

static inline int fuzz_requests(enum wire_dialect dialect, const uint8_t *data, size_t len) {
  uint8_t *whole = fuzz_copy(data, len), *memory;
  uint64_t seed = fuzz_seed(data, len);
  struct wire_decoder one = {.dialect = dialect}, pieces = {.dialect = dialect};
  for (size_t at = 0;;) {
    struct wire_request a = {0}, b = {0};
    const enum wire_result result = wire_decode(&one, &fuzz_limits, whole + at, len - at, &a);
    CHECK(decode_pieces(&pieces, whole + at, len - at, &seed, &b, &memory) == result);
    CHECK(one.dialect == pieces.dialect && one.requests == pieces.requests);
    if (result == WIRE_RESULT_BAD) CHECK(one.scan.why && strcmp(one.scan.why, pieces.scan.why) == 0);
    if (result == WIRE_RESULT_DONE) {
      check_request(&a, whole + at, len - at);
      CHECK(a.op == b.op && a.size == b.size && a.number == b.number && a.count == b.count);
      CHECK(same_place(a.key, whole + at, b.key, memory) && same_place(a.value, whole + at, b.value, memory));
      CHECK(same_place(a.desired, whole + at, b.desired, memory) && same_place(a.list, whole + at, b.list, memory));
      note_hello(&one, &a);
      note_hello(&pieces, &b);
      at += a.size;
    }
    free(memory);
    if (result != WIRE_RESULT_DONE) break;
  }
  free(whole);
  return 0;
}

#endif
