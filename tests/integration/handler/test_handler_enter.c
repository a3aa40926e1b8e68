/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the completion of a round and the return of rdzv_handler_next: the round's store is connected to, and rank 0
 * is found there. */
#include "handler_scene.h"

#include "proxy.h"

enum { AT_ONCE_MS = 3000 };

static bool await_end(struct node *node, int64_t timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += timeout_ms / 1000;
  return pthread_timedjoin_np(node->thread, NULL, &until) == 0;
}

/* ---- canceling ------------------------------------------------------------------------------------------------ */

/* Joins through a proxy that swallows the n-th piece on the connection of the round's store, and cancels then. False:
 * there are fewer pieces. */
static bool cancel_at_piece(struct scene *scene, int piece, bool as_rank_0) {
  const struct node_options options = {
      .max = as_rank_0 ? 1 : 2, .min = as_rank_0 ? 1 : 2, .conf = "is_host=0," SWAPPING};
  struct node *node = &scene->nodes[0], *other = &scene->nodes[1];
  const struct timespec moment = {0, 1000000};
  struct proxy proxy;
  proxy_start(&proxy, rdzv_server_port(scene->server));
  node_open(node, proxy.endpoint, "b", options);
  atomic_store(&proxy.swallow_from, piece);
  if (!as_rank_0) {
    node_open(other, scene->endpoint, "a", options);
    join_start(other);
  }
  join_start(node);
  while (atomic_load(&proxy.swallowed) == 0 && !await_end(node, 0)) nanosleep(&moment, NULL);
  const bool swallowed = atomic_load(&proxy.swallowed) > 0;
  if (swallowed) {
    const int64_t began = live_now_ms();
    rdzv_handler_cancel(node->handler);
    const bool ended = await_end(node, AT_ONCE_MS);
    if (!ended) { /* let it end, so that the test leaves nothing behind */
      rdzv_server_stop(scene->server);
      proxy_end(&proxy);
      fail_msg("piece %d: after %lld ms it had not ended", piece, (long long)(live_now_ms() - began));
    }
    assert_error(node->code, RDZV_E_CANCELED, &node->error, "cannot join the rendezvous: canceled");
    assert_null(node->result);
  } else {
    assert_code(node->code, 0);
  }
  if (!as_rank_0) {
    assert_code(join_end(other), 0);
    node_close(other);
  }
  node_close(node);
  proxy_end(&proxy);
  return swallowed;
}

/* A cancel ends the join wherever it is, and does not wait for the store. */
static void check_cancel(struct scene *scene, bool as_rank_0) {
  int piece = 1;
  while (cancel_at_piece(scene, piece, as_rank_0)) {
    piece++;
    node_close(&scene->watcher); /* a run of its own for each */
    rdzv_store_free(scene->raw);
    rdzv_server_free(scene->server);
    scene->server = serve();
    scene->endpoint = rdzv_server_address(scene->server);
    scene->raw = connect_to(scene->endpoint);
    node_open(&scene->watcher, scene->endpoint, "watcher", (struct node_options){0});
  }
  assert_true(piece > 2); /* the greeting, and what rank 0 says or the others ask */
}

static void test_a_cancel_ends_the_join_of_rank_0(void **state) { check_cancel(*state, true); }
static void test_a_cancel_ends_the_join_of_another(void **state) { check_cancel(*state, false); }

/* The store of a round that was joined is not canceled with the handler. */
static void test_the_store_of_a_round_outlives_a_cancel(void **state) {
  struct scene *scene = *state;
  struct node *node = &scene->nodes[0];
  open_and_join(node, 1, scene->endpoint, (struct node_options){0});
  rdzv_handler_cancel(node->handler);
  must_set(node->result->store, "k", "v");
  assert_get(node->result->store, "k", "v");
  rdzv_store *clone;
  rdzv_error error;
  assert_code(rdzv_store_clone(node->result->store, &clone, &error), 0);
  assert_get(clone, "k", "v");
  rdzv_store_free(clone);
}

/* ---- a rank 0 that goes as it publishes ----------------------------------------------------------------------- */

/* Three join, and what rank 0 wants to publish does not arrive. */
static void begin_without_an_address(struct scene *scene, struct proxy *proxy) {
  struct node *nodes = scene->nodes;
  const struct node_options options = {
      .min = 2, .max = 3, .conf = LIVELY "," SWAPPING ",is_host=0,read_timeout=2,last_call_timeout=0.1"};
  proxy_start(proxy, rdzv_server_port(scene->server));
  node_open(&nodes[0], proxy->endpoint, "a", options);
  atomic_store(&proxy->swallow_from, 2); /* the greeting is answered */
  for (int i = 1; i < 3; i++) node_open(&nodes[i], scene->endpoint, i == 1 ? "b" : "c", options);
  for (int i = 0; i < 3; i++) join_start(&nodes[i]);
  proxy_await_count(&proxy->swallowed, 1);
}

