/* SPDX-License-Identifier: BSD-3-Clause */
/* A tcp store whose connection is lost, or whose server is silent, stopped or another one than before. */
#include "proxy.h"

/* A server, a relay in front of it, a store through the relay and one that goes straight. */
struct scene {
  rdzv_server *server;
  struct proxy proxy;
  rdzv_store *store, *straight;
};

static int setup(void **state) {
  struct scene *scene = calloc(1, sizeof *scene);
  if (!scene) return -1;
  scene->server = serve();
  proxy_start(&scene->proxy, rdzv_server_port(scene->server));
  scene->store = connect_to(scene->proxy.endpoint);
  scene->straight = store_of(scene->server);
  *state = scene;
  return 0;
}

static int teardown(void **state) {
  struct scene *scene = *state;
  rdzv_store_free(scene->store);
  rdzv_store_free(scene->straight);
  proxy_end(&scene->proxy);
  rdzv_server_free(scene->server);
  free(scene);
  return 0;
}

/* ---- operations that are harmless to repeat ---------------------------------------------------------------- */

static int call_set(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_set(store, BYTES("new"), BYTES("v"), error);
}

static int call_get(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  const int result = rdzv_store_get(store, BYTES("k"), &value, error);
  if (result == 0) {
    assert_bytes(rdzv_value_bytes(&value), "1");
    rdzv_value_free(&value);
  }
  return result;
}

static int call_check(rdzv_store *store, rdzv_error *error) {
  const rdzv_bytes key = BYTES("k");
  bool all = false;
  const int result = rdzv_store_check(store, &key, 1, &all, error);
  assert_true(result < 0 || all);
  return result;
}

static int call_wait(rdzv_store *store, rdzv_error *error) {
  const rdzv_bytes key = BYTES("k");
  return rdzv_store_wait(store, &key, 1, SOON_MS, error);
}

static int call_num_keys(rdzv_store *store, rdzv_error *error) {
  int64_t count;
  return rdzv_store_num_keys(store, &count, error);
}

static int call_multi_get(rdzv_store *store, rdzv_error *error) {
  const rdzv_bytes keys[] = {BYTES("k"), BYTES("k")};
  rdzv_value *values;
  const int result = rdzv_store_multi_get(store, keys, 2, &values, error);
  if (result == 0) rdzv_values_free(values, 2);
  return result;
}

static int call_multi_set(rdzv_store *store, rdzv_error *error) {
  const rdzv_bytes keys[] = {BYTES("m"), BYTES("o")}, values[] = {BYTES("1"), BYTES("2")};
  return rdzv_store_multi_set(store, keys, values, 2, error);
}

static int call_list_keys(rdzv_store *store, rdzv_error *error) {
  rdzv_value *keys;
  size_t count;
  const int result = rdzv_store_list_keys(store, &keys, &count, error);
  if (result == 0) rdzv_values_free(keys, count);
  return result;
}

static int call_queue_len(rdzv_store *store, rdzv_error *error) {
  int64_t len;
  return rdzv_store_queue_len(store, BYTES("q"), &len, error);
}

static int call_get_version(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  uint64_t version;
  const int result = rdzv_store_get_version(store, BYTES("k"), &value, &version, error);
  if (result == 0) rdzv_value_free(&value);
  return result;
}

static int call_wait_changed(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  uint64_t version;
  const int result = rdzv_store_wait_changed(store, BYTES("k"), 0, SOON_MS, &value, &version, error);
  if (result == 0) rdzv_value_free(&value);
  return result;
}

typedef int call(rdzv_store *store, rdzv_error *error);

static call *const repeatable[] = {call_get,       call_check,     call_wait,        call_num_keys,    call_multi_get,
                                   call_list_keys, call_queue_len, call_get_version, call_wait_changed};

/* What is harmless to do twice is done again by itself when the connection is lost, whichever way went. */
static void test_what_is_harmless_is_repeated_by_itself(void **state) {
  struct scene *scene = *state;
  rdzv_error error = {0};
  must_set(scene->straight, "k", "1");
  for (size_t i = 0; i < COUNT_OF(repeatable); i++)
    for (int cut = CUT_REQUEST; cut <= CUT_ANSWER; cut++) {
      const int connections = atomic_load(&scene->proxy.accepted);
      atomic_store(&scene->proxy.cut, cut);
      if (repeatable[i](scene->store, &error) < 0) fail_msg("operation %zu, cut %d: %s", i, cut, error.message);
      assert_int_equal(atomic_load(&scene->proxy.cut), CUT_NOTHING);
      assert_int_equal(atomic_load(&scene->proxy.accepted), connections + 1);
    }
}

