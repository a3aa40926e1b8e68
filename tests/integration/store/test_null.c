/* SPDX-License-Identifier: BSD-3-Clause */
/* A pointer that a call would write to, and that is NULL, is named instead of being followed. */
#include "nodes.h"

#include <rdzv/agent.h>
#include <rdzv/etcd.h>
#include <rdzv/runs.h>

#define assert_null_named(name, ...)                                         \
  do {                                                                       \
    rdzv_error error = {0};                                                  \
    assert_error(__VA_ARGS__, RDZV_E_INVALID, &error, "'" name "' is NULL"); \
  } while (0)

static void test_a_node(void **state) {
  (void)state;
  rdzv_server *server = serve();
  struct node node;
  node_open(&node, rdzv_server_address(server), "n", (struct node_options){.min = 1, .max = 1});
  join_all(&node, 1);
  assert_null_named("out", rdzv_handler_next(node.handler, NULL, &error));
  assert_null_named("out", rdzv_handler_wait_change(node.handler, 0, NULL, &error));
  assert_null_named("closed", rdzv_handler_is_closed(node.handler, NULL, &error));
  assert_null_named("count", rdzv_handler_num_nodes_waiting(node.handler, NULL, &error));
  assert_null_named("out", rdzv_handler_status(node.handler, 0, NULL, &error));
  assert_null_named("key", rdzv_handler_set_extra(node.handler, NULL, "v", &error));
  assert_null_named("value", rdzv_handler_set_extra(node.handler, "k", NULL, &error));
  assert_null_named("key", rdzv_handler_get_extra(node.handler, NULL, 0, &(rdzv_value){0}, &error));
  assert_null_named("out", rdzv_handler_get_extra(node.handler, "k", 0, NULL, &error));
  assert_null_named("result", rdzv_handler_find_master(node.handler, NULL, &error));
  rdzv_error error;
  assert_error(rdzv_handler_set_close_timeout(node.handler, -1, &error), RDZV_E_INVALID, &error, "-1 ms");
  assert_error(rdzv_handler_set_linger(node.handler, -1, &error), RDZV_E_INVALID, &error, "-1 ms");
  assert_false(is_closed(&node)); /* and it goes on */
  node_close(&node);
  rdzv_server_free(server);
}

static void test_opening(void **state) {
  (void)state;
  const rdzv_params params = {.size = sizeof params, .run_id = "job", .endpoint = "127.0.0.1:1"};
  const rdzv_agent_options options = {.size = sizeof options, .rendezvous = &params};
  rdzv_handler *handler;
  rdzv_agent *agent;
  rdzv_value *ids;
  size_t count;
  assert_null_named("params", rdzv_handler_open(NULL, &handler, &error));
  assert_null_named("out", rdzv_handler_open(&params, NULL, &error));
  assert_null_named("url", rdzv_handler_open_url(NULL, &params, &handler, &error));
  assert_null_named("out", rdzv_handler_open_url("etcd://h:1/a", &params, NULL, &error));
  assert_null_named("out", rdzv_registry_open(NULL, &error));
  assert_null_named("options", rdzv_agent_open(NULL, &agent, &error));
  assert_null_named("out", rdzv_agent_open(&options, NULL, &error));
  assert_null_named("out", rdzv_server_open(NULL, NULL, &error));
  assert_null_named("out", rdzv_etcd_process_start(NULL, NULL, &error));
  assert_null_named("params", rdzv_runs_list(NULL, &ids, &count, &error));
  assert_null_named("out", rdzv_runs_list(&params, NULL, &count, &error));
  assert_null_named("count", rdzv_runs_list(&params, &ids, NULL, &error));
  assert_null_named("params", rdzv_runs_remove(NULL, &count, &error));
  assert_null_named("removed", rdzv_runs_remove(&params, NULL, &error));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_node), cmocka_unit_test(test_opening)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
