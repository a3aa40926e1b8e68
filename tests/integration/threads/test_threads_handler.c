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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_c10d),
      cmocka_unit_test(test_c10d_that_is_the_host),
      cmocka_unit_test(test_etcd_v2),
      cmocka_unit_test(test_first_generation),
  };
  if (!have_etcd()) return 77;
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
