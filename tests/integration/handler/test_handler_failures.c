/* SPDX-License-Identifier: BSD-3-Clause */
/* The store is lost and comes back, holds what is no state, or is served by one of the nodes; rank 0 does not say where
 * it is; the store is a file. */
#include "handler_scene.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { AT_ONCE_MS = 2500 };

/* ---- a store that is gone for a while ------------------------------------------------------------------------- */

/* A server that comes back has forgotten everything: members hear that they are out, and begin again, with a number
 * that none of them has seen. */
static void test_members_of_a_store_that_was_lost_begin_anew(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 2, .conf = LIVELY});
  const int port = rdzv_server_port(scene->server);
  rdzv_server_free(scene->server);
  scene->server = serve_with((rdzv_server_options){0}, port);
  scene->endpoint = rdzv_server_address(scene->server);
  for (int i = 0; i < 2; i++) assert_true(await_change(&nodes[i], RDZV_CHANGE_EVICTED).what & RDZV_CHANGE_EVICTED);
  join_all(nodes, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(nodes[i].result->round, 1);
    assert_int_equal(nodes[i].result->rank, i);
    assert_int_equal(nodes[i].result->world_size, 2);
  }
}

/* Somebody deletes the state under a round, and one that knows of none is first to make another: the number is still
 * one that the members have not seen, and so are the keys of the round. */
static void test_a_state_that_is_deleted_does_not_begin_at_zero(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  rdzv_error error;
  open_and_join(nodes, 2, scene->endpoint, (struct node_options){.min = 2, .max = 3, .conf = "last_call_timeout=0.1"});
  const int64_t before = nodes[0].result->round;
  must_set(nodes[0].result->store, "key", "of the first");
  node_open(&nodes[2], scene->endpoint, "c", (struct node_options){.min = 3, .max = 3});
  assert_code(rdzv_store_delete_key(scene->raw, rdzv_str("torch.rendezvous.job"), NULL, &error), 0);
  join_start(&nodes[2]);
  for (int i = 0; i < 2; i++) assert_true(await_change(&nodes[i], RDZV_CHANGE_EVICTED).what & RDZV_CHANGE_EVICTED);
  await_counts(scene->watcher.handler, 1, 0, 0);
  join_start(&nodes[0]);
  join_start(&nodes[1]);
  for (int i = 0; i < 3; i++) {
    if (join_end(&nodes[i]) < 0) fail_msg("%s", nodes[i].error.message);
    assert_int_equal(nodes[i].result->round, before + 1);
    assert_int_equal(nodes[i].result->world_size, 3);
  }
  bool there = true;
  const rdzv_bytes key = rdzv_str("key");
  assert_code(rdzv_store_check(nodes[0].result->store, &key, 1, &there, &error), 0);
  assert_false(there);
}

/* A store that stays away for the dead time is an error for members, and nothing else is: the handler goes on when it
 * is back. */
static void test_a_store_that_stays_away_is_an_error_for_members(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  struct heard change;
  rdzv_error error;
  open_and_join(nodes, 1, scene->endpoint, (struct node_options){.conf = LIVELY ",read_timeout=0.5"});
  const int port = rdzv_server_port(scene->server);
  const int64_t began = live_now_ms();
  rdzv_server_free(scene->server);
  const int result = hear(nodes[0].handler, SOON_MS, &change, &error);
  const int64_t took = live_now_ms() - began;
  assert_true(result < 0 && result != RDZV_E_TIMEOUT && result != RDZV_E_CANCELED && result != RDZV_E_INVALID);
  assert_code(error.code, result);
  assert_non_null(strstr(error.message, "cannot stay in the round"));
  assert_true(took >= 800);
  assert_brief(took, 10000);
  scene->server = serve_with((rdzv_server_options){0}, port);
  scene->endpoint = rdzv_server_address(scene->server);
  join_all(nodes, 1);
  assert_int_equal(nodes[0].result->rank, 0);
}

