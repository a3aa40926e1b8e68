/* SPDX-License-Identifier: BSD-3-Clause */
/* Permits: who lost a race, or is about to join with many others, may wait for the permit instead of a random time; and
 * what a swap says of itself, so that whoever carries it out knows whom to tell. We are node 'm'. */
#include "rules_world.h"
#include "state/engine/engine.h"

struct world {
  struct engine engine;
  struct engine_update update;
  struct moment now;
};

static void begin(struct world *world, int64_t min, int64_t max) {
  struct engine_config config = {.node = node_of("m"), .settings = RENDEZVOUS_SETTINGS_DEFAULT, .seed = 7};
  config.settings.min_nodes = min;
  config.settings.max_nodes = max;
  *world = (struct world){.now = NOW};
  engine_init(&world->engine, &config);
}

static void step(struct world *world, struct engine_event event) {
  rdzv_error error;
  event.now = world->now;
  assert_code(engine_step(&world->engine, &event, &world->update, &error), 0);
}

static void ask(struct world *world, enum engine_event_kind what) { step(world, (struct engine_event){.kind = what}); }

/* Answers with the state of that text; complete where it says so. */
static void answer(struct world *world, enum engine_event_kind kind, const char *text, bool complete, uint64_t token,
                   bool has_permit) {
  struct rendezvous_state state = state_of(text);
  for (size_t i = 0; i < state.count; i++) state.nodes[i].last_heartbeat = world->now.wall_us;
  state.complete = complete;
  if (complete) assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_TORCH, NULL), 0);
  step(world, (struct engine_event){.kind = kind, .state = &state, .token = token, .has_permit = has_permit});
  state_free(&state);
}

/* Asked to join, and about to write itself into the state. */
static void begin_to_join(struct world *world, int64_t min, int64_t max, const char *text) {
  begin(world, min, max);
  ask(world, ENGINE_EV_ASK_JOIN);
  if (world->update.request == ENGINE_DO_BACK_OFF) ask(world, ENGINE_EV_PERMIT);
  assert_int_equal(world->update.request, ENGINE_DO_READ);
  answer(world, ENGINE_EV_STATE_READ, text, false, 1, false);
  assert_int_equal(world->update.request, ENGINE_DO_SWAP);
}

/* Few nodes begin at once; many wait for a random time, or for the permit. */
static void test_many_begin_by_permits(void **state) {
  (void)state;
  struct world world;
  begin(&world, 1, 8);
  ask(&world, ENGINE_EV_ASK_JOIN);
  assert_int_equal(world.update.request, ENGINE_DO_READ);
  engine_free(&world.engine);
  int backed_off = 0;
  for (int i = 0; i < 20; i++) {
    begin(&world, 1, 1000);
    world.engine.pace.random = (uint64_t)i;
    ask(&world, ENGINE_EV_ASK_JOIN);
    if (world.update.request == ENGINE_DO_BACK_OFF) {
      backed_off++;
      assert_in_range(world.update.until_ms, NOW_MS + 1, NOW_MS + 5000);
      assert_in_range(world.update.permit_ms, NOW_MS + 1, NOW_MS + 60000);
      ask(&world, ENGINE_EV_PERMIT);
    }
    assert_int_equal(world.update.request, ENGINE_DO_READ);
    engine_free(&world.engine);
  }
  assert_true(backed_off > 10);
}

/* After a lost swap: back off, with a time for a permit; the permit, or the timer, reads anew. */
static void test_a_lost_swap_waits_for_a_permit(void **state) {
  (void)state;
  for (int by_permit = 0; by_permit < 2; by_permit++) {
    struct world world;
    begin_to_join(&world, 900, 1000, "p:a");
    int tries = 0;
    do { /* until the random time is not 0 */
      answer(&world, ENGINE_EV_SWAP_LOST, "p:ab", false, (uint64_t)++tries + 1, false);
    } while (world.update.request == ENGINE_DO_SWAP && tries < 50);
    assert_int_equal(world.update.request, ENGINE_DO_BACK_OFF);
    assert_true(world.update.permit_ms > world.now.mono_ms);
    assert_true(world.update.until_ms > world.now.mono_ms);
    if (by_permit) {
      ask(&world, ENGINE_EV_PERMIT);
    } else {
      world.now.mono_ms = world.update.until_ms;
      ask(&world, ENGINE_EV_TIMER);
    }
    assert_true(world.update.request == ENGINE_DO_READ || world.update.request == ENGINE_DO_SWAP);
    engine_free(&world.engine);
  }
}

