/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles in a child of the process that opened them: they are recognised, closing them takes nothing from the parent,
 * and everything else says what is wrong. */
#include "handler_scene.h"

#include <rdzv/agent.h>
#include <signal.h>
#include <sys/wait.h>

enum { CHILD_S = 20 };

/* Runs it in a child, which must end in time, and say that all was as it should be. */
static void in_child(void (*run)(void *), void *argument) {
  fflush(NULL);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    alarm(CHILD_S);
    run(argument);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail_msg("the child ended with %s %d", WIFSIGNALED(status) ? "signal" : "line",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) + 256);
}

/* In the child a failure is its exit code: the line, as far as it fits. */
#define CHILD_CHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1 + __LINE__ % 255);                                      \
    }                                                                 \
  } while (0)
#define CHILD_REFUSED(call)                                                                  \
  do {                                                                                       \
    rdzv_error error = {0};                                                                  \
    CHILD_CHECK((call) == RDZV_E_INVALID && strstr(error.message, "belongs to the parent")); \
  } while (0)

static void use_and_close(void *argument) {
  struct node *node = argument;
  rdzv_result *result;
  struct heard change;
  rdzv_status *status;
  int64_t count;
  bool closed;
  CHILD_REFUSED(rdzv_handler_next(node->handler, &result, &error));
  CHILD_REFUSED(hear(node->handler, 0, &change, &error));
  CHILD_REFUSED(rdzv_handler_is_closed(node->handler, &closed, &error));
  CHILD_REFUSED(rdzv_handler_num_nodes_waiting(node->handler, &count, &error));
  CHILD_REFUSED(rdzv_handler_status(node->handler, 0, &status, &error));
  CHILD_REFUSED(rdzv_handler_set_closed(node->handler, "no", &error));
  CHILD_REFUSED(rdzv_handler_leave(node->handler, &error));
  CHILD_REFUSED(rdzv_handler_shutdown(node->handler, &error));
  CHILD_REFUSED(rdzv_handler_set_close_timeout(node->handler, 1, &error));
  CHILD_REFUSED(rdzv_handler_set_linger(node->handler, 1, &error));
  if (node->result) CHILD_REFUSED(rdzv_handler_find_master(node->handler, node->result, &error));
  if (node->result) CHILD_REFUSED(rdzv_store_set(node->result->store, rdzv_str("k"), rdzv_str("child"), &error));
  CHILD_CHECK(rdzv_handler_change_fd(node->handler) == -1);
  CHILD_CHECK(strlen(rdzv_handler_node(node->handler)) > 0);
  rdzv_handler_cancel(node->handler);
  node_close(node);
}

/* Two nodes in a round, of which the first serves the store. */
static void open_two(struct node *nodes, const char *conf) {
  char endpoint[64];
  int port;
  close(peer_listen(1, &port));
  snprintf(endpoint, sizeof endpoint, "localhost:%d", port);
  open_and_join(nodes, 2, endpoint, (struct node_options){.min = 2, .max = 2, .conf = conf});
  assert_non_null(strstr(rdzv_handler_describe(nodes[0].handler), "served by this process"));
  assert_null(strstr(rdzv_handler_describe(nodes[1].handler), "served by this process"));
}

/* The parent has noticed nothing: both are in their round, its store works, and so does the next round. */
static void check_the_parent(struct node *nodes) {
  struct heard change;
  rdzv_error error;
  for (int i = 0; i < 2; i++) {
    assert_code(hear(nodes[i].handler, 3000, &change, &error), RDZV_E_TIMEOUT); /* longer than the dead time */
    must_set(nodes[i].result->store, "k", "parent");
    assert_get(nodes[1 - i].result->store, "k", "parent");
  }
  join_all(nodes, 2);
  assert_int_equal(nodes[0].result->round, 1);
}

static void test_the_child_of_the_serving_node_takes_nothing(void **state) {
  (void)state;
  struct node nodes[2];
  open_two(nodes, LIVELY);
  in_child(use_and_close, &nodes[0]);
  check_the_parent(nodes);
  close_all(nodes, 2);
}

static void test_the_child_of_a_client_takes_nothing(void **state) {
  (void)state;
  struct node nodes[2];
  open_two(nodes, LIVELY);
  in_child(use_and_close, &nodes[1]);
  check_the_parent(nodes);
  close_all(nodes, 2);
}

/* At any moment of a join: what the parent's threads were at is not touched. No node tries to serve: libuv closes its
 * descriptors behind the back of the thread sanitizer, which then takes a socket with such a number for a race. */
static void test_a_child_that_is_forked_in_the_middle_takes_nothing(void **state) {
  struct scene *scene = *state;
  for (int i = 0; i < 20; i++) {
    struct node *nodes = scene->nodes;
    const char id[] = {(char)('a' + i), '\0'};
    for (int n = 0; n < 2; n++) {
      node_open(&nodes[n], scene->endpoint, n ? "b" : "a",
                (struct node_options){.min = 2, .max = 2, .run_id = id, .conf = "is_host=0"});
      join_start(&nodes[n]);
    }
    struct node copy = {.handler = nodes[0].handler};
    in_child(use_and_close, &copy);
    for (int n = 0; n < 2; n++)
      if (join_end(&nodes[n]) < 0) fail_msg("%s", nodes[n].error.message);
    close_all(nodes, 2);
  }
}

/* The static rendezvous, too. */
static void test_a_static_rendezvous_is_recognised(void **state) {
  (void)state;
  struct node nodes[2];
  char endpoint[64];
  int port;
  close(peer_listen(1, &port));
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
  for (int i = 0; i < 2; i++)
    node_open(&nodes[i], endpoint, "n",
              (struct node_options){.backend = "static", .min = 2, .max = 2, .conf = i ? "rank=1" : "rank=0"});
  join_all(nodes, 2);
  for (int i = 0; i < 2; i++) {
    in_child(use_and_close, &nodes[i]);
    must_set(nodes[i].result->store, "k", "parent");
    assert_get(nodes[1 - i].result->store, "k", "parent");
  }
  node_close(&nodes[1]);
  node_close(&nodes[0]);
}

static void close_agent(void *argument) {
  rdzv_agent *agent = argument;
  rdzv_agent_result *result;
  CHILD_REFUSED(rdzv_agent_run(agent, &result, &error));
  rdzv_agent_stop(agent, SIGTERM);
  rdzv_agent_free(agent);
}

/* So is an agent: the parent's runs its job. */
static void test_an_agent_is_recognised(void **state) {
  (void)state;
  const char *argv[] = {"/bin/true", NULL};
  const rdzv_agent_options options = {.size = sizeof options, .standalone = true, .argv = argv};
  rdzv_agent *agent;
  rdzv_agent_result *result;
  rdzv_error error;
  if (rdzv_agent_open(&options, &agent, &error) < 0) fail_msg("%s", error.message);
  in_child(close_agent, agent);
  if (rdzv_agent_run(agent, &result, &error) < 0) fail_msg("%s", error.message);
  rdzv_agent_result_free(result);
  rdzv_agent_free(agent);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_child_of_the_serving_node_takes_nothing),
      cmocka_unit_test(test_the_child_of_a_client_takes_nothing),
      IN_A_SCENE(test_a_child_that_is_forked_in_the_middle_takes_nothing),
      cmocka_unit_test(test_a_static_rendezvous_is_recognised),
      cmocka_unit_test(test_an_agent_is_recognised),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
