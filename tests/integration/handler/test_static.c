/* SPDX-License-Identifier: BSD-3-Clause */
/* The static rendezvous: each node is told its rank, rank 0 serves the store, and nothing ever happens. */
#include "nodes.h"

/* A port that is free now; a test that uses it has it for itself as long as nobody takes it by number. */
static int free_port(void) {
  int port;
  close(peer_listen(1, &port));
  return port;
}

static void endpoint_of(int port, char out[32]) { snprintf(out, 32, "127.0.0.1:%d", port); }

static struct node_options as_rank(const char *conf, int64_t max) {
  return (struct node_options){.backend = "static", .min = max, .max = max, .conf = conf};
}

static void test_two_ranks_meet_where_rank_0_serves(void **state) {
  (void)state;
  struct node nodes[2];
  char endpoint[32], where[64];
  const int port = free_port();
  endpoint_of(port, endpoint);
  node_open(&nodes[0], endpoint, NULL, as_rank("rank=0", 2));
  node_open(&nodes[1], endpoint, NULL, as_rank("rank=1, timeout=30", 2));
  join_all(nodes, 2);
  for (int i = 0; i < 2; i++) {
    const rdzv_result *result = nodes[i].result;
    assert_int_equal(result->rank, i);
    assert_int_equal(result->world_size, 2);
    assert_int_equal(result->round, 0);
    assert_string_equal(result->backend, "static");
    assert_string_equal(result->run_id, "job");
    assert_string_equal(result->master_addr, "127.0.0.1");
    assert_int_equal(result->master_port, port);
    assert_string_equal(result->node, rdzv_handler_node(nodes[i].handler));
  }
  must_set(nodes[1].result->store, "k", "v");
  assert_get(nodes[0].result->store, "k", "v");
  rdzv_store *raw = connect_to(endpoint);
  assert_get(raw, "job/k", "v");
  rdzv_store_free(raw);
  snprintf(where, sizeof where, "static %s", endpoint);
  for (int i = 0; i < 2; i++) assert_string_equal(rdzv_handler_describe(nodes[i].handler), where);
  join_all(nodes, 2); /* again is the same again */
  assert_get(nodes[0].result->store, "k", "v");
  node_close(&nodes[1]);
  node_close(&nodes[0]);
}

/* The calls that a dynamic one has do what there is to do: nothing. */
static void test_nothing_ever_happens(void **state) {
  (void)state;
  struct node node;
  char endpoint[32];
  struct heard change;
  rdzv_status *status;
  rdzv_error error;
  int64_t waiting = -1;
  endpoint_of(free_port(), endpoint);
  node_open(&node, endpoint, "n0", as_rank("rank=0", 1));
  join_all(&node, 1);
  assert_error(hear(node.handler, 20, &change, &error), RDZV_E_TIMEOUT, &error, "static");
  assert_false(is_closed(&node));
  assert_code(rdzv_handler_num_nodes_waiting(node.handler, &waiting, &error), 0);
  assert_int_equal(waiting, 0);
  assert_error(rdzv_handler_status(node.handler, 0, &status, &error), RDZV_E_UNSUPPORTED, &error, "static");
  assert_code(rdzv_handler_set_closed(node.handler, "x", &error), 0);
  assert_code(rdzv_handler_leave(node.handler, &error), 0);
  assert_code(rdzv_handler_shutdown(node.handler, &error), 0);
  rdzv_handler_cancel(node.handler);
  assert_code(hear(node.handler, SOON_MS, &change, &error), RDZV_E_CANCELED);
  node_join_run(&node);
  assert_code(node.code, RDZV_E_CANCELED);
  node_close(&node);
}

