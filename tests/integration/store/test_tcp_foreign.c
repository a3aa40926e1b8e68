/* SPDX-License-Identifier: BSD-3-Clause */
/* Our client in PyTorch's dialects: writes whose answer is lost, and values that are deleted while they are read. */
#include "proxy.h"
#include "store/tcp/call.h"

/* ---- writes are once-only -------------------------------------------------------------------------------------- */

/* Our server speaks both dialects; a relay in front of it loses connections. */
struct scene {
  rdzv_server *server;
  struct proxy proxy;
  rdzv_store *store, *straight;
};

static void scene_begin(struct scene *scene, rdzv_dialect dialect) {
  scene->server = serve();
  proxy_start(&scene->proxy, rdzv_server_port(scene->server));
  scene->store = connect_with(scene->proxy.endpoint, (rdzv_tcp_options){.dialect = dialect});
  scene->straight = store_of(scene->server);
}

static void scene_end(struct scene *scene) {
  rdzv_store_free(scene->store);
  rdzv_store_free(scene->straight);
  proxy_end(&scene->proxy);
  rdzv_server_free(scene->server);
}

typedef int call(rdzv_store *store, rdzv_error *error);

static int call_set(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_set(store, BYTES("k"), BYTES("ours"), error);
}

static int call_multi_set(rdzv_store *store, rdzv_error *error) {
  const rdzv_bytes keys[] = {BYTES("k"), BYTES("l")}, values[] = {BYTES("ours"), BYTES("too")};
  return rdzv_store_multi_set(store, keys, values, 2, error);
}

/* Bytes of the request have left, so it is not sent again, and the outcome is unknown, whether the request or the
 * answer was lost. */
static void assert_once_only(rdzv_dialect dialect, call *write) {
  for (int cut = CUT_REQUEST; cut <= CUT_ANSWER; cut++) {
    struct scene scene;
    rdzv_error error;
    scene_begin(&scene, dialect);
    must_set(scene.straight, "k", "theirs");
    assert_code(rdzv_store_add(scene.store, BYTES("n"), 1, NULL, &error), 0);
    const int connections = atomic_load(&scene.proxy.accepted);
    atomic_store(&scene.proxy.cut, cut);
    assert_error(write(scene.store, &error), RDZV_E_OUTCOME_UNKNOWN, &error, "may or may not");
    assert_int_equal(atomic_load(&scene.proxy.accepted), connections);
    if (cut == CUT_REQUEST)
      assert_get(scene.straight, "k", "theirs");
    else
      assert_get(scene.straight, "k", "ours");
    assert_code(write(scene.store, &error), 0); /* the next call connects again */
    scene_end(&scene);
  }
}

static void test_a_write_is_once_only(void **state) {
  (void)state;
  for (int dialect = RDZV_DIALECT_V1; dialect <= RDZV_DIALECT_V2; dialect++) {
    assert_once_only((rdzv_dialect)dialect, call_set);
    assert_once_only((rdzv_dialect)dialect, call_multi_set);
  }
}

/* Keys that only one node writes are set again by it, since that is harmless. */
static void test_published_keys_are_set_again(void **state) {
  (void)state;
  for (int cut = CUT_REQUEST; cut <= CUT_ANSWER; cut++) {
    struct scene scene;
    rdzv_error error;
    const rdzv_bytes keys[] = {BYTES("k"), BYTES("l")}, values[] = {BYTES("ours"), BYTES("too")};
    scene_begin(&scene, RDZV_DIALECT_V2);
    atomic_store(&scene.proxy.cut, cut);
    if (rdzv_store_publish(scene.store, keys, values, 2, &error) < 0) fail_msg("%s", error.message);
    assert_int_equal(atomic_load(&scene.proxy.cut), CUT_NOTHING);
    assert_get(scene.straight, "l", "too");
    scene_end(&scene);
  }
}

/* ---- queues, which not every server of PyTorch 2.x has ---------------------------------------------------------- */

enum { PUSH_BYTES = 1 + 8 + 2 + 8 + 4 };

