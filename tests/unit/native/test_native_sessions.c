/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions: how they move from one connection to another, and how nodes die. Rounds of two, 'a' and 'b'. */
#include "native_scene.h"

static struct scene *begin_round(void) {
  struct scene *scene = scene_begin(2, 2);
  join(scene, "ab");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a: joined 1 round 0 rank 0/2");
  return scene;
}

/* ---- death ---- */

static void test_a_lost_connection_is_death_after_the_grace(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  lose(scene, 'a');
  pass(scene, 299, "b");
  expect(scene, "");
  pass(scene, 2, "b");
  expect(scene, "b: died 1:a");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:b1");
  resume(scene, 'a', 2);
  expect(scene, "a2: fail STALE");
  scene_end(scene);
}

static void test_the_grace_is_the_nodes_own(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  scene->join.times.grace_ms = 5000;
  join(scene, "ab");
  lose(scene, 'a');
  pass(scene, 4900, "b");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a: joined 1 round 0 rank 0/2");
  pass(scene, 200, "b");
  expect(scene, "b: died 1:a");
  scene_end(scene);
}

static void test_silence_is_death(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  pass(scene, 5900, "b");
  expect(scene, "");
  pass(scene, 400, "b");
  expect(scene, "a: drop | b: died 1:a");
  scene_end(scene);
}

/* Others that speak all the time do not put off the timer. */
static void test_silence_is_found_among_many_voices(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  for (int i = 0; i < 650; i++) {
    advance_clock(scene, 10);
    on_link(scene, COORDINATOR_EV_HEARD, 'b', 1);
    const int64_t wake = coordinator_wake(scene->coordinator);
    assert_true(wake <= scene->now.mono_ms + COORDINATOR_MOST_CREDIT_MS);
    if (wake <= scene->now.mono_ms) {
      assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_TIMER}), 0);
      assert_true(coordinator_wake(scene->coordinator) > scene->now.mono_ms);
    }
  }
  expect(scene, "a: drop | b: died 1:a");
  scene_end(scene);
}

static void test_the_dead_of_one_moment_are_told_at_once(void **context) {
  (void)context;
  struct scene *scene = scene_begin(4, 4);
  join(scene, "abcd");
  expect(scene,
         "d: joined 1 round 0 rank 3/4 | a: joined 1 round 0 rank 0/4 | b: joined 1 round 0 rank 1/4 | c: "
         "joined 1 round 0 rank 2/4");
  lose(scene, 'a');
  lose(scene, 'c');
  pass(scene, 301, "bd");
  expect(scene, "b: died 2:c,a | d: died 2:c,a");
  scene_end(scene);
}

static void test_a_dead_node_that_gathers_is_forgotten(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  join(scene, "ab");
  lose(scene, 'a');
  pass(scene, 301, "b");
  expect(scene, "");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:b");
  scene_end(scene);
}

static void test_a_place_that_a_dead_node_leaves_is_free(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  join(scene, "c");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:a0b1 r:c");
  lose(scene, 'a');
  pass(scene, 301, "bc");
  expect(scene, "b: waits died 1:a");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:b1 w:c");
  scene_end(scene);
}

static void test_the_death_of_the_last_node_ends_the_run(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  lose(scene, 'a');
  lose(scene, 'b');
  pass(scene, 301, "");
  expect(scene, "save");
  assert_int_equal(coordinator_nodes(scene->coordinator), 0);
  scene_end(scene);
}

/* ---- a server that does not run ---- */

static void timer(struct scene *scene) {
  assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_TIMER}), 0);
}

static void test_a_paused_server_blames_nobody(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  scene->join.times.keep_alive_ms = 50;
  join(scene, "ab");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a: joined 1 round 0 rank 0/2");
  advance_clock(scene, 5000);
  timer(scene);
  expect(scene, "");
  pass(scene, 500, "ab");
  expect(scene, "");
  scene_end(scene);
}

static void test_connections_that_end_in_a_pause_have_their_grace(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  advance_clock(scene, 5000);
  lose(scene, 'a');
  lose(scene, 'b');
  timer(scene);
  pass(scene, 250, "");
  resume(scene, 'a', 2);
  resume(scene, 'b', 2);
  expect(scene, "a2: resumed 1 | b2: resumed 1");
  scene_end(scene);
}

