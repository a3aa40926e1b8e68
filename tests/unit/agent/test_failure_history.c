/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of failed attempts has a bound, and what it holds does not depend on what it was made from. */
#include "agent/failure.h"
#include "unit.h"

static void add(struct failure_history *history, int64_t attempt, const char *log) {
  char host[] = "node0", message[] = "exit code 3", error_file[] = "";
  const rdzv_worker_failure failure = {.rank = 7,
                                       .host = host,
                                       .exit_code = 3,
                                       .message = message,
                                       .log = log,
                                       .error_file = error_file,
                                       .attempt = attempt};
  history_add(history, &failure);
  memset(host, 'x', sizeof host - 1);
  memset(message, 'x', sizeof message - 1);
}

static void test_of_many_attempts_the_first_and_the_last_are_kept(void **unused) {
  (void)unused;
  struct failure_history history = {0};
  for (int64_t i = 0; i < 1000; i++) add(&history, i, "");
  assert_int_equal(history.count, 32);
  for (int64_t i = 0; i < 8; i++) assert_int_equal(history.list[i].attempt, i);
  for (int64_t i = 8; i < 32; i++) assert_int_equal(history.list[i].attempt, 968 + i);
  assert_string_equal(history.list[31].host, "node0");
  assert_string_equal(history.list[31].message, "exit code 3");
  assert_int_equal(history.list[31].rank, 7);
  history_free(&history);
  assert_int_equal(history.count, 0);
}

static void test_of_the_log_the_last_line_is_kept(void **unused) {
  (void)unused;
  static const struct {
    const char *log, *kept;
  } cases[] = {{"", ""},          {"\n\n", ""},        {"one", "one"},
               {"one\n", "one"},  {"one\ntwo", "two"}, {"one\ntwo\n\n", "two"},
               {"\none\n", "one"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct failure_history history = {0};
    add(&history, 0, cases[i].log);
    assert_string_equal(history.list[0].log, cases[i].kept);
    history_free(&history);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_of_many_attempts_the_first_and_the_last_are_kept),
      cmocka_unit_test(test_of_the_log_the_last_line_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
