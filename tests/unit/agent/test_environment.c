/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/environment.h"

#include "unit.h"

static const struct attempt attempt = {.run_id = "the job=1",
                                       .role = "trainer",
                                       .group_rank = 1,
                                       .group_world_size = 3,
                                       .local_world_size = 2,
                                       .ranks = {4, 9, 1, 5},
                                       .terms = {.restart_count = 2, .agent_store = true},
                                       .max_restarts = 7,
                                       .master_addr = "fe80::1%eth0",
                                       .master_port = 29501};

extern char **environ;

/* Its value; NULL: there is none. More than one of a name is a mistake. */
static const char *value_of(char **list, const char *name) {
  const char *found = NULL;
  const size_t len = strlen(name);
  for (; *list; list++) {
    if (strncmp(*list, name, len) != 0 || (*list)[len] != '=') continue;
    if (found) fail_msg("'%s' is there twice", name);
    found = *list + len + 1;
  }
  return found;
}

static void assert_values(char **list, const char *const (*wanted)[2], size_t count) {
  for (size_t i = 0; i < count; i++) {
    const char *value = value_of(list, wanted[i][0]);
    if (!value || strcmp(value, wanted[i][1]) != 0)
      fail_msg("%s is '%s', not '%s'", wanted[i][0], value ? value : "(none)", wanted[i][1]);
  }
}

/* A test begins with an environment of these alone. */
static void begin_with(const char *name, const char *value) {
  clearenv();
  setenv("PATH", "/bin", 1);
  if (name) setenv(name, value, 1);
}

/* A worker's environment; list_free frees it. */
static char **made_of(const struct attempt *of, int64_t local_rank, const char *error_file) {
  char **common = environment_common(of), **list = environment_of(common, of, local_rank, error_file);
  size_t count = 0;
  while (list[count]) count++;
  char **copy = calloc(count + 1, sizeof *copy);
  for (size_t i = 0; i < count; i++) copy[i] = strdup(list[i]);
  environment_free(list, common);
  list_free(common);
  return copy;
}