/* ---- operations that are not ------------------------------------------------------------------------------- */

static int call_add(rdzv_store *store, rdzv_error *error) {
  int64_t sum = 77;
  const int result = rdzv_store_add(store, BYTES("n"), 1, &sum, error);
  assert_true(result == 0 || sum == 77);
  return result;
}

static int call_append(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_append(store, BYTES("text"), BYTES("x"), error);
}

static int call_compare_set(rdzv_store *store, rdzv_error *error) {
  rdzv_value now;
  const int result = rdzv_store_compare_set(store, BYTES("c"), BYTES(""), BYTES("d"), &now, error);
  if (result == 0) rdzv_value_free(&now);
  return result;
}

static int call_delete_key(rdzv_store *store, rdzv_error *error) {
  bool deleted;
  return rdzv_store_delete_key(store, BYTES("gone"), &deleted, error);
}

static int call_queue_push(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_queue_push(store, BYTES("queue"), BYTES("item"), error);
}

static int call_queue_pop(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  const int result = rdzv_store_queue_pop(store, BYTES("full"), true, &value, error);
  if (result == 0) rdzv_value_free(&value);
  return result;
}

static int call_compare_set_version(rdzv_store *store, rdzv_error *error) {
  rdzv_value now;
  uint64_t version;
  bool swapped;
  const int result = rdzv_store_compare_set_version(store, BYTES("v"), 0, BYTES("d"), &swapped, &now, &version, error);
  if (result == 0) rdzv_value_free(&now);
  return result;
}

static call *const once[] = {call_set,        call_multi_set,   call_add,
                             call_append,     call_compare_set, call_delete_key,
                             call_queue_push, call_queue_pop,   call_compare_set_version};

/* What must not be done twice is not: it is done once, whether the request or the answer was lost, and also where that
 * happens several times in a row. */
static void test_what_is_not_harmless_is_done_once(void **state) {
  struct scene *scene = *state;
  rdzv_error error = {0};
  must_set(scene->straight, "gone", "x");
  for (size_t i = 0; i < COUNT_OF(once); i++)
    for (int cut = CUT_REQUEST; cut <= CUT_ANSWER; cut++) {
      assert_code(rdzv_store_queue_push(scene->straight, BYTES("full"), BYTES("item"), &error), 0);
      const int connections = atomic_load(&scene->proxy.accepted);
      atomic_store(&scene->proxy.cut, cut);
      if (once[i](scene->store, &error) < 0) fail_msg("operation %zu, cut %d: %s", i, cut, error.message);
      assert_int_equal(atomic_load(&scene->proxy.cut), CUT_NOTHING);
      assert_int_equal(atomic_load(&scene->proxy.accepted), connections + 1); /* and no further one */
    }
  int64_t items;
  assert_int_equal(must_add(scene->straight, "n", 0), 2);
  assert_get(scene->straight, "text", "xx");
  assert_code(rdzv_store_queue_len(scene->straight, BYTES("queue"), &items, &error), 0);
  assert_int_equal(items, 2);
  assert_code(rdzv_store_queue_len(scene->straight, BYTES("full"), &items, &error), 0);
  assert_int_equal(items, 2 * (int)COUNT_OF(once) - 2);
}

static void post_when_closed(void *user, rdzv_log_level level, const char *line) {
  (void)level;
  if (strstr(line, "closing the connection")) sem_post(user);
}

/* A connection that was closed while nothing was under way is found out before an add is sent: no doubt arises. */
static void test_a_connection_that_was_closed_in_peace_costs_nothing(void **state) {
  (void)state;
  sem_t closed;
  sem_init(&closed, 0, 0);
  const rdzv_server_options options = {
      .idle_timeout_ms = 50, .log = &(rdzv_log){sizeof(rdzv_log), post_when_closed, &closed, RDZV_LOG_WARNING}};
  rdzv_server *server = serve_with(options, RDZV_ANY_PORT);
  rdzv_store *store = store_of(server);
  for (int i = 1; i <= 3; i++) {
    assert_int_equal(must_add(store, "n", 1), i);
    await_sem(&closed);
    rdzv_store_free(store_of(server)); /* the server is done with what it said it was doing */
  }
  rdzv_store_free(store);
  rdzv_server_free(server);
  sem_destroy(&closed);
}

/* ---- servers that always fail ------------------------------------------------------------------------------ */