static uint8_t take_op(int fd) {
  uint8_t op;
  peer_read(fd, &op, 1);
  return op;
}

/* A server of PyTorch 2.8: answers what is harmless, takes a push, and closes that connection and the next one. */
static void closes_after_a_push(struct peer *peer) {
  uint8_t request[PUSH_BYTES];
  const int fd = peer_accept(peer);
  peer_read(fd, request, 5);
  for (uint8_t op; (op = take_op(fd)) != 14;) { /* QUEUE_PUSH */
    SCRIPT_CHECK(op == 7 || op == 16);          /* NUM_KEYS, QUEUE_LEN of the key "/" */
    if (op == 16) peer_read(fd, request, 9);
    peer_write(fd, (const uint8_t[8]){0}, 8);
  }
  peer_read(fd, request, PUSH_BYTES - 1);
  close(fd);
  close(peer_accept(peer));
}

/* It may have been done before. */
static void test_a_push_whose_connection_is_lost_is_of_unknown_outcome(void **state) {
  (void)state;
  struct peer peer;
  rdzv_error error;
  peer_start(&peer, closes_after_a_push, NULL);
  rdzv_store *store = connect_with(peer.endpoint, (rdzv_tcp_options){.dialect = RDZV_DIALECT_V2});
  assert_code(rdzv_store_queue_push(store, BYTES("q"), BYTES("item"), &error), RDZV_E_OUTCOME_UNKNOWN);
  rdzv_store_free(store);
  rdzv_store_free(connect_with(peer.endpoint, (rdzv_tcp_options){.dialect = RDZV_DIALECT_V2}));
  peer_end(&peer);
}

/* A server of PyTorch 2.6: it knows operations up to PING. */
static void knows_no_queues(struct peer *peer) {
  for (int connections = 0; connections < TCP_MAX_REPEATS + 1; connections++) {
    uint8_t request[5];
    const int fd = peer_accept(peer);
    peer_read(fd, request, sizeof request);
    while (take_op(fd) == 7) peer_write(fd, (const uint8_t[8]){0}, 8);
    close(fd);
  }
}

static void test_a_server_that_has_no_queues_is_told(void **state) {
  (void)state;
  struct peer peer;
  rdzv_error error;
  peer_start(&peer, knows_no_queues, NULL);
  rdzv_store *store = connect_with(peer.endpoint, (rdzv_tcp_options){.dialect = RDZV_DIALECT_V2});
  assert_error(rdzv_store_queue_push(store, BYTES("q"), BYTES("item"), &error), RDZV_E_UNSUPPORTED, &error,
               "from 2.8 on");
  rdzv_store_free(store);
  peer_end(&peer);
}

/* Losses at any moment do not make a server one that has no queues. */
static void test_lost_connections_do_not_take_queues_away(void **state) {
  (void)state;
  for (int cut = CUT_REQUEST; cut <= CUT_ANSWER; cut++) {
    struct scene scene;
    rdzv_error error;
    int64_t len;
    scene_begin(&scene, RDZV_DIALECT_V2);
    atomic_store(&scene.proxy.cut, cut);
    if (rdzv_store_queue_push(scene.store, BYTES("q"), BYTES("item"), &error) < 0) fail_msg("%s", error.message);
    atomic_store(&scene.proxy.cut, cut);
    assert_code(rdzv_store_queue_push(scene.store, BYTES("q"), BYTES("item"), &error), RDZV_E_OUTCOME_UNKNOWN);
    assert_code(rdzv_store_queue_len(scene.store, BYTES("q"), &len, &error), 0);
    assert_int_equal(len, cut == CUT_REQUEST ? 1 : 2);
    scene_end(&scene);
  }
}

/* ---- values that are deleted while they are read --------------------------------------------------------------- */

enum { VALIDATE_BYTES = 5, KEYS_BYTES = 1 + 8 + 8 + 2, SWAP_BYTES = 1 + 8 + 2 + 2 * (8 + 16) };

static void take_validate(int fd) {
  uint8_t request[VALIDATE_BYTES];
  peer_read(fd, request, sizeof request);
  SCRIPT_CHECK(request[0] == 0);
}

