/* SPDX-License-Identifier: BSD-3-Clause */
/* Native nodes beside nodes that swap the blob: small letters are native, capital ones are not. */
#include "base/buf.h"
#include "native_scene.h"
#include "state/pickle/read.h"
#include "state_equal.h"

/* ---- what a node that swaps does ---- */

/* Reads the blob. */
static struct rendezvous_state read_blob(struct scene *scene) {
  struct buf blob = {0};
  struct rendezvous_state state = STATE_EMPTY;
  struct torch_layouts layouts;
  assert_code(coordinator_write_blob(run_of(scene), scene->now, &blob, NULL), 0);
  assert_code(pickle_read((rdzv_bytes){blob.data, blob.len}, &state, &layouts, NULL), 0);
  buf_free(&blob);
  return state;
}

/* Acts on the blob as that node, in one swap; as PyTorch if it is an upper case letter. */
static void swap_as(struct scene *scene, const char *name, enum rendezvous_action action, enum torch_layout layout) {
  struct rendezvous_state state = run_of(scene) ? read_blob(scene) : STATE_EMPTY;
  struct rendezvous_settings settings = scene->join.settings;
  settings.marks = false;
  const struct node_desc node = node_of(name);
  struct rendezvous_context context = {
      .node = &node, .state = &state, .settings = &settings, .now = scene->now, .deadline_ms = INT64_MAX};
  assert_code(rendezvous_apply(&context, action, NULL), 0);
  swap_to(scene, &state, layout);
  assert_null(state.nodes);
}

#define enter(scene, name) swap_as((scene), (name), ACTION_ADD_TO_PARTICIPANTS, TORCH_NEWEST)
#define assert_state(scene, expected) assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, expected)

/* Time passes, and the node swaps a heartbeat every second. */
static void beat(struct scene *scene, int seconds, const char *heard, const char *beats) {
  for (int i = 0; i < seconds; i++) {
    pass(scene, 1000, heard);
    for (const char *at = beats; *at; at++) swap_as(scene, (char[]){*at, '\0'}, ACTION_KEEP_ALIVE, TORCH_NEWEST);
  }
}

/* ---- rounds of both kinds ---- */

/* A leap is what a node of a server that was restarted may know; more is nobody's. */
static void test_rounds_that_cannot_be(void **context) {
  (void)context;
  const int64_t leap = INT64_C(1) << 32;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  struct rendezvous_state state = read_blob(scene);
  const int64_t good[] = {0, 1, 57, leap}, bad[] = {-1, INT64_MIN, leap + 1, STATE_MOST_ROUND, INT64_MAX};
  for (size_t i = 0; i < COUNT_OF(good); i++) {
    state.round = good[i];
    assert_code(coordinator_check_swap(run_of(scene), &state, NULL), 0);
  }
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    rdzv_error error;
    state.round = bad[i];
    assert_code(coordinator_check_swap(run_of(scene), &state, &error), RDZV_E_CORRUPT);
    assert_non_null(strstr(error.message, "cannot follow round 0"));
  }
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    state.round = bad[i];
    if (bad[i] >= 0 && bad[i] <= STATE_MOST_ROUND) continue;
    assert_code(coordinator_adopt(scene->coordinator, "other", &state, TORCH_NEWEST, scene->now, NULL), RDZV_E_CORRUPT);
  }
  assert_null(coordinator_find(scene->coordinator, "other", 5));
  state_free(&state);
  scene_end(scene);
}

/* The leap is from where the run is, or was. */
static void test_a_leap_is_from_the_round_of_the_run(void **context) {
  (void)context;
  const int64_t leap = INT64_C(1) << 32;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  struct rendezvous_state state = read_blob(scene);
  state.round = leap;
  swap_to(scene, &state, TORCH_NEWEST);
  state = read_blob(scene);
  assert_int_equal(state.round, leap);
  state.round = 2 * leap;
  assert_code(coordinator_check_swap(run_of(scene), &state, NULL), 0);
  state.round++;
  assert_code(coordinator_check_swap(run_of(scene), &state, NULL), RDZV_E_CORRUPT);
  state_free(&state);
  scene_end(scene);
}

