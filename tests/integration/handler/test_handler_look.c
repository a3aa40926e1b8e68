/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking at a rendezvous from outside and from inside, its events, and the options that change what is written. */
#include "handler_scene.h"

static rdzv_status *look(struct node *node, int64_t wait_ms) {
  rdzv_status *status;
  rdzv_error error;
  if (rdzv_handler_status(node->handler, wait_ms, &status, &error) < 0) fail_msg("%s", error.message);
  return status;
}

/* ---- status --------------------------------------------------------------------------------------------------- */

static void test_a_rendezvous_that_nobody_joined_does_not_exist(void **state) {
  struct scene *scene = *state;
  rdzv_status *status = look(&scene->watcher, 0);
  assert_false(status->exists || status->complete || status->closed);
  assert_int_equal(status->participants + status->waiting + status->spares, 0);
  assert_int_equal(status->min_nodes, 0);
  assert_int_equal(status->max_nodes, 0);
  assert_true(status->ended_us == 0 && !*status->ended_by);
  rdzv_status_free(status);
  rdzv_error error;
  int64_t waiting = -1;
  assert_code(rdzv_handler_num_nodes_waiting(scene->watcher.handler, &waiting, &error), 0);
  assert_int_equal(waiting, 0);
  assert_false(is_closed(&scene->watcher));
  assert_error(rdzv_handler_status(scene->watcher.handler, -1, &status, &error), RDZV_E_INVALID, &error, "-1 ms");
}

/* Phases, roles and ranks as a round comes about, and those who wait for the next. */
static void test_a_status_shows_the_phases_and_who_is_what(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  rdzv_error error;
  node_open(&nodes[1], scene->endpoint, "b", (struct node_options){.min = 2, .max = 2});
  join_start(&nodes[1]);
  await_counts(scene->watcher.handler, 1, 0, 0);
  rdzv_status *status = look(&scene->watcher, 0);
  assert_true(status->exists && !status->complete);
  assert_string_equal(status->phase, "gathering");
  assert_int_equal(status->deadline_left_ms, -1);
  assert_int_equal(rdzv_status_node(status, 0)->rank, -1);
  assert_string_equal(rdzv_status_node(status, 0)->node, rdzv_handler_node(nodes[1].handler));
  assert_in_range(rdzv_status_node(status, 0)->heartbeat_age_ms, 0, 10000);
  assert_string_equal(status->layout, "2.6");
  rdzv_status_free(status);
  node_open(&nodes[0], scene->endpoint, "a", (struct node_options){.min = 2, .max = 2});
  join_all(nodes, 1);
  assert_code(join_end(&nodes[1]), 0);
  node_open(&nodes[2], scene->endpoint, "c", (struct node_options){.min = 2, .max = 2});
  join_start(&nodes[2]);
  await_counts(scene->watcher.handler, 2, 0, 1);
  status = look(&scene->watcher, 0);
  assert_true(status->complete);
  assert_string_equal(status->phase, "complete");
  for (size_t i = 0; i < 3; i++) {
    assert_string_equal(rdzv_status_node(status, i)->node, rdzv_handler_node(nodes[i].handler));
    assert_int_equal(rdzv_status_node(status, i)->rank, i < 2 ? (int64_t)i : -1);
    assert_int_equal(rdzv_status_node(status, i)->kind, i < 2 ? RDZV_NODE_KIND_PARTICIPANT : RDZV_NODE_KIND_SPARE);
  }
  rdzv_status_free(status);
  assert_code(rdzv_handler_leave(nodes[0].handler, &error), 0);
  await_counts(scene->watcher.handler, 1, 1, 0);
  status = look(&scene->watcher, 0);
  assert_int_equal(rdzv_status_node(status, 1)->kind, RDZV_NODE_KIND_WAITING);
  rdzv_status_free(status);
  assert_code(rdzv_handler_set_closed(scene->watcher.handler, NULL, &error), 0);
  assert_code(join_end(&nodes[2]), RDZV_E_CLOSED);
  status = look(&scene->watcher, 0);
  assert_true(status->closed);
  assert_string_equal(status->phase, "closed");
  rdzv_status_free(status);
}

static void test_the_last_call_has_a_deadline(void **state) {
  struct scene *scene = *state;
  struct node *node = &scene->nodes[0];
  node_open(node, scene->endpoint, "a", (struct node_options){.min = 1, .max = 2});
  join_start(node);
  await_counts(scene->watcher.handler, 1, 0, 0);
  rdzv_status *status = look(&scene->watcher, 0);
  assert_string_equal(status->phase, "last call");
  assert_in_range(status->deadline_left_ms, 1, 30000);
  rdzv_status_free(status);
  rdzv_handler_cancel(node->handler);
  assert_code(join_end(node), RDZV_E_CANCELED);
}

