/* SPDX-License-Identifier: BSD-3-Clause */
/* The records of a file store: every split, every limit, and the bytes of the real PyTorch. */
#include "store/file/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct file_key user(const char *name) { return (struct file_key){.name = rdzv_str(name)}; }

static struct buf encoded(struct file_key key, rdzv_bytes value) {
  struct buf buf = {0};
  assert_true(file_record_encode(&buf, key, value));
  return buf;
}

/* Decodes a copy of exactly len bytes, so that a sanitizer sees any read beyond them. */
static enum file_record_result decode_exactly(const void *data, size_t len, struct file_record *record) {
  uint8_t *copy = malloc(len ? len : 1);
  assert_non_null(copy);
  bytes_copy(copy, data, len);
  const enum file_record_result result = file_record_decode(copy, len, record);
  free(copy);
  return result;
}

/* The lengths of a key and of a value, with as many bytes as are given between them. */
static enum file_record_result decode_lengths(uint32_t key_len, size_t key_bytes, uint32_t value_len,
                                              struct file_record *record) {
  struct buf buf = {0};
  assert_true(buf_append(&buf, &key_len, sizeof key_len));
  assert_true(buf_reserve(&buf, key_bytes + 1));
  memset(buf.data + buf.len, 'k', key_bytes);
  buf.len += key_bytes;
  if (key_bytes == key_len) assert_true(buf_append(&buf, &value_len, sizeof value_len));
  const enum file_record_result result = decode_exactly(buf.data, buf.len, record);
  buf_free(&buf);
  return result;
}

/* Rule: until a record is all there, the decoder asks for more than it has and never for more than the record. */
static void test_a_record_that_is_cut_at_any_byte_asks_for_more(void **state) {
  (void)state;
  struct buf buf = encoded(user("key"), rdzv_str("value"));
  struct file_record record;
  for (size_t len = 0; len < buf.len; len++) {
    assert_int_equal(decode_exactly(buf.data, len, &record), FILE_RECORD_MORE);
    assert_in_range(record.size, len + 1, buf.len);
  }
  assert_int_equal(file_record_decode(buf.data, buf.len, &record), FILE_RECORD_DONE);
  assert_int_equal(record.size, buf.len);
  assert_true(bytes_equal(record.key.name, rdzv_str("key")));
  assert_true(bytes_equal(record.value, rdzv_str("value")));
  buf_free(&buf);
}

static void test_what_follows_a_record_is_left_alone(void **state) {
  (void)state;
  struct buf buf = encoded(user("a"), rdzv_str("1"));
  const size_t first = buf.len;
  assert_true(file_record_encode(&buf, user("b"), rdzv_str("2")));
  struct file_record record;
  assert_int_equal(file_record_decode(buf.data, buf.len, &record), FILE_RECORD_DONE);
  assert_int_equal(record.size, first);
  assert_int_equal(file_record_decode(buf.data + first, buf.len - first, &record), FILE_RECORD_DONE);
  assert_true(bytes_equal(record.key.name, rdzv_str("b")));
  buf_free(&buf);
}

static void test_a_key_length_over_the_limit_is_bad_before_anything_is_made_of_it(void **state) {
  (void)state;
  struct file_record record;
  const uint32_t most = FILE_MAX_KEY + 2; /* of a deleted user's key */
  assert_int_equal(decode_lengths(most, 0, 0, &record), FILE_RECORD_MORE);
  assert_int_equal(record.size, most + 8u);
  assert_int_equal(decode_lengths(most + 1, 0, 0, &record), FILE_RECORD_BAD);
  assert_non_null(record.why);
  assert_int_equal(decode_lengths(UINT32_MAX, 0, 0, &record), FILE_RECORD_BAD);
}

static void test_a_value_length_over_the_limit_is_bad_before_anything_is_made_of_it(void **state) {
  (void)state;
  struct file_record record;
  assert_int_equal(decode_lengths(3, 3, FILE_MAX_VALUE, &record), FILE_RECORD_MORE);
  assert_int_equal(record.size, 11u + FILE_MAX_VALUE);
  assert_int_equal(decode_lengths(3, 3, FILE_MAX_VALUE + 1u, &record), FILE_RECORD_BAD);
  assert_non_null(record.why);
  assert_int_equal(decode_lengths(3, 3, UINT32_MAX, &record), FILE_RECORD_BAD);
}

/* Rule: no store writes a key without bytes, and a file system that crashed leaves zeros. */
static void test_a_stretch_of_zeros_is_bad(void **state) {
  (void)state;
  const uint8_t zeros[16] = {0};
  struct file_record record;
  assert_int_equal(decode_exactly(zeros, 3, &record), FILE_RECORD_MORE);
  assert_int_equal(decode_exactly(zeros, sizeof zeros, &record), FILE_RECORD_BAD);
}