static void test_either_kind_completes_a_round(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  enter(scene, "B");
  expect(scene, "a: joined 1 round 0 rank 1/2");
  assert_string_equal(scene->master, "B_1_0 at :0");
  assert_false(scene->joined.all_native || scene->joined.all_ours || scene->joined.master_is_ours ||
               scene->joined.has_ranks);
  scene_end(scene);

  scene = scene_begin(2, 2);
  join(scene, "x");
  swap_as(scene, "x", ACTION_KEEP_ALIVE, TORCH_NEWEST);
  assert_state(scene, "p:x");
  enter(scene, "y");
  expect(scene, "x: joined 1 round 0 rank 0/2");
  assert_string_equal(scene->master, "x_1_0 at here:29500");
  scene_end(scene);
}

static void test_a_native_node_completes_a_round_of_others(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  struct rendezvous_state state = state_of("p:AB");
  assert_code(coordinator_adopt(scene->coordinator, "run", &state, TORCH_1_13, scene->now, NULL), 0);
  join(scene, "c");
  expect(scene, "c: joined 1 round 0 rank 2/3");
  assert_int_equal(coordinator_run_layout(run_of(scene)), TORCH_1_13);
  state = read_blob(scene);
  assert_true(state.complete);
  assert_string_equal(text_of(&state).text, "p:A0B1c2");
  state_free(&state);
  scene_end(scene);
}

static void test_every_layout_is_adopted_and_kept(void **context) {
  (void)context;
  for (enum torch_layout layout = TORCH_1_13; layout <= TORCH_NEWEST; layout++) {
    struct scene *scene = scene_begin(2, 2);
    join(scene, "a");
    swap_as(scene, "B", ACTION_ADD_TO_PARTICIPANTS, layout);
    expect(scene, "a: joined 1 round 0 rank 1/2");
    assert_int_equal(coordinator_run_layout(run_of(scene)), layout);
    join(scene, "c"); /* a spare, where there can be any */
    assert_state(scene, layout >= TORCH_2_3 ? "p:B0a1 r:c" : "p:B0a1");
    struct rendezvous_state state = read_blob(scene);
    assert_true(state_equal(&state, coordinator_run_state(run_of(scene))));
    state_free(&state);
    swap_as(scene, "B", ACTION_REMOVE_FROM_PARTICIPANTS, layout);
    expect(scene, "a: waits left 1:B");
    assert_state(scene, "p:a1 w:c");
    scene_end(scene);
  }
}

static void test_a_waiting_native_node_gets_the_next_round(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 2);
  struct rendezvous_state state = state_of("p:A");
  state.complete = true;
  state.round = 4;
  assert_code(coordinator_adopt(scene->coordinator, "run", &state, TORCH_NEWEST, scene->now, NULL), 0);
  join(scene, "b");
  assert_state(scene, "p:A0 w:b");
  swap_as(scene, "A", ACTION_REMOVE_FROM_PARTICIPANTS, TORCH_NEWEST);
  assert_state(scene, "p:b");
  enter(scene, "A");
  expect(scene, "b: joined 1 round 5 rank 1/2");
  scene_end(scene);
}

static void test_a_round_that_was_left_is_not_entered(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 4);
  join(scene, "b");
  struct rendezvous_state state = state_of("p:Ab");
  state.complete = true;
  state.nodes[1].rank = 2; /* rank 1 is gone */
  swap_to(scene, &state, TORCH_NEWEST);
  expect(scene, "");
  assert_state(scene, "p:A0 w:b");
  scene_end(scene);
}

/* ---- eviction ---- */

static void test_a_participant_that_a_swap_takes_out_is_told(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  join(scene, "ab");
  enter(scene, "C");
  expect(scene, "a: joined 1 round 0 rank 1/3 | b: joined 1 round 0 rank 2/3");
  swap_as(scene, "a", ACTION_REMOVE_FROM_PARTICIPANTS, TORCH_NEWEST);
  expect(scene, "a: evicted | b: left 1:a");
  join(scene, "a");
  expect(scene, "b: waits");
  assert_state(scene, "p:C0b2 w:a");
  scene_end(scene);
}

static void test_a_deleted_blob_evicts_and_rounds_do_not_go_back(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "ab");
  join(scene, "ab");
  scene->len = 0;
  assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_SWAPPED, .run_id = "run"}), 0);
  expect(scene, "a: evicted | b: evicted");
  assert_false(coordinator_blob_is_fresh(run_of(scene), scene->now));
  join(scene, "ab");
  expect(scene, "b: joined 3 round 2 rank 1/2 | a: joined 3 round 2 rank 0/2");
  scene_end(scene);
}

/* Nor for nodes that do not know them. */
static void test_the_run_knows_its_rounds(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "abab");
  scene->len = 0;
  assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_SWAPPED, .run_id = "run"}), 0);
  join(scene, "cd");
  expect(scene, "a: evicted | b: evicted | d: joined 1 round 2 rank 1/2 | c: joined 1 round 2 rank 0/2");
  scene_end(scene);
}

