/* SPDX-License-Identifier: BSD-3-Clause */
/* A server that is stopped from many threads, while clients work and while another thread waits for its clients to go;
 * for the thread sanitizer most of all. */
#include "asleep.h"
#include "live.h"

#include <signal.h>

enum { THREADS = 4 };

struct drainer {
  rdzv_server *server;
  atomic_int id; /* of the thread */
};

static void *drain(void *argument) {
  struct drainer *drainer = argument;
  atomic_store(&drainer->id, gettid());
  rdzv_server_drain(drainer->server, 10 * SOON_MS);
  return NULL;
}

static void *stop_often(void *server) {
  for (int i = 0; i < 200; i++) rdzv_server_stop(server);
  return NULL;
}

/* Until the server is gone. */
static void *work(void *store) {
  int64_t sum;
  while (rdzv_store_add(store, BYTES("n"), 1, &sum, NULL) == 0) {
  }
  return NULL;
}

static void stop_from_threads(rdzv_server *server) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, stop_often, server), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void test_it_may_be_stopped_from_many_threads(void **state) {
  (void)state;
  rdzv_server *server = serve();
  stop_from_threads(server);
  rdzv_server_free(server);
}

static void test_it_may_be_stopped_while_clients_work(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *stores[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    stores[i] = store_of(server);
    assert_code(rdzv_store_set_request_timeout(stores[i], 200, NULL), 0);
    assert_int_equal(pthread_create(&threads[i], NULL, work, stores[i]), 0);
  }
  stop_from_threads(server);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    rdzv_store_free(stores[i]);
  }
  rdzv_server_free(server);
}

/* Whoever waits for the clients to go need not wait longer than for the server itself. */
static void test_it_may_be_stopped_while_it_is_drained(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  struct drainer drainer = {.server = server};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, drain, &drainer), 0);
  assert_true(await_asleep(&drainer.id));
  stop_from_threads(server);
  pthread_join(thread, NULL);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

static rdzv_server *signaled;

static void on_signal(int number) {
  (void)number;
  rdzv_server_stop(signaled);
}

static void test_it_may_be_stopped_by_a_signal_handler(void **state) {
  (void)state;
  rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT};
  assert_code(rdzv_server_open(&options, &signaled, NULL), 0);
  signal(SIGALRM, on_signal);
  ualarm(20000, 0);
  assert_code(rdzv_server_run(signaled, NULL), 0);
  signal(SIGALRM, SIG_DFL);
  rdzv_server_free(signaled);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_it_may_be_stopped_from_many_threads),
      cmocka_unit_test(test_it_may_be_stopped_while_clients_work),
      cmocka_unit_test(test_it_may_be_stopped_while_it_is_drained),
      cmocka_unit_test(test_it_may_be_stopped_by_a_signal_handler),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
