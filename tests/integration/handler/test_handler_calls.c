/* SPDX-License-Identifier: BSD-3-Clause */
/* The other calls of a handler: closing, shutting down, canceling, looking; events; the options that nodes share. */
#include "handler_scene.h"

enum { AT_ONCE_MS = 2500 }; /* well below the five seconds between two heartbeats */

/* ---- closing -------------------------------------------------------------------------------------------------- */

/* Who closes stays in its round; members hear of it, who wants to join is told, with the reason. */
static void test_closed_is_for_all_and_for_good(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  struct heard change;
  rdzv_error error;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2});
  assert_false(is_closed(&nodes[0]));
  assert_false(is_closed(&scene->watcher));
  assert_code(rdzv_handler_set_closed(nodes[0].handler, "the data is all read", &error), 0);
  assert_true(is_closed(&nodes[0]));
  assert_int_equal(await_change(&nodes[1], RDZV_CHANGE_CLOSED).what, RDZV_CHANGE_CLOSED);
  assert_int_equal(await_change(&nodes[0], RDZV_CHANGE_CLOSED).what, RDZV_CHANGE_CLOSED);
  assert_code(hear(nodes[0].handler, 0, &change, &error), RDZV_E_TIMEOUT); /* it is a member still */
  assert_true(is_closed(&nodes[1]));
  node_open(&nodes[2], scene->endpoint, "c", (struct node_options){.min = 1, .max = 3});
  for (int i = 0; i < 3; i++) {
    node_join_run(&nodes[i]);
    assert_error(nodes[i].code, RDZV_E_CLOSED, &nodes[i].error, "the rendezvous is closed: the data is all read");
    assert_null(nodes[i].result);
    assert_brief(nodes[i].took_ms, AT_ONCE_MS);
  }
  assert_code(rdzv_handler_set_closed(nodes[1].handler, NULL, &error), 0); /* again is fine, and the reason stays */
  node_join_run(&nodes[2]);
  assert_error(nodes[2].code, RDZV_E_CLOSED, &nodes[2].error, "the data is all read");
}

/* Nobody needs to have joined for it, and without a reason the sentence ends. */
static void test_a_rendezvous_can_be_closed_before_it_begins(void **state) {
  struct scene *scene = *state;
  rdzv_error error;
  assert_code(rdzv_handler_set_closed(scene->watcher.handler, NULL, &error), 0);
  node_open(&scene->nodes[0], scene->endpoint, "a", (struct node_options){0});
  node_join_run(&scene->nodes[0]);
  assert_code(scene->nodes[0].code, RDZV_E_CLOSED);
  assert_string_equal(scene->nodes[0].error.message, "the rendezvous is closed");
}

/* A member that closes, with a reason or without, does not wait for its own next heartbeat to pass. */
static void test_closing_takes_no_longer_for_a_reason(void **state) {
  struct scene *scene = *state;
  rdzv_error error;
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){0});
  await_counts(scene->watcher.handler, 1, 0, 0);
  const int64_t began = live_now_ms();
  assert_code(rdzv_handler_set_closed(scene->nodes[0].handler, "why not", &error), 0);
  const int64_t took = live_now_ms() - began;
  if (took >= AT_ONCE_MS) fail_msg("closing with a reason took %lld ms", (long long)took);
}

/* Those who wait for others are told, too. */
static void test_who_is_joining_hears_of_the_end(void **state) {
  struct scene *scene = *state;
  rdzv_error error;
  node_open(&scene->nodes[0], scene->endpoint, "a", (struct node_options){.min = 2, .max = 2});
  join_start(&scene->nodes[0]);
  await_counts(scene->watcher.handler, 1, 0, 0);
  assert_code(rdzv_handler_set_closed(scene->watcher.handler, "no more", &error), 0);
  assert_error(join_end(&scene->nodes[0]), RDZV_E_CLOSED, &scene->nodes[0].error, "closed: no more");
}

/* Leaving is not closing: who is left goes on, and who left may come again. */
static void test_leaving_is_not_closing(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  rdzv_error error;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2});
  const int64_t began = live_now_ms();
  assert_code(rdzv_handler_leave(nodes[0].handler, &error), 0);
  assert_within(began, AT_ONCE_MS);
  assert_false(is_closed(&nodes[0]) || is_closed(&nodes[1]) || is_closed(&scene->watcher));
  await_counts(scene->watcher.handler, 1, 0, 0);
  join_start(&nodes[0]);
  await_change(&nodes[1], RDZV_CHANGE_WAITING);
  join_start(&nodes[1]);
  for (int i = 0; i < 2; i++) {
    if (join_end(&nodes[i]) < 0) fail_msg("%s", nodes[i].error.message);
    assert_int_equal(nodes[i].result->round, 1);
  }
}

