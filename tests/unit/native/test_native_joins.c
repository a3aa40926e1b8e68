/* SPDX-License-Identifier: BSD-3-Clause */
/* Native nodes alone: how rounds come about, and end. */
#include "native_scene.h"

static void test_a_full_round_is_complete_at_once(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 3);
  join(scene, "cb");
  expect(scene, "");
  join(scene, "a");
  expect(scene, "a: joined 1 round 0 rank 0/3 | c: joined 1 round 0 rank 2/3 | b: joined 1 round 0 rank 1/3");
  assert_string_equal(scene->master, "a_1_0 at here:29500");
  assert_true(scene->joined.all_native && scene->joined.all_ours && scene->joined.master_is_ours);
  assert_false(scene->joined.has_ranks);
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:a0b1c2");
  scene_end(scene);
}

static void test_the_last_call_ends_a_round(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 4);
  join(scene, "a");
  pass(scene, 20000, "a");
  expect(scene, "");
  join(scene, "b");
  pass(scene, 29999, "ab");
  expect(scene, "");
  assert_int_equal(coordinator_run_call_left(run_of(scene), scene->now), 1);
  pass(scene, 2, "ab");
  expect(scene, "a: joined 1 round 0 rank 0/2 | b: joined 1 round 0 rank 1/2");
  scene_end(scene);
}

static void test_all_join_again(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "ab");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a: joined 1 round 0 rank 0/2");
  join(scene, "a");
  expect(scene, "b: waits left 1:a");
  join(scene, "b");
  expect(scene, "a: joined 2 round 1 rank 0/2 | b: joined 2 round 1 rank 1/2");
  scene_end(scene);
}

static void test_who_comes_late_waits_for_the_next_round(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 3);
  scene->join.settings.last_call_timeout = 100;
  join(scene, "ab");
  pass(scene, 101, "ab");
  expect(scene, "a: joined 1 round 0 rank 0/2 | b: joined 1 round 0 rank 1/2");
  join(scene, "c");
  expect(scene, "a: waits | b: waits");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:a0b1 w:c");
  join(scene, "ab");
  expect(scene,
         "b: waits left 1:a | a: joined 2 round 1 rank 0/3 | b: joined 2 round 1 rank 1/3 | c: joined 1 round 1 "
         "rank 2/3");
  scene_end(scene);
}

static void test_a_full_round_has_spares(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 2);
  join(scene, "abcd");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a: joined 1 round 0 rank 0/2");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:a0b1 r:cd");
  leave(scene, 'a');
  expect(scene, "a: left | b: waits left 1:a");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:b1 w:cd");
  scene_end(scene);
}

/* What was told of one round is not what is told of the next. */
static void test_news_begins_again_with_each_round(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 3);
  scene->join.settings.last_call_timeout = 100;
  join(scene, "abc");
  leave(scene, 'c');
  pass(scene, 10, "ab");
  scene->len = 0;
  join(scene, "ab");
  pass(scene, 101, "ab");
  expect(scene, "b: waits left 1:a | a: joined 2 round 1 rank 0/2 | b: joined 2 round 1 rank 1/2");
  leave(scene, 'a');
  expect(scene, "a: left | b: left 1:a");
  scene_end(scene);
}

static void test_the_last_to_leave_ends_the_run(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "ab");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a: joined 1 round 0 rank 0/2");
  leave(scene, 'a');
  expect(scene, "a: left | b: left 1:a");
  leave(scene, 'b');
  expect(scene, "b: left | save");
  assert_true(scene->saved.len > 0);
  assert_null(run_of(scene));
  assert_int_equal(coordinator_wake(scene->coordinator), INT64_MAX);
  scene_end(scene);
}

static void test_closing_fails_joins_and_tells_participants(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 2);
  join(scene, "abc");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a: joined 1 round 0 rank 0/2");
  close_run(scene);
  expect(scene, "Z: closed | c: fail GRACEFUL_EXIT | a: closed | b: closed");
  join(scene, "d");
  expect(scene, "d: fail CLOSED");
  assert_string_equal(scene->error.message, "the rendezvous is closed");
  close_run(scene);
  expect(scene, "Z: closed");
  scene_end(scene);
}

static void test_closing_a_run_without_nodes(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 2);
  close_run(scene);
  expect(scene, "Z: closed | save");
  assert_int_equal(coordinator_runs(scene->coordinator), 0);
  scene_end(scene);
}

static void test_a_join_that_is_too_late_tells_who_is_silent(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 4);
  join(scene, "a");
  join(scene, "b");
  pass(scene, 56000, "ab");
  pass(scene, 4001, "a");
  expect(scene, "a: fail TIMEOUT | b: fail TIMEOUT | save");
  assert_non_null(strstr(scene->error.message, "'b_1_0' (heard 4 s ago), 'a_1_0' (heard 0 s ago)"));
  scene_end(scene);
}

static void test_a_join_that_is_too_late_names_the_nodes(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 4);
  join(scene, "a");
  pass(scene, 30000, "a");
  join(scene, "b");
  pass(scene, 30001, "ab");
  expect(scene, "a: fail TIMEOUT");
  assert_string_equal(scene->error.message,
                      "join timed out: 2 of at least 3 nodes joined: 'a_1_0' (heard 0 s "
                      "ago), 'b_1_0' (heard 0 s ago)");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:b");
  pass(scene, 30001, "b");
  expect(scene, "b: fail TIMEOUT | save");
  scene_end(scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_full_round_is_complete_at_once),
      cmocka_unit_test(test_the_last_call_ends_a_round),
      cmocka_unit_test(test_all_join_again),
      cmocka_unit_test(test_who_comes_late_waits_for_the_next_round),
      cmocka_unit_test(test_a_full_round_has_spares),
      cmocka_unit_test(test_news_begins_again_with_each_round),
      cmocka_unit_test(test_the_last_to_leave_ends_the_run),
      cmocka_unit_test(test_closing_fails_joins_and_tells_participants),
      cmocka_unit_test(test_closing_a_run_without_nodes),
      cmocka_unit_test(test_a_join_that_is_too_late_names_the_nodes),
      cmocka_unit_test(test_a_join_that_is_too_late_tells_who_is_silent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
