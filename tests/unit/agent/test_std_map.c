/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/std_map.h"

#include "unit.h"

static void test_one_value_is_for_all(void **unused) {
  (void)unused;
  static const char *const texts[] = {"0", "1", "2", "3"};
  for (unsigned i = 0; i < COUNT_OF(texts); i++) {
    struct std_map map;
    assert_code(std_map_parse("tee", texts[i], &map, NULL), 0);
    assert_int_equal(std_map_of(&map, 0), i);
    assert_int_equal(std_map_of(&map, 65535), i);
    std_map_free(&map);
  }
}

static void test_nothing_means_none(void **unused) {
  (void)unused;
  static const char *const texts[] = {NULL, ""};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct std_map map;
    assert_code(std_map_parse("tee", texts[i], &map, NULL), 0);
    assert_int_equal(std_map_of(&map, 0), 0);
    std_map_free(&map);
  }
}

/* torchrun's "-r 9:1": rank 9's stdout, and nothing of the others. */
static void test_pairs_are_for_those_ranks_alone(void **unused) {
  (void)unused;
  struct std_map map;
  assert_code(std_map_parse("tee", "0:1,2:3,10:2", &map, NULL), 0);
  static const unsigned wanted[] = {1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0};
  for (size_t i = 0; i < COUNT_OF(wanted); i++) assert_int_equal(std_map_of(&map, (int64_t)i), wanted[i]);
  std_map_free(&map);
  assert_null(map.entries);
}

/* As in the dict that torchrun makes of it. */
static void test_of_a_rank_that_is_named_twice_the_last_counts(void **unused) {
  (void)unused;
  struct std_map map;
  assert_code(std_map_parse("tee", "4:1,4:2,4:0", &map, NULL), 0);
  assert_int_equal(std_map_of(&map, 4), 0);
  std_map_free(&map);
}

static void test_what_is_no_map_is_refused_by_the_options_name(void **unused) {
  (void)unused;
  static const char *const texts[] = {"4",
                                      "-1",
                                      "+1",
                                      "x",
                                      " 1",
                                      "1 ",
                                      ":",
                                      "0:",
                                      ":1",
                                      "0:4",
                                      "0:x",
                                      "0:1,",
                                      ",0:1",
                                      "0:1,,1:1",
                                      "0:1;1:1",
                                      "0:1 ,1:1",
                                      "1,2",
                                      "0:1:1",
                                      "65536:1",
                                      "99999999999999999999:1",
                                      "0:99999999999999999999",
                                      "3x"};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct std_map map;
    rdzv_error error;
    if (std_map_parse("redirects", texts[i], &map, &error) != RDZV_E_INVALID) fail_msg("'%s' is taken", texts[i]);
    assert_non_null(strstr(error.message, "for redirects"));
    assert_non_null(strstr(error.message, texts[i]));
    assert_null(map.entries);
  }
}

static void test_a_list_of_ranks(void **unused) {
  (void)unused;
  struct std_map list;
  assert_code(rank_list_parse("filter", "0,2,30", &list, NULL), 0);
  assert_true(rank_list_has(&list, 0) && rank_list_has(&list, 2) && rank_list_has(&list, 30));
  assert_false(rank_list_has(&list, 1) || rank_list_has(&list, 3));
  std_map_free(&list);
}

static void test_everybody_is_in_an_empty_list(void **unused) {
  (void)unused;
  static const char *const texts[] = {NULL, ""};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct std_map list;
    assert_code(rank_list_parse("filter", texts[i], &list, NULL), 0);
    assert_true(rank_list_has(&list, 0) && rank_list_has(&list, 77));
    std_map_free(&list);
  }
}

static void test_what_is_no_list_is_refused(void **unused) {
  (void)unused;
  static const char *const texts[] = {",", "0,",  ",0",  "0,,1",  "-1",
                                      "x", "0 1", "0:1", "65536", "1,99999999999999999999"};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct std_map list;
    rdzv_error error;
    if (rank_list_parse("filter", texts[i], &list, &error) != RDZV_E_INVALID) fail_msg("'%s' is taken", texts[i]);
    assert_non_null(strstr(error.message, "for filter"));
    assert_null(list.entries);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_value_is_for_all),
      cmocka_unit_test(test_nothing_means_none),
      cmocka_unit_test(test_pairs_are_for_those_ranks_alone),
      cmocka_unit_test(test_of_a_rank_that_is_named_twice_the_last_counts),
      cmocka_unit_test(test_what_is_no_map_is_refused_by_the_options_name),
      cmocka_unit_test(test_a_list_of_ranks),
      cmocka_unit_test(test_everybody_is_in_an_empty_list),
      cmocka_unit_test(test_what_is_no_list_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