struct looking {
  struct node *node;
  int64_t wait_ms, took_ms;
  rdzv_status *status;
  pthread_t thread;
};

static void *look_long(void *arg) {
  struct looking *looking = arg;
  const int64_t began = live_now_ms();
  if (rdzv_handler_status(looking->node->handler, looking->wait_ms, &looking->status, NULL) < 0) looking->status = NULL;
  looking->took_ms = live_now_ms() - began;
  return NULL;
}

/* Who waits to see another state sees it when it comes, or the same again when the time is over. */
static void test_a_look_that_waits_sees_the_change(void **state) {
  struct scene *scene = *state;
  struct looking looking = {.node = &scene->watcher, .wait_ms = SOON_MS};
  rdzv_status_free(look(&scene->watcher, 0));
  assert_int_equal(pthread_create(&looking.thread, NULL, look_long, &looking), 0);
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){0});
  pthread_join(looking.thread, NULL);
  assert_non_null(looking.status);
  assert_true(looking.status->exists);
  rdzv_status_free(looking.status);
  assert_brief(looking.took_ms, SOON_MS / 2);
  looking.wait_ms = 100;
  do { /* until there is no heartbeat in between */
    look_long(&looking);
    assert_non_null(looking.status);
    assert_int_equal(looking.status->participants, 1);
    rdzv_status_free(looking.status);
  } while (looking.took_ms < 99);
}

/* The same holds for a member, whose thread has other things to do, too. */
static void test_a_member_that_looks_waits_for_a_change_as_well(void **state) {
  struct scene *scene = *state;
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){0});
  struct looking looking = {.node = &scene->nodes[0], .wait_ms = 300};
  rdzv_status_free(look(&scene->nodes[0], 0));
  look_long(&looking);
  assert_non_null(looking.status);
  assert_int_equal(looking.status->participants, 1);
  rdzv_status_free(looking.status);
  if (looking.took_ms < 299) fail_msg("it saw the same state again after %lld ms", (long long)looking.took_ms);
}

/* What only asks does not wait until another thread has seen a change. */
static void test_asking_does_not_wait_for_a_look(void **state) {
  struct scene *scene = *state;
  struct looking looking = {.node = &scene->watcher, .wait_ms = SOON_MS};
  rdzv_status_free(look(&scene->watcher, 0));
  assert_int_equal(pthread_create(&looking.thread, NULL, look_long, &looking), 0);
  for (int i = 0; i < 50; i++) assert_false(is_closed(&scene->watcher)); /* the look begins in between */
  rdzv_handler_cancel(scene->watcher.handler);
  pthread_join(looking.thread, NULL);
  rdzv_status_free(looking.status);
  assert_brief(looking.took_ms, SOON_MS / 2);
}

/* Looked at from many threads, before and after it is canceled. */
static void *look_often(void *arg) {
  struct node *node = arg;
  for (int i = 0; i < 30; i++) {
    rdzv_status *status = NULL;
    if (rdzv_handler_status(node->handler, i % 3 == 0, &status, NULL) == 0) rdzv_status_free(status);
    bool closed;
    int64_t waiting;
    rdzv_handler_is_closed(node->handler, &closed, NULL);
    rdzv_handler_num_nodes_waiting(node->handler, &waiting, NULL);
  }
  return NULL;
}

static void test_many_may_look_at_once(void **state) {
  struct scene *scene = *state;
  pthread_t threads[3];
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){.conf = LIVELY});
  for (int i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, look_often, i == 0 ? &scene->nodes[0] : &scene->watcher), 0);
  pthread_join(threads[1], NULL);
  rdzv_handler_cancel(scene->watcher.handler);
  for (int i = 0; i < 3; i += 2) pthread_join(threads[i], NULL);
  look_often(&scene->watcher);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

struct told {
  pthread_mutex_t lock;
  char text[4096]; /* "STATE round rank message" a line */
  char run_id[32], node[128], host[256];
  int64_t pid, first_us, last_us;
};

static void note(void *user, const rdzv_event *event) {
  struct told *told = user;
  pthread_mutex_lock(&told->lock);
  const size_t len = strlen(told->text);
  snprintf(told->text + len, sizeof told->text - len, "%s %d %d %s\n", rdzv_node_state_name(event->state),
           (int)event->round, (int)event->rank, event->message);
  snprintf(told->run_id, sizeof told->run_id, "%s", event->run_id);
  snprintf(told->node, sizeof told->node, "%s", event->node);
  snprintf(told->host, sizeof told->host, "%s", event->host);
  told->pid = event->pid;
  if (told->first_us == 0) told->first_us = event->time_us;
  told->last_us = event->time_us;
  pthread_mutex_unlock(&told->lock);
}

