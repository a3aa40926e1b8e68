/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores and servers in a child process of the one that opened them: they are recognised, closing them takes nothing
 * from the parent, and whatever else is asked of them is refused. */
#include "live.h"

#include <sys/stat.h>
#include <sys/wait.h>

enum { CHILD_S = 60 };

/* Runs `code` in a child, which ends with 0 or says what did not hold. An alarm ends one that hangs. */
#define IN_A_CHILD(code)                                    \
  do {                                                      \
    const pid_t child_ = fork();                            \
    if (child_ == 0) {                                      \
      alarm(CHILD_S);                                       \
      {code};                                               \
      _exit(0);                                             \
    }                                                       \
    int status_;                                            \
    assert_int_equal(waitpid(child_, &status_, 0), child_); \
    assert_int_equal(status_, 0);                           \
  } while (0)

#define REFUSED(call) SCRIPT_CHECK((call) == RDZV_E_INVALID && strstr(error.message, "before this process was forked"))

/* Every kind of call, in the child. */
static void assert_refused(rdzv_store *store) {
  const rdzv_bytes key = BYTES("k");
  rdzv_error error = {0};
  rdzv_value value, *values;
  rdzv_store *other;
  int64_t number;
  uint64_t version;
  bool flag;
  REFUSED(rdzv_store_set(store, key, key, &error));
  REFUSED(rdzv_store_get(store, key, &value, &error));
  REFUSED(rdzv_store_add(store, key, 1, &number, &error));
  REFUSED(rdzv_store_check(store, &key, 1, &flag, &error));
  REFUSED(rdzv_store_wait(store, &key, 1, 0, &error));
  REFUSED(rdzv_store_num_keys(store, &number, &error));
  REFUSED(rdzv_store_multi_get(store, &key, 1, &values, &error));
  REFUSED(rdzv_store_queue_pop(store, key, false, &value, &error));
  REFUSED(rdzv_store_wait_changed(store, key, 0, 0, &value, &version, &error));
  REFUSED(rdzv_store_clone(store, &other, &error));
  REFUSED(rdzv_store_clone_with(store, 0, &other, &error));
  REFUSED(rdzv_store_open_prefix(store, key, &other, &error));
  SCRIPT_CHECK(rdzv_store_features(store) == 0 && *rdzv_store_describe(store));
  rdzv_store_cancel(store); /* not the parent's */
}

static void test_a_client_goes_on_beside_its_child(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server), *view;
  assert_code(rdzv_store_open_prefix(store, BYTES("p"), &view, NULL), 0);
  for (int i = 1; i <= 3; i++) {
    assert_int_equal(must_add(store, "n", 1), i);
    IN_A_CHILD(assert_refused(view); assert_refused(store); rdzv_store_free(view); rdzv_store_free(store););
  }
  must_set(view, "k", "v");
  assert_get(store, "p/k", "v");
  rdzv_store_free(view);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* A child may open stores of its own. */
static void test_a_child_opens_its_own(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  IN_A_CHILD(rdzv_store *own = store_of(server); must_set(own, "k", "the child's"); rdzv_store_free(own););
  assert_get(store, "k", "the child's");
  rdzv_store_free(store);
  rdzv_server_free(server);
}

static void test_stores_in_memory_and_in_a_file(void **state) {
  (void)state;
  char path[] = "/tmp/rdzv-test-XXXXXX";
  struct stat found;
  rdzv_store *hash, *file;
  const rdzv_file_options options = {.size = sizeof options, .num_workers = 1};
  close(mkstemp(path));
  assert_code(rdzv_store_open_hash(NULL, &hash, NULL), 0);
  assert_code(rdzv_store_open_file(path, &options, &file, NULL), 0);
  IN_A_CHILD(assert_refused(hash); assert_refused(file); rdzv_store_free(hash); rdzv_store_free(file););
  assert_int_equal(stat(path, &found), 0); /* the child did not sign off */
  must_set(hash, "k", "v");
  must_set(file, "k", "v");
  assert_get(file, "k", "v");
  rdzv_store_free(hash);
  rdzv_store_free(file);
  assert_int_equal(stat(path, &found), -1); /* the last of one worker did */
}

struct blocked {
  rdzv_store *store;
  int result;
  pthread_t thread;
};

static void *wait_for_key(void *arg) {
  struct blocked *blocked = arg;
  const rdzv_bytes key = BYTES("k");
  blocked->result = rdzv_store_wait(blocked->store, &key, 1, SOON_MS, NULL);
  return NULL;
}

/* A thread of the parent is in the middle of a call when the child is made. */
static void test_a_call_of_another_thread_goes_on(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *other = store_of(server);
  struct blocked blocked = {.store = store_of(server)};
  assert_int_equal(pthread_create(&blocked.thread, NULL, wait_for_key, &blocked), 0);
  IN_A_CHILD(assert_refused(blocked.store); rdzv_store_free(blocked.store););
  must_set(other, "k", "v");
  pthread_join(blocked.thread, NULL);
  assert_code(blocked.result, 0);
  rdzv_store_free(blocked.store);
  rdzv_store_free(other);
  rdzv_server_free(server);
}

static void refuse_server(rdzv_server *server) {
  rdzv_error error = {0};
  REFUSED(rdzv_server_run(server, &error));
  REFUSED(rdzv_server_start(server, &error));
  rdzv_server_stop(server);
  rdzv_server_drain(server, SOON_MS);
}

/* Neither stopped, nor joined, nor is its port held when the parent closes it. */
static void test_a_server_goes_on_beside_its_child(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  const int port = rdzv_server_port(server);
  int ready[2], end[2];
  char byte;
  assert_int_equal(pipe(ready) | pipe(end), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(CHILD_S);
    close(end[1]);
    refuse_server(server);
    rdzv_server_free(server);
    SCRIPT_CHECK(write(ready[1], "x", 1) == 1);
    _exit(read(end[0], &byte, 1) == 0 ? 0 : 1); /* lives until the parent is done */
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  for (int i = 1; i <= 100; i++) assert_int_equal(must_add(store, "n", 1), i);
  rdzv_store_free(store);
  rdzv_server_free(server);
  server = serve_with((rdzv_server_options){0}, port);
  rdzv_server_free(server);
  close(end[1]);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(ready[0]);
  close(end[0]);
}

static void test_a_server_that_was_not_started_yet(void **state) {
  (void)state;
  rdzv_server *server;
  rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT};
  assert_code(rdzv_server_open(&options, &server, NULL), 0);
  IN_A_CHILD(refuse_server(server); rdzv_server_free(server););
  assert_code(rdzv_server_start(server, NULL), 0);
  rdzv_store *store = store_of(server);
  must_set(store, "k", "v");
  rdzv_store_free(store);
  rdzv_server_free(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_client_goes_on_beside_its_child),
      cmocka_unit_test(test_a_child_opens_its_own),
      cmocka_unit_test(test_stores_in_memory_and_in_a_file),
      cmocka_unit_test(test_a_call_of_another_thread_goes_on),
      cmocka_unit_test(test_a_server_goes_on_beside_its_child),
      cmocka_unit_test(test_a_server_that_was_not_started_yet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
