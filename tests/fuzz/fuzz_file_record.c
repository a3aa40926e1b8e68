/* SPDX-License-Identifier: BSD-3-Clause */
/* A file of records: each is inside the bytes, is written back as it was read, and wants no more than it says. */
#include "fuzz.h"
#include "store/file/record.h"

static void check_inside(rdzv_bytes bytes, const uint8_t *at, size_t size) {
  CHECK((const uint8_t *)bytes.data >= at && (const uint8_t *)bytes.data + bytes.len <= at + size);
}

/* Every shorter piece must ask for more, and for no more than the record has. */
static void check_pieces(const uint8_t *at, size_t size, uint64_t *seed) {
  struct file_record record;
  for (size_t come = 0; come < size; come += fuzz_step(seed, size - come)) {
    uint8_t *piece = fuzz_copy(at, come);
    CHECK(file_record_decode(piece, come, &record) == FILE_RECORD_MORE);
    CHECK(record.size > come && record.size <= size);
    free(piece);
  }
}

static void check_record(const struct file_record *record, const uint8_t *at, size_t len) {
  CHECK(record->size <= len);
  check_inside(record->key.name, at, record->size);
  check_inside(record->value, at, record->size);
  CHECK(record->key.name.len <= FILE_MAX_KEY + 2 && record->value.len <= FILE_MAX_VALUE);
  struct buf written = {0};
  CHECK(file_record_encode(&written, record->key, record->value));
  CHECK(written.len == record->size && memcmp(written.data, at, written.len) == 0);
  buf_free(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  uint64_t seed = fuzz_seed(data, len);
  uint8_t *file = fuzz_copy(data, len);
  struct file_record record;
  enum file_record_result result;
  size_t at = 0;
  while ((result = file_record_decode(file + at, len - at, &record)) == FILE_RECORD_DONE) {
    check_record(&record, file + at, len - at);
    check_pieces(file + at, record.size, &seed);
    at += record.size;
  }
  if (result == FILE_RECORD_MORE) CHECK(record.size > len - at);
  if (result == FILE_RECORD_BAD) CHECK(record.why != NULL);
  free(file);
  return 0;
}
