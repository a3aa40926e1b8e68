/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/roles.h"

#include "unit.h"

#include <time.h>

static rdzv_bytes text_of(const char *text) { return (rdzv_bytes){text, strlen(text)}; }

/* ---- what an agent says of itself ----------------------------------------------------------------------------- */

static void test_an_agents_word_comes_back_as_it_was(void **unused) {
  (void)unused;
  const struct role_info info = {"trainer \"é\" \\ \n", 7, 8, 3, true};
  struct role_info back;
  char *text = role_info_write(&info);
  assert_code(role_info_read(text_of(text), &back, NULL), 0);
  assert_string_equal(back.role, info.role);
  assert_int_equal(back.rank, 7);
  assert_int_equal(back.local_world_size, 8);
  assert_int_equal(back.restart_count, 3);
  assert_true(back.ours);
  free(text);
}

/* As json.dumps of Python writes it. */
static void test_torch_says_less_and_is_known_by_it(void **unused) {
  (void)unused;
  struct role_info info;
  assert_code(role_info_read(BYTES("{\"role\": \"default\", \"rank\": 1, \"local_world_size\": 2}"), &info, NULL), 0);
  assert_string_equal(info.role, "default");
  assert_int_equal(info.rank, 1);
  assert_int_equal(info.local_world_size, 2);
  assert_int_equal(info.restart_count, 0);
  assert_false(info.ours);
}

/* Torch reads it with json.loads and takes these members out. */
static void test_ours_has_torchs_members(void **unused) {
  (void)unused;
  char *text = role_info_write(&(struct role_info){"x", 2, 4, 0, true});
  assert_non_null(strstr(text, "\"role\": \"x\""));
  assert_non_null(strstr(text, "\"rank\": 2"));
  assert_non_null(strstr(text, "\"local_world_size\": 4"));
  free(text);
}

#define SIXTY_THREE "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void test_a_role_may_be_as_long_as_there_is_room(void **unused) {
  (void)unused;
  struct role_info info;
  rdzv_error error;
  assert_code(
      role_info_read(BYTES("{\"role\": \"" SIXTY_THREE "\", \"rank\": 0, \"local_world_size\": 1}"), &info, NULL), 0);
  assert_int_equal(strlen(info.role), 63);
  assert_error(
      role_info_read(BYTES("{\"role\": \"" SIXTY_THREE "a\", \"rank\": 0, \"local_world_size\": 1}"), &info, &error),
      RDZV_E_CORRUPT, &error, "an agent published");
}

static void test_what_no_agent_says_is_refused(void **unused) {
  (void)unused;
  static const char *const texts[] = {
      "",
      "{",
      "[]",
      "null",
      "3",
      "{}",
      "\"role\"",
      "{\"role\": 1, \"rank\": 0, \"local_world_size\": 1}",
      "{\"role\": \"x\", \"rank\": \"0\", \"local_world_size\": 1}",
      "{\"role\": \"x\", \"rank\": 0.5, \"local_world_size\": 1}",
      "{\"role\": \"x\", \"local_world_size\": 1}",
      "{\"role\": \"x\", \"rank\": 0}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": \"2\"}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": 2.0}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": 0}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": -1}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": 1048577}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": 9223372036854775807}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": 99999999999999999999}",
      "{\"role\": \"x\", \"rank\": 0, \"local_world_size\": 1} ,",
      "{\"role\": \"x\\u0000y\", \"rank\": 0, \"local_world_size\": 1}",
      "{\"role\": \"\xff\", \"rank\": 0, \"local_world_size\": 1}",
  };
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct role_info info;
    rdzv_error error;
    if (role_info_read(text_of(texts[i]), &info, &error) != RDZV_E_CORRUPT) fail_msg("'%s' is taken", texts[i]);
    assert_code(error.code, RDZV_E_CORRUPT);
  }
  struct role_info info;
  assert_code(role_info_read((rdzv_bytes){NULL, 0}, &info, NULL), RDZV_E_CORRUPT);
}

/* What is shown of it is short, and ends where it ends: no byte behind the text is looked at. */
static void test_a_long_word_is_not_shown_whole(void **unused) {
  (void)unused;
  enum { LEN = 100000 };
  char *text = malloc(LEN);
  memset(text, 'x', LEN);
  rdzv_error error;
  struct role_info info;
  assert_error(role_info_read((rdzv_bytes){text, LEN}, &info, &error), RDZV_E_CORRUPT, &error, "xxx");
  assert_error(role_info_read((rdzv_bytes){text + LEN - 3, 3}, &info, &error), RDZV_E_CORRUPT, &error, "'xxx'");
  free(text);
}

