/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation of the coordinator fails once, alone and with all that follow: nothing is left half done. A join
 * that had no memory was refused, and did nothing; whatever else there was none for comes with the next timer. So after
 * each event, as soon as there is memory, the run is as it would have been.
 */
#include "failing_heap.h"
#include "native_scene.h"
#include "state/pickle/read.h"

static struct {
  char text[32][80]; /* the state after each event, when nothing fails */
  size_t count;
  bool recorded;
} course;

static bool with_memory(void) {
  const bool on = heap.on;
  heap.on = false;
  return on;
}

/* There is memory for a while: what was left to do is done, and the state is what it has to be. */
static void check(struct scene *scene, size_t *at) {
  const bool on = with_memory();
  char text[80] = "-";
  pass(scene, 400, "abcdf");
  const struct rendezvous_state *state = run_of(scene) ? coordinator_run_state(run_of(scene)) : NULL;
  if (state)
    snprintf(text, sizeof text, "%d%s%s %.60s", (int)state->round, state->complete ? "!" : "",
             state->closed ? " closed" : "", text_of(state).text);
  if (!course.recorded)
    memcpy(course.text[course.count++], text, sizeof text);
  else if (strcmp(text, course.text[*at]) != 0)
    fail_msg("allocation %ld failing, event %zu: '%s', not '%s'", heap.from, *at, text, course.text[*at]);
  ++*at;
  scene->len = 0;
  heap.on = on;
}

/* A join that was refused is asked for again. */
static int join_one(struct scene *scene, char node, unsigned epoch) {
  struct native_join join = scene->join;
  join.session = session_of(node, epoch);
  join.number = ++scene->numbers[(unsigned)node];
  const struct coordinator_event event = {.kind = COORDINATOR_EV_JOIN, .link = link_of(node, epoch), .join = &join};
  scene->error.code = 0;
  int result = scene_step(scene, event);
  const bool on = with_memory();
  if (result != 0) {
    assert_code(result, RDZV_E_NO_MEMORY);
    assert_code(scene->error.code, RDZV_E_NO_MEMORY);
    assert_code(scene_step(scene, event), 0);
  }
  heap.on = on;
  return result;
}

/* Until it succeeds; the second time there is memory. */
static int again(struct scene *scene, struct coordinator_event event) {
  const int result = scene_step(scene, event);
  const bool on = with_memory();
  if (result != 0) {
    assert_code(result, RDZV_E_NO_MEMORY);
    assert_code(scene_step(scene, event), 0);
  }
  heap.on = on;
  return result;
}

static int swap_in(struct scene *scene) {
  const bool on = with_memory();
  struct rendezvous_state state = STATE_EMPTY;
  assert_true(state_copy(&state, coordinator_run_state(run_of(scene))));
  put(&state, "E", NODE_WAITING, 0);
  heap.on = on;
  return again(scene, (struct coordinator_event){
                          .kind = COORDINATOR_EV_SWAPPED, .run_id = "run", .state = &state, .layout = TORCH_2_3});
}

static int write_blob(struct scene *scene) {
  struct buf blob = {0};
  rdzv_error error;
  const int result = coordinator_write_blob(run_of(scene), scene->now, &blob, &error);
  if (result < 0) assert_true(blob.len == 0 && !coordinator_blob_is_fresh(run_of(scene), scene->now));
  free(blob.data);
  return result;
}

static int events(struct scene *scene) {
  int result = 0;
  size_t at = 0;
  const struct native_session session = session_of('b', 2);
#define EVENT(call)                             \
  do {                                          \
    const int code = (call);                    \
    if (result == 0 && code < 0) result = code; \
    check(scene, &at);                          \
  } while (0)
  EVENT(join_one(scene, 'a', 1));
  EVENT(join_one(scene, 'b', 1)); /* round 0, after the last call */
  EVENT(join_one(scene, 'c', 1)); /* waits */
  EVENT(join_one(scene, 'a', 1));
  EVENT(join_one(scene, 'b', 1)); /* round 1, full */
  EVENT(join_one(scene, 'd', 1)); /* a spare */
  EVENT(write_blob(scene));
  EVENT(again(scene, (struct coordinator_event){.kind = COORDINATOR_EV_LEAVE, .link = link_of('c', 1)}));
  EVENT(swap_in(scene));
  EVENT(
      again(scene, (struct coordinator_event){
                       .kind = COORDINATOR_EV_RESUME, .link = link_of('b', 2), .run_id = "run", .session = &session}));
  EVENT(again(scene, (struct coordinator_event){.kind = COORDINATOR_EV_LOST, .link = link_of('a', 1)}));
  EVENT(join_one(scene, 'b', 2));
  EVENT(join_one(scene, 'f', 1)); /* round 2 */
  EVENT(
      again(scene, (struct coordinator_event){.kind = COORDINATOR_EV_CLOSE, .link = link_of('Z', 1), .run_id = "run"}));
  return result;
}

static int scenario(void) {
  const bool on = with_memory();
  struct scene *scene = scene_begin(2, 3);
  scene->join.settings.last_call_timeout = 100;
  scene->join.workers.local_world_size = 1;
  scene->join.settings.rank_order = RANK_ORDER_STABLE;
  heap.on = on;
  const int result = events(scene);
  heap.on = false;
  scene_end(scene);
  heap.on = on;
  return result;
}

static void test_nothing_is_left_half_done(void **context) {
  (void)context;
  assert_code(run(scenario, 0, 0), 0);
  const long count = heap.calls;
  assert_true(count > 30);
  course.recorded = true;
  for (long n = 1; n <= count; n++) {
    run(scenario, n, n);
    run(scenario, n, n + 3);
    run(scenario, n, __LONG_MAX__);
  }
  assert_code(run(scenario, 0, 0), 0);
}

static int new_and_free(void) {
  struct coordinator *coordinator = coordinator_new(scene_hears, NULL, NULL);
  if (!coordinator) return RDZV_E_NO_MEMORY;
  coordinator_free(coordinator);
  return 0;
}

static void test_a_coordinator_needs_memory(void **context) {
  (void)context;
  assert_code(run(new_and_free, 1, 1), RDZV_E_NO_MEMORY);
  assert_code(run(new_and_free, 0, 0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_is_left_half_done),
      cmocka_unit_test(test_a_coordinator_needs_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