/* In a layout without a redundancy list nobody is a spare, whatever the layout was before. */
static void test_a_layout_without_spares_comes_in(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  struct rendezvous_state state = state_of("p:BC");
  state.complete = true;
  state.nodes[1].rank = 1;
  swap_to(scene, &state, TORCH_1_13);
  assert_state(scene, "p:B0C1");
  state = read_blob(scene);
  state_free(&state);
  swap_as(scene, "C", ACTION_REMOVE_FROM_PARTICIPANTS, TORCH_1_13);
  assert_state(scene, "p:B0 w:a");
  scene_end(scene);
}

static void test_a_node_that_gathers_comes_back(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  const size_t changes = scene->changes;
  struct rendezvous_state state = STATE_EMPTY;
  swap_to(scene, &state, TORCH_NEWEST);
  assert_state(scene, "p:a");
  assert_int_equal(scene->changes, changes + 1);
  scene_end(scene);
}

static void test_a_round_that_a_node_knows_is_not_given_again(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  scene->join.first_round = 7;
  join(scene, "b");
  expect(scene, "b: joined 1 round 7 rank 1/2 | a: joined 1 round 7 rank 0/2");
  scene_end(scene);
}

/* With a connection it is told, as often as it comes back; without one its session is over. */
static void test_an_eviction_is_heard_after_the_connection_came_back(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "ab");
  scene->len = 0;
  lose(scene, 'a');
  assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_SWAPPED, .run_id = "run"}), 0);
  expect(scene, "b: evicted");
  resume(scene, 'a', 2);
  expect(scene, "a2: fail STALE");
  resume(scene, 'b', 2); /* it may not have heard it */
  expect(scene, "b: drop | b2: resumed 1 | b2: evicted");
  scene_end(scene);
}

/* ---- death ---- */

static void test_a_silent_node_that_swaps_is_dead(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  join(scene, "a");
  enter(scene, "B");
  enter(scene, "C");
  expect(scene, "a: joined 1 round 0 rank 2/3");
  beat(scene, 14, "a", "C");
  expect(scene, "");
  beat(scene, 3, "a", "C");
  expect(scene, "a: died 1:B");
  assert_state(scene, "p:C1a2");
  scene_end(scene);
}

static void test_a_paused_server_does_not_blame_others_either(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  enter(scene, "B");
  expect(scene, "a: joined 1 round 0 rank 1/2");
  pass(scene, 2000, "a");
  advance_clock(scene, 60000);
  assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_TIMER}), 0);
  pass(scene, 3000, "a");
  expect(scene, "");
  scene_end(scene);
}

/* ---- the value ---- */

static rdzv_value blob_now(struct scene *scene) {
  struct buf blob = {0};
  rdzv_value value;
  assert_code(coordinator_write_blob(run_of(scene), scene->now, &blob, NULL), 0);
  assert_true(value_copy(&value, blob.data, blob.len));
  buf_free(&blob);
  return value;
}

static bool equal(rdzv_value a, rdzv_value b) { return a.len == b.len && memcmp(a.data, b.data, a.len) == 0; }

static void test_the_value_lasts_for_a_swap(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  join(scene, "ab");
  assert_false(coordinator_blob_is_fresh(run_of(scene), scene->now));
  const rdzv_value first = blob_now(scene);
  for (int i = 0; i < 24; i++) {
    pass(scene, 100, "ab");
    assert_true(coordinator_blob_is_fresh(run_of(scene), scene->now));
  }
  const rdzv_value same = blob_now(scene);
  assert_true(equal(first, same));
  pass(scene, 100, "ab");
  assert_false(coordinator_blob_is_fresh(run_of(scene), scene->now));
  const rdzv_value later = blob_now(scene);
  assert_false(equal(first, later));
  assert_true(coordinator_blob_is_fresh(run_of(scene), scene->now));
  join(scene, "c");
  assert_false(coordinator_blob_is_fresh(run_of(scene), scene->now));
  rdzv_value values[] = {first, same, later};
  for (size_t i = 0; i < COUNT_OF(values); i++) free(values[i].data);
  scene_end(scene);
}

static void test_heartbeats_are_those_of_the_reading(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  join(scene, "ab");
  pass(scene, 20000, "ab");
  struct rendezvous_state state = read_blob(scene);
  for (size_t i = 0; i < state.count; i++) assert_int_equal(state.nodes[i].last_heartbeat, scene->now.wall_us);
  state_free(&state);
  scene_end(scene);
}

