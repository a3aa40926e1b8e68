/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a node waits after a lost swap. */
#include "state/engine/pace.h"
#include "unit.h"

enum { DRAWS = 1000, FOUR_TRIPS_MS = 1000 };

static int64_t longest_after_loss(struct pace *pace, unsigned losses) {
  const struct rendezvous_settings settings = {.min_nodes = 4, .max_nodes = 4, .keep_alive_interval = 5000};
  const struct rendezvous_state state = {0};
  int64_t longest = 0;
  for (int i = 0; i < DRAWS; i++) {
    pace->losses = losses;
    const int64_t pause = pace_after_loss(pace, &settings, &state, false);
    if (pause > longest) longest = pause;
  }
  return longest;
}

/* A request that took as long as an election, or as the store was away, is not how long a request takes: a node that
 * joins would wait for a multiple of that, while all others wait for the node. */
static void test_an_outage_is_not_a_round_trip(void **state) {
  (void)state;
  struct pace pace = {.random = 7};
  pace_measure(&pace, 20000);
  assert_true(longest_after_loss(&pace, 8) <= FOUR_TRIPS_MS);
  pace_measure(&pace, INT64_MAX);
  assert_true(longest_after_loss(&pace, 8) <= FOUR_TRIPS_MS);
}

static void test_slow_trips_make_longer_pauses(void **state) {
  (void)state;
  struct pace quick = {.random = 7}, slow = {.random = 7};
  pace_measure(&quick, 1);
  pace_measure(&slow, 100);
  assert_true(longest_after_loss(&quick, 8) <= 4);
  assert_true(longest_after_loss(&slow, 8) > 300);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_outage_is_not_a_round_trip),
      cmocka_unit_test(test_slow_trips_make_longer_pauses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