static void greet_read_and_close(struct peer *peer) {
  char request[64];
  while (sem_trywait(&peer->go_on) < 0) {
    if (poll(&(struct pollfd){.fd = peer->listener, .events = POLLIN}, 1, 10) <= 0) continue;
    const int fd = peer_accept(peer);
    peer_greet(fd, 7);
    SCRIPT_CHECK(await_readable(fd) && recv(fd, request, sizeof request, 0) >= 0);
    close(fd);
    sem_post(&peer->reached);
  }
}

/* A server that closes on every request is given up after some tries, with what happened. */
static void test_a_server_that_always_closes_is_given_up(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, greet_read_and_close, NULL);
  rdzv_store *store = connect_to(peer.endpoint);
  rdzv_error error;
  rdzv_value value;
  assert_error(rdzv_store_get(store, BYTES("k"), &value, &error), RDZV_E_CONNECTION, &error, "'k'");
  int tries;
  sem_getvalue(&peer.reached, &tries);
  assert_in_range((unsigned)tries, 2, 10);
  rdzv_store_free(store);
  sem_post(&peer.go_on);
  peer_end(&peer);
}

static void greet_and_say_nothing(struct peer *peer) {
  char rest[4096];
  int fds[64], count = 0;
  while (sem_trywait(&peer->go_on) < 0) {
    if (poll(&(struct pollfd){.fd = peer->listener, .events = POLLIN}, 1, 10) <= 0) continue;
    SCRIPT_CHECK(count < 64);
    fds[count] = peer_accept(peer);
    peer_greet(fds[count++], 7);
  }
  for (int i = 0; i < count; i++) {
    while (recv(fds[i], rest, sizeof rest, MSG_DONTWAIT) > 0) continue;
    close(fds[i]);
  }
}

/* How long a call lasts whose timeout is `timeout_ms`, when the server takes requests and says nothing. */
static int64_t time_silence(call *what, int64_t timeout_ms, int *result, rdzv_error *error) {
  struct peer peer;
  peer_start(&peer, greet_and_say_nothing, NULL);
  rdzv_store *store = connect_with(peer.endpoint, (rdzv_tcp_options){.timeout_ms = timeout_ms});
  const int64_t began = live_now_ms();
  *result = what(store, error);
  const int64_t lasted = live_now_ms() - began;
  rdzv_store_free(store);
  sem_post(&peer.go_on);
  peer_end(&peer);
  return lasted;
}

enum { SHORT_MS = 500, GRACE_MS = 3000 };

/* A request that needs no waiting and gets no answer is an error when the timeout has passed. */
static void test_a_silent_server_is_an_error_within_the_timeout(void **state) {
  (void)state;
  int result;
  rdzv_error error;
  const int64_t lasted = time_silence(call_queue_len, SHORT_MS, &result, &error);
  assert_error(result, RDZV_E_CONNECTION, &error, "'q'");
  assert_true(lasted >= SHORT_MS - 10);
  assert_brief(lasted, SHORT_MS + GRACE_MS);
}

static int call_queue_len_in_a_hurry(rdzv_store *store, rdzv_error *error) {
  rdzv_store *view;
  int64_t len;
  assert_code(rdzv_store_open_prefix(store, BYTES("p"), &view, error), 0);
  assert_error(rdzv_store_set_request_timeout(view, -1, error), RDZV_E_INVALID, error, "-1 ms");
  assert_code(rdzv_store_set_request_timeout(view, SHORT_MS, error), 0);
  const int result = rdzv_store_queue_len(view, BYTES("q"), &len, error);
  rdzv_store_free(view);
  return result;
}

/* A limit for requests holds for the store below a view, where that was opened with more patience. */
static void test_a_request_timeout_is_shorter_than_the_timeout(void **state) {
  (void)state;
  int result;
  rdzv_error error;
  const int64_t lasted = time_silence(call_queue_len_in_a_hurry, 10 * SOON_MS, &result, &error);
  assert_error(result, RDZV_E_CONNECTION, &error, "'p/q'");
  assert_true(lasted >= SHORT_MS - 10);
  assert_brief(lasted, SHORT_MS + GRACE_MS);
}

static int call_with_a_limit(rdzv_store *store, rdzv_error *error) {
  int64_t len;
  rdzv_store_limit_calls(SHORT_MS);
  const int result = rdzv_store_queue_len(store, BYTES("q"), &len, error);
  rdzv_store_limit_calls(-1);
  return result;
}

static int call_get_with_a_limit(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  rdzv_store_limit_calls(SHORT_MS);
  const int result = rdzv_store_get(store, BYTES("q"), &value, error);
  rdzv_store_limit_calls(-1);
  return result;
}