/* Takes a request for a list that has only the key "/k". */
static void take_keys(int fd, uint8_t op) {
  uint8_t request[KEYS_BYTES];
  peer_read(fd, request, sizeof request);
  SCRIPT_CHECK(request[0] == op && memcmp(request + KEYS_BYTES - 2, "/k", 2) == 0);
}

static void answer_byte(int fd, uint8_t byte) { peer_write(fd, &byte, 1); }

static void answer_value(int fd, const char *value) {
  uint8_t answer[64] = {(uint8_t)strlen(value)};
  memcpy(answer + 8, value, strlen(value));
  peer_write(fd, answer, 8 + strlen(value));
}

/* Takes a COMPARE_SET of the key "/k"; `now` is the value that holds, NULL: none. */
static void swap(int fd, uint8_t op, const char *now) {
  uint8_t request[SWAP_BYTES];
  peer_read(fd, request, sizeof request);
  SCRIPT_CHECK(request[0] == op && memcmp(request + 9, "/k", 2) == 0);
  SCRIPT_CHECK(memcmp(request + 11, request + 11 + 24, 24) == 0); /* for itself: harmless even if it held */
  if (now)
    answer_value(fd, now);
  else
    peer_write(fd, request + 11, 24); /* what was expected: that is how an absent key is told */
}

enum { V2_SWAP = 2, V2_CHECK = 5, V2_WAIT = 6, V2_MULTI_GET = 10, V1_SWAP = 1, V1_CHECK = 4 };

static void wait_and_get(int fd, const char *value) {
  take_keys(fd, V2_WAIT);
  answer_byte(fd, 0);
  take_keys(fd, V2_MULTI_GET);
  answer_value(fd, value);
}

/* Deleted when it is read, set again when it is looked for: the two looks together would be an empty value. */
static void deleted_and_back(struct peer *peer) {
  const int fd = peer_accept(peer);
  take_validate(fd);
  wait_and_get(fd, "");
  take_keys(fd, V2_CHECK);
  answer_byte(fd, 0);
  swap(fd, V2_SWAP, "back");
  peer_close_after_client(fd);
}

/* Deleted at each look in turn; nothing but a key that is there is swapped. */
static void deleted_at_each_look(struct peer *peer) {
  const int fd = peer_accept(peer);
  take_validate(fd);
  wait_and_get(fd, "");
  take_keys(fd, V2_CHECK);
  answer_byte(fd, 1);
  wait_and_get(fd, "");
  take_keys(fd, V2_CHECK);
  answer_byte(fd, 0);
  swap(fd, V2_SWAP, NULL);
  wait_and_get(fd, "back");
  peer_close_after_client(fd);
}

/* The value is really empty. */
static void empty_value(struct peer *peer) {
  const int fd = peer_accept(peer);
  take_validate(fd);
  wait_and_get(fd, "");
  take_keys(fd, V2_CHECK);
  answer_byte(fd, 0);
  swap(fd, V2_SWAP, "");
  peer_close_after_client(fd);
}

/* PyTorch's 2.x without libuv closes the connection where the key is not there. Then it is not asked so again. */
static void closes_on_absent(struct peer *peer) {
  int fd = peer_accept(peer);
  take_validate(fd);
  take_keys(fd, V2_WAIT);
  answer_byte(fd, 0);
  take_keys(fd, V2_MULTI_GET);
  close(fd);
  fd = peer_accept(peer);
  take_validate(fd);
  for (int i = 0; i < 10; i++) { /* more often than a request is repeated */
    take_keys(fd, V2_WAIT);
    answer_byte(fd, 0);
    take_keys(fd, V2_CHECK);
    answer_byte(fd, 0);
    swap(fd, V2_SWAP, i < 9 ? NULL : "back");
  }
  peer_close_after_client(fd);
}

