/* SPDX-License-Identifier: BSD-3-Clause */
/* When a lease is renewed next, also while etcd stalls. */
#include "etcd/client/renewal.h"
#include "unit.h"

static const struct renewal every_1250 = {.every_ms = 1250, .again_ms = 100};

static void a_quick_answer_is_followed_after_the_pause(void **state) {
  (void)state;
  assert_int_equal(renewal_next(&every_1250, 1000, 1010, true), 2250);
}

static void a_late_answer_is_followed_sooner(void **state) {
  (void)state;
  assert_int_equal(renewal_next(&every_1250, 1000, 2000, true), 2250);
  assert_int_equal(renewal_next(&every_1250, 1000, 2250, true), 2250);
}

static void one_that_took_longer_than_the_pause_is_followed_at_once(void **state) {
  (void)state;
  assert_int_equal(renewal_next(&every_1250, 1000, 3500, true), 3500);
}

static void a_failure_is_repeated_soon(void **state) {
  (void)state;
  assert_int_equal(renewal_next(&every_1250, 1000, 1001, false), 1101);
  assert_int_equal(renewal_next(&every_1250, 1000, 5000, false), 5100);
}

/* The end of a call that is sent at `now`, where etcd stalls for `stall` ms, then answers for `gap` ms, and so on. */
static int64_t answered_at(int64_t now, int64_t stall, int64_t gap) {
  const int64_t at = now % (stall + gap);
  return at < stall ? now - at + stall : now;
}

/* A lease holds whenever its valid time covers a stall, the one behind it, and the gap between: whatever the moment
 * at which the first renewal is sent. */
static void a_lease_outlives_stalls_that_follow_each_other(void **state) {
  (void)state;
  enum { LEASE_MS = 5000, VALID_MS = 4750, STALL_MS = 2500, GAP_MS = 1000 };
  for (int64_t first = 0; first < STALL_MS + GAP_MS; first += 10) {
    int64_t sent = first, until = first + VALID_MS;
    for (int i = 0; i < 100; i++) {
      const int64_t end = answered_at(sent, STALL_MS, GAP_MS);
      if (end >= until) fail_msg("lost at %d ms, first renewal at %d ms", (int)end, (int)first);
      until = sent + VALID_MS;
      sent = renewal_next(&every_1250, sent, end, true);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_quick_answer_is_followed_after_the_pause),
      cmocka_unit_test(a_late_answer_is_followed_sooner),
      cmocka_unit_test(one_that_took_longer_than_the_pause_is_followed_at_once),
      cmocka_unit_test(a_failure_is_repeated_soon),
      cmocka_unit_test(a_lease_outlives_stalls_that_follow_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