static void test_the_longest_key_survives_both_ways(void **state) {
  (void)state;
  char *name = malloc(FILE_MAX_KEY);
  assert_non_null(name);
  memset(name, 'x', FILE_MAX_KEY);
  struct buf buf = encoded((struct file_key){.deleted = true, .name = {name, FILE_MAX_KEY}}, (rdzv_bytes){0});
  struct file_record record;
  assert_int_equal(file_record_decode(buf.data, buf.len, &record), FILE_RECORD_DONE);
  assert_int_equal(record.key.name.len, FILE_MAX_KEY);
  buf_free(&buf);
  free(name);
}

static void test_the_meaning_of_a_key_is_that_of_its_first_bytes(void **state) {
  (void)state;
  static const struct {
    const char *raw, *name;
    bool own, deleted;
  } rows[] = {
      {"/k", "k", false, false},
      {"-/k", "k", false, true},
      {"/", "", false, false}, /* the user's key without bytes */
      {"-/", "", false, true},
      {"//k", "/k", false, false},
      {"/-k", "-k", false, false},
      {FILE_CLEANUP, "cleanup/", true, false},
      {FILE_REFCOUNT, "refcount/", true, false},
      {FILE_RUN_ID, "run_id/", true, false},
      {"-cleanup/", "cleanup/", true, true}, /* nobody writes it, PyTorch would take it so */
      {"-", "", true, true},
      {"k", "k", true, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct file_key key = {rows[i].own, rows[i].deleted, rdzv_str(rows[i].name)};
    struct buf buf = encoded(key, rdzv_str(""));
    assert_int_equal(buf.len, 8 + strlen(rows[i].raw));
    assert_memory_equal(buf.data + 4, rows[i].raw, strlen(rows[i].raw));
    struct file_record record;
    assert_int_equal(file_record_decode(buf.data, buf.len, &record), FILE_RECORD_DONE);
    assert_int_equal(record.key.own, rows[i].own);
    assert_int_equal(record.key.deleted, rows[i].deleted);
    assert_true(bytes_equal(record.key.name, rdzv_str(rows[i].name)));
    buf_free(&buf);
  }
}

static void test_keys_and_values_are_any_bytes(void **state) {
  (void)state;
  const rdzv_bytes bytes = {"\0/-\xff\n", 5};
  struct buf buf = encoded((struct file_key){.name = bytes}, bytes);
  struct file_record record;
  assert_int_equal(file_record_decode(buf.data, buf.len, &record), FILE_RECORD_DONE);
  assert_true(bytes_equal(record.key.name, bytes));
  assert_true(bytes_equal(record.value, bytes));
  buf_free(&buf);
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* Written by PyTorch 2.6: open, set a 1, add c 5, delete a, delete zz, compare_set k, close. */
static const char pytorch_file[] =
    "\x09\0\0\0refcount/\1\0\0\0"
    "1"
    "\2\0\0\0/a\1\0\0\0"
    "1"
    "\2\0\0\0/c\1\0\0\0"
    "5"
    "\3\0\0\0-/a\0\0\0\0"
    "\4\0\0\0-/zz\0\0\0\0"
    "\2\0\0\0/k\1\0\0\0v"
    "\2\0\0\0/k\1\0\0\0w"
    "\x08\0\0\0cleanup/\1\0\0\0"
    "1"
    "\x09\0\0\0refcount/\1\0\0\0"
    "0";

static void test_a_file_of_pytorch_is_read_and_written_back_to_the_byte(void **state) {
  (void)state;
  const uint8_t *file = (const uint8_t *)pytorch_file;
  const size_t len = sizeof pytorch_file - 1;
  struct buf copy = {0};
  int records = 0;
  for (size_t at = 0; at < len; records++) {
    struct file_record record;
    assert_int_equal(file_record_decode(file + at, len - at, &record), FILE_RECORD_DONE);
    assert_true(file_record_encode(&copy, record.key, record.value));
    at += record.size;
  }
  assert_int_equal(records, 9);
  assert_int_equal(copy.len, len);
  assert_memory_equal(copy.data, file, len);
  buf_free(&copy);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_record_that_is_cut_at_any_byte_asks_for_more),
    cmocka_unit_test(test_what_follows_a_record_is_left_alone),
    cmocka_unit_test(test_a_key_length_over_the_limit_is_bad_before_anything_is_made_of_it),
    cmocka_unit_test(test_a_value_length_over_the_limit_is_bad_before_anything_is_made_of_it),
    cmocka_unit_test(test_a_stretch_of_zeros_is_bad),
    cmocka_unit_test(test_the_longest_key_survives_both_ways),
    cmocka_unit_test(test_the_meaning_of_a_key_is_that_of_its_first_bytes),
    cmocka_unit_test(test_keys_and_values_are_any_bytes),
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    cmocka_unit_test(test_a_file_of_pytorch_is_read_and_written_back_to_the_byte),
#endif
  };
  return cmocka_run_group_tests_name("file record", tests, NULL, NULL);
}