/* What was swapped in is the value; it needs no writing until something changes. */
static void test_a_swap_that_changes_nothing_more_is_fresh(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  join(scene, "a");
  enter(scene, "B");
  assert_true(coordinator_blob_is_fresh(run_of(scene), scene->now));
  const size_t changes = scene->changes;
  swap_as(scene, "B", ACTION_KEEP_ALIVE, TORCH_NEWEST);
  assert_int_equal(scene->changes, changes);
  assert_true(coordinator_blob_is_fresh(run_of(scene), scene->now));
  scene_end(scene);
}

static void test_what_is_seen_of_a_node(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  join(scene, "a");
  enter(scene, "B");
  pass(scene, 1000, "");
  const struct rendezvous_state *state = coordinator_run_state(run_of(scene));
  struct coordinator_sight sight = coordinator_see(run_of(scene), &state->nodes[1], scene->now);
  assert_int_equal(sight.way, NATIVE_WAY_NATIVE);
  assert_int_equal(sight.heard_ms, 1000);
  assert_int_equal(sight.trip_us, -1);
  assert_code(
      scene_step(scene,
                 (struct coordinator_event){.kind = COORDINATOR_EV_HEARD, .link = link_of('a', 1), .trip_us = 77}),
      0);
  sight = coordinator_see(run_of(scene), &state->nodes[1], scene->now);
  assert_true(sight.heard_ms == 0 && sight.trip_us == 77);
  sight = coordinator_see(run_of(scene), &state->nodes[0], scene->now);
  assert_int_equal(sight.way, NATIVE_WAY_TORCH);
  assert_int_equal(sight.heard_ms, 1000);
  scene_end(scene);
}

/* ---- many runs ---- */

static void test_runs_do_not_touch_each_other(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  char ids[26][8];
  for (int i = 0; i < 26; i++) {
    snprintf(ids[i], sizeof ids[i], "run%d", i);
    scene->join.run_id = ids[i];
    join(scene, (char[]){(char)('a' + i), '\0'});
  }
  expect(scene, "");
  assert_int_equal(coordinator_runs(scene->coordinator), 26);
  assert_int_equal(coordinator_nodes(scene->coordinator), 26);
  for (int i = 0; i < 26; i++) {
    char expected[64];
    scene->join.run_id = ids[i];
    enter(scene, "B");
    snprintf(expected, sizeof expected, "%c: joined 1 round 0 rank 1/2", 'a' + i);
    expect(scene, expected);
    leave(scene, (char)('a' + i));
    snprintf(expected, sizeof expected, "%c: left | save", 'a' + i);
    expect(scene, expected);
  }
  assert_int_equal(coordinator_runs(scene->coordinator), 0);
  scene_end(scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rounds_that_cannot_be),
      cmocka_unit_test(test_a_leap_is_from_the_round_of_the_run),
      cmocka_unit_test(test_either_kind_completes_a_round),
      cmocka_unit_test(test_a_native_node_completes_a_round_of_others),
      cmocka_unit_test(test_every_layout_is_adopted_and_kept),
      cmocka_unit_test(test_a_waiting_native_node_gets_the_next_round),
      cmocka_unit_test(test_a_round_that_was_left_is_not_entered),
      cmocka_unit_test(test_a_participant_that_a_swap_takes_out_is_told),
      cmocka_unit_test(test_a_deleted_blob_evicts_and_rounds_do_not_go_back),
      cmocka_unit_test(test_the_run_knows_its_rounds),
      cmocka_unit_test(test_a_layout_without_spares_comes_in),
      cmocka_unit_test(test_a_node_that_gathers_comes_back),
      cmocka_unit_test(test_a_round_that_a_node_knows_is_not_given_again),
      cmocka_unit_test(test_an_eviction_is_heard_after_the_connection_came_back),
      cmocka_unit_test(test_a_silent_node_that_swaps_is_dead),
      cmocka_unit_test(test_a_paused_server_does_not_blame_others_either),
      cmocka_unit_test(test_the_value_lasts_for_a_swap),
      cmocka_unit_test(test_heartbeats_are_those_of_the_reading),
      cmocka_unit_test(test_a_swap_that_changes_nothing_more_is_fresh),
      cmocka_unit_test(test_what_is_seen_of_a_node),
      cmocka_unit_test(test_runs_do_not_touch_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