/* ---- ranks ---------------------------------------------------------------------------------------------------- */

static void test_ranks_go_from_agent_to_agent(void **unused) {
  (void)unused;
  const struct role_info infos[] = {
      {"x", 0, 1, 0, true}, {"y", 1, 2, 0, true}, {"x", 2, 3, 0, true}, {"z", 3, 0, 0, true}, {"y", 4, 4, 0, true}};
  static const struct worker_ranks wanted[] = {
      {0, 10, 0, 4}, {1, 10, 0, 6}, {3, 10, 1, 4}, {6, 10, 0, 0}, {6, 10, 2, 6}};
  struct worker_ranks ranks[COUNT_OF(infos)];
  assert_true(assign_ranks(infos, COUNT_OF(infos), ranks));
  assert_memory_equal(ranks, wanted, sizeof wanted);
}

/* Of all agents together each rank is given once, and of each role too. */
static void test_no_rank_is_given_twice(void **unused) {
  (void)unused;
  enum { AGENTS = 50, WORKERS = AGENTS * 4 };
  struct role_info infos[AGENTS] = {0};
  static const char *const roles[] = {"a", "b", "A"};
  bool all[WORKERS] = {0}, of_role[3][WORKERS] = {{0}};
  int64_t total = 0;
  for (int i = 0; i < AGENTS; i++) {
    infos[i].local_world_size = i * 7 % 5;
    total += infos[i].local_world_size;
    snprintf(infos[i].role, sizeof infos[i].role, "%s", roles[i * 5 % 3]);
  }
  struct worker_ranks of_all[AGENTS];
  assert_true(assign_ranks(infos, AGENTS, of_all));
  for (size_t i = 0; i < AGENTS; i++) {
    const struct worker_ranks ranks = of_all[i];
    assert_int_equal(ranks.world_size, total);
    for (int64_t worker = 0; worker < infos[i].local_world_size; worker++) {
      bool *by_role = of_role[i * 5 % 3];
      assert_true(ranks.base + worker < total && ranks.role_base + worker < ranks.role_world_size);
      assert_false(all[ranks.base + worker] || by_role[ranks.role_base + worker]);
      all[ranks.base + worker] = by_role[ranks.role_base + worker] = true;
    }
  }
}

static void test_sums_of_many_large_agents_do_not_overflow(void **unused) {
  (void)unused;
  enum { AGENTS = 5000 };
  struct role_info *infos = calloc(AGENTS, sizeof *infos);
  for (int i = 0; i < AGENTS; i++) infos[i].local_world_size = 1 << 20;
  struct worker_ranks *ranks = calloc(AGENTS, sizeof *ranks);
  assert_true(assign_ranks(infos, AGENTS, ranks));
  assert_int_equal(ranks[AGENTS - 1].world_size, (int64_t)AGENTS << 20);
  assert_int_equal(ranks[AGENTS - 1].base, (int64_t)(AGENTS - 1) << 20);
  free(ranks);
  free(infos);
}

/* Processor time for so many agents, half of them of a role of their own: the least of some. */
static double seconds_for(size_t agents) {
  struct role_info *infos = calloc(agents, sizeof *infos);
  struct worker_ranks *ranks = calloc(agents, sizeof *ranks);
  double least = 1e9;
  for (size_t i = 0; i < agents; i++) {
    infos[i].local_world_size = 8;
    snprintf(infos[i].role, sizeof infos[i].role, "a role with a name that is long %zu", i % 2 ? i : 0);
  }
  for (int i = 0; i < 7; i++) {
    const clock_t before = clock();
    for (int times = 0; times < 10; times++) assert_true(assign_ranks(infos, agents, ranks));
    const double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    if (seconds < least) least = seconds;
  }
  free(ranks);
  free(infos);
  return least;
}

/* Four times as many take about five times as long, not sixteen. */
static void test_many_agents_take_little_longer_than_few(void **unused) {
  (void)unused;
  const double few = seconds_for(1000), many = seconds_for(4000);
  if (many > 10 * few + 0.001) fail_msg("1000 agents take %.1f ms, 4000 take %.1f ms", few * 100, many * 100);
}