/* PyTorch's shutdown: closed for all, and no more heartbeats of this one, so that the others find it dead. */
static void test_shutdown_closes_and_falls_silent(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  struct heard change;
  rdzv_error error;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2, .conf = LIVELY});
  assert_code(rdzv_handler_shutdown(nodes[0].handler, &error), 0);
  const struct heard heard = await_change(&nodes[1], RDZV_CHANGE_CLOSED | RDZV_CHANGE_DIED);
  assert_int_equal(heard.what, RDZV_CHANGE_CLOSED | RDZV_CHANGE_DIED);
  assert_string_equal(heard.who, rdzv_handler_node(nodes[0].handler));
  int result = hear(nodes[0].handler, 0, &change, &error);
  if (result == 0) { /* what it did itself, and has not asked for */
    assert_int_equal(change.what, RDZV_CHANGE_CLOSED);
    result = hear(nodes[0].handler, SOON_MS, &change, &error);
  }
  assert_error(result, RDZV_E_INVALID, &error, "not in a round");
  assert_true(is_closed(&nodes[0]));
  node_join_run(&nodes[0]);
  assert_code(nodes[0].code, RDZV_E_CLOSED);
}

/* ---- joins that fail ------------------------------------------------------------------------------------------ */

/* The sentence names who was there, how many were needed, and where; the node is out again. */
static void test_a_join_that_times_out_says_who_was_there(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  char who[300], where[64];
  const struct node_options options = {.min = 3, .max = 5, .conf = "join_timeout=1"};
  node_open(&nodes[1], scene->endpoint, "b", (struct node_options){.min = 3, .max = 5});
  join_start(&nodes[1]);
  await_counts(scene->watcher.handler, 1, 0, 0);
  node_open(&nodes[0], scene->endpoint, "a", options);
  node_join_run(&nodes[0]);
  snprintf(who, sizeof who, "'%s' (heard", rdzv_handler_node(nodes[1].handler));
  snprintf(where, sizeof where, "; at c10d tcp %s", scene->endpoint);
  assert_error(nodes[0].code, RDZV_E_TIMEOUT, &nodes[0].error, "of at least 3 nodes joined");
  assert_non_null(strstr(nodes[0].error.message, who));
  assert_non_null(strstr(nodes[0].error.message, where));
  assert_null(nodes[0].result);
  assert_true(nodes[0].took_ms >= 990);
  assert_brief(nodes[0].took_ms, 5000);
  await_counts(scene->watcher.handler, 1, 0, 0);
  rdzv_handler_cancel(nodes[1].handler);
  assert_code(join_end(&nodes[1]), RDZV_E_CANCELED);
}

/* A timeout is no end: the same handler may try again. */
static void test_a_join_may_be_tried_again(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  node_open(&nodes[0], scene->endpoint, "a", (struct node_options){.min = 2, .max = 2, .conf = "join_timeout=0.2"});
  node_join_run(&nodes[0]);
  assert_code(nodes[0].code, RDZV_E_TIMEOUT);
  node_open(&nodes[1], scene->endpoint, "b", (struct node_options){.min = 2, .max = 2});
  join_start(&nodes[1]);
  await_counts(scene->watcher.handler, 1, 0, 0);
  while (node_join_run(&nodes[0]), nodes[0].code == RDZV_E_TIMEOUT) {
  }
  if (nodes[0].code < 0) fail_msg("%s", nodes[0].error.message);
  assert_code(join_end(&nodes[1]), 0);
  assert_int_equal(nodes[0].result->world_size, 2);
}

/* ---- canceling ------------------------------------------------------------------------------------------------ */

static void test_a_cancel_ends_a_join_and_the_node_is_out(void **state) {
  struct scene *scene = *state;
  struct node *node = &scene->nodes[0];
  struct heard change;
  rdzv_error error;
  node_open(node, scene->endpoint, "a", (struct node_options){.min = 2, .max = 2});
  join_start(node);
  await_counts(scene->watcher.handler, 1, 0, 0);
  const int64_t began = live_now_ms();
  rdzv_handler_cancel(node->handler);
  assert_error(join_end(node), RDZV_E_CANCELED, &node->error, "canceled");
  assert_within(began, AT_ONCE_MS);
  await_counts(scene->watcher.handler, 0, 0, 0);
  node_join_run(node);
  assert_code(node->code, RDZV_E_CANCELED); /* now and later */
  assert_code(hear(node->handler, SOON_MS, &change, &error), RDZV_E_INVALID);
  assert_code(rdzv_handler_leave(node->handler, &error), 0); /* what says farewell works on */
  assert_code(rdzv_handler_set_closed(node->handler, "canceled", &error), 0);
  assert_code(rdzv_handler_shutdown(node->handler, &error), 0);
  await_closed(&scene->watcher);
}