/* An earlier round of that number, of a run before, has left its keys in the store. */
static void leave_keys(struct scene *scene) {
  must_set(scene->raw, "torch.rendezvous.job.0/MASTER_ADDR", "192.0.2.9");
  must_set(scene->raw, "torch.rendezvous.job.0/MASTER_PORT", "9");
  must_set(scene->raw, "torch.rendezvous.job.0/rdzv/master", "a_1_0 192.0.2.9 9");
}

/* The others are in the next round, and know where its rank 0 is. */
static void check_the_others(struct scene *scene, int64_t began) {
  for (int i = 1; i < 3; i++) {
    struct node *node = &scene->nodes[i];
    if (join_end(node) < 0) fail_msg("%s", node->error.message);
    assert_true(node->result->round > 0);
    assert_int_equal(node->result->world_size, 2);
    assert_int_equal(node->result->rank, i - 1);
    assert_string_equal(node->result->master_addr, "b");
    assert_true(node->result->master_port > 0);
  }
  assert_int_equal(scene->nodes[1].result->master_port, scene->nodes[2].result->master_port);
  assert_within(began, 10000); /* the dead time, and the last call */
}

static void test_a_rank_0_that_falls_silent_begins_the_next_round(void **state) {
  struct scene *scene = *state;
  struct proxy proxy;
  begin_without_an_address(scene, &proxy);
  const int64_t began = live_now_ms();
  proxy_end(&proxy);
  check_the_others(scene, began);
  assert_true(join_end(&scene->nodes[0]) < 0);
}

static void test_a_rank_0_that_gives_up_begins_the_next_round(void **state) {
  struct scene *scene = *state;
  struct proxy proxy;
  begin_without_an_address(scene, &proxy);
  const int64_t began = live_now_ms();
  rdzv_handler_cancel(scene->nodes[0].handler);
  check_the_others(scene, began);
  assert_code(join_end(&scene->nodes[0]), RDZV_E_CANCELED);
  proxy_end(&proxy);
}

/* ---- keys of an earlier round --------------------------------------------------------------------------------- */

static void test_keys_of_an_earlier_round_are_not_taken_for_those_of_rank_0(void **state) {
  struct scene *scene = *state;
  struct proxy proxy;
  leave_keys(scene);
  begin_without_an_address(scene, &proxy);
  const int64_t began = live_now_ms();
  proxy_end(&proxy);
  check_the_others(scene, began);
  assert_true(join_end(&scene->nodes[0]) < 0);
}

/* A node of ours that is first in the order of nodes, and has joined. */
static void add_rank_0(struct rendezvous_state *state, const void *argument) {
  const struct node_desc node = {argument, 4711, 0};
  struct state_node *member;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  assert_code(state_insert(state, &node, &member, NULL), 0);
  state_set_kinds(state, member, NODE_PARTICIPANT);
  member->last_heartbeat = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
  member->ours = true;
}

/* Whatever the store can do, the node waits on behind the keys that are of another, and hears of those of rank 0. When
 * it has asked so often, it has seen the wrong keys and not taken them. */
static void check_waits_on(struct scene *scene, const char *conf, int asked) {
  struct node *node = &scene->nodes[0];
  struct proxy proxy;
  proxy_start_with(&proxy, rdzv_server_port(scene->server), "rdzv/master");
  leave_keys(scene);
  rewrite_state(scene->endpoint, "job", TORCH_NEWEST, add_rank_0, "0 first");
  node_open(node, proxy.endpoint, "a", (struct node_options){.min = 2, .max = 2, .conf = conf});
  join_start(node);
  proxy_await_count(&proxy.with_text, asked);
  const bool ended = pthread_tryjoin_np(node->thread, NULL) == 0;
  if (ended && node->result) fail_msg("it took %s:%d", node->result->master_addr, node->result->master_port);
  if (ended) fail_msg("%s", node->error.message);
  must_set(scene->raw, "torch.rendezvous.job.0/rdzv/master", "0 first_4711_0 192.0.2.7 29500");
  if (join_end(node) < 0) fail_msg("%s", node->error.message);
  assert_int_equal(node->result->rank, 1);
  assert_string_equal(node->result->master_addr, "192.0.2.7");
  assert_int_equal(node->result->master_port, 29500);
  node_close(node);
  proxy_end(&proxy);
}

static void test_the_keys_of_rank_0_are_waited_for(void **state) { check_waits_on(*state, "is_host=0," SWAPPING, 2); }
static void test_the_keys_of_rank_0_are_waited_for_in_v1(void **state) {
  check_waits_on(*state, "is_host=0,dialect=v1", 6);
}
static void test_the_keys_of_rank_0_are_waited_for_in_v2(void **state) {
  check_waits_on(*state, "is_host=0,dialect=v2", 6);
}

