/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is dead, and when the last call is over, whatever the clocks say. The dead time is 15 s, if nothing else is said.
 */
#include "rules_world.h"
#include "state/engine/last_call.h"
#include "state/engine/liveness.h"

#define MINUTE (60 * SECOND)

static const struct rendezvous_settings *settings_of(void) {
  static struct rendezvous_settings settings;
  settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = 2;
  settings.max_nodes = 9;
  return &settings;
}

/* What node "m" sees; its clocks run from NOW on. */
struct watcher {
  struct liveness liveness;
  struct rendezvous_state state;
  struct moment now;
};

static void watch(struct watcher *watcher, const char *state) {
  *watcher = (struct watcher){.state = state_of(state), .now = NOW};
}

static void look(struct watcher *watcher, int64_t after_ms) {
  const struct node_desc self = node_of("m");
  watcher->now.mono_ms += after_ms;
  watcher->now.wall_us += after_ms * 1000;
  assert_code(liveness_observe(&watcher->liveness, settings_of(), &self, &watcher->state, watcher->now, NULL), 0);
}

/* Looks every second for so long. */
static void keep_looking(struct watcher *watcher, int64_t ms) {
  for (; ms > 1000; ms -= 1000) look(watcher, 1000);
  look(watcher, ms);
}

static void set_heartbeat(struct watcher *watcher, const char *name, int64_t heartbeat) {
  const struct node_desc node = node_of(name);
  state_find(&watcher->state, &node)->last_heartbeat = heartbeat;
}

/* Removes the dead and tells who is left. */
static struct state_text survivors(struct watcher *watcher) {
  const struct node_desc self = node_of("m");
  struct rendezvous_state state;
  assert_true(state_copy(&state, &watcher->state));
  liveness_sanitize(&watcher->liveness, settings_of(), &self, &state, watcher->now.mono_ms);
  const struct state_text text = text_of(&state);
  state_free(&state);
  return text;
}

static void done(struct watcher *watcher) {
  liveness_free(&watcher->liveness);
  state_free(&watcher->state);
}

/* The edge is PyTorch's: older than the dead time, not as old. */
static void test_silence_for_more_than_the_dead_time_is_death(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:abm");
  look(&watcher, 0);
  keep_looking(&watcher, 14999);
  set_heartbeat(&watcher, "b", NOW_US + 14 * SECOND);
  look(&watcher, 1);
  assert_string_equal(survivors(&watcher).text, "p:abm");
  look(&watcher, 1);
  assert_string_equal(survivors(&watcher).text, "p:bm");
  done(&watcher);
}

/* A PyTorch node beats every 5 s whatever our options are: 2 s of silence are death for ours only. */
static void test_a_pytorch_node_is_judged_by_pytorchs_times(void **unused) {
  (void)unused;
  struct watcher watcher;
  const struct node_desc self = node_of("m"), ours = node_of("a"), torch = node_of("t");
  struct rendezvous_settings settings = *settings_of();
  settings.keep_alive_interval = 1000;
  settings.keep_alive_max_attempt = 2;
  watch(&watcher, "p:amt");
  state_find(&watcher.state, &ours)->ours = true;
  for (int half = 0; half <= 30; half++) {
    const struct moment now = {NOW_MS + half * 500, NOW_US + half * SECOND / 2};
    assert_code(liveness_observe(&watcher.liveness, &settings, &self, &watcher.state, now, NULL), 0);
    liveness_sanitize(&watcher.liveness, &settings, &self, &watcher.state, now.mono_ms);
    assert_string_equal(text_of(&watcher.state).text, half <= 4 ? "p:amt" : "p:mt");
    assert_true(liveness_was_silent(&watcher.liveness, &settings, &torch, now.mono_ms) == (half > 20));
    assert_true(liveness_wake(&watcher.liveness, &settings, &self) <= now.mono_ms + 667);
  }
  liveness_sanitize(&watcher.liveness, &settings, &self, &watcher.state, NOW_MS + 15001);
  assert_string_equal(text_of(&watcher.state).text, "p:m");
  done(&watcher);
}