struct listener {
  struct node *node;
  struct heard change;
  rdzv_error error;
  int result;
  pthread_t thread;
};

static void *listen_long(void *arg) {
  struct listener *listener = arg;
  listener->result = hear(listener->node->handler, SOON_MS, &listener->change, &listener->error);
  return NULL;
}

/* A member that is canceled while it waits for events stays a member until it leaves. */
static void test_a_cancel_ends_a_wait_and_leaving_works(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  struct listener listener = {.node = &nodes[0]};
  rdzv_error error;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2});
  assert_int_equal(pthread_create(&listener.thread, NULL, listen_long, &listener), 0);
  rdzv_handler_cancel(nodes[0].handler);
  pthread_join(listener.thread, NULL);
  assert_error(listener.result, RDZV_E_CANCELED, &listener.error, "canceled");
  await_counts(scene->watcher.handler, 2, 0, 0);
  assert_code(rdzv_handler_leave(nodes[0].handler, &error), 0);
  assert_string_equal(await_change(&nodes[1], RDZV_CHANGE_LEFT).who, rdzv_handler_node(nodes[0].handler));
}

/* The caller's descriptor does the same, as long as it is readable. */
static void test_a_descriptor_of_the_callers_cancels(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  struct listener listener = {.node = &nodes[1]};
  int fds[2];
  char byte;
  rdzv_error error;
  assert_int_equal(pipe(fds), 0);
  node_open(&nodes[0], scene->endpoint, "a", (struct node_options){.min = 2, .max = 2, .cancel_fd = fds[0]});
  join_start(&nodes[0]);
  node_open(&nodes[1], scene->endpoint, "z", (struct node_options){.run_id = "other", .cancel_fd = fds[0]});
  join_all(&nodes[1], 1);
  assert_int_equal(pthread_create(&listener.thread, NULL, listen_long, &listener), 0);
  await_counts(scene->watcher.handler, 1, 0, 0);
  assert_int_equal(write(fds[1], "x", 1), 1);
  assert_code(join_end(&nodes[0]), RDZV_E_CANCELED);
  pthread_join(listener.thread, NULL);
  assert_code(listener.result, RDZV_E_CANCELED);
  must_set(nodes[1].result->store, "k", "v"); /* the round's store is not canceled with it */
  struct node late;
  assert_error(node_try_open(&late, scene->endpoint, "l", (struct node_options){.cancel_fd = fds[0]}, &error),
               RDZV_E_CANCELED, &error, "job");
  assert_code(rdzv_handler_leave(nodes[1].handler, &error), 0);
  assert_int_equal(read(fds[0], &byte, 1), 1);
  join_all(&nodes[1], 1); /* not readable any more */
  close_all(nodes, 2);
  close(fds[0]);
  close(fds[1]);
}

/* Whatever its thread waits for, closing a handler does not wait for it. */
static void test_closing_a_handler_is_quick(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2});
  node_open(&nodes[2], scene->endpoint, "c", (struct node_options){.min = 2, .max = 2});
  join_start(&nodes[2]);
  await_counts(scene->watcher.handler, 2, 0, 1);
  rdzv_handler_cancel(nodes[2].handler);
  assert_code(join_end(&nodes[2]), RDZV_E_CANCELED);
  const int64_t began = live_now_ms();
  close_all(nodes, 3);
  assert_within(began, AT_ONCE_MS);
  rdzv_handler_free(NULL);
  rdzv_result_free(NULL);
  rdzv_status_free(NULL);
}

/* Close, as the header says, does not take the node out: others count it until its heartbeat lapses. */
static void test_closing_a_handler_is_not_leaving(void **state) {
  struct scene *scene = *state;
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){0});
  node_close(&scene->nodes[0]);
  await_counts(scene->watcher.handler, 1, 0, 0);
}

/* Described from many threads, while another joins: it is the same text for all. */
static void *describe_often(void *arg) {
  struct node *node = arg;
  for (int i = 0; i < 200; i++)
    if (strncmp(rdzv_handler_describe(node->handler), "c10d tcp ", 9) != 0) return arg;
  return NULL;
}

static void test_a_handler_can_be_described_from_any_thread(void **state) {
  struct scene *scene = *state;
  pthread_t threads[2];
  void *failed;
  node_open(&scene->nodes[0], scene->endpoint, "a",
            (struct node_options){.min = 2, .max = 2, .conf = "join_timeout=0.2"});
  join_start(&scene->nodes[0]);
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, describe_often, &scene->nodes[0]), 0);
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], &failed);
    assert_null(failed);
  }
  assert_code(join_end(&scene->nodes[0]), RDZV_E_TIMEOUT);
}

/* ---- by which way --------------------------------------------------------------------------------------------- */

