/* SPDX-License-Identifier: BSD-3-Clause */
/* The dynamic rendezvous over our own server: joining, ranks, rounds, what members hear, spares. */
#include "handler_scene.h"

/* ---- one round ------------------------------------------------------------------------------------------------ */

/* One node is a world: round 0, rank 0, and everything that a result has. */
static void test_one_node_joins(void **state) {
  struct scene *scene = *state;
  struct node *node = &scene->nodes[0];
  node_open(node, scene->endpoint, "10.1.2.3", (struct node_options){0});
  join_all(node, 1);
  const rdzv_result *result = node->result;
  assert_int_equal(result->round, 0);
  assert_int_equal(result->rank, 0);
  assert_int_equal(result->world_size, 1);
  assert_string_equal(result->run_id, "job");
  assert_string_equal(result->backend, "c10d");
  assert_string_equal(result->node, rdzv_handler_node(node->handler));
  assert_string_equal(result->master_addr, "10.1.2.3");
  assert_in_range(result->master_port, 1, 65535);
  assert_null(rdzv_result_participant(result, -1));
  assert_null(rdzv_result_participant(result, 1));
  assert_string_equal(rdzv_result_participant(result, 0)->node, result->node);
  assert_string_equal(rdzv_result_participant(result, 0)->addr, "10.1.2.3");
  assert_int_equal(rdzv_result_participant(result, 0)->pid, getpid());
  assert_int_equal(rdzv_result_participant(result, 0)->rank, 0);
  char expected[128];
  snprintf(expected, sizeof expected, "10.1.2.3_%ld_%lld", (long)getpid(),
           (long long)rdzv_result_participant(result, 0)->local_id);
  assert_string_equal(result->node, expected);
}

/* Nodes are by their names what PyTorch sorts by, so ranks follow, whoever comes first. All see the same. */
static void test_three_nodes_join_and_see_the_same(void **state) {
  struct scene *scene = *state;
  static const char *const addrs[] = {"c", "a", "b"};
  static const int ranks[] = {2, 0, 1};
  struct node *nodes = scene->nodes;
  for (int i = 0; i < 3; i++)
    node_open(&nodes[i], scene->endpoint, addrs[i], (struct node_options){.min = 3, .max = 3});
  join_all(nodes, 3);
  for (int i = 0; i < 3; i++) {
    const rdzv_result *result = nodes[i].result;
    assert_int_equal(result->round, 0);
    assert_int_equal(result->rank, ranks[i]);
    assert_int_equal(result->world_size, 3);
    assert_null(rdzv_result_participant(result, 3));
    for (int k = 0; k < 3; k++) {
      const rdzv_result *other = nodes[k].result;
      assert_int_equal(rdzv_result_participant(result, ranks[k])->rank, ranks[k]);
      assert_string_equal(rdzv_result_participant(result, ranks[k])->addr, addrs[k]);
      assert_string_equal(rdzv_result_participant(result, ranks[k])->node, other->node);
    }
    assert_string_equal(result->master_addr, "a");
    assert_int_equal(result->master_port, nodes[0].result->master_port);
    assert_brief(nodes[i].took_ms, 4000); /* and nobody sat a heartbeat out */
  }
}

/* The round's store is a view of its own, under PyTorch's prefix; where rank 0 is, stands in it for PyTorch to read. */
static void test_the_store_of_a_round_is_shared(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  char port[16];
  open_and_join(nodes, 2, scene->endpoint,
                (struct node_options){.min = 2, .max = 2, .run_id = "r 1", .conf = SWAPPING});
  must_set(nodes[0].result->store, "k", "from 0");
  assert_get(nodes[1].result->store, "k", "from 0");
  assert_get(scene->raw, "torch.rendezvous.r 1.0/k", "from 0");
  assert_get(scene->raw, "torch.rendezvous.r 1.0/MASTER_ADDR", "a");
  rdzv_value value;
  snprintf(port, sizeof port, "%d", nodes[1].result->master_port);
  assert_code(rdzv_store_get(scene->raw, BYTES("torch.rendezvous.r 1.0/MASTER_PORT"), &value, NULL), 0);
  assert_string_equal(value.data, port);
  rdzv_value_free(&value);
  /* it outlives the handler */
  rdzv_handler_free(nodes[0].handler);
  nodes[0].handler = NULL;
  must_set(nodes[0].result->store, "k", "still");
  assert_get(nodes[1].result->store, "k", "still");
}

