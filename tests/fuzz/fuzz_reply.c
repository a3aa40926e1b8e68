/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the client makes of a server's answer. The first byte chooses among the answers that store/tcp/tcp*.c asks for,
 * the second is the length of a list; the rest is the answer. In one piece or in many, it must be read alike.
 */
#include "fuzz.h"
#include "wire/scan.h"

/* "" is an answer that was over with its status; "V" is a list of values whose length the client knows. */
static const char *const answers[] = {"", "b", "w", "n", "v", "nv", "bnv", "V"};
static const struct wire_limits limits = {.max_key = 64, .max_value = 4096, .max_count = 16, .max_message = 8192};

static void start(struct wire_scan *scan, const uint8_t *data) {
  wire_scan_start(scan, answers[data[0] % (sizeof answers / sizeof answers[0])], 0);
  scan->items = data[1] == 0xff ? UINT64_MAX : data[1]; /* what a server claims is what the client gives */
}

static void check_fields(const struct wire_scan *scan, const char *fields, size_t items, const uint8_t *data) {
  CHECK(scan->count == (int)strlen(fields));
  for (int i = 0; i < scan->count; i++) {
    const struct wire_field *field = &scan->field[i];
    CHECK(field->at <= scan->pos && field->len <= scan->pos - field->at);
    if (fields[i] == 'v') CHECK(field->len <= limits.max_value);
    if (fields[i] != 'V') continue;
    rdzv_bytes list = wire_field_bytes(scan, i, data);
    for (size_t n = 0; n < items; n++) CHECK(wire_list_next(&list).len <= limits.max_value);
    CHECK(list.len == 0);
  }
}

static enum wire_result in_pieces(struct wire_scan *scan, const uint8_t *data, size_t len, uint64_t seed) {
  for (size_t come = 0;;) {
    if (come < len) come += fuzz_step(&seed, len - come);
    uint8_t *memory = fuzz_copy(data, come);
    const enum wire_result result = wire_scan(scan, &limits, memory, come);
    free(memory);
    if (result == WIRE_RESULT_MORE) CHECK(scan->want > come);
    if (result != WIRE_RESULT_MORE || come == len) return result;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  if (len < 2) return 0;
  struct wire_scan one, pieces;
  start(&one, data);
  start(&pieces, data);
  const char *fields = one.fields;
  const size_t items = (size_t)one.items;
  uint8_t *answer = fuzz_copy(data + 2, len - 2);
  const enum wire_result result = wire_scan(&one, &limits, answer, len - 2);
  CHECK(in_pieces(&pieces, answer, len - 2, fuzz_seed(data, len)) == result);
  CHECK(one.pos == pieces.pos && one.count == pieces.count);
  CHECK(memcmp(one.field, pieces.field, sizeof one.field[0] * (size_t)one.count) == 0);
  CHECK(one.pos <= len - 2);
  if (result == WIRE_RESULT_BAD) CHECK(one.why && strcmp(one.why, pieces.why) == 0);
  if (result == WIRE_RESULT_DONE) check_fields(&one, fields, items, answer);
  free(answer);
  return 0;
}