static void test_ranks_as_text_are_torchs_list_of_four(void **unused) {
  (void)unused;
  const struct worker_ranks ranks = {3, 10, 1, 4};
  struct worker_ranks back;
  char *text = worker_ranks_write(&ranks);
  assert_string_equal(text, "[3, 10, 1, 4]");
  assert_code(worker_ranks_read(text_of(text), &back, NULL), 0);
  assert_memory_equal(&back, &ranks, sizeof back);
  free(text);
  assert_code(worker_ranks_read(BYTES("[0,1,0,1]"), &back, NULL), 0);
}

static void test_what_are_no_ranks_is_refused(void **unused) {
  (void)unused;
  static const char *const texts[] = {"",
                                      "[",
                                      "{}",
                                      "[]",
                                      "[0, 1, 0]",
                                      "[0, 1, 0, 1, 0]",
                                      "[0, 1, 0, \"1\"]",
                                      "[0, 1, 0, null]",
                                      "[-1, 1, 0, 1]",
                                      "[0, 1, -1, 1]",
                                      "[2, 1, 0, 1]",
                                      "[0, 1, 2, 1]",
                                      "[0.0, 1, 0, 1]",
                                      "[0, 1, 0, 1] x",
                                      "[[0, 1, 0, 1]]",
                                      "[0, 99999999999999999999, 0, 1]"};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct worker_ranks ranks;
    rdzv_error error;
    if (worker_ranks_read(text_of(texts[i]), &ranks, &error) != RDZV_E_CORRUPT) fail_msg("'%s' is taken", texts[i]);
    assert_non_null(strstr(error.message, "rank 0 assigns"));
  }
}

/* ---- the terms of a round ------------------------------------------------------------------------------------- */

static void test_terms_come_back_as_they_were(void **unused) {
  (void)unused;
  for (int i = 0; i < 4; i++) {
    const struct round_terms terms = {.restart_count = 5 + i, .agent_store = i & 1, .master_port = 20000 * i};
    struct round_terms back;
    char *text = round_terms_write(&terms);
    assert_code(round_terms_read(text_of(text), &back, NULL), 0);
    assert_int_equal(back.restart_count, terms.restart_count);
    assert_int_equal(back.agent_store, terms.agent_store);
    assert_int_equal(back.master_port, terms.master_port);
    free(text);
  }
}

static void test_what_are_no_terms_is_refused(void **unused) {
  (void)unused;
  static const char *const texts[] = {"",
                                      "{}",
                                      "[]",
                                      "{\"restart_count\": 0}",
                                      "{\"agent_store\": true}",
                                      "{\"restart_count\": -1, \"agent_store\": true}",
                                      "{\"restart_count\": true, \"agent_store\": true}",
                                      "{\"restart_count\": 0, \"agent_store\": 1}",
                                      "{\"restart_count\": 0, \"agent_store\": true, \"master_port\": -1}",
                                      "{\"restart_count\": 0, \"agent_store\": true, \"master_port\": 65536}"};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct round_terms terms;
    rdzv_error error;
    if (round_terms_read(text_of(texts[i]), &terms, &error) != RDZV_E_CORRUPT) fail_msg("'%s' is taken", texts[i]);
    assert_code(error.code, RDZV_E_CORRUPT);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_agents_word_comes_back_as_it_was),
      cmocka_unit_test(test_torch_says_less_and_is_known_by_it),
      cmocka_unit_test(test_ours_has_torchs_members),
      cmocka_unit_test(test_a_role_may_be_as_long_as_there_is_room),
      cmocka_unit_test(test_what_no_agent_says_is_refused),
      cmocka_unit_test(test_a_long_word_is_not_shown_whole),
      cmocka_unit_test(test_ranks_go_from_agent_to_agent),
      cmocka_unit_test(test_no_rank_is_given_twice),
      cmocka_unit_test(test_sums_of_many_large_agents_do_not_overflow),
      cmocka_unit_test(test_many_agents_take_little_longer_than_few),
      cmocka_unit_test(test_ranks_as_text_are_torchs_list_of_four),
      cmocka_unit_test(test_what_are_no_ranks_is_refused),
      cmocka_unit_test(test_terms_come_back_as_they_were),
      cmocka_unit_test(test_what_are_no_terms_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
