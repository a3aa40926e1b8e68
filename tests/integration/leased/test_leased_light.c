/* SPDX-License-Identifier: BSD-3-Clause */
/* What a node of the backend etcd-v3 costs its process: descriptors. etcd is a process of its own. */
#include "no_sync.h"
#include "nodes.h"

#include <rdzv/etcd.h>

/* Its connection for calls and that for its watch, two of libcurl's, two flags of its thread. Rank 0 keeps its port. */
enum { NODES = 20, MOST_FDS = 6, OF_RANK_0 = 1 };

static void test_a_node_is_light(void **state) {
  (void)state;
  const rdzv_etcd_process_options options = {.size = sizeof options};
  rdzv_etcd_process *etcd;
  rdzv_error error;
  rdzv_change *change = NULL;
  no_sync();
  if (rdzv_etcd_process_start(&options, &etcd, &error) < 0) fail_msg("%s", error.message);
  const char *endpoint = rdzv_etcd_process_endpoint(etcd);
  struct node *nodes = calloc(NODES, sizeof *nodes);
  node_open(&nodes[0], endpoint, "n", (struct node_options){.backend = "etcd-v3", .run_id = "warm up"});
  join_all(nodes, 1);
  node_close(&nodes[0]);
  const int fds = count_fds();
  for (int i = 0; i < NODES; i++)
    node_open(&nodes[i], endpoint, "n", (struct node_options){.min = NODES, .max = NODES, .backend = "etcd-v3"});
  join_all(nodes, NODES);
  for (int i = 0; i < NODES; i++)
    assert_code(rdzv_handler_wait_change(nodes[i].handler, 0, &change, &error), RDZV_E_TIMEOUT);
  const int each = (count_fds() - fds - OF_RANK_0) / NODES;
  print_message("%d descriptors a node\n", each);
  assert_true(count_fds() - fds <= MOST_FDS * NODES + OF_RANK_0);
  close_all(nodes, NODES);
  assert_int_equal(count_fds(), fds);
  free(nodes);
  rdzv_etcd_process_free(etcd);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_node_is_light)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
