/* SPDX-License-Identifier: BSD-3-Clause */
/* What a native node costs its process: descriptors and memory. The server is a process of its own, so that only the
 * nodes are counted. */
#include "nodes.h"

#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { NODES = 200, MOST_FDS = 4, MOST_BYTES = 64 * 1024 };

struct far_server {
  pid_t pid;
  char endpoint[64];
};

/* A server in a child, which ends with the test. */
static void serve_far(struct far_server *server) {
  int line[2];
  assert_int_equal(pipe(line), 0);
  server->pid = fork();
  if (server->pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rdzv_server *own = serve();
    const char *address = rdzv_server_address(own);
    if (write(line[1], address, strlen(address) + 1) < 0) _exit(1);
    for (;;) pause();
  }
  assert_true(server->pid > 0);
  close(line[1]);
  assert_true(read(line[0], server->endpoint, sizeof server->endpoint) > 0);
  close(line[0]);
}

static void end_server(struct far_server *server) {
  kill(server->pid, SIGKILL);
  waitpid(server->pid, NULL, 0);
}

static size_t heap(void) {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

static void *hear_run(void *arg) {
  struct node *node = arg;
  rdzv_change *change = NULL;
  node->code = rdzv_handler_wait_change(node->handler, 200, &change, &node->error);
  rdzv_change_free(change);
  return NULL;
}

/* In a round, and while it waits for changes. */
static void test_a_node_is_light(void **state) {
  (void)state;
  struct far_server server;
  serve_far(&server);
  struct node *nodes = calloc(NODES, sizeof *nodes);
  const struct node_options options = {.min = NODES, .max = NODES, .conf = "mode=native,is_host=0"};
  node_open(&nodes[0], server.endpoint, "first", (struct node_options){.conf = "is_host=0", .run_id = "warm up"});
  join_all(nodes, 1);
  node_close(&nodes[0]);
  const int fds = count_fds();
  const size_t bytes = heap();
  for (int i = 0; i < NODES; i++) node_open(&nodes[i], server.endpoint, "n", options);
  join_all(nodes, NODES);
  for (int i = 0; i < NODES; i++) assert_int_equal(pthread_create(&nodes[i].thread, NULL, hear_run, &nodes[i]), 0);
  for (int i = 0; i < NODES; i++) pthread_join(nodes[i].thread, NULL);
  const int each = (count_fds() - fds) / NODES;
  const size_t each_bytes = (heap() - bytes) / NODES;
  print_message("%d descriptors and %zu bytes of heap a node\n", each, each_bytes);
  assert_true(count_fds() - fds <= MOST_FDS * NODES);
  assert_true(each_bytes <= MOST_BYTES);
  for (int i = 0; i < NODES; i++) assert_code(nodes[i].code, RDZV_E_TIMEOUT); /* nothing happened */
  close_all(nodes, NODES);
  assert_int_equal(count_fds(), fds);
  free(nodes);
  end_server(&server);
}

/* 2000 nodes fit into 20 000 descriptors with room to spare. The sanitizers cannot have so many threads in time. */
static void test_two_thousand_nodes_in_one_process(void **state) {
  (void)state;
  enum { ALL = 2000, LIMIT = 20000 };
  const char *sanitizer = getenv("RDZV_SANITIZE");
  const int many = sanitizer && *sanitizer ? ALL / 10 : ALL;
  struct rlimit before, limit;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  limit = before;
  limit.rlim_cur = before.rlim_max < LIMIT ? before.rlim_max : LIMIT;
  if (limit.rlim_cur < (rlim_t)(MOST_FDS + 1) * ALL) skip();
  struct far_server server;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  serve_far(&server);
  struct node *nodes = calloc((size_t)many, sizeof *nodes);
  for (int i = 0; i < many; i++)
    node_open(&nodes[i], server.endpoint, "n", (struct node_options){.min = many, .max = many, .conf = "is_host=0"});
  join_all(nodes, (size_t)many);
  bool ranks[ALL] = {0};
  for (int i = 0; i < many; i++) {
    assert_int_equal(nodes[i].result->world_size, many);
    assert_false(ranks[nodes[i].result->rank]);
    ranks[nodes[i].result->rank] = true;
  }
  print_message("%d descriptors\n", count_fds());
  assert_true(count_fds() <= MOST_FDS * many + 100);
  close_all(nodes, (size_t)many);
  free(nodes);
  end_server(&server);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_node_is_light),
      cmocka_unit_test(test_two_thousand_nodes_in_one_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