static void assert_in_order(const struct told *told, const char *const *lines, size_t count) {
  const char *at = told->text;
  for (size_t i = 0; i < count; i++) {
    const char *found = strstr(at, lines[i]);
    if (!found) fail_msg("'%s' is not, or not behind the one before, in\n%s", lines[i], told->text);
    at = found + strlen(lines[i]);
  }
}

/* From opening to leaving, in that order, each with who and when. */
static void check_story(struct scene *scene, const char *conf, const char *const *first, size_t first_count,
                        const char *const *second, size_t second_count) {
  struct node *nodes = scene->nodes;
  struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER}, other = {.lock = PTHREAD_MUTEX_INITIALIZER};
  rdzv_error error;
  node_open(&nodes[0], scene->endpoint, "a",
            (struct node_options){.min = 2, .max = 2, .conf = conf, .on_event = note, .event_user = &told});
  node_open(&nodes[1], scene->endpoint, "b",
            (struct node_options){.min = 2, .max = 2, .conf = conf, .on_event = note, .event_user = &other});
  join_all(nodes, 2);
  assert_code(rdzv_handler_leave(nodes[1].handler, &error), 0);
  await_change(&nodes[0], RDZV_CHANGE_LEFT);
  assert_code(rdzv_handler_set_closed(nodes[0].handler, NULL, &error), 0);
  node_join_run(&nodes[0]);
  assert_code(nodes[0].code, RDZV_E_CLOSED);
  assert_code(rdzv_handler_leave(nodes[0].handler, &error), 0);
  char name[256];
  snprintf(name, sizeof name, "%s", rdzv_handler_node(nodes[0].handler));
  close_all(nodes, 2); /* nothing is told any more */
  assert_string_equal(told.run_id, "job");
  assert_string_equal(told.node, name);
  char host[256];
  assert_int_equal(gethostname(host, sizeof host), 0);
  assert_string_equal(told.host, host);
  assert_int_equal(told.pid, getpid());
  assert_true(told.first_us > 0 && told.last_us >= told.first_us);
  assert_in_order(&told, first, first_count);
  assert_in_order(&other, second, second_count);
}

static void test_events_tell_the_story_of_a_swap_node(void **state) {
  static const char *const first[] = {
      "INIT -1 -1 opened rendezvous 'job' at c10d tcp ", "INIT -1 -1 attempts to join the next round\n",
      "RUNNING 0 -1 is a participant of the round\n",    "SUCCEEDED 0 0 joined round 0 as rank 0 in a world of 2\n",
      "RUNNING 0 -1 a participant left the round: b_",   "SUCCEEDED -1 -1 closed the rendezvous\n",
      "INIT -1 -1 attempts to join the next round\n",    "FAILED -1 -1 the rendezvous is closed\n"};
  static const char *const second[] = {
      "INIT -1 -1 opened rendezvous 'job'",           "INIT -1 -1 attempts to join the next round\n",
      "RUNNING 0 -1 is a participant of the round\n", "SUCCEEDED 0 1 joined round 0 as rank 1 in a world of 2\n",
      "RUNNING 0 -1 is out of the round\n",           "SUCCEEDED -1 -1 left the rendezvous\n"};
  check_story(*state, SWAPPING, first, COUNT_OF(first), second, COUNT_OF(second));
}

static void test_events_tell_the_story_of_a_native_node(void **state) {
  static const char *const first[] = {
      "INIT -1 -1 opened rendezvous 'job' at c10d tcp ",  "INIT -1 -1 attempts to join the next round\n",
      "RUNNING -1 -1 asks the server for the next round", "SUCCEEDED 0 0 joined round 0 as rank 0 in a world of 2\n",
      "RUNNING 0 -1 a participant left the round: b_",    "SUCCEEDED -1 -1 closed the rendezvous\n",
      "INIT -1 -1 attempts to join the next round\n",     "FAILED -1 -1 the rendezvous is closed"};
  static const char *const second[] = {"INIT -1 -1 opened rendezvous 'job'",
                                       "SUCCEEDED 0 1 joined round 0 as rank 1 in a world of 2\n",
                                       "SUCCEEDED -1 -1 left the rendezvous\n"};
  check_story(*state, "mode=native", first, COUNT_OF(first), second, COUNT_OF(second));
}

/* ---- options -------------------------------------------------------------------------------------------------- */