static void test_what_is_missing_or_wrong_is_told(void **state) {
  (void)state;
  struct node node;
  rdzv_error error;
  static const struct {
    const char *endpoint, *conf, *sentence;
  } cases[] = {
      {"localhost:1", NULL, "cannot open rendezvous 'job': option 'rank' is missing (the rank of this node)"},
      {"localhost:1", "timeout=1", "option 'rank' is missing"},
      {"localhost:1", "rank=2", "option 'rank' is '2': there are 2 nodes, and ranks begin with 0"},
      {"localhost:1", "rank=-1", "invalid value '-1' for option 'rank': expected a whole number, 0 or more"},
      {"", "rank=0", "the endpoint is missing (the address at which rank 0 serves the store)"},
      {NULL, "rank=0", "the endpoint is missing"},
      {"localhost:port", "rank=0", "invalid endpoint 'localhost:port': the port is not a number"},
      {"localhost:1", "rank=0,join_timeout=1", "option 'join_timeout' does not apply to this backend"},
      {"localhost:1", "rank=0,timeout=0", "invalid value '0' for option 'timeout'"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    assert_error(node_try_open(&node, cases[i].endpoint, "n", as_rank(cases[i].conf, 2), &error), RDZV_E_INVALID,
                 &error, cases[i].sentence);
}

/* Rank 1 waits for rank 0 to come, no longer than it is told to, and not if it is canceled. */
static void test_a_rank_without_rank_0_gives_up(void **state) {
  (void)state;
  struct node node;
  char endpoint[32];
  endpoint_of(free_port(), endpoint);
  node_open(&node, endpoint, "n1", as_rank("rank=1,timeout=0.3", 2));
  node_join_run(&node);
  assert_true(node.code == RDZV_E_TIMEOUT || node.code == RDZV_E_CONNECTION);
  assert_non_null(strstr(node.error.message, "cannot join as rank 1"));
  assert_non_null(strstr(node.error.message, endpoint));
  assert_brief(node.took_ms, 5000);
  node_close(&node);
  node_open(&node, endpoint, "n1", as_rank("rank=1", 2));
  join_start(&node);
  rdzv_handler_cancel(node.handler);
  assert_code(join_end(&node), RDZV_E_CANCELED);
  node_close(&node);
}

/* A rank that comes first waits for the store to be there. */
static void test_ranks_may_come_before_rank_0(void **state) {
  (void)state;
  struct node nodes[2];
  char endpoint[32];
  endpoint_of(free_port(), endpoint);
  node_open(&nodes[1], endpoint, "n1", as_rank("rank=1", 2));
  join_start(&nodes[1]);
  node_open(&nodes[0], endpoint, "n0", as_rank("rank=0", 2));
  join_start(&nodes[0]);
  for (int i = 0; i < 2; i++)
    if (join_end(&nodes[i]) < 0) fail_msg("%s", nodes[i].error.message);
  node_close(&nodes[1]);
  node_close(&nodes[0]);
}

/* A server that is there belongs to another job, whatever that one's run id is: rank 0 serves, or fails at once. */
static void test_rank_0_never_uses_a_store_that_is_there(void **state) {
  (void)state;
  rdzv_server *server = serve();
  struct node node;
  rdzv_error error;
  assert_error(node_try_open(&node, rdzv_server_address(server), "n", as_rank("rank=0", 1), &error), RDZV_E_IN_USE,
               &error, "rank 0 cannot serve the store: cannot listen on");
  assert_non_null(strstr(error.message, rdzv_server_address(server)));
  rdzv_server_free(server);
}

/* Port 0: rank 0 takes a free one, and says which. The others cannot know it. */
static void test_port_0_is_any_free_port_for_rank_0(void **state) {
  (void)state;
  struct node node;
  rdzv_error error;
  char where[64];
  node_open(&node, "127.0.0.1:0", "n", as_rank("rank=0", 1));
  join_all(&node, 1);
  assert_true(node.result->master_port > 0);
  snprintf(where, sizeof where, "static 127.0.0.1:%d", node.result->master_port);
  assert_string_equal(rdzv_handler_describe(node.handler), where);
  must_set(node.result->store, "k", "v");
  rdzv_store *raw = connect_to(where + strlen("static "));
  assert_get(raw, "job/k", "v");
  rdzv_store_free(raw);
  node_close(&node);
  assert_error(node_try_open(&node, "127.0.0.1:0", "n", as_rank("rank=1", 2), &error), RDZV_E_INVALID, &error,
               "port 0 is for rank 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_ranks_meet_where_rank_0_serves),
      cmocka_unit_test(test_nothing_ever_happens),
      cmocka_unit_test(test_what_is_missing_or_wrong_is_told),
      cmocka_unit_test(test_a_rank_without_rank_0_gives_up),
      cmocka_unit_test(test_ranks_may_come_before_rank_0),
      cmocka_unit_test(test_port_0_is_any_free_port_for_rank_0),
      cmocka_unit_test(test_rank_0_never_uses_a_store_that_is_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
