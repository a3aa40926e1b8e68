/* SPDX-License-Identifier: BSD-3-Clause */
/* What a node that joins says it waits for. */
#include "rules_world.h"
#include "state/summary.h"

static const struct rendezvous_settings settings = {.min_nodes = 2, .max_nodes = 3};

enum { GATHERS, LAST_CALL, COMPLETE };

static void assert_waiting(const char *members, int phase, const char *text) {
  const struct node_desc node = node_of("m");
  struct rendezvous_state state = state_of(members);
  state.complete = phase == COMPLETE;
  if (phase == LAST_CALL) state.deadline = 1;
  assert_string_equal(summary_waiting(&state, &settings, &node).text, text);
  state_free(&state);
}

static void test_a_node_waits_for_what_its_place_is(void **unused) {
  (void)unused;
  assert_waiting("", GATHERS, "waiting for nodes: 0 of at least 2 have joined");
  assert_waiting("p:m", GATHERS, "waiting for nodes: 1 of at least 2 have joined: 'm_1_0'");
  assert_waiting("p:am", LAST_CALL,
                 "waiting for the end of the last call: 2 of at most 3 nodes have joined: 'a_1_0', 'm_1_0'");
  assert_waiting("p:m", LAST_CALL, "waiting for the end of the last call: 1 of at most 3 nodes have joined: 'm_1_0'");
  assert_waiting("p:am", GATHERS, "waiting for the last call to begin: 2 nodes have joined: 'a_1_0', 'm_1_0'");
  assert_waiting("p:am", COMPLETE,
                 "waiting for the result of round 0, which is complete with 2 nodes: 'a_1_0', 'm_1_0'");
  assert_waiting("p:ab w:m", COMPLETE,
                 "waiting for the next round: round 0 goes on with 2 of at most 3 nodes: 'a_1_0', 'b_1_0'");
  assert_waiting("p:a r:m", COMPLETE,
                 "this node is a spare, waiting for a place: round 0 is full with 1 node: 'a_1_0'");
  assert_waiting("p:abc r:m", COMPLETE,
                 "this node is a spare, waiting for a place: round 0 is full with 3 nodes: 'a_1_0', 'b_1_0', 'c_1_0'");
}

/* The text does not change with the time, only with the rendezvous; more than four are counted. */
static void test_many_nodes_are_counted(void **unused) {
  (void)unused;
  assert_waiting("p:abcdefm", LAST_CALL,
                 "waiting for the end of the last call: 7 of at most 3 nodes have joined: 'a_1_0', 'b_1_0', 'c_1_0', "
                 "'d_1_0' and 3 more");
}

/* However long the names are, it ends with how many more there are. */
static void test_the_text_is_bounded(void **unused) {
  (void)unused;
  const struct node_desc node = node_of("m");
  for (int length = 1; length <= STATE_MAX_ADDR; length++) {
    struct rendezvous_state state = STATE_EMPTY;
    char name[STATE_MAX_ADDR + 1] = "";
    for (int i = 0; i < 6; i++) {
      memset(name, 'a' + i, (size_t)length);
      put(&state, name, NODE_PARTICIPANT, 0);
    }
    assert_non_null(strstr(summary_waiting(&state, &settings, &node).text, " more"));
    state_free(&state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_node_waits_for_what_its_place_is),
      cmocka_unit_test(test_many_nodes_are_counted),
      cmocka_unit_test(test_the_text_is_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