/* Who stays keeps its rank, and who comes fills the gap, although its name comes first. */
static void test_stable_ranks_stay(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  const struct node_options options = {.min = 3, .max = 3, .conf = "rank_order=stable"};
  rdzv_error error;
  open_and_join(nodes, 3, scene->endpoint, options);
  assert_code(rdzv_handler_leave(nodes[1].handler, &error), 0);
  node_open(&nodes[3], scene->endpoint, "A", options);
  join_start(&nodes[3]);
  await_change(&nodes[0], RDZV_CHANGE_WAITING);
  join_start(&nodes[0]);
  join_start(&nodes[2]);
  static const int joining[] = {0, 3, 2};
  for (int i = 0; i < 3; i++) {
    if (join_end(&nodes[joining[i]]) < 0) fail_msg("%s", nodes[joining[i]].error.message);
    assert_int_equal(nodes[joining[i]].result->rank, i);
    assert_string_equal(nodes[joining[i]].result->master_addr, "a");
  }
}

static void test_natural_ranks_follow_numbers(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  static const char *const addrs[] = {"node10", "node2", "node1"};
  static const int natural[] = {2, 1, 0}, torch[] = {1, 2, 0};
  for (int order = 0; order < 2; order++) {
    const struct node_options options = {
        .min = 3, .max = 3, .run_id = order ? "n" : "t", .conf = order ? "rank_order=natural" : "rank_order=torch"};
    for (int i = 0; i < 3; i++) node_open(&nodes[i], scene->endpoint, addrs[i], options);
    join_all(nodes, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(nodes[i].result->rank, order ? natural[i] : torch[i]);
    close_all(nodes, 3);
  }
}

/* The first to come decides for which PyTorch the state is written; the others write what they find. */
static void test_the_state_is_written_for_a_version_of_pytorch(void **state) {
  struct scene *scene = *state;
  static const char *const versions[] = {"1.13", "2.0", "2.3", "2.6"};
  for (size_t i = 0; i < COUNT_OF(versions); i++) {
    char conf[64];
    snprintf(conf, sizeof conf, "torch_version=%s", versions[i]);
    struct node nodes[2];
    node_open(&nodes[0], scene->endpoint, "a",
              (struct node_options){.min = 2, .max = 2, .run_id = versions[i], .conf = conf});
    node_open(&nodes[1], scene->endpoint, "b", (struct node_options){.min = 2, .max = 2, .run_id = versions[i]});
    join_start(&nodes[0]);
    await_counts(nodes[1].handler, 1, 0, 0);
    join_start(&nodes[1]);
    for (int k = 0; k < 2; k++) {
      if (join_end(&nodes[k]) < 0) fail_msg("%s", nodes[k].error.message);
      rdzv_status *status = look(&nodes[k], 0);
      assert_string_equal(status->layout, versions[i]);
      rdzv_status_free(status);
    }
    rdzv_backend *cell;
    rdzv_value value;
    uint64_t token;
    struct rendezvous_state read;
    struct torch_layouts layouts;
    assert_code(c10d_open(scene->raw, NULL, versions[i], &(rdzv_log){0}, &cell, NULL), 0);
    assert_code(cell->ops->get(cell, &value, &token, NULL), 0);
    assert_int_equal(memmem(value.data, value.len, "fqdn", 4) != NULL, i == 0);
    assert_int_equal(memmem(value.data, value.len, "redundancy_list", 15) != NULL, i >= 2);
    assert_code(pickle_read(rdzv_value_bytes(&value), &read, &layouts, NULL), 0);
    assert_int_equal(layouts.newest, (enum torch_layout)i);
    state_free(&read);
    rdzv_value_free(&value);
    cell->ops->close(cell);
    close_all(nodes, 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_a_rendezvous_that_nobody_joined_does_not_exist),
      IN_A_SCENE(test_a_status_shows_the_phases_and_who_is_what),
      IN_A_SCENE(test_the_last_call_has_a_deadline),
      IN_A_SCENE(test_a_look_that_waits_sees_the_change),
      IN_A_SCENE(test_a_member_that_looks_waits_for_a_change_as_well),
      IN_A_SCENE(test_asking_does_not_wait_for_a_look),
      IN_A_SCENE(test_many_may_look_at_once),
      IN_A_SCENE(test_events_tell_the_story_of_a_swap_node),
      IN_A_SCENE(test_events_tell_the_story_of_a_native_node),
      IN_A_SCENE(test_stable_ranks_stay),
      IN_A_SCENE(test_natural_ranks_follow_numbers),
      IN_A_SCENE(test_the_state_is_written_for_a_version_of_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
