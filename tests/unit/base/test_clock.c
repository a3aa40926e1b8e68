/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/clock.h"
#include "unit.h"

#include <limits.h>

/* The clock never goes back. */
static void test_the_clock_never_goes_back(void **state) {
  (void)state;
  int64_t last = clock_now_ms();
  for (int i = 0; i < 10000; i++) {
    const int64_t now = clock_now_ms();
    assert_true(now >= last);
    last = now;
  }
}

/* A deadline far away is the largest one, not one in the past. */
static void test_a_deadline_never_overflows(void **state) {
  (void)state;
  assert_true(deadline_after(INT64_MAX) == INT64_MAX);
  assert_true(deadline_after(INT64_MAX - 1) == INT64_MAX);
  assert_true(deadline_left(deadline_after(INT64_MAX)) > INT64_MAX / 2);
  assert_int_equal(deadline_left(deadline_after(INT64_MIN)), 0);
}

/* Nothing is left of a deadline that is now or has passed. */
static void test_nothing_is_left_of_a_deadline_that_has_passed(void **state) {
  (void)state;
  assert_int_equal(deadline_left(deadline_after(0)), 0);
  assert_int_equal(deadline_left(deadline_after(-5)), 0);
  assert_int_equal(deadline_left(0), 0);
  assert_int_equal(deadline_left(INT64_MIN), 0);
  assert_int_equal(deadline_poll(INT64_MIN), 0);
}

/* poll(2) takes an int, where -1 would be for ever. */
static void test_the_time_for_poll_is_never_negative(void **state) {
  (void)state;
  assert_int_equal(deadline_poll(INT64_MAX), INT_MAX);
  assert_int_equal(deadline_poll(deadline_after((int64_t)INT_MAX + 100000)), INT_MAX);
  const int left = deadline_poll(deadline_after(100000));
  assert_true(left > 0 && left <= 100000);
}

/* From a half to one and a half, and not always the same. */
static void test_jitter_stays_around_its_time_and_varies(void **state) {
  (void)state;
  bool low = false, high = false;
  for (int i = 0; i < 2000; i++) {
    const int64_t pause = jitter(1000);
    assert_true(pause >= 500 && pause <= 1500);
    low |= pause < 800;
    high |= pause > 1200;
  }
  assert_true(low && high);
  assert_int_equal(jitter(0), 0);
}

/* Pauses grow from the first to the longest, and each is from a half to one and a half of its length. */
static void test_a_back_off_grows_to_the_longest_pause(void **state) {
  (void)state;
  struct backoff backoff = {1, 100};
  for (int64_t before = 0; backoff.pause_ms < 100;) {
    const int64_t pause = backoff.pause_ms, now = clock_now_ms();
    assert_true(pause > before);
    const deadline next = backoff_next(&backoff);
    assert_true(next >= now + pause / 2);
    assert_true(next <= clock_now_ms() + pause / 2 + pause + 1);
    before = pause;
  }
  backoff_next(&backoff);
  assert_int_equal(backoff.pause_ms, 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_clock_never_goes_back),
      cmocka_unit_test(test_a_deadline_never_overflows),
      cmocka_unit_test(test_nothing_is_left_of_a_deadline_that_has_passed),
      cmocka_unit_test(test_the_time_for_poll_is_never_negative),
      cmocka_unit_test(test_jitter_stays_around_its_time_and_varies),
      cmocka_unit_test(test_a_back_off_grows_to_the_longest_pause),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