/* A timer that comes before its time is no permit. */
static void test_a_back_off_is_not_ended_early_but_by_a_permit(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world, 900, 1000, "p:a");
  int tries = 0;
  do {
    answer(&world, ENGINE_EV_SWAP_LOST, "p:ab", false, (uint64_t)++tries + 1, false);
  } while ((world.update.request == ENGINE_DO_SWAP || world.update.until_ms - NOW_MS < 3) && tries < 50);
  assert_int_equal(world.update.request, ENGINE_DO_BACK_OFF);
  const int64_t until = world.update.until_ms;
  ask(&world, ENGINE_EV_TIMER);
  assert_int_equal(world.update.request, ENGINE_DO_BACK_OFF);
  assert_int_equal(world.update.until_ms, until);
  engine_free(&world.engine);
}

/* Who has the permit and lost to somebody who takes none tries again at once, with what is there now. */
static void test_who_has_the_permit_does_not_back_off(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world, 900, 1000, "p:a");
  for (uint64_t i = 0; i < 20; i++) {
    answer(&world, ENGINE_EV_SWAP_LOST, "p:ab", false, i + 2, true);
    assert_int_equal(world.update.request, ENGINE_DO_SWAP);
    assert_int_equal(world.update.token, i + 2);
    assert_string_equal(text_of(world.update.state).text, "p:abm");
  }
  engine_free(&world.engine);
}

/* A store that fails is no race: no permit helps there. */
static void test_a_store_that_fails_is_not_waited_for_by_permits(void **state) {
  (void)state;
  struct world world;
  const rdzv_error error = {.code = RDZV_E_CONNECTION, .message = "no route"};
  begin_to_join(&world, 2, 3, "p:a");
  step(&world, (struct engine_event){.kind = ENGINE_EV_STORE_ERROR, .error = &error});
  assert_int_equal(world.update.request, ENGINE_DO_BACK_OFF);
  assert_int_equal(world.update.permit_ms, 0);
  assert_true(world.update.until_ms > NOW_MS);
  engine_free(&world.engine);
}

/* An error of before that trying again would not have helped does not fail what is asked for later. */
static void test_an_error_of_before_does_not_fail_what_comes_after(void **state) {
  (void)state;
  static const enum engine_event_kind asks[] = {ENGINE_EV_ASK_JOIN, ENGINE_EV_ASK_LEAVE, ENGINE_EV_ASK_CLOSE};
  const rdzv_error error = {.code = RDZV_E_CORRUPT, .message = "no state"};
  for (size_t i = 0; i < COUNT_OF(asks); i++) {
    struct world world;
    begin(&world, 1, 1);
    ask(&world, ENGINE_EV_ASK_JOIN);
    step(&world, (struct engine_event){.kind = ENGINE_EV_STORE_ERROR, .error = &error});
    assert_int_equal(world.update.news, ENGINE_NEWS_FAILED);
    assert_code(world.update.error.code, RDZV_E_CORRUPT);
    world.now.mono_ms += 10000;
    ask(&world, asks[i]);
    assert_int_equal(world.update.news, 0);
    assert_int_equal(world.update.request, ENGINE_DO_READ);
    engine_free(&world.engine);
  }
}

/* Two things that were asked for, and fail at once, are both told of: somebody waits for each. */
static void test_two_failures_at_once_are_both_told(void **state) {
  (void)state;
  struct world world;
  const rdzv_error error = {.code = RDZV_E_CORRUPT, .message = "no state"};
  begin(&world, 1, 1);
  ask(&world, ENGINE_EV_ASK_LEAVE);
  ask(&world, ENGINE_EV_ASK_CLOSE);
  unsigned told = 0;
  for (int i = 0; i < 10 && world.update.request != ENGINE_DO_NOTHING; i++) {
    if (world.update.request == ENGINE_DO_BACK_OFF) world.now.mono_ms = world.update.until_ms;
    if (world.update.request == ENGINE_DO_BACK_OFF)
      ask(&world, ENGINE_EV_TIMER);
    else
      step(&world, (struct engine_event){.kind = ENGINE_EV_STORE_ERROR, .error = &error});
    if (world.update.news & ENGINE_NEWS_FAILED) told |= 1U << world.update.failed;
  }
  assert_int_equal(world.update.request, ENGINE_DO_NOTHING);
  assert_int_equal(told, 1U << ENGINE_EV_ASK_LEAVE | 1U << ENGINE_EV_ASK_CLOSE);
  engine_free(&world.engine);
}

/* ---- what a swap says of itself ------------------------------------------------------------------------------- */

