/* SPDX-License-Identifier: BSD-3-Clause */
/* One handler of each kind, all calls of it from many threads at once; for the thread sanitizer most of all. */
#include "asleep.h"
#include "etcd_v1_scene.h"
#include "handler_threads.h"

#include <rdzv/etcd.h>

static void check_backend(const char *backend, const char *endpoint, const char *conf) {
  const rdzv_params params = {.size = sizeof params,
                              .backend = backend,
                              .endpoint = endpoint,
                              .run_id = "threads",
                              .min_nodes = 1,
                              .max_nodes = 1,
                              .local_addr = "127.0.0.1",
                              .conf = conf};
  rdzv_handler *handler;
  rdzv_error error;
  if (rdzv_handler_open(&params, &handler, &error) < 0) fail_msg("%s", error.message);
  check_handler_threads(handler);
  rdzv_handler_free(handler);
}

static void test_c10d(void **state) {
  (void)state;
  rdzv_server *server = serve();
  check_backend("c10d", rdzv_server_address(server), "is_host=0,last_call_timeout=0.01");
  rdzv_server_free(server);
}

/* It serves the store itself. */
static void test_c10d_that_is_the_host(void **state) {
  (void)state;
  int port;
  char endpoint[32];
  close(peer_listen(1, &port));
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
  check_backend("c10d", endpoint, "is_host=1,last_call_timeout=0.01");
}

static void test_etcd_v2(void **state) {
  (void)state;
  check_backend("etcd-v2", rdzv_etcd_process_endpoint(etcd), "last_call_timeout=0.01");
}

static void test_first_generation(void **state) {
  (void)state;
  check_backend("etcd", rdzv_etcd_process_endpoint(etcd), "last_call_timeout=0.01");
}

static void *close_often(void *argument) {
  struct handler_threads *shared = argument;
  for (int i = 0; i < 20; i++) {
    rdzv_error error = {0};
    expect_code(shared, "set_closed", rdzv_handler_set_closed(shared->handler, NULL, &error), 0, &error);
  }
  return NULL;
}

/* A shutdown of one thread does not take the answer from a close of another: each has its own. */
static void test_threads_that_close_and_shut_down(void **state) {
  (void)state;
  rdzv_server *server = serve();
  for (int i = 0; i < 100; i++) {
    char run_id[16];
    snprintf(run_id, sizeof run_id, "closed-%d", i);
    const rdzv_params params = {.size = sizeof params,
                                .backend = "c10d",
                                .endpoint = rdzv_server_address(server),
                                .run_id = run_id,
                                .local_addr = "127.0.0.1",
                                .conf = "is_host=0"};
    struct handler_threads shared = {0};
    pthread_t closes[8];
    rdzv_error error;
    assert_code(rdzv_handler_open(&params, &shared.handler, &error), 0);
    for (size_t k = 0; k < COUNT_OF(closes); k++)
      assert_int_equal(pthread_create(&closes[k], NULL, k % 2 ? thread_closes : close_often, &shared), 0);
    for (size_t k = 0; k < COUNT_OF(closes); k++) pthread_join(closes[k], NULL);
    rdzv_handler_free(shared.handler);
  }
  rdzv_server_free(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_c10d),
      cmocka_unit_test(test_threads_that_close_and_shut_down),
      cmocka_unit_test(test_c10d_that_is_the_host),
      cmocka_unit_test(test_etcd_v2),
      cmocka_unit_test(test_first_generation),
  };
  if (!have_etcd()) return 77;
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
