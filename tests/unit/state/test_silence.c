/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/engine/liveness.h"

#include "unit.h"

static const struct rendezvous_settings settings = {.keep_alive_interval = 5000, .keep_alive_max_attempt = 3};

/* Whoever looks often enough counts every millisecond, and is told to look again when the dead time is over. */
static void test_silence_is_counted_while_we_look(void **state) {
  (void)state;
  struct silence silence;
  silence_end(&silence, 1000);
  assert_int_equal(silence_wake(&silence, &settings), 1000 + silence_look_interval(&settings));
  assert_int_equal(silence_look(&silence, &settings, 3000), 2000);
  assert_int_equal(silence_look(&silence, &settings, 8000), 7000);
  assert_int_equal(silence_look(&silence, &settings, 13000), 12000);
  assert_int_equal(silence_wake(&silence, &settings), 16000);
  assert_int_equal(silence_look(&silence, &settings, 16000), 15000);
  assert_true(silence_wake(&silence, &settings) > 16000);
}

/* However long we were stopped, the store has most of the dead time left to answer. */
static void test_time_in_which_we_did_not_run_does_not_count(void **state) {
  (void)state;
  struct silence silence;
  silence_end(&silence, 0);
  assert_int_equal(silence_look(&silence, &settings, 3600000), silence_look_interval(&settings));
  assert_true(silence_wake(&silence, &settings) > 3600000);
  assert_int_equal(silence_look(&silence, &settings, 3600010), silence_look_interval(&settings) + 10);
}

/* An answer ends it. */
static void test_an_answer_ends_the_silence(void **state) {
  (void)state;
  struct silence silence;
  silence_end(&silence, 0);
  silence_look(&silence, &settings, 4000);
  silence_end(&silence, 5000);
  assert_int_equal(silence_look(&silence, &settings, 5000), 0);
}

/* A dead time of next to nothing does not make anybody look all the time. */
static void test_the_next_look_is_always_later(void **state) {
  (void)state;
  const struct rendezvous_settings hasty = {.keep_alive_interval = 1, .keep_alive_max_attempt = 1};
  struct silence silence;
  silence_end(&silence, 7);
  assert_true(silence_wake(&silence, &hasty) > 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_silence_is_counted_while_we_look),
      cmocka_unit_test(test_time_in_which_we_did_not_run_does_not_count),
      cmocka_unit_test(test_an_answer_ends_the_silence),
      cmocka_unit_test(test_the_next_look_is_always_later),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