/* Two runs on one server do not see each other. */
static void test_runs_are_apart(void **state) {
  struct scene *scene = *state;
  node_open(&scene->nodes[0], scene->endpoint, "a", (struct node_options){.run_id = "one"});
  node_open(&scene->nodes[1], scene->endpoint, "b", (struct node_options){.run_id = "two"});
  join_all(scene->nodes, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(scene->nodes[i].result->world_size, 1);
    assert_int_equal(scene->nodes[i].result->round, 0);
  }
  await_counts(scene->watcher.handler, 0, 0, 0);
}

/* Without a name of the test's it is the machine's, and rank 0 is reached where the store is. */
static void test_the_address_is_found_out(void **state) {
  struct scene *scene = *state;
  char name[256], start[300];
  node_open(&scene->nodes[0], scene->endpoint, NULL, (struct node_options){0});
  join_all(scene->nodes, 1);
  assert_int_equal(gethostname(name, sizeof name), 0);
  snprintf(start, sizeof start, "%s_%ld_", name, (long)getpid());
  assert_memory_equal(scene->nodes[0].result->node, start, strlen(start));
  assert_string_equal(scene->nodes[0].result->master_addr, "127.0.0.1");
}

/* At least min and no more than max: with fewer than max the round begins when the last call is over. */
static void test_a_round_between_min_and_max_ends_with_the_last_call(void **state) {
  struct scene *scene = *state;
  open_and_join(scene->nodes, 2, scene->endpoint,
                (struct node_options){.min = 2, .max = 4, .conf = "last_call_timeout=0.3"});
  for (int i = 0; i < 2; i++) {
    assert_int_equal(scene->nodes[i].result->world_size, 2);
    assert_int_equal(scene->nodes[i].result->rank, i);
    assert_true(scene->nodes[i].took_ms >= 290);
  }
}

/* ---- what members hear, and the next round -------------------------------------------------------------------- */

/* One leaves, and the others hear who; another comes and waits, and they hear that; they go on together. */
static void test_one_leaves_and_another_comes(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  const struct node_options options = {.min = 3, .max = 3};
  rdzv_error error;
  open_and_join(nodes, 3, scene->endpoint, options);
  assert_code(rdzv_handler_leave(nodes[2].handler, &error), 0);
  for (int i = 0; i < 2; i++) {
    const struct heard change = await_change(&nodes[i], RDZV_CHANGE_LEFT);
    assert_int_equal(change.what, RDZV_CHANGE_LEFT);
    assert_string_equal(change.who, rdzv_handler_node(nodes[2].handler));
    assert_false(is_closed(&nodes[i]));
  }
  struct heard change;
  assert_error(hear(nodes[0].handler, 0, &change, &error), RDZV_E_TIMEOUT, &error, "nothing happened");
  node_open(&nodes[3], scene->endpoint, "d", options);
  join_start(&nodes[3]);
  for (int i = 0; i < 2; i++) {
    change = await_change(&nodes[i], RDZV_CHANGE_WAITING);
    assert_int_equal(change.what, RDZV_CHANGE_WAITING);
    assert_string_equal(change.who, "");
    int64_t waiting = 0;
    assert_code(rdzv_handler_num_nodes_waiting(nodes[i].handler, &waiting, &error), 0);
    assert_int_equal(waiting, 1);
  }
  join_start(&nodes[0]);
  join_start(&nodes[1]);
  static const int joining[] = {0, 1, 3};
  for (int i = 0; i < 3; i++) {
    struct node *node = &nodes[joining[i]];
    if (join_end(node) < 0) fail_msg("%s", node->error.message);
    assert_int_equal(node->result->round, 1);
    assert_int_equal(node->result->rank, i);
    assert_int_equal(node->result->world_size, 3);
    if (joining[i] != 3) assert_brief(node->took_ms, 4000);
  }
  must_set(nodes[0].result->store, "k", "1");
  assert_get(scene->raw, "torch.rendezvous.job.1/k", "1");
}

