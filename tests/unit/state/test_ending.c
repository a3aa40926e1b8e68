/* SPDX-License-Identifier: BSD-3-Clause */
/* Who ended a run, and when. */
#include "rules_world.h"
#include "state/differences.h"
#include "state/ending.h"

static void apply(struct rendezvous_state *state, const char *name, enum rendezvous_action action) {
  const struct node_desc node = node_of(name);
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.max_nodes = 4;
  struct rendezvous_context context = {
      .node = &node, .state = state, .settings = &settings, .now = NOW, .deadline_ms = NOW_MS};
  assert_code(rendezvous_apply(&context, action, NULL), 0);
}

static void test_the_last_node_that_leaves_ends_the_run(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:ab");
  struct ending ending;
  apply(&state, "a", ACTION_REMOVE_FROM_PARTICIPANTS);
  assert_false(ending_read(&state, &ending));
  assert_int_equal(rendezvous_phase(&state), PHASE_GATHERING);
  apply(&state, "b", ACTION_REMOVE_FROM_PARTICIPANTS);
  assert_true(ending_read(&state, &ending));
  assert_string_equal(ending.node, "b_1_0");
  assert_true(ending.at_us == NOW_US);
  assert_int_equal(rendezvous_phase(&state), PHASE_ENDED);
  apply(&state, "c", ACTION_ADD_TO_PARTICIPANTS);
  assert_false(ending_read(&state, &ending));
  state_free(&state);
}

/* A node that leaves a closed run does not end it again. */
static void test_a_run_is_closed_once(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:ab");
  struct ending ending;
  apply(&state, "a", ACTION_MARK_RENDEZVOUS_CLOSED);
  apply(&state, "a", ACTION_REMOVE_FROM_PARTICIPANTS);
  apply(&state, "b", ACTION_REMOVE_FROM_PARTICIPANTS);
  assert_true(ending_read(&state, &ending));
  assert_string_equal(ending.node, "a_1_0");
  assert_int_equal(rendezvous_phase(&state), PHASE_CLOSED);
  state_free(&state);
}

static void test_a_closer_without_a_name_and_a_malformed_attribute(void **unused) {
  (void)unused;
  struct rendezvous_state state = STATE_EMPTY;
  struct ending ending;
  ending_note(&state, &(struct node_desc){.addr = ""}, false, NOW_US);
  assert_true(ending_read(&state, &ending) && ending.at_us == NOW_US);
  assert_string_equal(ending.node, "");
  struct pyvalue value = {.kind = PYVALUE_INT, .number = 1};
  assert_true(pynames_set(&state.extra, ENDING_ATTRIBUTE, &value));
  assert_false(ending_read(&state, &ending));
  ending_forget(&state);
  assert_false(ending_read(&state, &ending));
  state_free(&state);
}

static int64_t age_of(const void *unused, const struct state_node *node) {
  (void)unused;
  return (NOW_US - node->last_heartbeat) / 1000;
}

/* Heartbeats that are older than the dead time of all nodes: 15 s where a PyTorch node is among them. */
static void test_silence_of_all_nodes(void **unused) {
  (void)unused;
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.keep_alive_interval = 1000;
  const struct {
    int64_t a_ms, b_ms;
    bool ours, closed, silent;
  } cases[] = {{4000, 5000, true, false, true},
               {2000, 5000, true, false, false},
               {4000, 5000, true, true, false},
               {16000, 20000, false, false, true},
               {4000, 20000, false, false, false}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct rendezvous_state state = STATE_EMPTY;
    struct ending_silence silence;
    put(&state, "a", NODE_PARTICIPANT, cases[i].a_ms)->ours = true;
    put(&state, "b", NODE_WAITING, cases[i].b_ms)->ours = cases[i].ours;
    differences_enter(&state, &(struct node_desc){.addr = "a", .pid = 1}, &settings);
    state.closed = cases[i].closed;
    assert_int_equal(ending_is_silence(&state, age_of, NULL, NOW_US, &silence), cases[i].silent);
    if (cases[i].silent) assert_string_equal(silence.node.text, "a_1_0");
    if (cases[i].silent) assert_true(silence.at_us == NOW_US - 1000 * cases[i].a_ms);
    state_free(&state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_last_node_that_leaves_ends_the_run),
      cmocka_unit_test(test_a_run_is_closed_once),
      cmocka_unit_test(test_silence_of_all_nodes),
      cmocka_unit_test(test_a_closer_without_a_name_and_a_malformed_attribute),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