/* Who joins while the store is away joins when it is there again. */
static void test_a_join_outlives_the_store(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  const struct node_options options = {.min = 2, .max = 2, .conf = "read_timeout=1"};
  for (int i = 0; i < 2; i++) node_open(&nodes[i], scene->endpoint, i ? "b" : "a", options);
  join_start(&nodes[0]);
  await_counts(scene->watcher.handler, 1, 0, 0);
  const int port = rdzv_server_port(scene->server);
  rdzv_server_free(scene->server);
  join_start(&nodes[1]);
  scene->server = serve_with((rdzv_server_options){0}, port);
  scene->endpoint = rdzv_server_address(scene->server);
  for (int i = 0; i < 2; i++) {
    if (join_end(&nodes[i]) < 0) fail_msg("%s", nodes[i].error.message);
    assert_int_equal(nodes[i].result->rank, i);
  }
}

/* ---- what is no state ----------------------------------------------------------------------------------------- */

/* Whatever is asked, it is told at once that what is in the store is corrupt, and where. */
static void check_corrupt(struct scene *scene, bool native) {
  static const char *const corrupt[] = {"no base64!", "gASVAAAAAAAAAAA="};
  node_open(&scene->nodes[0], scene->endpoint, "a", (struct node_options){.conf = native ? "mode=native" : SWAPPING});
  struct node *node = &scene->nodes[0];
  rdzv_status *status;
  rdzv_error error;
  bool closed;
  for (size_t i = 0; i < COUNT_OF(corrupt); i++) {
    must_set(scene->raw, "torch.rendezvous.job", corrupt[i]);
    node_join_run(node);
    assert_error(node->code, RDZV_E_CORRUPT, &node->error, "cannot join the rendezvous: the state of the rendezvous");
    assert_brief(node->took_ms, AT_ONCE_MS);
    assert_error(rdzv_handler_status(node->handler, 0, &status, &error), RDZV_E_CORRUPT, &error, "corrupt");
    assert_error(rdzv_handler_set_closed(node->handler, NULL, &error), RDZV_E_CORRUPT, &error, "cannot close");
    if (native) /* the server knows that there is nothing to leave */
      assert_code(rdzv_handler_leave(node->handler, &error), 0);
    else
      assert_error(rdzv_handler_leave(node->handler, &error), RDZV_E_CORRUPT, &error, "cannot leave");
    assert_code(rdzv_handler_is_closed(node->handler, &closed, &error), RDZV_E_CORRUPT);
  }
  rdzv_value value; /* nobody wrote over it */
  assert_code(rdzv_store_get(scene->raw, BYTES("torch.rendezvous.job"), &value, &error), 0);
  assert_string_equal(value.data, corrupt[1]);
  rdzv_value_free(&value);
  must_set(scene->raw, "torch.rendezvous.job", "Y2FuaW1hZGFt"); /* no state */
  join_all(node, 1);
}

static void test_a_state_that_is_corrupt_is_told(void **state) { check_corrupt(*state, false); }
static void test_a_state_that_is_corrupt_is_told_by_the_server(void **state) { check_corrupt(*state, true); }

static void set_round(struct rendezvous_state *state, const void *round) { state->round = *(const int64_t *)round; }

/* A number after which no other can come. */
static void test_a_round_that_cannot_be_is_told(void **state) {
  struct scene *scene = *state;
  static const char *const confs[] = {SWAPPING, "mode=native"};
  rewrite_state(scene->endpoint, "job", TORCH_NEWEST, set_round, &(int64_t){INT64_MAX});
  for (size_t i = 0; i < COUNT_OF(confs); i++) {
    struct node *node = &scene->nodes[i];
    node_open(node, scene->endpoint, i == 0 ? "a" : "b", (struct node_options){.conf = confs[i]});
    node_join_run(node);
    assert_error(node->code, RDZV_E_CORRUPT, &node->error, "9223372036854775807 is not a valid round number");
  }
}

/* A member of a round whose state was spoilt is told before the others would take it for dead. */
static void test_a_member_hears_that_the_state_is_spoilt(void **state) {
  struct scene *scene = *state;
  struct heard change;
  rdzv_error error;
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){.conf = LIVELY "," SWAPPING});
  must_set(scene->raw, "torch.rendezvous.job", "Zm9vYmFy");
  assert_error(hear(scene->nodes[0].handler, SOON_MS, &change, &error), RDZV_E_CORRUPT, &error, "corrupt");
}