/* Who is closed without leaving falls silent, and the others hear that it died, and who. */
static void check_silence(struct scene *scene, const char *conf, int64_t least_ms) {
  struct node *nodes = scene->nodes;
  char dead[256];
  open_and_join(nodes, 3, scene->endpoint, (struct node_options){.min = 2, .max = 3, .conf = conf});
  snprintf(dead, sizeof dead, "%s", rdzv_handler_node(nodes[1].handler));
  const int64_t began = live_now_ms();
  node_close(&nodes[1]);
  for (int i = 0; i < 3; i += 2) {
    const struct heard change = await_change(&nodes[i], RDZV_CHANGE_DIED);
    assert_int_equal(change.what, RDZV_CHANGE_DIED);
    assert_string_equal(change.who, dead);
    assert_true(live_now_ms() - began >= least_ms);
    assert_within(began, 10000);
  }
}

static void test_a_member_that_falls_silent_is_dead(void **state) { check_silence(*state, LIVELY "," SWAPPING, 700); }

/* A connection that is gone says so after the grace, whatever the dead time is. */
static void test_a_native_member_without_a_connection_is_dead(void **state) {
  check_silence(*state, "mode=native,session_grace=0.5", 450);
}

/* Of several that leave between two calls each is named, with the whole of a long name. */
static void test_all_that_leave_are_named(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  char addrs[3][256];
  rdzv_error error;
  for (int i = 0; i < 3; i++) {
    memset(addrs[i], 'a' + i, sizeof addrs[i] - 1);
    addrs[i][sizeof addrs[i] - 1] = '\0';
    node_open(&nodes[i], scene->endpoint, addrs[i], (struct node_options){.min = 3, .max = 3});
  }
  join_all(nodes, 3);
  assert_code(rdzv_handler_leave(nodes[1].handler, &error), 0);
  assert_code(rdzv_handler_leave(nodes[2].handler, &error), 0);
  bool named[3] = {0};
  while (!named[1] || !named[2]) {
    rdzv_change *change;
    if (rdzv_handler_wait_change(nodes[0].handler, SOON_MS, &change, &error) < 0) fail_msg("%s", error.message);
    assert_int_equal(rdzv_change_what(change), RDZV_CHANGE_LEFT);
    assert_null(rdzv_change_node(change, rdzv_change_node_count(change)));
    for (size_t i = 0; i < rdzv_change_node_count(change); i++) {
      const int who = rdzv_change_node(change, i)[0] - 'a';
      assert_string_equal(rdzv_change_node(change, i), rdzv_handler_node(nodes[who].handler));
      assert_false(named[who]);
      named[who] = true;
    }
    rdzv_change_free(change);
  }
  rdzv_change_free(NULL);
}

/* Who is taken out by the others hears that, once, and is in no round from then on; it may come again. */
static void test_who_is_evicted_hears_it_and_may_come_again(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  struct heard change;
  rdzv_error error;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 1, .max = 2, .conf = LIVELY});
  rewrite_state(scene->endpoint, "job", TORCH_NEWEST, take_out, rdzv_handler_node(nodes[0].handler));
  assert_true(await_change(&nodes[0], RDZV_CHANGE_EVICTED).what & RDZV_CHANGE_EVICTED);
  assert_true(await_change(&nodes[1], RDZV_CHANGE_LEFT).what & RDZV_CHANGE_LEFT);
  assert_error(hear(nodes[0].handler, SOON_MS, &change, &error), RDZV_E_INVALID, &error, "not in a round");
  join_start(&nodes[0]);
  await_change(&nodes[1], RDZV_CHANGE_WAITING);
  join_start(&nodes[1]);
  for (int i = 0; i < 2; i++) {
    if (join_end(&nodes[i]) < 0) fail_msg("%s", nodes[i].error.message);
    assert_int_equal(nodes[i].result->round, 1);
    assert_int_equal(nodes[i].result->rank, i);
  }
}

/* In no round there is nothing to hear of. */
static void test_there_is_nothing_to_hear_of_in_no_round(void **state) {
  struct scene *scene = *state;
  struct heard change;
  rdzv_error error;
  node_open(&scene->nodes[0], scene->endpoint, "a", (struct node_options){0});
  rdzv_handler *handler = scene->nodes[0].handler;
  assert_error(hear(handler, SOON_MS, &change, &error), RDZV_E_INVALID, &error, "not in a round");
  join_all(scene->nodes, 1);
  assert_code(rdzv_handler_leave(handler, &error), 0);
  assert_error(hear(handler, SOON_MS, &change, &error), RDZV_E_INVALID, &error, "not in a round");
  assert_code(rdzv_handler_leave(handler, &error), 0); /* twice is fine */
  assert_error(hear(handler, -1, &change, &error), RDZV_E_INVALID, &error, "-1 ms");
  await_counts(scene->watcher.handler, 0, 0, 0);
}

