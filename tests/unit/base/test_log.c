/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "unit.h"

struct seen {
  int lines;
  rdzv_log_level level;
  char text[4096];
};

static void note(void *user, rdzv_log_level level, const char *line) {
  struct seen *seen = user;
  seen->lines++;
  seen->level = level;
  snprintf(seen->text, sizeof seen->text, "%s", line);
}

/* Each level writes itself and what is graver, and nothing else. */
static void test_a_level_writes_itself_and_what_is_graver(void **state) {
  (void)state;
  for (int wanted = RDZV_LOG_OFF; wanted <= RDZV_LOG_DEBUG; wanted++)
    for (int level = RDZV_LOG_ERROR; level <= RDZV_LOG_DEBUG; level++) {
      struct seen seen = {0};
      const rdzv_log log = {sizeof log, note, &seen, (rdzv_log_level)wanted};
      log_line(&log, (rdzv_log_level)level, "line %d", level);
      assert_int_equal(seen.lines, level <= wanted);
      if (seen.lines) assert_int_equal(seen.level, level);
    }
}

/* All zero writes nowhere. */
static void test_a_log_of_zeros_writes_nowhere(void **state) {
  (void)state;
  const rdzv_log log = {0};
  log_line(&log, RDZV_LOG_ERROR, "unseen");
  assert_false(log_on(&log, RDZV_LOG_ERROR));
}

/* A line is whole or cut, never more than its room. */
static void test_a_line_that_is_too_long_is_cut(void **state) {
  (void)state;
  char text[3000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  struct seen seen = {0};
  const rdzv_log log = {sizeof log, note, &seen, RDZV_LOG_DEBUG};
  log_line(&log, RDZV_LOG_INFO, "%s", text);
  assert_int_equal(strlen(seen.text), 2047);
}

/* Names and levels are the same both ways. */
static void test_names_and_levels_are_the_same_both_ways(void **state) {
  (void)state;
  for (int level = RDZV_LOG_OFF; level <= RDZV_LOG_DEBUG; level++)
    assert_int_equal(rdzv_log_level_parse(rdzv_log_level_name((rdzv_log_level)level)), level);
  assert_int_equal(rdzv_log_level_parse("loud"), -1);
  assert_int_equal(rdzv_log_level_parse(""), -1);
  assert_string_equal(rdzv_log_level_name((rdzv_log_level)99), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_level_writes_itself_and_what_is_graver),
      cmocka_unit_test(test_a_log_of_zeros_writes_nowhere),
      cmocka_unit_test(test_a_line_that_is_too_long_is_cut),
      cmocka_unit_test(test_names_and_levels_are_the_same_both_ways),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