/* The connection was lost before the pause, and the node comes back with the first things that are read after it. */
static void test_a_grace_does_not_pass_in_a_pause(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  lose(scene, 'a');
  pass(scene, 50, "b");
  advance_clock(scene, 5000);
  timer(scene);
  resume(scene, 'a', 2);
  expect(scene, "a2: resumed 1");
  scene_end(scene);
}

/* A server that is late all the time still finds the dead. */
static void test_a_slow_server_finds_the_dead(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  lose(scene, 'a');
  for (int i = 0; i < 20; i++) {
    advance_clock(scene, 300);
    on_link(scene, COORDINATOR_EV_HEARD, 'b', 1);
    timer(scene);
  }
  expect(scene, "b: died 1:a");
  scene_end(scene);
}

/* ---- other connections of a session ---- */

static void test_a_session_goes_on_within_its_grace(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  lose(scene, 'a');
  pass(scene, 200, "b");
  resume(scene, 'a', 2);
  expect(scene, "a2: resumed 1");
  pass(scene, 3000, "b");
  expect(scene, "");
  on_link(scene, COORDINATOR_EV_LEAVE, 'a', 2);
  expect(scene, "a2: left | b: left 1:a");
  scene_end(scene);
}

static void test_the_old_connection_is_dropped(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  resume(scene, 'a', 2);
  expect(scene, "a: drop | a2: resumed 1");
  lose(scene, 'a'); /* what the server hears of it is nothing to the session */
  pass(scene, 400, "b");
  expect(scene, "");
  leave(scene, 'a');
  expect(scene, "a: left");
  assert_int_equal(coordinator_nodes(scene->coordinator), 2);
  scene_end(scene);
}

static void test_what_happened_meanwhile_is_told_later(void **context) {
  (void)context;
  struct scene *scene = scene_begin(3, 3);
  scene->join.times.grace_ms = 1000;
  join(scene, "abc");
  scene->len = 0;
  lose(scene, 'a');
  leave(scene, 'b');
  close_run(scene);
  expect(scene, "b: left | c: left 1:b | Z: closed | c: closed");
  resume(scene, 'a', 2);
  expect(scene, "a2: resumed 1 | a2: left closed 1:b");
  scene_end(scene);
}

/* What was sent on a connection may be lost with it, so it is told again. */
static void test_news_of_the_connection_before_is_told_again(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 3);
  join(scene, "abc");
  expect(scene, "c: joined 1 round 0 rank 2/3 | a: joined 1 round 0 rank 0/3 | b: joined 1 round 0 rank 1/3");
  leave(scene, 'b');
  join(scene, "d");
  expect(scene, "b: left | a: left 1:b | c: left 1:b | a: waits | c: waits");
  resume(scene, 'a', 2);
  expect(scene, "a: drop | a2: resumed 1 | a2: waits left 1:b");
  scene_end(scene);
}

/* So is that the node was taken out of its round. */
static void test_an_eviction_is_told_again(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  struct rendezvous_state state = state_of("p:b");
  state.round = 1;
  swap_to(scene, &state, TORCH_NEWEST);
  expect(scene, "a: evicted | b: evicted");
  resume(scene, 'a', 2);
  expect(scene, "a: drop | a2: resumed 1 | a2: evicted");
  scene_end(scene);
}

static void test_a_round_that_is_complete_meanwhile_is_told_later(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  lose(scene, 'a');
  join(scene, "b");
  expect(scene, "b: joined 1 round 0 rank 1/2");
  resume(scene, 'a', 2);
  expect(scene, "a2: resumed 1 | a2: joined 1 round 0 rank 0/2");
  resume(scene, 'a', 3);
  expect(scene, "a2: drop | a3: resumed 1");
  scene_end(scene);
}

static void test_a_replayed_epoch_is_dropped(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  resume(scene, 'a', 3);
  expect(scene, "a: drop | a3: resumed 1");
  resume(scene, 'a', 2);
  expect(scene, "a2: drop");
  join_as(scene, 'a', 2, 9);
  expect(scene, "a2: drop");
  struct native_session session = session_of('a', 3);
  const struct coordinator_event event = {
      .kind = COORDINATOR_EV_RESUME, .link = link_of('a', 4), .run_id = "run", .session = &session};
  assert_code(scene_step(scene, event), 0);
  expect(scene, "a4: drop");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:a0b1");
  scene_end(scene);
}