/* A newcomer believes the clock of a host, with the same times. */
static void test_a_pytorch_node_of_our_own_host_has_its_time(void **unused) {
  (void)unused;
  struct watcher watcher;
  const struct node_desc self = node_of("m");
  struct rendezvous_settings settings = *settings_of();
  settings.keep_alive_interval = 1000;
  settings.keep_alive_max_attempt = 2;
  watch(&watcher, "p:m");
  for (int64_t pid = 2; pid <= 3; pid++) {
    struct state_node *node;
    assert_code(state_insert(&watcher.state, &(struct node_desc){"m", pid, 0}, &node, NULL), 0);
    state_set_kinds(&watcher.state, node, NODE_PARTICIPANT);
    node->last_heartbeat = NOW_US - 4 * SECOND;
    node->ours = pid == 3;
  }
  assert_code(liveness_observe(&watcher.liveness, &settings, &self, &watcher.state, NOW, NULL), 0);
  assert_int_equal(liveness_sanitize(&watcher.liveness, &settings, &self, &watcher.state, NOW.mono_ms), 1);
  assert_non_null(state_find(&watcher.state, &(struct node_desc){"m", 2, 0}));
  done(&watcher);
}

/* Ten minutes of skew, either way, at first sight and after: what counts is that the heartbeat changes. */
static void test_skew_evicts_nobody(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:abm");
  int64_t slow = NOW_US - 10 * MINUTE, fast = NOW_US + 10 * MINUTE;
  for (int i = 0; i < 20; i++) {
    set_heartbeat(&watcher, "a", slow += 5 * SECOND);
    set_heartbeat(&watcher, "b", fast += 5 * SECOND);
    look(&watcher, 5000);
    assert_string_equal(survivors(&watcher).text, "p:abm");
  }
  done(&watcher);
}

/* A fast clock does not give a dead node ten more minutes. */
static void test_a_dead_node_with_a_fast_clock_goes_in_time(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:am");
  set_heartbeat(&watcher, "a", NOW_US + 10 * MINUTE);
  look(&watcher, 0);
  keep_looking(&watcher, 15001);
  assert_string_equal(survivors(&watcher).text, "p:m");
  done(&watcher);
}

/* Even a clock that goes back is a heartbeat. */
static void test_a_clock_that_goes_back_is_alive(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:am");
  look(&watcher, 0);
  keep_looking(&watcher, 14000);
  set_heartbeat(&watcher, "a", NOW_US - 60 * MINUTE);
  look(&watcher, 1000);
  keep_looking(&watcher, 14000);
  assert_string_equal(survivors(&watcher).text, "p:am");
  done(&watcher);
}

/* We never evict ourselves. */
static void test_we_are_never_dead(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:am");
  look(&watcher, 0);
  keep_looking(&watcher, 60000);
  assert_string_equal(survivors(&watcher).text, "p:m");
  done(&watcher);
}

/* A host whose clock has shown later times tells at first sight who has been silent for long; another does not. */
static void test_a_newcomer_believes_one_clock_at_a_time(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:ab");
  struct state_node *member;
  assert_code(state_insert(&watcher.state, &(struct node_desc){"a", 2, 0}, &member, NULL), 0);
  state_set_kinds(&watcher.state, member, NODE_PARTICIPANT);
  member->last_heartbeat = NOW_US - 10 * MINUTE; /* a's clock is slow; its node 1 has been silent longer still */
  set_heartbeat(&watcher, "a", NOW_US - 10 * MINUTE - 15 * SECOND);
  set_heartbeat(&watcher, "b", NOW_US - 60 * MINUTE);
  look(&watcher, 0);
  assert_string_equal(survivors(&watcher).text, "p:aab");
  member->last_heartbeat += 1;
  look(&watcher, 1);
  assert_string_equal(survivors(&watcher).text, "p:ab");
  done(&watcher);
}

/* Our own host's clock is ours: who is left there from a run before goes at once. */
static void test_a_newcomer_evicts_the_dead_of_its_own_host_at_once(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:am");
  struct state_node *member;
  assert_code(state_insert(&watcher.state, &(struct node_desc){"m", 2, 0}, &member, NULL), 0);
  state_set_kinds(&watcher.state, member, NODE_PARTICIPANT);
  member->last_heartbeat = NOW_US - 16 * SECOND;
  set_heartbeat(&watcher, "a", NOW_US - 16 * SECOND);
  look(&watcher, 0);
  assert_string_equal(survivors(&watcher).text, "p:am");
  done(&watcher);
}

