/* SPDX-License-Identifier: BSD-3-Clause */
/* One handle of each kind of store, all calls of it from many threads at once; for the thread sanitizer most of all. */
#include "store_calls.h"

#include <sys/stat.h>

enum { THREADS = 6, ROUNDS = 12, MOMENT_MS = 2 };

struct shared {
  rdzv_store *store;
  atomic_int next; /* number of the next thread */
  atomic_bool canceled;
};

/* What is told of the handle, and may be asked and set by anybody. */
static void look_at(rdzv_store *store) {
  assert_true(strlen(rdzv_store_describe(store)) > 0);
  rdzv_store_features(store);
  rdzv_store_get_timeout(store);
  rdzv_store_set_timeout(store, MOMENT_MS, NULL);
  rdzv_store_set_request_timeout(store, SOON_MS, NULL);
}

/* Each thread has another order of calls. */
static void *call_all(void *argument) {
  struct shared *shared = argument;
  const size_t count = COUNT_OF(store_rows), start = (size_t)atomic_fetch_add(&shared->next, 1) * 7;
  for (size_t i = 0; i < ROUNDS * count; i++) {
    const struct store_row *row = &store_rows[(start + i) % count];
    rdzv_error error = {0};
    const int code = row->make(shared->store, &error);
    const bool canceled = code == RDZV_E_CANCELED && atomic_load(&shared->canceled);
    const bool late = code == RDZV_E_TIMEOUT && row->kind == BLOCKS;
    const bool missing = code == RDZV_E_UNSUPPORTED && row->needs;
    if (code != 0 && !canceled && !late && !missing) {
      fprintf(stderr, "%s: %s\n", row->name, error.message);
      _exit(1);
    }
    look_at(shared->store);
  }
  return NULL;
}

static void begin_all(struct shared *shared, pthread_t threads[THREADS]) {
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, call_all, shared), 0);
}

static void end_all(pthread_t threads[THREADS]) {
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* All calls from all threads, then once more with a cancel in between. */
static void check_threads(rdzv_store *store) {
  struct shared shared = {.store = store};
  pthread_t threads[THREADS];
  assert_code(rdzv_store_set_timeout(store, MOMENT_MS, NULL), 0);
  begin_all(&shared, threads);
  end_all(threads);
  int64_t sum;
  assert_code(rdzv_store_add(store, BYTES("n"), 0, &sum, NULL), 0);
  assert_int_equal(sum, THREADS * ROUNDS);
  begin_all(&shared, threads);
  atomic_store(&shared.canceled, true);
  rdzv_store_cancel(store);
  end_all(threads);
  assert_code(call_num_keys(store, NULL), RDZV_E_CANCELED);
}

static void test_hash(void **state) {
  (void)state;
  rdzv_store *store;
  assert_code(rdzv_store_open_hash(NULL, &store, NULL), 0);
  check_threads(store);
  rdzv_store_free(store);
}

static void test_file(void **state) {
  (void)state;
  char folder[] = "/tmp/rdzv-threads-XXXXXX", path[64];
  rdzv_store *store;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/store", folder);
  assert_code(rdzv_store_open_file(path, NULL, &store, NULL), 0);
  check_threads(store);
  rdzv_store_free(store);
  unlink(path);
  rmdir(folder);
}

static void check_tcp(rdzv_dialect dialect) {
  rdzv_server *server = serve();
  rdzv_store *store = connect_with(rdzv_server_address(server), (rdzv_tcp_options){.dialect = dialect});
  check_threads(store);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

static void test_tcp(void **state) {
  (void)state;
  check_tcp(RDZV_DIALECT_AUTO);
}

static void test_tcp_v1(void **state) {
  (void)state;
  check_tcp(RDZV_DIALECT_V1);
}

static void test_tcp_v2(void **state) {
  (void)state;
  check_tcp(RDZV_DIALECT_V2);
}

/* A view, and at the same time its base. */
static void test_prefix(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server), *view;
  struct shared shared = {.store = store};
  pthread_t threads[THREADS];
  assert_code(rdzv_store_set_timeout(store, MOMENT_MS, NULL), 0);
  assert_code(rdzv_store_open_prefix(store, BYTES("p"), &view, NULL), 0);
  begin_all(&shared, threads);
  atomic_store(&shared.canceled, true); /* with the view */
  check_threads(view);
  end_all(threads);
  rdzv_store_free(view);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hash),   cmocka_unit_test(test_file),   cmocka_unit_test(test_tcp),
      cmocka_unit_test(test_tcp_v1), cmocka_unit_test(test_tcp_v2), cmocka_unit_test(test_prefix),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