/* What happened before the wait is told at once, all of it together. */
static void test_changes_are_kept_until_they_are_asked_for(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  rdzv_error error;
  open_and_join(nodes, 3, scene->endpoint, (struct node_options){.min = 2, .max = 3, .conf = LIVELY});
  assert_code(rdzv_handler_leave(nodes[1].handler, &error), 0);
  assert_code(rdzv_handler_set_closed(nodes[2].handler, NULL, &error), 0);
  while (!is_closed(&nodes[0])) {
  }
  const struct heard change = await_change(&nodes[0], RDZV_CHANGE_LEFT | RDZV_CHANGE_CLOSED);
  assert_int_equal(change.what, RDZV_CHANGE_LEFT | RDZV_CHANGE_CLOSED);
  assert_string_equal(change.who, rdzv_handler_node(nodes[1].handler));
}

/* ---- spares --------------------------------------------------------------------------------------------------- */

/* One more than max is a spare, of which members hear nothing; it gets the place of one who leaves. */
static void test_a_spare_gets_the_place_of_one_who_leaves(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  const struct node_options options = {.min = 2, .max = 2};
  struct heard change;
  rdzv_error error;
  open_and_join(nodes, 2, scene->endpoint, options);
  node_open(&nodes[2], scene->endpoint, "c", options);
  join_start(&nodes[2]);
  await_counts(scene->watcher.handler, 2, 0, 1);
  assert_code(hear(nodes[0].handler, 0, &change, &error), RDZV_E_TIMEOUT);
  assert_code(rdzv_handler_leave(nodes[0].handler, &error), 0);
  await_change(&nodes[1], RDZV_CHANGE_LEFT | RDZV_CHANGE_WAITING);
  join_start(&nodes[1]);
  for (int i = 1; i < 3; i++) {
    if (join_end(&nodes[i]) < 0) fail_msg("%s", nodes[i].error.message);
    assert_int_equal(nodes[i].result->round, 1);
    assert_int_equal(nodes[i].result->rank, i - 1);
  }
}

/* A spare of a rendezvous that is closed is told so, in words of its own. */
static void test_a_spare_hears_of_the_end(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  rdzv_error error;
  open_and_join(nodes, 1, scene->endpoint, (struct node_options){0});
  node_open(&nodes[1], scene->endpoint, "b", (struct node_options){0});
  join_start(&nodes[1]);
  await_counts(scene->watcher.handler, 1, 0, 1);
  assert_code(rdzv_handler_set_closed(nodes[0].handler, "enough", &error), 0);
  assert_error(join_end(&nodes[1]), RDZV_E_GRACEFUL_EXIT, &nodes[1].error, "spare");
  assert_non_null(strstr(nodes[1].error.message, "enough"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_one_node_joins),
      IN_A_SCENE(test_three_nodes_join_and_see_the_same),
      IN_A_SCENE(test_the_store_of_a_round_is_shared),
      IN_A_SCENE(test_runs_are_apart),
      IN_A_SCENE(test_the_address_is_found_out),
      IN_A_SCENE(test_a_round_between_min_and_max_ends_with_the_last_call),
      IN_A_SCENE(test_one_leaves_and_another_comes),
      IN_A_SCENE(test_a_member_that_falls_silent_is_dead),
      IN_A_SCENE(test_a_native_member_without_a_connection_is_dead),
      IN_A_SCENE(test_all_that_leave_are_named),
      IN_A_SCENE(test_who_is_evicted_hears_it_and_may_come_again),
      IN_A_SCENE(test_there_is_nothing_to_hear_of_in_no_round),
      IN_A_SCENE(test_changes_are_kept_until_they_are_asked_for),
      IN_A_SCENE(test_a_spare_gets_the_place_of_one_who_leaves),
      IN_A_SCENE(test_a_spare_hears_of_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
