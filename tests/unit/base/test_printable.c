/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of others, as people get to see them. */
#include "base/error.h"
#include "base/log.h"
#include "base/text/printable.h"
#include "unit.h"

static void assert_shown(rdzv_bytes text, const char *wanted) {
  char out[256];
  assert_int_equal(rdzv_printable(text, out, sizeof out), strlen(wanted));
  assert_string_equal(out, wanted);
}

static void test_what_is_printable_stays(void **state) {
  (void)state;
  static const char *const texts[] = {"", "node-1:29400", "a\tb", "é", "日本", "😀", "a\\x1b", "'\"%s"};
  for (size_t i = 0; i < COUNT_OF(texts); i++) assert_shown(rdzv_str(texts[i]), texts[i]);
}

static void test_what_a_terminal_obeys_is_shown_by_its_number(void **state) {
  (void)state;
  static const struct {
    const char *text, *shown;
  } cases[] = {{"\033[31mred", "\\x1b[31mred"},
               {"a\nb\r", "a\\x0ab\\x0d"},
               {"\177\a\b", "\\x7f\\x07\\x08"},
               {"\xc2\x9b"
                "31m",
                "\\x9b31m"}, /* the same in one character */
               {"a\xe2\x80\xae"
                "b",
                "a\\u202eb"}, /* from right to left */
               {"a\xe2\x80\xa8"
                "b",
                "a\\u2028b"}}; /* another line */
  for (size_t i = 0; i < COUNT_OF(cases); i++) assert_shown(rdzv_str(cases[i].text), cases[i].shown);
  assert_shown((rdzv_bytes){"a\0b", 3}, "a\\x00b");
}

static void test_what_is_not_utf8_is_shown_byte_by_byte(void **state) {
  (void)state;
  static const struct {
    const char *text, *shown;
  } cases[] = {{"\xff", "\\xff"},
               {"\xc3", "\\xc3"},          /* the end is missing */
               {"\xc0\x8a", "\\xc0\\x8a"}, /* a line feed in two bytes */
               {"\xe0\x80\x9b", "\\xe0\\x80\\x9b"},
               {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* half a surrogate pair */
               {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond Unicode */
               {"\xc3(", "\\xc3("}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) assert_shown(rdzv_str(cases[i].text), cases[i].shown);
}

static void test_nothing_is_written_beyond_the_end(void **state) {
  (void)state;
  char out[8];
  for (size_t size = 0; size <= sizeof out; size++) {
    memset(out, 'x', sizeof out);
    const size_t used = rdzv_printable(rdzv_str("\033é\nabc"), out, size);
    assert_true(size == 0 ? used == 0 : used < size && out[used] == '\0');
    for (size_t i = size; i < sizeof out; i++) assert_int_equal(out[i], 'x');
  }
  rdzv_printable(rdzv_str("aé"), out, 3);
  assert_string_equal(out, "a");
}

static void keep(void *user, rdzv_log_level level, const char *line) {
  (void)level;
  snprintf(user, 256, "%s", line);
}

/* Whoever puts a text into a sentence or a line need not think of it. */
static void test_errors_and_log_lines_are_printable(void **state) {
  (void)state;
  rdzv_error error;
  char line[256];
  const rdzv_log log = {.size = sizeof log, .write = keep, .user = line, .level = RDZV_LOG_INFO};
  error_set(&error, RDZV_E_IO, "refused: %s", "\033]0;title\a\nnext");
  assert_string_equal(error.message, "refused: \\x1b]0;title\\x07\\x0anext");
  error_prefix(&error, RDZV_E_IO, "at '%s'", "\033c");
  assert_string_equal(error.message, "at '\\x1bc': refused: \\x1b]0;title\\x07\\x0anext");
  log_line(&log, RDZV_LOG_INFO, "node '%s' left", "\033[2J");
  assert_string_equal(line, "node '\\x1b[2J' left");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_printable_stays),
      cmocka_unit_test(test_what_a_terminal_obeys_is_shown_by_its_number),
      cmocka_unit_test(test_what_is_not_utf8_is_shown_byte_by_byte),
      cmocka_unit_test(test_nothing_is_written_beyond_the_end),
      cmocka_unit_test(test_errors_and_log_lines_are_printable),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
