/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of workers that ride on the answer to a join are those that agents would have agreed on by keys. */
#include "agent/roles.h"
#include "native_scene.h"
#include "state/engine/pace.h"

enum { MOST = 24, ROUNDS = 300 };

struct answers {
  struct native_joined joined[128];
  size_t count;
};

static void hear(void *user, const struct coordinator_effect *effect) {
  struct answers *answers = user;
  if (effect->kind == COORDINATOR_DO_JOINED) answers->joined[answers->count++] = *effect->joined;
}

static void join_with(struct coordinator *coordinator, struct native_join *join, size_t i,
                      const struct native_workers *workers) {
  join->session = session_of((char)('A' + i), 1);
  join->number = 1;
  join->workers = *workers;
  const struct coordinator_event event = {
      .kind = COORDINATOR_EV_JOIN, .now = NOW, .link = link_of((char)('A' + i), 1), .join = join};
  assert_code(coordinator_step(coordinator, &event, NULL), 0);
}

static void compare(struct pace *pace) {
  static const char *const roles[] = {"trainer", "reader", "", "trainer2"};
  struct answers answers = {.count = 0};
  struct role_info infos[MOST] = {0};
  struct worker_ranks ranks[MOST];
  const size_t count = 1 + pace_random(pace) % MOST;
  struct coordinator *coordinator = coordinator_new(hear, &answers, NULL);
  struct native_join join = {.run_id = "run",
                             .times = NATIVE_TIMES_DEFAULT,
                             .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                             .layout = TORCH_NEWEST,
                             .master_addr = ""};
  join.settings.min_nodes = join.settings.max_nodes = (int64_t)count;
  int64_t restarts = 0;
  for (size_t i = 0; i < count; i++) { /* nodes come in the order of their ranks */
    const struct native_workers workers = {roles[pace_random(pace) % COUNT_OF(roles)],
                                           1 + (int64_t)(pace_random(pace) % 9), (int64_t)(pace_random(pace) % 5)};
    snprintf(infos[i].role, sizeof infos[i].role, "%s", workers.role);
    infos[i].local_world_size = workers.local_world_size;
    if (workers.restart_count > restarts) restarts = workers.restart_count;
    join_with(coordinator, &join, i, &workers);
  }
  assert_true(assign_ranks(infos, count, ranks));
  assert_int_equal(answers.count, count);
  for (size_t i = 0; i < count; i++) {
    const struct native_joined *joined = &answers.joined[i];
    const struct worker_ranks *expected = &ranks[joined->rank];
    assert_true(joined->has_ranks && joined->all_native);
    assert_int_equal(joined->ranks.base, expected->base);
    assert_int_equal(joined->ranks.world_size, expected->world_size);
    assert_int_equal(joined->ranks.role_base, expected->role_base);
    assert_int_equal(joined->ranks.role_world_size, expected->role_world_size);
    assert_int_equal(joined->ranks.restart_count, restarts);
  }
  coordinator_free(coordinator);
}

static void test_the_ranks_are_those_of_the_agents(void **context) {
  (void)context;
  struct pace pace = {.random = 5};
  for (int i = 0; i < ROUNDS; i++) compare(&pace);
}

static void test_a_node_without_workers_gives_no_ranks(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  scene->join.workers.local_world_size = 2;
  join(scene, "a");
  scene->join.workers.local_world_size = 0;
  join(scene, "b");
  assert_true(scene->joined.all_native);
  assert_false(scene->joined.has_ranks);
  scene_end(scene);
}

/* Rank 0's address is that of its own join, also when it has left by then. */
static void test_rank_0_is_where_it_said(void **context) {
  (void)context;
  struct scene *scene = scene_begin(2, 2);
  scene->join.master_addr = "10.0.0.1";
  scene->join.master_port = 1234;
  join(scene, "a");
  scene->join.master_addr = "10.0.0.2";
  join(scene, "b");
  assert_string_equal(scene->master, "a_1_0 at 10.0.0.1:1234");
  leave(scene, 'a');
  scene->master[0] = '\0';
  join_as(scene, 'b', 2, 1);
  assert_string_equal(scene->master, "a_1_0 at 10.0.0.1:1234");
  scene_end(scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_ranks_are_those_of_the_agents),
      cmocka_unit_test(test_a_node_without_workers_gives_no_ranks),
      cmocka_unit_test(test_rank_0_is_where_it_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
