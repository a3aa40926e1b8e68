/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buf.h"
#include "unit.h"

/* All zero is an empty buffer, and freeing it twice is fine. */
static void test_all_zero_is_an_empty_buffer(void **state) {
  (void)state;
  struct buf buf = {0};
  assert_true(buf_reserve(&buf, 0));
  assert_true(buf_append(&buf, NULL, 0));
  buf_consume(&buf, 0);
  assert_int_equal(buf.len, 0);
  buf_free(&buf);
  buf_free(&buf);
}

/* What is reserved can be written without a further allocation. */
static void test_reserve_makes_room_behind_the_used_bytes(void **state) {
  (void)state;
  for (size_t more = 1; more <= 1000; more++) {
    struct buf buf = {0};
    assert_true(buf_append(&buf, "abc", 3));
    assert_true(buf_reserve(&buf, more));
    assert_true(buf.cap - buf.len >= more);
    assert_memory_equal(buf.data, "abc", 3);
    memset(buf.data + buf.len, 'x', more);
    buf_free(&buf);
  }
}

/* Lengths near the largest number do not wrap: they are no memory, and nothing is changed. */
static void test_a_length_that_would_wrap_is_no_memory(void **state) {
  (void)state;
  struct buf buf = {0};
  assert_true(buf_append(&buf, "abc", 3));
  const struct buf before = buf;
  const size_t lengths[] = {SIZE_MAX, SIZE_MAX - 2, SIZE_MAX - 3, SIZE_MAX / 2, SIZE_MAX / 2 - 2};
  for (size_t i = 0; i < COUNT_OF(lengths); i++) {
    assert_false(buf_reserve(&buf, lengths[i]));
    assert_memory_equal(&buf, &before, sizeof buf);
  }
  buf_free(&buf);
}

/* Bytes come out as they went in, whatever the pieces. */
static void test_append_and_consume_keep_the_order(void **state) {
  (void)state;
  struct buf buf = {0};
  unsigned char in = 0, out = 0;
  for (int round = 1; round < 200; round++) {
    for (int i = 0; i < round % 17; i++, in++) assert_true(buf_append(&buf, &in, 1));
    const size_t take = (size_t)(round % 13) < buf.len ? (size_t)(round % 13) : buf.len;
    for (size_t i = 0; i < take; i++) assert_int_equal(buf.data[i], (unsigned char)(out + i));
    buf_consume(&buf, take);
    out = (unsigned char)(out + take);
  }
  buf_consume(&buf, buf.len);
  assert_int_equal(buf.len, 0);
  buf_free(&buf);
}

/* A value has a zero byte behind it that its length does not count; an empty one is not NULL. */
static void test_a_value_ends_with_a_zero_byte(void **state) {
  (void)state;
  rdzv_value value;
  assert_true(value_copy(&value, "a\0b", 3));
  assert_int_equal(value.len, 3);
  assert_memory_equal(value.data, "a\0b\0", 4);
  rdzv_value_free(&value);
  assert_null(value.data);
  assert_int_equal(value.len, 0);
  assert_true(value_copy(&value, NULL, 0));
  assert_non_null(value.data);
  assert_string_equal(value.data, "");
  rdzv_value_free(&value);
  rdzv_value_free(&value);
  rdzv_value_free(NULL);
  rdzv_values_free(NULL, 5);
}

/* Equal are bytes of the same length and content; no bytes are equal to no bytes, NULL or not. */
static void test_bytes_are_equal_by_length_and_content(void **state) {
  (void)state;
  assert_true(bytes_equal(BYTES("a\0b"), BYTES("a\0b")));
  assert_false(bytes_equal(BYTES("a\0b"), BYTES("a\0c")));
  assert_false(bytes_equal(BYTES("a"), BYTES("ab")));
  assert_true(bytes_equal((rdzv_bytes){NULL, 0}, BYTES("")));
}

/* A quoted key is printable, and cut with a mark that shows it. */
static void test_a_quoted_key_is_printable_and_short(void **state) {
  (void)state;
  assert_string_equal(bytes_quote(BYTES("plain key/1")).text, "plain key/1");
  assert_string_equal(bytes_quote(BYTES("\n\x7f\xff'\\\0")).text, "\\x0a\\x7f\\xff\\x27\\x5c\\x00");
  assert_string_equal(bytes_quote((rdzv_bytes){NULL, 0}).text, "");
}

/* At every length of every mixture the text ends inside its room, with the mark exactly when something is missing. */
static void test_a_quoted_key_of_any_length_stays_in_its_room(void **state) {
  (void)state;
  for (int every = 1; every <= 5; every++) {
    unsigned char key[200];
    for (size_t i = 0; i < sizeof key; i++) key[i] = i % (size_t)every ? 'a' : 1;
    for (size_t len = 0; len <= sizeof key; len++) {
      const struct quoted quoted = bytes_quote((rdzv_bytes){key, len});
      size_t full = 0;
      for (size_t i = 0; i < len; i++) full += key[i] == 1 ? 4 : 1;
      assert_non_null(memchr(quoted.text, '\0', sizeof quoted.text));
      const bool cut = strstr(quoted.text, "…") != NULL;
      assert_int_equal(cut, full > sizeof quoted.text - 4);
      if (!cut) assert_int_equal(strlen(quoted.text), full);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_zero_is_an_empty_buffer),
      cmocka_unit_test(test_reserve_makes_room_behind_the_used_bytes),
      cmocka_unit_test(test_a_length_that_would_wrap_is_no_memory),
      cmocka_unit_test(test_append_and_consume_keep_the_order),
      cmocka_unit_test(test_a_value_ends_with_a_zero_byte),
      cmocka_unit_test(test_bytes_are_equal_by_length_and_content),
      cmocka_unit_test(test_a_quoted_key_is_printable_and_short),
      cmocka_unit_test(test_a_quoted_key_of_any_length_stays_in_its_room),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