/* While it has native nodes, nobody can spoil it: the server refuses the write. */
static void test_a_state_of_native_nodes_cannot_be_spoilt(void **state) {
  struct scene *scene = *state;
  struct heard change;
  rdzv_error error;
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){.conf = "mode=native"});
  assert_true(rdzv_store_set(scene->raw, BYTES("torch.rendezvous.job"), BYTES("Zm9vYmFy"), &error) < 0);
  assert_code(hear(scene->nodes[0].handler, 0, &change, &error), RDZV_E_TIMEOUT);
}

/* ---- rank 0 does not say where it is -------------------------------------------------------------------------- */

/* A PyTorch node that is first in the order of nodes, and has joined. */
static void add_stranger(struct rendezvous_state *state, const void *argument) {
  const struct node_desc node = {argument, 4711, 0};
  struct state_node *member;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  assert_code(state_insert(state, &node, &member, NULL), 0);
  state_set_kinds(state, member, NODE_PARTICIPANT);
  member->last_heartbeat = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void join_a_stranger(struct scene *scene, const char *conf) {
  rewrite_state(scene->endpoint, "job", TORCH_NEWEST, add_stranger, "0stranger");
  node_open(&scene->nodes[0], scene->endpoint, "a", (struct node_options){.min = 2, .max = 2, .conf = conf});
  join_start(&scene->nodes[0]);
  await_counts(scene->watcher.handler, 2, 0, 0);
}

/* It publishes as PyTorch does: then we know. */
static void test_the_address_of_a_stranger_is_read(void **state) {
  struct scene *scene = *state;
  join_a_stranger(scene, NULL);
  must_set(scene->raw, "torch.rendezvous.job.0/MASTER_ADDR", "192.0.2.7");
  must_set(scene->raw, "torch.rendezvous.job.0/MASTER_PORT", "29500");
  if (join_end(&scene->nodes[0]) < 0) fail_msg("%s", scene->nodes[0].error.message);
  assert_int_equal(scene->nodes[0].result->rank, 1);
  assert_string_equal(scene->nodes[0].result->master_addr, "192.0.2.7");
  assert_int_equal(scene->nodes[0].result->master_port, 29500);
}

/* It publishes nonsense: that is told, and the node is taken out again. */
static void test_an_address_that_is_none_is_told(void **state) {
  struct scene *scene = *state;
  join_a_stranger(scene, NULL);
  must_set(scene->raw, "torch.rendezvous.job.0/MASTER_ADDR", "192.0.2.7");
  must_set(scene->raw, "torch.rendezvous.job.0/MASTER_PORT", "29500x");
  assert_error(join_end(&scene->nodes[0]), RDZV_E_CORRUPT, &scene->nodes[0].error, "'29500x'");
  await_counts(scene->watcher.handler, 1, 0, 0);
}

/* It leaves before it has said so: the join does not wait for it any longer. */
static void test_a_stranger_that_leaves_is_not_waited_for(void **state) {
  struct scene *scene = *state;
  join_a_stranger(scene, NULL);
  rewrite_state(scene->endpoint, "job", TORCH_NEWEST, take_out, "0stranger_4711_0");
  const int64_t began = live_now_ms();
  join_end(&scene->nodes[0]);
  assert_within(began, AT_ONCE_MS);
  if (scene->nodes[0].code == 0) {
    assert_string_equal(scene->nodes[0].result->master_addr, "");
    assert_int_equal(scene->nodes[0].result->master_port, 0);
    assert_true(await_change(&scene->nodes[0], RDZV_CHANGE_LEFT).what & RDZV_CHANGE_LEFT);
  }
}

/* It never does, and the user has had enough: a cancel ends the join here, too. */
static void test_a_cancel_ends_the_wait_for_the_address(void **state) {
  struct scene *scene = *state;
  join_a_stranger(scene, NULL);
  const int64_t began = live_now_ms();
  rdzv_handler_cancel(scene->nodes[0].handler);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 3;
  const bool ended = pthread_timedjoin_np(scene->nodes[0].thread, NULL, &until) == 0;
  if (!ended) { /* let it end, so that the test leaves nothing behind */
    must_set(scene->raw, "torch.rendezvous.job.0/MASTER_ADDR", "x");
    must_set(scene->raw, "torch.rendezvous.job.0/MASTER_PORT", "1");
    join_end(&scene->nodes[0]);
    fail_msg("after %lld ms it had not ended", (long long)(live_now_ms() - began));
  }
  assert_code(scene->nodes[0].code, RDZV_E_CANCELED);
  await_counts(scene->watcher.handler, 1, 0, 0);
}

/* ---- who serves the store ------------------------------------------------------------------------------------- */

/* On one machine the first of two serves, and the second finds it there; nobody said who is who. */
static void test_the_first_serves_and_the_second_is_a_client(void **state) {
  (void)state;
  struct node nodes[2];
  char endpoint[64], expected[200];
  int port;
  close(peer_listen(1, &port));
  snprintf(endpoint, sizeof endpoint, "localhost:%d", port);
  for (int i = 0; i < 2; i++)
    node_open(&nodes[i], endpoint, i ? "b" : "a", (struct node_options){.min = 2, .max = 2, .conf = LIVELY});
  snprintf(expected, sizeof expected, "c10d tcp 127.0.0.1:%d (rdzv), served by this process", port);
  assert_string_equal(rdzv_handler_describe(nodes[0].handler), expected);
  assert_null(strstr(rdzv_handler_describe(nodes[1].handler), "served by this process"));
  join_all(nodes, 2);
  assert_int_equal(nodes[0].result->rank, 0);
  assert_int_equal(nodes[1].result->rank, 1);
  node_close(&nodes[0]); /* the store is gone with it */
  struct heard change;
  rdzv_error error;
  const int result = hear(nodes[1].handler, SOON_MS, &change, &error);
  assert_true(result < 0 && result != RDZV_E_TIMEOUT);
  node_close(&nodes[1]);
}

/* Who is told to serve must: a port that is taken is an error. Who is told not to finds nobody, and says so in time. */
static void test_who_is_told_to_serve_must(void **state) {
  struct scene *scene = *state;
  struct node node;
  rdzv_error error;
  char endpoint[32];
  int port;
  assert_error(node_try_open(&node, scene->endpoint, "a", (struct node_options){.conf = "is_host=true"}, &error),
               RDZV_E_IN_USE, &error, "cannot serve the store of the rendezvous");
  close(peer_listen(1, &port));
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
  const int64_t began = live_now_ms();
  const int result =
      node_try_open(&node, endpoint, "a", (struct node_options){.conf = "is_host=false,read_timeout=0.3"}, &error);
  assert_true(result == RDZV_E_CONNECTION || result == RDZV_E_TIMEOUT);
  assert_non_null(strstr(error.message, "cannot open rendezvous 'job': not within read_timeout (0.3 s): cannot reach"));
  assert_non_null(strstr(error.message, endpoint));
  assert_within(began, AT_ONCE_MS);
}

/* A store that a run serves is for that run: a node of another is refused at once, by the names of both. Clients that
 * belong to none are served. */
static void test_a_run_that_serves_refuses_another(void **state) {
  (void)state;
  char endpoint[64];
  int port;
  struct node nodes[2], other;
  rdzv_error error;
  close(peer_listen(1, &port));
  snprintf(endpoint, sizeof endpoint, "localhost:%d", port);
  node_open(&nodes[0], endpoint, "a", (struct node_options){.min = 2, .max = 2, .run_id = "one"});
  static const char *const confs[] = {"", "is_host=0", "rank=1"};
  for (size_t i = 0; i < COUNT_OF(confs); i++) {
    const int64_t began = live_now_ms();
    const struct node_options options = {
        .max = 2, .run_id = "two", .conf = confs[i], .backend = i == 2 ? "static" : NULL};
    int result = node_try_open(&other, endpoint, "b", options, &error);
    if (result == 0) { /* a static one connects when it joins */
      node_join_run(&other);
      result = other.code;
      error = other.error;
      node_close(&other);
    }
    assert_error(result, RDZV_E_STALE, &error, "this store serves run 'one', not 'two' (give each job its own port");
    assert_within(began, AT_ONCE_MS);
  }
  rdzv_store *store = connect_to(endpoint);
  must_set(store, "k", "v");
  rdzv_store_free(store);
  store = connect_with(endpoint, (rdzv_tcp_options){.dialect = RDZV_DIALECT_V2});
  assert_get(store, "k", "v");
  rdzv_store_free(store);
  node_open(&nodes[1], endpoint, "b", (struct node_options){.min = 2, .max = 2, .run_id = "one"});
  join_all(nodes, 2);
  close_all(nodes, 2);
}

/* A server that is nobody's serves all runs. */
static void test_a_server_of_no_run_serves_all(void **state) {
  struct scene *scene = *state;
  for (int i = 0; i < 3; i++)
    node_open(&scene->nodes[i], scene->endpoint, "a", (struct node_options){.run_id = (char[]){(char)('x' + i), '\0'}});
  join_all(scene->nodes, 3);
}

/* Success leaves the error alone, also where the way there was to find the port taken. */
static void test_success_leaves_the_error_alone(void **state) {
  struct scene *scene = *state;
  char endpoint[32];
  rdzv_error error, untouched;
  memset(&untouched, 'x', sizeof untouched);
  error = untouched;
  struct node *node = &scene->nodes[0];
  snprintf(endpoint, sizeof endpoint, "localhost:%d", rdzv_server_port(scene->server));
  assert_code(node_try_open(node, endpoint, "a", (struct node_options){0}, &error), 0);
  assert_null(strstr(rdzv_handler_describe(node->handler), "served by this process"));
  assert_code(rdzv_handler_next(node->handler, &node->result, &error), 0);
  assert_code(rdzv_handler_leave(node->handler, &error), 0);
  assert_memory_equal(&error, &untouched, sizeof error);
}

static void note_client(void *user, rdzv_log_level level, const char *line) {
  (void)level;
  if (strstr(line, "is a client")) atomic_store((atomic_bool *)user, true);
}

/* Opens a node that is to serve with ever more descriptors: until it can, the error says what is missing, and it never
 * becomes a client of nobody instead. 0: as it should be. */
static int open_with_few_descriptors(const char *endpoint) {
  atomic_bool client = false;
  struct node_options options = {.log = &(rdzv_log){sizeof(rdzv_log), note_client, &client, RDZV_LOG_DEBUG},
                                 .conf = "read_timeout=1"};
  const int lowest = dup(0);
  close(lowest);
  for (int more = 0; more < 64; more++) {
    struct node node;
    rdzv_error error;
    const struct rlimit limit = {(rlim_t)(lowest + more), (rlim_t)(lowest + more)};
    if (fork() == 0) {
      if (setrlimit(RLIMIT_NOFILE, &limit) < 0) _exit(2);
      if (node_try_open(&node, endpoint, "a", options, &error) == 0) _exit(0);
      const bool serves = error.code == RDZV_E_CONNECTION; /* but cannot accept us */
      if (!atomic_load(&client) && (serves || strcasestr(error.message, "too many open files"))) _exit(1);
      fprintf(stderr, "%d descriptors: %s\n", more, error.message);
      _exit(3);
    }
    int status;
    if (wait(&status) < 0 || !WIFEXITED(status)) return 5;
    if (WEXITSTATUS(status) != 1) return WEXITSTATUS(status);
  }
  return 6;
}

static void test_a_host_without_descriptors_says_so(void **state) {
  (void)state;
  char endpoint[32];
  int port;
  close(peer_listen(1, &port));
  snprintf(endpoint, sizeof endpoint, "localhost:%d", port);
  assert_int_equal(open_with_few_descriptors(endpoint), 0);
}

/* ---- a system that refuses ------------------------------------------------------------------------------------ */

struct waiter {
  rdzv_handler *handler;
  int code;
  rdzv_error error;
};

static void *wait_run(void *arg) {
  struct waiter *waiter = arg;
  struct heard change;
  waiter->code = hear(waiter->handler, 200, &change, &waiter->error);
  return NULL;
}

/* poll(2) refuses more descriptors than the limit allows: waiting for changes, and for a descriptor of the caller's,
 * fails, and does not try for ever. */
static void test_a_wait_that_the_system_refuses_ends(void **state) {
  struct scene *scene = *state;
  struct rlimit before, none;
  struct timespec until;
  pthread_t thread;
  const int cancel_fd = eventfd(0, EFD_CLOEXEC);
  open_and_join(scene->nodes, 1, scene->endpoint, (struct node_options){.cancel_fd = cancel_fd});
  struct waiter waiter = {.handler = scene->nodes[0].handler};
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = (struct rlimit){0, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int started = pthread_create(&thread, NULL, wait_run, &waiter);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 5;
  const bool ended = started == 0 && pthread_timedjoin_np(thread, NULL, &until) == 0;
  setrlimit(RLIMIT_NOFILE, &before);
  if (started == 0 && !ended) pthread_join(thread, NULL);
  assert_true(ended);
  assert_error(waiter.code, RDZV_E_IO, &waiter.error, "cannot hear of changes of the round: waiting failed: ");
  node_close(&scene->nodes[0]);
  close(cancel_fd);
}

/* ---- a file ---------------------------------------------------------------------------------------------------- */

/* A file is a store as well: changes are found by looking. */
static void test_a_rendezvous_in_a_file(void **state) {
  (void)state;
  struct node nodes[2];
  rdzv_error error;
  char path[] = "/tmp/rdzv-test-XXXXXX";
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  open_and_join(nodes, 2, path, (struct node_options){.min = 2, .max = 2, .conf = "store_type=file," LIVELY});
  assert_non_null(strstr(rdzv_handler_describe(nodes[0].handler), path));
  for (int i = 0; i < 2; i++) {
    assert_int_equal(nodes[i].result->rank, i);
    assert_string_equal(nodes[i].result->master_addr, "a");
  }
  must_set(nodes[0].result->store, "k", "v");
  assert_get(nodes[1].result->store, "k", "v");
  assert_code(rdzv_handler_leave(nodes[0].handler, &error), 0);
  assert_string_equal(await_change(&nodes[1], RDZV_CHANGE_LEFT).who, rdzv_handler_node(nodes[0].handler));
  assert_code(rdzv_handler_set_closed(nodes[1].handler, "all read", &error), 0);
  node_join_run(&nodes[0]);
  assert_error(nodes[0].code, RDZV_E_CLOSED, &nodes[0].error, "all read");
  close_all(nodes, 2);
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_members_of_a_store_that_was_lost_begin_anew),
      IN_A_SCENE(test_a_state_that_is_deleted_does_not_begin_at_zero),
      IN_A_SCENE(test_a_store_that_stays_away_is_an_error_for_members),
      IN_A_SCENE(test_a_join_outlives_the_store),
      IN_A_SCENE(test_a_state_that_is_corrupt_is_told),
      IN_A_SCENE(test_a_round_that_cannot_be_is_told),
      IN_A_SCENE(test_a_state_that_is_corrupt_is_told_by_the_server),
      IN_A_SCENE(test_a_member_hears_that_the_state_is_spoilt),
      IN_A_SCENE(test_a_state_of_native_nodes_cannot_be_spoilt),
      IN_A_SCENE(test_the_address_of_a_stranger_is_read),
      IN_A_SCENE(test_an_address_that_is_none_is_told),
      IN_A_SCENE(test_a_stranger_that_leaves_is_not_waited_for),
      IN_A_SCENE(test_a_cancel_ends_the_wait_for_the_address),
      cmocka_unit_test(test_the_first_serves_and_the_second_is_a_client),
      IN_A_SCENE(test_who_is_told_to_serve_must),
      cmocka_unit_test(test_a_run_that_serves_refuses_another),
      IN_A_SCENE(test_a_server_of_no_run_serves_all),
      IN_A_SCENE(test_a_wait_that_the_system_refuses_ends),
      IN_A_SCENE(test_success_leaves_the_error_alone),
      cmocka_unit_test(test_a_host_without_descriptors_says_so),
      cmocka_unit_test(test_a_rendezvous_in_a_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