/* Where all are nodes of ours, each round has a port of its own. */
static void test_each_round_has_a_port_of_its_own(void **state) {
  struct scene *scene = *state;
  open_and_join(scene->nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2});
  const int first = scene->nodes[1].result->master_port;
  join_all(scene->nodes, 2);
  assert_int_equal(scene->nodes[1].result->round, 1);
  assert_int_not_equal(scene->nodes[1].result->master_port, first);
}

/* ---- what a round leaves in the store ------------------------------------------------------------------------- */

static bool has_address(struct scene *scene, int round, const char *name) {
  char key[64];
  bool there = false;
  snprintf(key, sizeof key, "torch.rendezvous.job.%d/%s", round, name);
  const rdzv_bytes keys[] = {rdzv_str(key)};
  assert_code(rdzv_store_check(scene->raw, keys, 1, &there, NULL), 0);
  return there;
}

static void assert_address(struct scene *scene, int round, bool expected) {
  assert_int_equal(has_address(scene, round, "MASTER_ADDR"), expected);
  assert_int_equal(has_address(scene, round, "MASTER_PORT"), expected);
  assert_int_equal(has_address(scene, round, "rdzv/master"), expected);
}

static void test_the_address_of_a_round_goes_with_the_next_round(void **state) {
  struct scene *scene = *state;
  open_and_join(scene->nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2, .conf = SWAPPING});
  assert_address(scene, 0, true);
  for (int round = 1; round <= 3; round++) {
    join_all(scene->nodes, 2);
    assert_int_equal(scene->nodes[0].result->round, round);
    assert_address(scene, round - 1, false);
    assert_address(scene, round, true);
  }
}

/* The next rank 0 removes it, if the one before is gone. */
static void test_the_address_of_a_rank_0_that_left_goes_with_the_next_round(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  const struct node_options options = {.min = 2, .max = 2, .conf = SWAPPING};
  open_and_join(nodes, 2, scene->endpoint, options);
  assert_int_equal(nodes[0].result->rank, 0);
  node_close(&nodes[0]);
  node_open(&nodes[2], scene->endpoint, "c", options);
  join_all(&nodes[1], 2);
  assert_int_equal(nodes[1].result->rank, 0);
  assert_address(scene, 0, false);
  assert_address(scene, 1, true);
}

static void add_torch(struct rendezvous_state *state, const void *argument) {
  const struct node_desc node = {"z", 4711, 0};
  add_rank_0(state, argument);
  state_find(state, &node)->ours = false;
}

static void remove_torch(struct rendezvous_state *state, const void *argument) {
  const struct node_desc node = {argument, 4711, 0};
  state_remove(state, state_find(state, &node));
}

/* A PyTorch node that waits for the address of its round does not hear that the round is over. */
static void test_the_address_of_a_round_with_a_torch_node_stays(void **state) {
  struct scene *scene = *state;
  struct node *node = &scene->nodes[0];
  rewrite_state(scene->endpoint, "job", TORCH_NEWEST, add_torch, "z");
  node_open(node, scene->endpoint, "a",
            (struct node_options){.min = 1, .max = 2, .conf = SWAPPING ",last_call_timeout=0.1"});
  join_all(node, 1);
  assert_int_equal(node->result->world_size, 2);
  assert_int_equal(node->result->rank, 0);
  rewrite_state(scene->endpoint, "job", TORCH_NEWEST, remove_torch, "z");
  join_all(node, 1);
  assert_int_equal(node->result->round, 1);
  assert_address(scene, 0, true);
  join_all(node, 1);
  assert_address(scene, 0, true);
  assert_address(scene, 1, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_a_cancel_ends_the_join_of_rank_0),
      IN_A_SCENE(test_a_cancel_ends_the_join_of_another),
      IN_A_SCENE(test_the_store_of_a_round_outlives_a_cancel),
      IN_A_SCENE(test_a_rank_0_that_falls_silent_begins_the_next_round),
      IN_A_SCENE(test_a_rank_0_that_gives_up_begins_the_next_round),
      IN_A_SCENE(test_keys_of_an_earlier_round_are_not_taken_for_those_of_rank_0),
      IN_A_SCENE(test_the_keys_of_rank_0_are_waited_for),
      IN_A_SCENE(test_the_keys_of_rank_0_are_waited_for_in_v1),
      IN_A_SCENE(test_the_keys_of_rank_0_are_waited_for_in_v2),
      IN_A_SCENE(test_each_round_has_a_port_of_its_own),
      IN_A_SCENE(test_the_address_of_a_round_goes_with_the_next_round),
      IN_A_SCENE(test_the_address_of_a_rank_0_that_left_goes_with_the_next_round),
      IN_A_SCENE(test_the_address_of_a_round_with_a_torch_node_stays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