/* A connection does not change its number. It is closed, and must not be told anything afterwards. */
static void test_another_epoch_on_the_same_connection_is_dropped(void **context) {
  (void)context;
  for (int joins = 0; joins < 2; joins++) {
    struct scene *scene = begin_round();
    struct native_join again = scene->join;
    again.session = session_of('a', 7);
    again.number = 2;
    const struct coordinator_event event = {.kind = joins ? COORDINATOR_EV_JOIN : COORDINATOR_EV_RESUME,
                                            .link = link_of('a', 1),
                                            .run_id = "run",
                                            .join = &again,
                                            .session = &again.session};
    assert_code(scene_step(scene, event), 0);
    expect(scene, "a: drop");
    leave(scene, 'b');
    expect(scene, "b: left");
    resume(scene, 'a', 8);
    expect(scene, "a8: resumed 1 | a8: left 1:b");
    scene_end(scene);
  }
}

/* Every bit of the token counts. */
static void test_a_forged_token_is_refused(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  for (size_t bit = 0; bit < 8 * (size_t)NATIVE_TOKEN_BYTES; bit++) {
    struct native_join forged = scene->join;
    forged.session = session_of('a', 9);
    forged.session.token[bit / 8] ^= (uint8_t)(1 << bit % 8);
    forged.number = 2;
    struct coordinator_event event = {.kind = COORDINATOR_EV_JOIN, .link = link_of('a', 9), .join = &forged};
    assert_code(scene_step(scene, event), 0);
    expect(scene, "a9: fail IN_USE");
    event = (struct coordinator_event){
        .kind = COORDINATOR_EV_RESUME, .link = link_of('a', 9), .run_id = "run", .session = &forged.session};
    assert_code(scene_step(scene, event), 0);
    expect(scene, "a9: fail STALE");
  }
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:a0b1");
  resume(scene, 'a', 2);
  expect(scene, "a: drop | a2: resumed 1");
  scene_end(scene);
}

/* ---- the same join again ---- */

static void test_a_join_is_sent_again_before_the_round_is_complete(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  join(scene, "a");
  join_as(scene, 'a', 2, 1);
  expect(scene, "a: drop");
  assert_int_equal(coordinator_nodes(scene->coordinator), 1);
  join(scene, "b");
  expect(scene, "b: joined 1 round 0 rank 1/2 | a2: joined 1 round 0 rank 0/2");
  scene_end(scene);
}

static void test_a_join_whose_answer_was_lost_gets_it_again(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  leave(scene, 'b');
  expect(scene, "b: left | a: left 1:b");
  lose(scene, 'a');
  join_as(scene, 'a', 2, 1);
  expect(scene, "a2: joined 1 round 0 rank 0/2 | a2: left 1:b");
  assert_string_equal(text_of(coordinator_run_state(run_of(scene))).text, "p:a0");
  scene_end(scene);
}

static void test_a_join_of_before_is_over(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  join(scene, "ab");
  scene->len = 0;
  join_as(scene, 'a', 2, 1);
  expect(scene, "a: drop | a2: fail STALE");
  scene_end(scene);
}

static void test_one_connection_has_one_node(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  struct native_join other = scene->join;
  other.session = session_of('x', 1);
  other.number = 1;
  const struct coordinator_event event = {.kind = COORDINATOR_EV_JOIN, .link = link_of('a', 1), .join = &other};
  assert_code(scene_step(scene, event), 0);
  expect(scene, "a: fail INVALID");
  scene_end(scene);
}

static void test_leaving_twice_does_no_harm(void **context) {
  (void)context;
  struct scene *scene = begin_round();
  leave(scene, 'a');
  leave(scene, 'a');
  expect(scene, "a: left | b: left 1:a | a: left");
  lose(scene, 'a');
  on_link(scene, COORDINATOR_EV_HEARD, 'a', 1);
  scene_end(scene);
}

/* ---- what cannot be ---- */

