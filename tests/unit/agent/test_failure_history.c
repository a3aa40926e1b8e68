/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of failed attempts has a bound, and what it holds does not depend on what it was made from. What an agent
 * tells of a failure, another one reads. */
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

static rdzv_worker_failure failure_with(const char *log) {
  return (rdzv_worker_failure){.rank = 3,
                               .local_rank = 1,
                               .host = "node0",
                               .pid = 77,
                               .exit_code = 137,
                               .signal = 9,
                               .time_us = 5,
                               .message = "killed",
                               .log = log,
                               .error_file = "/x"};
}

static void test_what_is_told_is_read(void **unused) {
  (void)unused;
  char *many = calloc(1, 20001);
  for (int i = 0; i < 2000; i++) memcpy(many + 10 * i, "123456789\n", 10);
  const struct {
    const char *log, *read;
  } cases[] = {{"", ""}, {"one\ntwo\n", "one\ntwo\n"}, {"a\xff\n", "a?\n"}, {many, many + 20000 - 4090}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    const rdzv_worker_failure failure = failure_with(cases[i].log);
    char *text = failure_write(&failure, "n_1_0"), sentence[200];
    struct failures failures = {0};
    failures_add_told(&failures, text, 4);
    assert_int_equal(failures.count, 1);
    assert_string_equal(failures.list[0].log, cases[i].read);
    assert_string_equal(failures.list[0].host, "node0");
    assert_int_equal(failures.list[0].attempt, 4);
    assert_true(failure_sentence(text, sentence, sizeof sentence));
    assert_string_equal(sentence, "rank 3 on n_1_0 failed (killed by signal 9 (SIGKILL))");
    failures_free(&failures);
    free(text);
  }
  free(many);
}

static void test_an_older_agent_tells_less(void **unused) {
  (void)unused;
  const char *text =
      "{\"rank\":1,\"local_rank\":0,\"host\":\"h\",\"pid\":2,\"exit_code\":5,\"signal\":0,\"time_us\":1,\"message\":"
      "\"m\"}";
  char sentence[200] = "as before";
  struct failures failures = {0};
  failures_add_told(&failures, text, 0);
  assert_int_equal(failures.count, 1);
  assert_string_equal(failures.list[0].log, "");
  assert_true(failure_sentence(text, sentence, sizeof sentence));
  assert_string_equal(sentence, "rank 1 on h failed (exit code 5)");
  assert_false(failure_sentence("{}", sentence, sizeof sentence));
  assert_string_equal(sentence, "rank 1 on h failed (exit code 5)");
  failures_free(&failures);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_of_many_attempts_the_first_and_the_last_are_kept),
      cmocka_unit_test(test_of_the_log_the_last_line_is_kept),
      cmocka_unit_test(test_what_is_told_is_read),
      cmocka_unit_test(test_an_older_agent_tells_less),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