/* Who comes after our first look has just written, whatever its timestamp says; and when our own clock jumps, we do not
 * believe it. */
static void test_what_came_later_or_after_a_jump_is_not_believed(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:m");
  look(&watcher, 0);
  struct state_node *member;
  assert_code(state_insert(&watcher.state, &(struct node_desc){"m", 2, 0}, &member, NULL), 0);
  state_set_kinds(&watcher.state, member, NODE_PARTICIPANT);
  member->last_heartbeat = NOW_US - 10 * MINUTE;
  look(&watcher, 1);
  assert_string_equal(survivors(&watcher).text, "p:mm");
  liveness_free(&watcher.liveness);
  member->last_heartbeat = watcher.now.wall_us;
  look(&watcher, 0);
  watcher.now.wall_us += 10 * MINUTE;
  look(&watcher, 1);
  look(&watcher, 1);
  assert_string_equal(survivors(&watcher).text, "p:mm");
  done(&watcher);
}

/* We were stopped for an hour, or the store was away: everybody gets the chance to show a heartbeat. */
static void test_time_in_which_we_did_not_look_does_not_count(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:am");
  look(&watcher, 0);
  keep_looking(&watcher, 5000);
  look(&watcher, 3600000);
  assert_string_equal(survivors(&watcher).text, "p:am");
  keep_looking(&watcher, 3999);
  assert_string_equal(survivors(&watcher).text, "p:am");
  keep_looking(&watcher, 2);
  assert_string_equal(survivors(&watcher).text, "p:m");
  done(&watcher);
}

/* Between two looks time passes, too, but no more than a look would credit. */
static void test_death_comes_between_looks(void **unused) {
  (void)unused;
  struct watcher watcher;
  const struct node_desc a = node_of("a"), x = node_of("x"), self = node_of("m");
  watch(&watcher, "p:am");
  look(&watcher, 0);
  keep_looking(&watcher, 12000);
  assert_int_equal(liveness_age(&watcher.liveness, settings_of(), &a, watcher.now.mono_ms + 500), 12500);
  assert_int_equal(liveness_age(&watcher.liveness, settings_of(), &x, watcher.now.mono_ms), -1);
  assert_int_equal(liveness_wake(&watcher.liveness, settings_of(), &self), watcher.now.mono_ms + 3001);
  watcher.now.mono_ms += 3000;
  assert_string_equal(survivors(&watcher).text, "p:am");
  watcher.now.mono_ms += 1;
  assert_string_equal(survivors(&watcher).text, "p:m");
  done(&watcher);
}

/* Looking as often as told loses nothing; alone there is nothing to look for. */
static void test_look_interval_is_enough(void **unused) {
  (void)unused;
  struct watcher watcher;
  const struct node_desc self = node_of("m");
  watch(&watcher, "p:am");
  look(&watcher, 0);
  assert_int_equal(liveness_wake(&watcher.liveness, settings_of(), &self), NOW_MS + 5000);
  while (strcmp(survivors(&watcher).text, "p:am") == 0)
    look(&watcher, liveness_wake(&watcher.liveness, settings_of(), &self) - watcher.now.mono_ms);
  assert_int_equal(watcher.now.mono_ms, NOW_MS + 15001);
  const struct node_desc a = node_of("a");
  state_remove(&watcher.state, state_find(&watcher.state, &a));
  look(&watcher, 1);
  assert_int_equal(liveness_wake(&watcher.liveness, settings_of(), &self), INT64_MAX);
  done(&watcher);
}

/* Members come and go between looks: each keeps its own silence. */
static void test_observations_follow_their_nodes(void **unused) {
  (void)unused;
  struct watcher watcher;
  watch(&watcher, "p:cm");
  look(&watcher, 0);
  keep_looking(&watcher, 8000);
  put(&watcher.state, "a", NODE_PARTICIPANT, 0);
  put(&watcher.state, "d", NODE_WAITING, 0);
  keep_looking(&watcher, 8000);
  assert_string_equal(survivors(&watcher).text, "p:am w:d");
  const struct node_desc a = node_of("a");
  state_remove(&watcher.state, state_find(&watcher.state, &a));
  look(&watcher, 1);
  put(&watcher.state, "a", NODE_PARTICIPANT, 0);
  keep_looking(&watcher, 9000);
  assert_string_equal(survivors(&watcher).text, "p:am");
  done(&watcher);
}

