/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/nearest.h"
#include "unit.h"

static const char *const names[] = {"join_timeout", "last_call_timeout", "close_timeout", "is_host",
                                    "rank",         "rank_order",        "read_timeout",  "store_type"};

static const char *near(const char *given) { return nearest_name(given, names, COUNT_OF(names)); }

/* A letter too many, too few, another, two exchanged, another case of a letter: the name is found all the same. */
static void test_a_slip_is_found(void **state) {
  (void)state;
  static const struct {
    const char *given, *meant;
  } slips[] = {{"join_timeot", "join_timeout"},  {"join_timeoutt", "join_timeout"},
               {"joim_timeout", "join_timeout"}, {"jion_timeout", "join_timeout"},
               {"jointimeout", "join_timeout"},  {"Join_timeout", "join_timeout"},
               {"join-timeout", "join_timeout"}, {"ishost", "is_host"},
               {"is_hosts", "is_host"},          {"ranc", "rank"},
               {"store_typ", "store_type"},      {"xstore_type", "store_type"},
               {"rank_ordr", "rank_order"},      {"rank", "rank"}};
  for (size_t i = 0; i < COUNT_OF(slips); i++) {
    const char *found = near(slips[i].given);
    if (!found) fail_msg("nothing is near '%s'", slips[i].given);
    assert_string_equal(found, slips[i].meant);
  }
}

/* Of two that are near the nearest is taken; of two that are as near the first. */
static void test_the_nearest_is_taken(void **state) {
  (void)state;
  static const char *const three[] = {"abcdef12", "abcdefg1", "abcdefgh"};
  assert_string_equal(nearest_name("abcdefgh", three, 3), "abcdefgh");
  assert_string_equal(nearest_name("abcdefgx", three, 3), "abcdefg1");
  assert_string_equal(near("clos_timeout"), "close_timeout");
  assert_string_equal(near("red_timeout"), "read_timeout");
}

/* Three letters are enough for a guess: one is missing, another, or two are exchanged. */
static void test_short_names(void **state) {
  (void)state;
  static const char *const operations[] = {"set", "get", "add", "cas", "run"};
  static const char *const slips[][2] = {{"gte", "get"}, {"rnu", "run"}, {"rum", "run"}, {"gett", "get"}};
  for (size_t i = 0; i < COUNT_OF(slips); i++) {
    const char *found = nearest_name(slips[i][0], operations, COUNT_OF(operations));
    assert_non_null(found);
    assert_string_equal(found, slips[i][1]);
  }
  assert_null(nearest_name("teg", operations, COUNT_OF(operations)));
}

/* Another word is not a slip, however short the names are. */
static void test_another_word_has_nothing_near(void **state) {
  (void)state;
  static const char *const others[] = {"",           "x",  "host", "protocol",    "timeout",
                                       "keep_alive", "ab", "rxyz", "____________"};
  for (size_t i = 0; i < COUNT_OF(others); i++)
    if (near(others[i])) fail_msg("'%s' is taken for '%s'", others[i], near(others[i]));
  assert_null(nearest_name("rank", NULL, 0));
  static const char *const letter[] = {"a"};
  assert_null(nearest_name("b", letter, 1)); /* one change, but all of it */
  static const char *const dialects[] = {"auto", "v1", "v2", "rdzv"};
  assert_null(nearest_name("v3", dialects, 4)); /* one change, but half of it */
  assert_null(nearest_name("v", dialects, 4));
}

/* A text without end is looked at no further, nor is a name. */
static void test_long_texts_are_near_to_nothing(void **state) {
  (void)state;
  char given[10001], name[80];
  memset(given, 'a', sizeof given - 1);
  given[sizeof given - 1] = '\0';
  assert_null(near(given));
  given[65] = '\0';
  assert_null(near(given));
  memset(name, 'a', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  const char *const long_names[] = {name};
  assert_null(nearest_name("aaaa", long_names, 1));
  given[64] = '\0';
  name[64] = '\0';
  name[63] = 'b';
  assert_string_equal(nearest_name(given, long_names, 1), name); /* as long as is looked at */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_slip_is_found),
      cmocka_unit_test(test_the_nearest_is_taken),
      cmocka_unit_test(test_short_names),
      cmocka_unit_test(test_another_word_has_nothing_near),
      cmocka_unit_test(test_long_texts_are_near_to_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
