/* SPDX-License-Identifier: BSD-3-Clause */
/* The dialect that a client finds by itself: a greeting that is lost is no sign of PyTorch 1.x. */
#include "proxy.h"

enum { ALL = RDZV_FEATURE_APPEND | RDZV_FEATURE_QUEUES | RDZV_FEATURE_LIST_KEYS | RDZV_FEATURE_VERSIONS };

#define assert_speaks(store, name)                                                             \
  do {                                                                                         \
    if (!strstr(rdzv_store_describe(store), name)) fail_msg("%s", rdzv_store_describe(store)); \
  } while (0)

/* ---- our server, behind a network that loses greetings ------------------------------------------------------- */

struct scene {
  rdzv_server *server;
  struct proxy proxy;
};

static int setup(void **state) {
  struct scene *scene = calloc(1, sizeof *scene);
  if (!scene) return -1;
  scene->server = serve();
  proxy_start(&scene->proxy, rdzv_server_port(scene->server));
  *state = scene;
  return 0;
}

static int teardown(void **state) {
  struct scene *scene = *state;
  proxy_end(&scene->proxy);
  rdzv_server_free(scene->server);
  free(scene);
  return 0;
}

enum { MOST_LOST = 5 }; /* greetings in a row */

static void assert_is_ours(struct scene *scene, rdzv_store *store) {
  assert_int_equal(atomic_load(&scene->proxy.greetings), 0);
  assert_speaks(store, "(rdzv)");
  assert_int_equal(rdzv_store_features(store), ALL);
}

static void test_our_server_is_known_though_the_first_greetings_are_lost(void **state) {
  struct scene *scene = *state;
  for (int lost = 1; lost <= MOST_LOST; lost++) {
    atomic_store(&scene->proxy.greetings, lost);
    rdzv_store *store = connect_to(scene->proxy.endpoint);
    assert_is_ours(scene, store);
    rdzv_store_free(store);
  }
}

/* A handle that knows its server does not even ask for another dialect: each greeting is a connection. */
static void test_a_handle_keeps_its_dialect_when_it_connects_again(void **state) {
  struct scene *scene = *state;
  rdzv_store *store = connect_to(scene->proxy.endpoint);
  for (int lost = 1; lost <= MOST_LOST; lost++) {
    const int connections = atomic_load(&scene->proxy.accepted);
    atomic_store(&scene->proxy.greetings, lost);
    atomic_store(&scene->proxy.cut, CUT_REQUEST);
    assert_int_equal(must_add(store, "n", 1), lost);
    assert_is_ours(scene, store);
    assert_int_equal(atomic_load(&scene->proxy.accepted), connections + lost + 1);
  }
  rdzv_store_free(store);
}

static void test_a_clone_knows_the_dialect(void **state) {
  struct scene *scene = *state;
  rdzv_store *clone, *store = connect_to(scene->proxy.endpoint);
  rdzv_error error;
  atomic_store(&scene->proxy.greetings, MOST_LOST);
  if (rdzv_store_clone(store, &clone, &error) < 0) fail_msg("%s", error.message);
  assert_is_ours(scene, clone);
  assert_int_equal(atomic_load(&scene->proxy.accepted), 1 + MOST_LOST + 1);
  rdzv_store_free(clone);
  rdzv_store_free(store);
}

/* ---- PyTorch 1.x ---------------------------------------------------------------------------------------------- */

static void close_on_greeting(struct peer *peer) {
  const int fd = peer_accept(peer);
  peer_take_hello(fd);
  close(fd);
}

/* Answers the question for V1, and serves on the same connection. */
static int answer_v1(struct peer *peer) {
  const uint8_t expected[1 + 8 + 8] = {4, 1};
  uint8_t question[sizeof expected];
  const int fd = peer_accept(peer);
  peer_read(fd, question, sizeof question);
  SCRIPT_CHECK(memcmp(question, expected, sizeof question) == 0);
  peer_write(fd, "\1", 1);
  return fd;
}

static void answer_num_keys(int fd, uint8_t count) {
  uint8_t op;
  peer_read(fd, &op, 1);
  SCRIPT_CHECK(op == 6);
  peer_write(fd, (const uint8_t[8]){count}, 8);
}

/* Is found by two greetings and a question, and later by one; then it ends. */
static void torch_1_x(struct peer *peer) {
  close_on_greeting(peer);
  close_on_greeting(peer);
  int fd = answer_v1(peer);
  answer_num_keys(fd, 7);
  close(fd);
  close_on_greeting(peer);
  fd = answer_v1(peer);
  answer_num_keys(fd, 8);
  close(fd);
}

static void assert_num_keys(rdzv_store *store, int64_t expected) {
  int64_t count;
  rdzv_error error;
  if (rdzv_store_num_keys(store, &count, &error) < 0) fail_msg("%s", error.message);
  assert_int_equal(count, expected);
}

/* And that another server has replaced it is seen when that one answers. */
static void test_pytorch_1_x_is_found_and_so_is_what_replaces_it(void **state) {
  struct scene *scene = *state;
  struct peer peer;
  peer_start(&peer, torch_1_x, NULL);
  atomic_store(&scene->proxy.server_port, peer.port);
  rdzv_store *store = connect_to(scene->proxy.endpoint);
  assert_speaks(store, "PyTorch 1.x");
  assert_num_keys(store, 7);
  assert_num_keys(store, 8);
  assert_speaks(store, "PyTorch 1.x");
  peer_end(&peer);
  atomic_store(&scene->proxy.server_port, rdzv_server_port(scene->server));
  assert_num_keys(store, 0);
  assert_is_ours(scene, store);
  rdzv_store_free(store);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_our_server_is_known_though_the_first_greetings_are_lost, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_handle_keeps_its_dialect_when_it_connects_again, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_clone_knows_the_dialect, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pytorch_1_x_is_found_and_so_is_what_replaces_it, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
