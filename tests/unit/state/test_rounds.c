/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/engine/rounds.h"

#include "rules_world.h"

static const struct node_desc self = {"m", 1, 0};

static struct rendezvous_state state_of_round(int64_t round, bool complete, bool with_us) {
  struct rendezvous_state state = STATE_EMPTY;
  struct state_node *member;
  rdzv_error error;
  state.round = round;
  state.complete = complete;
  if (with_us) {
    assert_code(state_insert(&state, &self, &member, &error), 0);
    state_set_kinds(&state, member, NODE_PARTICIPANT);
  }
  return state;
}

static void observe(struct rounds *rounds, int64_t round, bool complete, bool with_us, uint64_t token) {
  struct rendezvous_state state = state_of_round(round, complete, with_us);
  rounds_observe(rounds, &state, &self, token);
  state_free(&state);
}

static void write_in_place_of(struct rounds *rounds, int64_t round, bool with_us, uint64_t token) {
  struct rendezvous_state state = state_of_round(round, false, with_us);
  rounds_write(rounds, &state, &self, token);
  state_free(&state);
}

/* A round that gathers is anybody's; one that was complete is over for all who saw it. */
static void test_complete_rounds_are_known(void **state) {
  (void)state;
  struct rounds rounds = ROUNDS_NONE;
  observe(&rounds, 0, false, false, 1);
  assert_int_equal(rounds.first, 0);
  observe(&rounds, 0, true, false, 2);
  assert_int_equal(rounds.first, 1);
  observe(&rounds, 5, true, true, 3);
  assert_int_equal(rounds.first, 6);
  observe(&rounds, 0, false, false, 0); /* lost */
  assert_int_equal(rounds.first, 6);
}

/* The usual course changes no number: a round is entered, gathers, is completed, or left. */
static void test_the_usual_course_changes_nothing(void **state) {
  (void)state;
  struct rounds rounds = ROUNDS_NONE;
  write_in_place_of(&rounds, 0, true, 0);
  rounds_written(&rounds);
  observe(&rounds, 0, false, true, 1);
  write_in_place_of(&rounds, 0, false, 1); /* we leave */
  rounds_written(&rounds);
  observe(&rounds, 0, false, false, 2);
  assert_int_equal(rounds.first, 0);
  write_in_place_of(&rounds, 0, true, 2);
  rounds_not_written(&rounds);
  observe(&rounds, 0, false, false, 3);
  assert_int_equal(rounds.first, 0);
  write_in_place_of(&rounds, 0, true, 3);
  rounds_written(&rounds);
  observe(&rounds, 0, false, true, 4);
  observe(&rounds, 0, true, true, 5);
  assert_int_equal(rounds.first, 1);
}

/* A round that we had entered and find gone may have been completed with us in it. */
static void test_a_round_that_we_had_entered_may_be_complete(void **state) {
  (void)state;
  struct rounds rounds = ROUNDS_NONE;
  write_in_place_of(&rounds, 3, true, 7);
  rounds_written(&rounds);
  observe(&rounds, 3, false, true, 8);
  observe(&rounds, 0, false, false, 0);
  assert_int_equal(rounds.first, 4);
}

/* So may one that we have entered without an answer; but not while the version that we wrote in the place of is there,
 * nor while the round before it goes on. */
static void test_an_unanswered_write_is_judged_when_it_can_be(void **state) {
  (void)state;
  struct rounds rounds = ROUNDS_NONE;
  write_in_place_of(&rounds, 3, true, 7);
  rounds_maybe_written(&rounds);
  observe(&rounds, 3, false, false, 7);
  assert_int_equal(rounds.first, 0);
  observe(&rounds, 2, true, true, 8);
  assert_int_equal(rounds.first, 3);
  observe(&rounds, 3, false, true, 9); /* it was late */
  assert_int_equal(rounds.first, 3);
  write_in_place_of(&rounds, 3, true, 9);
  rounds_maybe_written(&rounds);
  observe(&rounds, 0, false, false, 0);
  assert_int_equal(rounds.first, 4);
}

/* Whoever comes into a round with a number of before gives it the first that it may take part in. */
static void test_a_round_gets_the_number_of_who_knows(void **unused) {
  (void)unused;
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.max_nodes = 3;
  for (int64_t round = 0; round < 9; round++) {
    struct rendezvous_state state = state_of("p:a");
    state.round = round;
    struct rendezvous_context context = {&self, &state, &settings, NOW, NOW_MS, false, false, 5, CLASH_NONE};
    assert_code(rendezvous_apply(&context, ACTION_ADD_TO_PARTICIPANTS, NULL), 0);
    assert_int_equal(state.round, round < 5 ? 5 : round);
    state_free(&state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_complete_rounds_are_known),
      cmocka_unit_test(test_the_usual_course_changes_nothing),
      cmocka_unit_test(test_a_round_that_we_had_entered_may_be_complete),
      cmocka_unit_test(test_an_unanswered_write_is_judged_when_it_can_be),
      cmocka_unit_test(test_a_round_gets_the_number_of_who_knows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