static void test_all_that_torchrun_gives(void **unused) {
  (void)unused;
  static const char *const wanted[][2] = {{"RANK", "5"},
                                          {"LOCAL_RANK", "1"},
                                          {"WORLD_SIZE", "9"},
                                          {"LOCAL_WORLD_SIZE", "2"},
                                          {"GROUP_RANK", "1"},
                                          {"GROUP_WORLD_SIZE", "3"},
                                          {"ROLE_RANK", "2"},
                                          {"ROLE_WORLD_SIZE", "5"},
                                          {"ROLE_NAME", "trainer"},
                                          {"MASTER_ADDR", "fe80::1%eth0"},
                                          {"MASTER_PORT", "29501"},
                                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                                          {"TORCHELASTIC_MAX_RESTARTS", "7"},
                                          {"TORCHELASTIC_RUN_ID", "the job=1"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                          {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
                                          {"NCCL_ASYNC_ERROR_HANDLING", "1"},
                                          {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                          {"OMP_NUM_THREADS", "1"},
                                          {"PATH", "/bin"}};
  begin_with(NULL, NULL);
  char **list = made_of(&attempt, 1, "/logs/error.json");
  assert_values(list, wanted, COUNT_OF(wanted));
  size_t count = 0;
  while (list[count]) count++;
  assert_int_equal(count, COUNT_OF(wanted));
  list_free(list);
}

static void test_without_the_agents_store(void **unused) {
  (void)unused;
  struct attempt other = attempt;
  other.terms.agent_store = false;
  begin_with(NULL, NULL);
  char **list = made_of(&other, 0, "");
  assert_string_equal(value_of(list, "TORCHELASTIC_USE_AGENT_STORE"), "False");
  assert_string_equal(value_of(list, "TORCHELASTIC_ERROR_FILE"), "");
  list_free(list);
}

/* One that is started inside another job, say. Names that only begin alike are others. */
static void test_what_there_was_of_a_name_is_replaced(void **unused) {
  (void)unused;
  begin_with("RANKS", "79"); /* the first one: it is found before the right one */
  setenv("RAN", "80", 1);
  setenv("RANK", "77", 1);
  setenv("LOCAL_RANK", "78", 1);
  setenv("MASTER_ADDR", "elsewhere", 1);
  setenv("TORCHELASTIC_ERROR_FILE", "theirs", 1);
  char **list = made_of(&attempt, 0, "ours");
  static const char *const wanted[][2] = {{"RANK", "4"},
                                          {"LOCAL_RANK", "0"},
                                          {"RANKS", "79"},
                                          {"RAN", "80"},
                                          {"MASTER_ADDR", "fe80::1%eth0"},
                                          {"TORCHELASTIC_ERROR_FILE", "ours"}};
  assert_values(list, wanted, COUNT_OF(wanted));
  assert_string_equal(getenv("RANK"), "77"); /* ours is as it was */
  list_free(list);
}

/* Workers have no part in the secret of the job. */
static void test_the_secret_is_not_passed_on(void **unused) {
  (void)unused;
  begin_with("RDZV_SECRET_FILE", "/a/secret");
  setenv("PET_SECRET_FILE", "/a/secret", 1);
  setenv("RDZV_SECRET_FILES", "another variable", 1);
  char **list = made_of(&attempt, 0, "");
  for (size_t i = 0; list[i]; i++) assert_null(strstr(list[i], "/a/secret"));
  assert_string_equal(value_of(list, "RDZV_SECRET_FILES"), "another variable");
  assert_string_equal(value_of(list, "RANK"), "4");
  list_free(list);
}

static void test_what_the_user_chose_stays(void **unused) {
  (void)unused;
  static const char *const names[] = {"OMP_NUM_THREADS", "NCCL_ASYNC_ERROR_HANDLING",
                                      "TORCH_NCCL_ASYNC_ERROR_HANDLING"};
  static const char *const values[] = {"16", "0", ""};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    for (size_t value = 0; value < COUNT_OF(values); value++) {
      begin_with(names[i], values[value]);
      char **list = made_of(&attempt, 0, "");
      assert_string_equal(value_of(list, names[i]), values[value]);
      list_free(list);
    }
}

/* torchrun leaves it alone then, and says nothing. */
static void test_one_worker_may_have_all_threads(void **unused) {
  (void)unused;
  struct attempt one = attempt;
  one.local_world_size = 1;
  begin_with(NULL, NULL);
  char **list = made_of(&one, 0, "");
  assert_null(value_of(list, "OMP_NUM_THREADS"));
  list_free(list);
}

static void test_an_empty_environment_will_do(void **unused) {
  (void)unused;
  clearenv();
  static char *none[] = {NULL};
  environ = none;
  char **list = made_of(&attempt, 0, "");
  assert_string_equal(value_of(list, "RANK"), "4");
  list_free(list);
}

static void test_the_local_rank_in_arguments(void **unused) {
  (void)unused;
  static const char *const cases[][2] = {{"${local_rank}", "12"},
                                         {"--rank=${local_rank}", "--rank=12"},
                                         {"${local_rank}${local_rank}x${local_rank}", "1212x12"},
                                         {"", ""},
                                         {"$local_rank", "$local_rank"},
                                         {"${local_rank", "${local_rank"},
                                         {"${LOCAL_RANK}", "${LOCAL_RANK}"},
                                         {"$${local_rank}", "$12"},
                                         {"${rank}", "${rank}"},
                                         {"${local_${local_rank}", "${local_12"}};
  char *argv[COUNT_OF(cases) + 1] = {NULL};
  for (size_t i = 0; i < COUNT_OF(cases); i++) argv[i] = (char *)cases[i][0];
  char **list = arguments_of(argv, 12);
  for (size_t i = 0; i < COUNT_OF(cases); i++) assert_string_equal(list[i], cases[i][1]);
  assert_null(list[COUNT_OF(cases)]);
  list_free(list);
  list_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_that_torchrun_gives),
      cmocka_unit_test(test_without_the_agents_store),
      cmocka_unit_test(test_what_there_was_of_a_name_is_replaced),
      cmocka_unit_test(test_the_secret_is_not_passed_on),
      cmocka_unit_test(test_what_the_user_chose_stays),
      cmocka_unit_test(test_one_worker_may_have_all_threads),
      cmocka_unit_test(test_the_local_rank_in_arguments),
      cmocka_unit_test(test_an_empty_environment_will_do), /* last: there is none from here on */
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