/* One more in a round that gathers is not urgent; the one who completes it is. */
static void test_joining_is_urgent_when_it_completes_the_round(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world, 3, 3, "p:a");
  assert_int_equal(world.update.action, ACTION_ADD_TO_PARTICIPANTS);
  assert_false(world.update.urgent);
  engine_free(&world.engine);
  begin_to_join(&world, 2, 2, "p:a");
  assert_int_equal(world.update.action, ACTION_ADD_TO_PARTICIPANTS);
  assert_true(world.update.urgent);
  engine_free(&world.engine);
}

/* A heartbeat is not; leaving, waiting, being a spare and closing are. */
static void test_what_others_want_to_hear_of_is_urgent(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world, 2, 3, "p:a");
  step(&world, (struct engine_event){.kind = ENGINE_EV_SWAP_WON, .token = 2});
  answer(&world, ENGINE_EV_STATE_READ, "p:amz", true, 3, false);
  assert_int_equal(world.update.news, ENGINE_NEWS_JOINED);
  world.now.mono_ms += 5000;
  world.now.wall_us += 5000000;
  ask(&world, ENGINE_EV_TIMER);
  assert_int_equal(world.update.request, ENGINE_DO_READ);
  answer(&world, ENGINE_EV_STATE_READ, "p:amz", true, 4, false);
  assert_int_equal(world.update.request, ENGINE_DO_SWAP);
  assert_int_equal(world.update.action, ACTION_KEEP_ALIVE);
  assert_false(world.update.urgent);
  step(&world, (struct engine_event){.kind = ENGINE_EV_SWAP_WON, .token = 5});
  ask(&world, ENGINE_EV_ASK_LEAVE);
  assert_int_equal(world.update.request, ENGINE_DO_SWAP);
  assert_int_equal(world.update.action, ACTION_REMOVE_FROM_PARTICIPANTS);
  assert_true(world.update.urgent);
  step(&world, (struct engine_event){.kind = ENGINE_EV_SWAP_WON, .token = 6});
  ask(&world, ENGINE_EV_ASK_CLOSE);
  assert_int_equal(world.update.request, ENGINE_DO_SWAP);
  assert_int_equal(world.update.action, ACTION_MARK_RENDEZVOUS_CLOSED);
  assert_true(world.update.urgent);
  engine_free(&world.engine);
  begin(&world, 1, 3);
  ask(&world, ENGINE_EV_ASK_JOIN);
  answer(&world, ENGINE_EV_STATE_READ, "p:ab", true, 1, false);
  assert_int_equal(world.update.action, ACTION_ADD_TO_WAIT_LIST);
  assert_true(world.update.urgent);
  engine_free(&world.engine);
  begin(&world, 1, 2);
  ask(&world, ENGINE_EV_ASK_JOIN);
  answer(&world, ENGINE_EV_STATE_READ, "p:ab", true, 1, false);
  assert_int_equal(world.update.action, ACTION_ADD_TO_REDUNDANCY_LIST);
  assert_true(world.update.urgent);
  engine_free(&world.engine);
}

/* What was asked while a request is under way waits for its answer. */
static void test_a_request_under_way_goes_on_when_something_is_asked(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world, 2, 3, "p:a");
  ask(&world, ENGINE_EV_ASK_LEAVE);
  assert_int_equal(world.update.request, ENGINE_DO_CONTINUE);
  step(&world, (struct engine_event){.kind = ENGINE_EV_SWAP_WON, .token = 2});
  assert_int_equal(world.update.request, ENGINE_DO_SWAP);
  assert_int_equal(world.update.action, ACTION_REMOVE_FROM_PARTICIPANTS);
  step(&world, (struct engine_event){.kind = ENGINE_EV_SWAP_WON, .token = 3});
  assert_int_equal(world.update.news, ENGINE_NEWS_LEFT);
  engine_free(&world.engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_many_begin_by_permits),
      cmocka_unit_test(test_a_lost_swap_waits_for_a_permit),
      cmocka_unit_test(test_a_back_off_is_not_ended_early_but_by_a_permit),
      cmocka_unit_test(test_who_has_the_permit_does_not_back_off),
      cmocka_unit_test(test_a_store_that_fails_is_not_waited_for_by_permits),
      cmocka_unit_test(test_an_error_of_before_does_not_fail_what_comes_after),
      cmocka_unit_test(test_two_failures_at_once_are_both_told),
      cmocka_unit_test(test_joining_is_urgent_when_it_completes_the_round),
      cmocka_unit_test(test_what_others_want_to_hear_of_is_urgent),
      cmocka_unit_test(test_a_request_under_way_goes_on_when_something_is_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