/* A limit of the thread holds for requests and for waits. */
static void test_a_limit_of_the_thread_is_shorter_than_the_timeout(void **state) {
  (void)state;
  int result;
  rdzv_error error;
  int64_t lasted = time_silence(call_with_a_limit, 10 * SOON_MS, &result, &error);
  assert_error(result, RDZV_E_CONNECTION, &error, "'q'");
  assert_true(lasted >= SHORT_MS - 10);
  assert_brief(lasted, SHORT_MS + GRACE_MS);
  lasted = time_silence(call_get_with_a_limit, 10 * SOON_MS, &result, &error);
  assert_error(result, RDZV_E_TIMEOUT, &error, "'q'");
  assert_brief(lasted, SHORT_MS + GRACE_MS);
}

/* A server of ours without sessions: where it must not be repeated, the outcome is unknown. */
static void test_a_write_that_gets_no_answer_is_of_unknown_outcome(void **state) {
  (void)state;
  int result;
  rdzv_error error;
  call *const some[] = {call_set, call_add, call_queue_pop};
  for (size_t i = 0; i < COUNT_OF(some); i++) {
    const int64_t lasted = time_silence(some[i], SHORT_MS, &result, &error);
    assert_error(result, RDZV_E_OUTCOME_UNKNOWN, &error, "no answer in");
    assert_true(lasted >= SHORT_MS - 10);
    assert_brief(lasted, SHORT_MS + GRACE_MS);
  }
}

/* A wait at a server that does not even answer that it gives the wait up lasts no more than the timeout, and a moment
 * for that answer. */
static void test_a_wait_at_a_silent_server_ends_within_the_timeout(void **state) {
  (void)state;
  int result;
  rdzv_error error;
  const int64_t lasted = time_silence(call_get, SHORT_MS, &result, &error);
  assert_true(result == RDZV_E_TIMEOUT || result == RDZV_E_CONNECTION);
  assert_code(error.code, result);
  assert_true(lasted >= SHORT_MS - 10);
  assert_brief(lasted, SHORT_MS + GRACE_MS);
}

static void take_and_say_nothing(struct peer *peer) {
  int fds[64], count = 0;
  while (sem_trywait(&peer->go_on) < 0) {
    if (poll(&(struct pollfd){.fd = peer->listener, .events = POLLIN}, 1, 10) <= 0) continue;
    SCRIPT_CHECK(count < 64);
    fds[count++] = peer_accept(peer);
  }
  for (int i = 0; i < count; i++) close(fds[i]);
}

/* A server that does not greet, and one that is not there, are errors within the timeout too. */
static void test_opening_ends_within_the_timeout(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, take_and_say_nothing, NULL);
  const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = SHORT_MS};
  rdzv_store *store = NULL;
  rdzv_error error;
  int64_t began = live_now_ms();
  assert_error(rdzv_store_open_tcp(peer.endpoint, &options, &store, &error), RDZV_E_CONNECTION, &error,
               "accepts connections, but does not answer");
  assert_true(live_now_ms() - began >= SHORT_MS - 10);
  assert_within(began, SHORT_MS + GRACE_MS);
  sem_post(&peer.go_on);
  peer_end(&peer);
  began = live_now_ms();
  assert_error(rdzv_store_open_tcp(peer.endpoint, &options, &store, &error), RDZV_E_CONNECTION, &error, "refused");
  assert_non_null(strstr(error.message, peer.endpoint));
  assert_within(began, SHORT_MS + GRACE_MS);
  assert_null(store);
}

static void answer_with_text(struct peer *peer) {
  const int fd = peer_accept(peer);
  peer_write(fd, "SSH-2.0-OpenSSH_9.2\r\n", 21);
  peer_close_after_client(fd);
}

/* A server of another kind is no matter of trying again. */
static void test_a_server_of_another_kind_is_told_at_once(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, answer_with_text, NULL);
  const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = 10 * SOON_MS};
  rdzv_store *store;
  rdzv_error error;
  assert_error(rdzv_store_open_tcp(peer.endpoint, &options, &store, &error), RDZV_E_PROTOCOL, &error, peer.endpoint);
  peer_end(&peer);
}

/* ---- another server than before ---------------------------------------------------------------------------- */

/* A server that was restarted on the same port has forgotten everything: the first call says so and does nothing, the
 * next goes on with the new one. */