/* Natively where the server can and nothing else is asked for; who must be native is told why it cannot. */
static void test_the_mode_is_an_option(void **state) {
  struct scene *scene = *state;
  static const struct {
    const char *conf;
    rdzv_node_way way;
  } modes[] = {{"", RDZV_NODE_WAY_NATIVE},
               {"mode=auto", RDZV_NODE_WAY_NATIVE},
               {"mode=native,session_keep_alive=0.1,session_grace=1", RDZV_NODE_WAY_NATIVE},
               {"mode=swap", RDZV_NODE_WAY_SWAP},
               {"mode=auto,dialect=v2", RDZV_NODE_WAY_SWAP}};
  for (size_t i = 0; i < COUNT_OF(modes); i++) {
    struct node node;
    rdzv_status *status;
    const char id[] = {(char)('a' + i), '\0'};
    node_open(&node, scene->endpoint, "n", (struct node_options){.conf = modes[i].conf, .run_id = id});
    join_all(&node, 1);
    node_close(&scene->watcher);
    node_open(&scene->watcher, scene->endpoint, "watcher", (struct node_options){.run_id = id});
    assert_code(rdzv_handler_status(scene->watcher.handler, 0, &status, NULL), 0);
    assert_int_equal(rdzv_status_node_count(status), 1);
    assert_int_equal(rdzv_status_node(status, 0)->way, modes[i].way);
    rdzv_status_free(status);
    node_close(&node);
  }
  struct node node;
  rdzv_error error;
  const struct node_options foreign = {.conf = "mode=native,dialect=v2"}, fast = {.conf = "session_keep_alive=0.05"};
  assert_error(node_try_open(&node, scene->endpoint, "n", foreign, &error), RDZV_E_UNSUPPORTED, &error, "mode=native");
  assert_error(node_try_open(&node, scene->endpoint, "n", fast, &error), RDZV_E_INVALID, &error, "at least 0.1");
}

/* The workers of all nodes get their ranks with the round, where all have said how many they have. */
static void test_workers_are_ranked_with_the_round(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  rdzv_error error;
  char long_role[65];
  memset(long_role, 'r', 64);
  long_role[64] = '\0';
  for (int i = 0; i < 2; i++)
    node_open(&nodes[i], scene->endpoint, i ? "b" : "a", (struct node_options){.min = 2, .max = 2});
  assert_error(rdzv_handler_set_workers(nodes[0].handler, long_role, 1, 0, &error), RDZV_E_INVALID, &error, "63");
  assert_error(rdzv_handler_set_workers(nodes[0].handler, "x", -1, 0, &error), RDZV_E_INVALID, &error, "negative");
  assert_code(rdzv_handler_set_workers(nodes[0].handler, "x", 2, 0, &error), 0);
  join_all(nodes, 2);
  assert_null(rdzv_result_worker_ranks(nodes[0].result)); /* one of them has not said */
  assert_code(rdzv_handler_set_workers(nodes[1].handler, "y", 3, 4, &error), 0);
  join_all(nodes, 2);
  const rdzv_worker_ranks *first = rdzv_result_worker_ranks(nodes[0].result);
  const rdzv_worker_ranks *second = rdzv_result_worker_ranks(nodes[1].result);
  assert_non_null(first);
  assert_non_null(second);
  assert_true(first->base == 0 && first->world_size == 5 && first->role_base == 0 && first->role_world_size == 2);
  assert_true(second->base == 2 && second->world_size == 5 && second->role_base == 0 && second->role_world_size == 3);
  assert_true(first->restarts == 4 && second->restarts == 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_the_mode_is_an_option),
      IN_A_SCENE(test_workers_are_ranked_with_the_round),
      IN_A_SCENE(test_closed_is_for_all_and_for_good),
      IN_A_SCENE(test_a_rendezvous_can_be_closed_before_it_begins),
      IN_A_SCENE(test_closing_takes_no_longer_for_a_reason),
      IN_A_SCENE(test_who_is_joining_hears_of_the_end),
      IN_A_SCENE(test_leaving_is_not_closing),
      IN_A_SCENE(test_shutdown_closes_and_falls_silent),
      IN_A_SCENE(test_a_join_that_times_out_says_who_was_there),
      IN_A_SCENE(test_a_join_may_be_tried_again),
      IN_A_SCENE(test_a_cancel_ends_a_join_and_the_node_is_out),
      IN_A_SCENE(test_a_cancel_ends_a_wait_and_leaving_works),
      IN_A_SCENE(test_a_descriptor_of_the_callers_cancels),
      IN_A_SCENE(test_closing_a_handler_is_quick),
      IN_A_SCENE(test_closing_a_handler_is_not_leaving),
      IN_A_SCENE(test_a_handler_can_be_described_from_any_thread),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
