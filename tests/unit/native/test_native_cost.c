/* SPDX-License-Identifier: BSD-3-Clause */
/* What N nodes cost grows about as N: a round of them, the next round, the news of deaths, keep-alives. */
#include "native_scene.h"
#include "state/engine/pace.h"

enum { SMALL = 250, LARGE = 4 * SMALL };

struct crowd {
  struct coordinator *coordinator;
  size_t count;
  struct moment now;
  uint64_t number;
  size_t joined, told;
  char names[LARGE][24];
  char links[LARGE];
  unsigned order[LARGE]; /* in which they come */
};

static void hear(void *user, const struct coordinator_effect *effect) {
  struct crowd *crowd = user;
  crowd->joined += effect->kind == COORDINATOR_DO_JOINED;
  crowd->told += effect->kind == COORDINATOR_DO_TELL;
}

static struct crowd *crowd_of(size_t count) {
  struct crowd *crowd = test_calloc(1, sizeof *crowd);
  struct pace pace = {.random = 1};
  crowd->count = count;
  crowd->now = NOW;
  for (unsigned i = 0; i < count; i++) {
    snprintf(crowd->names[i], sizeof crowd->names[i], "node%u.cluster", i);
    const size_t at = pace_random(&pace) % (i + 1);
    crowd->order[i] = crowd->order[at];
    crowd->order[at] = i;
  }
  return crowd;
}

static void step(struct crowd *crowd, struct coordinator_event event) {
  event.now = crowd->now;
  assert_code(coordinator_step(crowd->coordinator, &event, NULL), 0);
}

static void all_join(struct crowd *crowd) {
  crowd->number++;
  crowd->joined = 0;
  struct native_join join = {.run_id = "run",
                             .number = crowd->number,
                             .times = NATIVE_TIMES_DEFAULT,
                             .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                             .layout = TORCH_NEWEST,
                             .master_addr = "here",
                             .workers = {.role = "default", .local_world_size = 8}};
  join.settings.min_nodes = join.settings.max_nodes = (int64_t)crowd->count;
  for (size_t i = 0; i < crowd->count; i++) {
    const unsigned node = crowd->order[i];
    join.session = (struct native_session){.node = {crowd->names[node], 1, 0}, .epoch = 1};
    step(crowd, (struct coordinator_event){.kind = COORDINATOR_EV_JOIN, .link = &crowd->links[node], .join = &join});
  }
  assert_int_equal(crowd->joined, crowd->count);
}

static void timers(struct crowd *crowd, int64_t ms) {
  for (const int64_t end = crowd->now.mono_ms + ms; crowd->now.mono_ms < end;) {
    crowd->now.mono_ms += 10;
    step(crowd, (struct coordinator_event){.kind = COORDINATOR_EV_TIMER});
  }
}

static void live(void *argument) {
  struct crowd *crowd = argument;
  crowd->coordinator = coordinator_new(hear, crowd, NULL);
  crowd->told = 0;
  all_join(crowd);
  all_join(crowd); /* the next round */
  timers(crowd, 1000);
  for (size_t i = 0; i < crowd->count / 2; i++) {
    step(crowd, (struct coordinator_event){.kind = COORDINATOR_EV_LOST, .link = &crowd->links[crowd->order[i]]});
    if (i % 50 == 0) timers(crowd, 10);
  }
  timers(crowd, 1000);
  assert_int_equal(coordinator_nodes(crowd->coordinator), crowd->count - crowd->count / 2);
  assert_true(crowd->told < 20 * crowd->count); /* not one for each death and node */
  coordinator_free(crowd->coordinator);
}

static void test_the_cost_grows_with_the_number(void **context) {
  (void)context;
  struct crowd *small = crowd_of(SMALL), *large = crowd_of(LARGE);
  const double few = growth_time(live, small), many = growth_time(live, large);
  test_free(small);
  test_free(large);
  assert_not_quadratic(few, many);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_cost_grows_with_the_number)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