static void test_a_restarted_server_is_told_once(void **state) {
  (void)state;
  rdzv_server *server = serve();
  const int port = rdzv_server_port(server);
  rdzv_store *store = store_of(server), *clone;
  rdzv_error error;
  int64_t sum;
  must_set(store, "k", "v");
  assert_code(rdzv_store_clone(store, &clone, &error), 0);
  for (int round = 0; round < 3; round++) {
    rdzv_server_free(server);
    server = serve_with((rdzv_server_options){0}, port);
    assert_error(rdzv_store_add(store, BYTES("n"), 1, &sum, &error), RDZV_E_DATA_LOST, &error, "restarted");
    assert_int_equal(must_add(store, "n", 1), 1);
    assert_error(rdzv_store_set(clone, BYTES("x"), BYTES("y"), &error), RDZV_E_DATA_LOST, &error, "restarted");
    assert_get(clone, "n", "1");
  }
  rdzv_store_free(clone);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

struct waiter {
  rdzv_store *store;
  int result;
  rdzv_error error;
  pthread_t thread;
};

static void *wait_for_never(void *arg) {
  struct waiter *waiter = arg;
  const rdzv_bytes key = BYTES("never");
  waiter->result = rdzv_store_wait(waiter->store, &key, 1, 10 * SOON_MS, &waiter->error);
  return NULL;
}

/* A wait that outlives its server is told that the data is lost, not left waiting at the new one. */
static void test_a_wait_that_outlives_its_server_is_told(void **state) {
  struct scene *scene = *state;
  rdzv_server *other = serve();
  struct waiter waiter = {.store = scene->store};
  assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_never, &waiter), 0);
  /* the relay now leads to another server, and the next bytes cut the connection: those of a first server that ends
   * without a word */
  atomic_store(&scene->proxy.server_port, rdzv_server_port(other));
  atomic_store(&scene->proxy.cut, CUT_ANSWER);
  rdzv_store_free(scene->straight);
  rdzv_server_free(scene->server);
  pthread_join(waiter.thread, NULL);
  assert_error(waiter.result, RDZV_E_DATA_LOST, &waiter.error, "'never'");
  scene->server = other;
  scene->straight = store_of(other);
}

/* A greeting that is lost is no sign of an old PyTorch server: the dialect is still ours, and nothing was lost. */
static void test_a_greeting_that_is_lost_does_not_change_the_dialect(void **state) {
  struct scene *scene = *state;
  rdzv_error error;
  int64_t sum;
  must_set(scene->store, "k", "v");
  for (int i = 0; i < 3; i++) {
    rdzv_store *fresh;
    atomic_store(&scene->proxy.cut, CUT_AT_ONCE);
    const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = SOON_MS};
    assert_code(rdzv_store_open_tcp(scene->proxy.endpoint, &options, &fresh, &error), 0);
    assert_true(rdzv_store_features(fresh) & RDZV_FEATURE_VERSIONS);
    rdzv_store_free(fresh);
  }
  atomic_store(&scene->proxy.cut, CUT_REQUEST); /* the connection is lost, and so is the next greeting */
  assert_code(call_add(scene->store, &error), 0);
  atomic_store(&scene->proxy.cut, CUT_AT_ONCE);
  const int result = rdzv_store_add(scene->store, BYTES("n"), 1, &sum, &error);
  if (result < 0) fail_msg("%s", error.message);
  assert_true(rdzv_store_features(scene->store) & RDZV_FEATURE_VERSIONS);
}

#define IN_A_SCENE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_what_is_harmless_is_repeated_by_itself),
      IN_A_SCENE(test_what_is_not_harmless_is_done_once),
      cmocka_unit_test(test_a_connection_that_was_closed_in_peace_costs_nothing),
      cmocka_unit_test(test_a_server_that_always_closes_is_given_up),
      cmocka_unit_test(test_a_silent_server_is_an_error_within_the_timeout),
      cmocka_unit_test(test_a_request_timeout_is_shorter_than_the_timeout),
      cmocka_unit_test(test_a_limit_of_the_thread_is_shorter_than_the_timeout),
      cmocka_unit_test(test_a_write_that_gets_no_answer_is_of_unknown_outcome),
      cmocka_unit_test(test_a_wait_at_a_silent_server_ends_within_the_timeout),
      cmocka_unit_test(test_opening_ends_within_the_timeout),
      cmocka_unit_test(test_a_server_of_another_kind_is_told_at_once),
      cmocka_unit_test(test_a_restarted_server_is_told_once),
      IN_A_SCENE(test_a_wait_that_outlives_its_server_is_told),
      IN_A_SCENE(test_a_greeting_that_is_lost_does_not_change_the_dialect),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