static void refused(struct scene *scene, const struct native_join *change) {
  struct native_join bad = *change;
  if (!bad.session.node.addr) bad.session = session_of('x', 1);
  const struct coordinator_event event = {.kind = COORDINATOR_EV_JOIN, .link = link_of('x', 1), .join = &bad};
  assert_code(scene_step(scene, event), 0);
  expect(scene, "x: fail INVALID");
  assert_int_equal(coordinator_runs(scene->coordinator), 0);
}

#define REFUSED(change)                    \
  do {                                     \
    struct native_join with = scene->join; \
    with.change;                           \
    refused(scene, &with);                 \
  } while (0)

static void test_joins_that_cannot_be(void **context) {
  (void)context;
  struct scene *scene = scene_begin(1, 2);
  static char long_text[STATE_MAX_ADDR + 2];
  memset(long_text, 'x', sizeof long_text - 1);
  REFUSED(run_id = "");
  REFUSED(run_id = long_text);
  REFUSED(settings.min_nodes = 0);
  REFUSED(settings.min_nodes = 3);
  REFUSED(settings.max_nodes = INT64_MAX);
  REFUSED(settings.join_timeout = -1);
  REFUSED(settings.last_call_timeout = INT64_MAX);
  REFUSED(settings.close_timeout = INT64_MAX);
  REFUSED(settings.keep_alive_interval = 0);
  REFUSED(settings.keep_alive_max_attempt = INT64_MAX);
  REFUSED(settings.rank_order = (enum rank_order)7);
  REFUSED(layout = (enum torch_layout)9);
  REFUSED(times.keep_alive_ms = INT64_MAX);
  REFUSED(times.grace_ms = -1);
  REFUSED(first_round = -1);
  REFUSED(first_round = INT64_MAX);
  REFUSED(master_addr = long_text);
  REFUSED(master_port = 65536);
  REFUSED(workers.role = long_text);
  REFUSED(workers.local_world_size = INT64_MAX);
  REFUSED(workers.restart_count = -1);
  REFUSED(session.node.addr = "");
  REFUSED(session.node.addr = long_text);
  REFUSED(session.node.addr = "\xff");
  scene_end(scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_lost_connection_is_death_after_the_grace),
      cmocka_unit_test(test_the_grace_is_the_nodes_own),
      cmocka_unit_test(test_silence_is_death),
      cmocka_unit_test(test_silence_is_found_among_many_voices),
      cmocka_unit_test(test_the_dead_of_one_moment_are_told_at_once),
      cmocka_unit_test(test_a_dead_node_that_gathers_is_forgotten),
      cmocka_unit_test(test_a_place_that_a_dead_node_leaves_is_free),
      cmocka_unit_test(test_the_death_of_the_last_node_ends_the_run),
      cmocka_unit_test(test_a_paused_server_blames_nobody),
      cmocka_unit_test(test_connections_that_end_in_a_pause_have_their_grace),
      cmocka_unit_test(test_a_grace_does_not_pass_in_a_pause),
      cmocka_unit_test(test_a_slow_server_finds_the_dead),
      cmocka_unit_test(test_a_session_goes_on_within_its_grace),
      cmocka_unit_test(test_the_old_connection_is_dropped),
      cmocka_unit_test(test_what_happened_meanwhile_is_told_later),
      cmocka_unit_test(test_news_of_the_connection_before_is_told_again),
      cmocka_unit_test(test_an_eviction_is_told_again),
      cmocka_unit_test(test_a_round_that_is_complete_meanwhile_is_told_later),
      cmocka_unit_test(test_a_replayed_epoch_is_dropped),
      cmocka_unit_test(test_another_epoch_on_the_same_connection_is_dropped),
      cmocka_unit_test(test_a_forged_token_is_refused),
      cmocka_unit_test(test_a_join_is_sent_again_before_the_round_is_complete),
      cmocka_unit_test(test_a_join_whose_answer_was_lost_gets_it_again),
      cmocka_unit_test(test_a_join_of_before_is_over),
      cmocka_unit_test(test_one_connection_has_one_node),
      cmocka_unit_test(test_leaving_twice_does_no_harm),
      cmocka_unit_test(test_joins_that_cannot_be),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
