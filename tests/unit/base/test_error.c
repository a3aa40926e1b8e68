/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "unit.h"

#include <errno.h>
#include <limits.h>

/* Every code has a number below 0 that no other has, a name, a text and a class. */
static void test_every_code_has_a_name_a_text_and_a_class(void **state) {
  (void)state;
  int next = 0;
#define LOOK_AT(name, number, class_, text)                   \
  assert_int_equal(RDZV_E_##name, --next);                    \
  assert_string_equal(rdzv_error_name(RDZV_E_##name), #name); \
  assert_string_equal(rdzv_error_text(RDZV_E_##name), text);  \
  assert_int_equal(rdzv_error_class_of(RDZV_E_##name), RDZV_ERROR_CLASS_##class_);
  RDZV_ERROR_LIST(LOOK_AT)
#undef LOOK_AT
  assert_string_equal(rdzv_error_name(next - 1), "UNKNOWN");
}

/* 0 is no error. */
static void test_zero_is_no_error(void **state) {
  (void)state;
  assert_string_equal(rdzv_error_name(0), "OK");
  assert_string_equal(rdzv_error_text(0), "no error");
  assert_int_equal(rdzv_error_class_of(0), RDZV_ERROR_CLASS_OK);
}

/* Any number may be asked about. */
static void test_a_number_that_is_no_code_is_unknown(void **state) {
  (void)state;
  const int numbers[] = {1, 5, INT_MAX, INT_MIN, INT_MIN + 1, -1000};
  for (size_t i = 0; i < COUNT_OF(numbers); i++) {
    assert_string_equal(rdzv_error_text(numbers[i]), "unknown error");
    assert_int_equal(rdzv_error_class_of(numbers[i]), RDZV_ERROR_CLASS_UNCERTAIN);
  }
}

/* All of them return the code and take a NULL error. */
static void test_the_code_is_returned_also_without_an_error(void **state) {
  (void)state;
  assert_code(error_set(NULL, RDZV_E_TIMEOUT, "%d", 1), RDZV_E_TIMEOUT);
  assert_code(error_errno(NULL, RDZV_E_IO, ENOENT, "%d", 1), RDZV_E_IO);
  assert_code(error_prefix(NULL, RDZV_E_LIMIT, "%d", 1), RDZV_E_LIMIT);
  assert_code(error_no_memory(NULL), RDZV_E_NO_MEMORY);
}

/* What was tried comes first, the system's cause last. */
static void test_the_cause_of_the_system_stands_behind(void **state) {
  (void)state;
  rdzv_error error;
  assert_code(error_errno(&error, RDZV_E_IO, ENOENT, "cannot open '%s'", "x"), RDZV_E_IO);
  assert_string_equal(error.message, "cannot open 'x': No such file or directory");
  assert_code(error.code, RDZV_E_IO);
}

/* A prefix keeps the code that is there and the innermost cause last. */
static void test_prefixes_keep_the_innermost_cause_last(void **state) {
  (void)state;
  rdzv_error error;
  error_set(&error, RDZV_E_ADDRESS, "cause");
  assert_code(error_prefix(&error, RDZV_E_CONNECTION, "connect to %d", 7), RDZV_E_ADDRESS);
  error_prefix(&error, RDZV_E_CONNECTION, "set 'k'");
  assert_string_equal(error.message, "set 'k': connect to 7: cause");
  assert_code(error.code, RDZV_E_ADDRESS);
}

/* An error that nobody filled gets the code and its general text: a failure is never taken for a success. */
static void test_a_prefix_fills_an_error_that_nobody_did(void **state) {
  (void)state;
  rdzv_error error = {.message = "left over"};
  assert_code(error_prefix(&error, RDZV_E_TIMEOUT, "open"), RDZV_E_TIMEOUT);
  assert_string_equal(error.message, "open: timed out");
  assert_code(error.code, RDZV_E_TIMEOUT);
}

static void test_a_text_is_appended_as_far_as_there_is_room(void **state) {
  (void)state;
  rdzv_error error;
  char text[2 * RDZV_MESSAGE_SIZE];
  error_set(&error, RDZV_E_TIMEOUT, "timed out");
  error_append(&error, "; at %s\n", "node0");
  assert_string_equal(error.message, "timed out; at node0\\x0a");
  assert_code(error.code, RDZV_E_TIMEOUT);
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  error_append(&error, "%s", text);
  assert_int_equal(strlen(error.message), RDZV_MESSAGE_SIZE - 1);
  error_append(&error, "y");
  assert_int_equal(strlen(error.message), RDZV_MESSAGE_SIZE - 1);
  error_append(NULL, "nobody");
}

/* The class is what the header says of it: a canceled call fails until the flag is taken down, which for a descriptor
 * of the caller's can happen; after a lost answer, or lost data, nobody knows what the store holds. */
static void test_classes_are_what_they_are_described_as(void **state) {
  (void)state;
  assert_int_equal(rdzv_error_class_of(RDZV_E_CANCELED), RDZV_ERROR_CLASS_DEFINITE);
  assert_int_equal(rdzv_error_class_of(RDZV_E_OUTCOME_UNKNOWN), RDZV_ERROR_CLASS_UNCERTAIN);
  assert_int_equal(rdzv_error_class_of(RDZV_E_DATA_LOST), RDZV_ERROR_CLASS_UNCERTAIN);
}

static bool ends_with(const char *text, const char *end) {
  return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* A message that is too long loses its middle: the innermost cause and what was tried stay, whoever filled it. */
static void test_a_message_that_is_too_long_keeps_its_begin_and_its_cause(void **state) {
  (void)state;
  char text[3 * RDZV_MESSAGE_SIZE];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  rdzv_error error;
  error_set(&error, RDZV_E_LIMIT, "cannot set '%s': the disk is full", text);
  assert_int_equal(strlen(error.message), RDZV_MESSAGE_SIZE - 1);
  assert_memory_equal(error.message, "cannot set 'xxx", 15);
  assert_non_null(strstr(error.message, "x ... x"));
  assert_true(ends_with(error.message, "xxx': the disk is full"));
  error_prefix(&error, RDZV_E_LIMIT, "cannot open '%s'", text);
  assert_memory_equal(error.message, "cannot open 'xxx", 16);
  assert_true(ends_with(error.message, "xxx': the disk is full"));
  error_errno(&error, RDZV_E_LIMIT, ENOENT, "cannot read '%s'", text);
  assert_memory_equal(error.message, "cannot read 'xxx", 16);
  assert_true(ends_with(error.message, "x: No such file or directory"));
  assert_code(error.code, RDZV_E_LIMIT);
}

/* So does one that gets too long because it is made printable, and no character is cut in two. */
static void test_a_message_that_gets_too_long_when_it_is_shown_keeps_its_cause(void **state) {
  (void)state;
  rdzv_error error;
  char text[RDZV_MESSAGE_SIZE];
  memset(text, '\033', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  error_set(&error, RDZV_E_LIMIT, "%s: cause", text);
  assert_memory_equal(error.message, "\\x1b\\x1b", 8);
  assert_true(ends_with(error.message, "\\x1b: cause"));
  for (int shift = 0; shift < 3; shift++) {
    char wide[2 * RDZV_MESSAGE_SIZE] = "";
    for (size_t i = 0; i + 4 < sizeof wide; i += 3) memcpy(wide + i, "\xe2\x82\xac", 4); /* the euro sign */
    error_set(&error, RDZV_E_LIMIT, "%.*s%s: cause", shift, "ab", wide);
    assert_null(strstr(error.message, "\\x"));
    assert_true(strlen(error.message) >= RDZV_MESSAGE_SIZE - 4);
    for (const unsigned char *at = (const unsigned char *)error.message; *at; at++)
      if (*at == 0xe2) assert_true(at[1] == 0x82 && at[2] == 0xac);
    assert_true(ends_with(error.message, "\xe2\x82\xac: cause"));
  }
}

/* A later version may read them. */
static void test_the_reserved_part_is_zero(void **state) {
  (void)state;
  rdzv_error error;
  static const uint32_t zero[8] = {0};
  assert_int_equal(sizeof error, 1024);
  for (int i = 0; i < 3; i++) {
    memset(&error, 0xff, sizeof error);
    if (i == 0) error_set(&error, RDZV_E_LIMIT, "x");
    if (i == 1) error_errno(&error, RDZV_E_LIMIT, ENOENT, "x");
    if (i == 2) error_prefix(&error, RDZV_E_LIMIT, "x");
    assert_memory_equal(error.reserved, zero, sizeof zero);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_code_has_a_name_a_text_and_a_class),
      cmocka_unit_test(test_zero_is_no_error),
      cmocka_unit_test(test_a_number_that_is_no_code_is_unknown),
      cmocka_unit_test(test_the_code_is_returned_also_without_an_error),
      cmocka_unit_test(test_the_cause_of_the_system_stands_behind),
      cmocka_unit_test(test_prefixes_keep_the_innermost_cause_last),
      cmocka_unit_test(test_a_prefix_fills_an_error_that_nobody_did),
      cmocka_unit_test(test_a_text_is_appended_as_far_as_there_is_room),
      cmocka_unit_test(test_classes_are_what_they_are_described_as),
      cmocka_unit_test(test_a_message_that_is_too_long_keeps_its_begin_and_its_cause),
      cmocka_unit_test(test_a_message_that_gets_too_long_when_it_is_shown_keeps_its_cause),
      cmocka_unit_test(test_the_reserved_part_is_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