/* 1.x has no wait that can be taken back, and closes on a GET of a key that is not there. */
static void deleted_at_1_x(struct peer *peer) {
  const int fd = peer_accept(peer);
  for (int i = 0; i < 10; i++) {
    take_keys(fd, V1_CHECK);
    answer_byte(fd, 0);
    swap(fd, V1_SWAP, i < 9 ? NULL : "back");
  }
  peer_close_after_client(fd);
}

static void assert_reads(peer_script *script, rdzv_dialect dialect, const char *expected) {
  struct peer peer;
  rdzv_value value;
  rdzv_error error;
  peer_start(&peer, script, NULL);
  rdzv_store *store = connect_with(peer.endpoint, (rdzv_tcp_options){.dialect = dialect});
  if (rdzv_store_get(store, BYTES("k"), &value, &error) < 0) fail_msg("%s", error.message);
  assert_string_equal(value.data, expected);
  rdzv_value_free(&value);
  rdzv_store_free(store);
  peer_end(&peer);
}

static void test_no_value_is_read_that_nobody_wrote(void **state) {
  (void)state;
  assert_reads(deleted_and_back, RDZV_DIALECT_V2, "back");
  assert_reads(deleted_at_each_look, RDZV_DIALECT_V2, "back");
  assert_reads(empty_value, RDZV_DIALECT_V2, "");
}

static void test_a_key_that_is_deleted_while_it_is_read_is_waited_for_again(void **state) {
  (void)state;
  assert_reads(closes_on_absent, RDZV_DIALECT_V2, "back");
  assert_reads(deleted_at_1_x, RDZV_DIALECT_V1, "back");
}

/* ---- the same against a server that is written to -------------------------------------------------------------- */

struct flicker {
  rdzv_store *store;
  atomic_bool end;
  pthread_t thread;
};

static void *set_and_delete(void *arg) {
  struct flicker *flicker = arg;
  while (!atomic_load(&flicker->end)) {
    must_set(flicker->store, "k", "v");
    rdzv_store_delete_key(flicker->store, BYTES("k"), NULL, NULL);
  }
  must_set(flicker->store, "k", "v");
  return NULL;
}

static void assert_flicker(rdzv_dialect dialect) {
  rdzv_server *server = serve();
  struct flicker flicker = {.store = store_of(server)};
  rdzv_store *store = connect_with(rdzv_server_address(server), (rdzv_tcp_options){.dialect = dialect});
  const rdzv_bytes keys[] = {BYTES("k"), BYTES("k")};
  assert_int_equal(pthread_create(&flicker.thread, NULL, set_and_delete, &flicker), 0);
  for (int i = 0; i < 60; i++) {
    rdzv_value *values;
    rdzv_error error;
    assert_get(store, "k", "v");
    if (rdzv_store_multi_get(store, keys, 2, &values, &error) < 0) fail_msg("%s", error.message);
    for (int j = 0; j < 2; j++) assert_bytes(rdzv_value_bytes(&values[j]), "v");
    rdzv_values_free(values, 2);
  }
  atomic_store(&flicker.end, true);
  pthread_join(flicker.thread, NULL);
  rdzv_store_free(store);
  rdzv_store_free(flicker.store);
  rdzv_server_free(server);
}

static void test_a_key_that_is_set_and_deleted_all_the_time_is_read_as_it_was_set(void **state) {
  (void)state;
  assert_flicker(RDZV_DIALECT_V1);
  assert_flicker(RDZV_DIALECT_V2);
  assert_flicker(RDZV_DIALECT_RDZV);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_write_is_once_only),
      cmocka_unit_test(test_published_keys_are_set_again),
      cmocka_unit_test(test_a_push_whose_connection_is_lost_is_of_unknown_outcome),
      cmocka_unit_test(test_a_server_that_has_no_queues_is_told),
      cmocka_unit_test(test_lost_connections_do_not_take_queues_away),
      cmocka_unit_test(test_no_value_is_read_that_nobody_wrote),
      cmocka_unit_test(test_a_key_that_is_deleted_while_it_is_read_is_waited_for_again),
      cmocka_unit_test(test_a_key_that_is_set_and_deleted_all_the_time_is_read_as_it_was_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