/* ---- the last call -------------------------------------------------------------------------------------------- */

static int64_t call_length(struct rendezvous_state *state, bool ours) {
  struct last_call call = LAST_CALL_NONE;
  last_call_observe(&call, state, settings_of(), NOW, ours, 0);
  return last_call_end(&call, state, settings_of()) - NOW_MS;
}

/* The deadline is ten minutes off, one way or the other: the call still lasts its 30 s from when the writer beat. */
static void test_skew_neither_cuts_nor_stretches_the_last_call(void **unused) {
  (void)unused;
  for (int64_t skew = -10 * MINUTE; skew <= 10 * MINUTE; skew += MINUTE) {
    struct rendezvous_state state = state_of("p:abm");
    state.nodes[0].last_heartbeat = NOW_US + skew; /* the writer, when it wrote */
    state.deadline = NOW_US + skew + 30 * SECOND + 7;
    assert_int_equal(call_length(&state, false), 30000);
    state.nodes[0].last_heartbeat += 20 * SECOND; /* seen later */
    state.nodes[1].last_heartbeat += skew > 0 ? -MINUTE : MINUTE;
    assert_int_equal(call_length(&state, false), skew == 0 ? 30000 : 10001);
    state.nodes[0].last_heartbeat -= MINUTE; /* the writer is gone: nobody knows */
    assert_int_equal(call_length(&state, false), 30000);
    assert_int_equal(call_length(&state, true), 30000);
    state_free(&state);
  }
}

/* A deadline that we know is not counted anew; none at all is never over. */
static void test_a_last_call_is_counted_from_first_sight(void **unused) {
  (void)unused;
  struct last_call call = LAST_CALL_NONE;
  struct rendezvous_state state = state_of("p:am");
  last_call_observe(&call, &state, settings_of(), NOW, false, 0);
  assert_int_equal(last_call_end(&call, &state, settings_of()), INT64_MAX);
  state.deadline = NOW_US + 30 * SECOND;
  last_call_observe(&call, &state, settings_of(), NOW, false, 200);
  const struct moment later = {NOW_MS + 9000, NOW_US + 9 * SECOND};
  last_call_observe(&call, &state, settings_of(), later, false, 100);
  assert_int_equal(last_call_end(&call, &state, settings_of()), NOW_MS + 30200);
  state.deadline = DATETIME_NONE;
  last_call_observe(&call, &state, settings_of(), later, false, 0);
  assert_int_equal(last_call_end(&call, &state, settings_of()), INT64_MAX);
  state_free(&state);
}

/* As long as somebody is on the way in, but not for ever. */
static void test_a_last_call_waits_for_those_who_wait(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:am w:x");
  state.deadline = NOW_US + 30 * SECOND;
  assert_int_equal(call_length(&state, true), 30000 + 15000);
  state_free(&state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_silence_for_more_than_the_dead_time_is_death),
      cmocka_unit_test(test_a_pytorch_node_is_judged_by_pytorchs_times),
      cmocka_unit_test(test_a_pytorch_node_of_our_own_host_has_its_time),
      cmocka_unit_test(test_skew_evicts_nobody),
      cmocka_unit_test(test_a_dead_node_with_a_fast_clock_goes_in_time),
      cmocka_unit_test(test_a_clock_that_goes_back_is_alive),
      cmocka_unit_test(test_we_are_never_dead),
      cmocka_unit_test(test_a_newcomer_believes_one_clock_at_a_time),
      cmocka_unit_test(test_a_newcomer_evicts_the_dead_of_its_own_host_at_once),
      cmocka_unit_test(test_what_came_later_or_after_a_jump_is_not_believed),
      cmocka_unit_test(test_time_in_which_we_did_not_look_does_not_count),
      cmocka_unit_test(test_death_comes_between_looks),
      cmocka_unit_test(test_look_interval_is_enough),
      cmocka_unit_test(test_observations_follow_their_nodes),
      cmocka_unit_test(test_skew_neither_cuts_nor_stretches_the_last_call),
      cmocka_unit_test(test_a_last_call_is_counted_from_first_sight),
      cmocka_unit_test(test_a_last_call_waits_for_those_who_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
