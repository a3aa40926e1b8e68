/* SPDX-License-Identifier: BSD-3-Clause */
/* A server that is there but silent, as one that is stopped or a machine that hangs: no call waits beyond its time, and
 * all goes on when it answers again. */
#include "nodes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Our server in a process of its own, to be stopped with SIGSTOP. */
struct stoppable {
  pid_t pid;
  char endpoint[32];
};

static void serve_forever(int tell) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  rdzv_server *server;
  const rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT};
  if (rdzv_server_open(&options, &server, NULL) < 0) _exit(1);
  const int port = rdzv_server_port(server);
  if (write(tell, &port, sizeof port) != sizeof port) _exit(1);
  rdzv_server_run(server, NULL);
  _exit(0);
}

static int setup(void **state) {
  struct stoppable *server = calloc(1, sizeof *server);
  int fds[2], port;
  if (!server || pipe(fds) < 0) return -1;
  server->pid = fork();
  if (server->pid == 0) serve_forever(fds[1]);
  if (server->pid < 0 || read(fds[0], &port, sizeof port) != sizeof port) return -1;
  close(fds[0]);
  close(fds[1]);
  snprintf(server->endpoint, sizeof server->endpoint, "127.0.0.1:%d", port);
  *state = server;
  return 0;
}

static int teardown(void **state) {
  struct stoppable *server = *state;
  kill(server->pid, SIGKILL);
  waitpid(server->pid, NULL, 0);
  free(server);
  return 0;
}

static void stop(struct stoppable *server) {
  int status;
  assert_int_equal(kill(server->pid, SIGSTOP), 0);
  assert_int_equal(waitpid(server->pid, &status, WUNTRACED), server->pid);
  assert_true(WIFSTOPPED(status));
}

/* A member hears within the dead time that it is cut off; when the server goes on, so does it. */
static void test_a_member_hears_that_the_store_is_silent(void **state) {
  struct stoppable *server = *state;
  struct node nodes[2];
  struct heard change;
  rdzv_error error;
  open_and_join(nodes, 2, server->endpoint, (struct node_options){.min = 2, .max = 2, .conf = LIVELY ",is_host=0"});
  const int64_t began = live_now_ms();
  stop(server);
  for (int i = 0; i < 2; i++) {
    const int result = hear(nodes[i].handler, SOON_MS, &change, &error);
    assert_error(result, RDZV_E_CONNECTION, &error, "cannot stay in the round: no answer for");
    assert_non_null(strstr(error.message, server->endpoint));
  }
  const int64_t took = live_now_ms() - began;
  assert_true(took >= 700);
  assert_brief(took, 8000);
  kill(server->pid, SIGCONT);
  for (int i = 0; i < 2; i++) { /* nobody is dead for a silence that all shared */
    const int64_t until = live_now_ms() + SOON_MS;
    int result;
    while (result = hear(nodes[i].handler, 0, &change, &error), result == RDZV_E_CONNECTION)
      assert_true(live_now_ms() < until);
    assert_code(result, RDZV_E_TIMEOUT);
  }
  node_close(&nodes[0]);
  node_close(&nodes[1]);
}

/* Waits for the end of a join for so long. */
static bool join_ends(struct node *node, int seconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds;
  return pthread_timedjoin_np(node->thread, NULL, &until) == 0;
}

/* Whoever was in a round and wants to be in the next knows as well as a member that the store is gone: silent, or not
 * there at all. Only a node that has not been in any may come before its store. */
static void check_that_a_rejoin_gives_up(struct stoppable *server, int number, int64_t max) {
  struct node nodes[2];
  const struct node_options options = {.min = 2, .max = max, .conf = LIVELY ",is_host=0,last_call_timeout=0.1"};
  open_and_join(nodes, 2, server->endpoint, options);
  if (number == SIGSTOP)
    stop(server);
  else
    kill(server->pid, number);
  join_start(&nodes[0]);
  const bool ended = join_ends(&nodes[0], 15);
  if (!ended) { /* let it end, so that the test leaves nothing behind */
    rdzv_handler_cancel(nodes[0].handler);
    join_end(&nodes[0]);
  }
  assert_true(ended);
  assert_error(nodes[0].code, RDZV_E_CONNECTION, &nodes[0].error, "cannot join the rendezvous: no answer for");
  assert_non_null(strstr(nodes[0].error.message, server->endpoint));
  assert_true(nodes[0].took_ms >= 500);
  assert_brief(nodes[0].took_ms, 8000);
  close_all(nodes, 2);
}

static void test_a_rejoin_gives_a_silent_store_up(void **state) { check_that_a_rejoin_gives_up(*state, SIGSTOP, 2); }
static void test_a_rejoin_gives_a_store_that_is_gone_up(void **state) {
  check_that_a_rejoin_gives_up(*state, SIGKILL, 2);
}

/* Where many nodes may come, they wait for the permit first. */
static void test_a_rejoin_that_waits_for_its_permit_gives_up(void **state) {
  check_that_a_rejoin_gives_up(*state, SIGSTOP, 64);
}

struct farewell {
  struct node *node;
  int result;
  rdzv_error error;
  int64_t took_ms;
  pthread_t thread;
};

static void *leave_run(void *arg) {
  struct farewell *farewell = arg;
  const int64_t began = live_now_ms();
  farewell->result = rdzv_handler_leave(farewell->node->handler, &farewell->error);
  farewell->took_ms = live_now_ms() - began;
  return NULL;
}

/* Joining and leaving end by their own times, and a little more, although a request may take a minute; so does opening.
 * Closing a handler waits for nothing. */
static void test_no_call_waits_beyond_its_time(void **state) {
  struct stoppable *server = *state;
  struct node nodes[4], late;
  rdzv_error error;
  static const char *const confs[] = {"is_host=0,join_timeout=0.1,close_timeout=0.1",
                                      "is_host=0,join_timeout=0.1,close_timeout=0.1",
                                      "is_host=0,join_timeout=0.5,read_timeout=0.3", "is_host=0"};
  for (int i = 0; i < 4; i++)
    node_open(&nodes[i], server->endpoint, "n",
              (struct node_options){.conf = confs[i], .run_id = (char[]){(char)('0' + i), '\0'}});
  join_all(&nodes[1], 1);
  stop(server);
  struct farewell farewell = {.node = &nodes[1]};
  join_start(&nodes[0]);
  assert_int_equal(pthread_create(&farewell.thread, NULL, leave_run, &farewell), 0);
  join_start(&nodes[2]);
  join_start(&nodes[3]);
  int64_t began = live_now_ms();
  const int opened =
      node_try_open(&late, server->endpoint, "l", (struct node_options){.conf = "is_host=0,read_timeout=0.3"}, &error);
  assert_true(opened == RDZV_E_TIMEOUT || opened == RDZV_E_CONNECTION);
  assert_within(began, 4000);
  join_end(&nodes[2]); /* requests that take no longer than a join tell more */
  assert_true(nodes[2].code == RDZV_E_TIMEOUT || nodes[2].code == RDZV_E_CONNECTION);
  assert_brief(nodes[2].took_ms, 6000);
  rdzv_handler_cancel(nodes[3].handler);
  assert_code(join_end(&nodes[3]), RDZV_E_CANCELED);
  join_end(&nodes[0]);
  assert_error(nodes[0].code, RDZV_E_TIMEOUT, &nodes[0].error, "cannot join the rendezvous: no answer for");
  assert_true(nodes[0].took_ms >= 100);
  assert_brief(nodes[0].took_ms, 9500);
  pthread_join(farewell.thread, NULL);
  assert_error(farewell.result, RDZV_E_TIMEOUT, &farewell.error, "cannot leave the rendezvous: no answer for");
  assert_brief(farewell.took_ms, 9500);
  began = live_now_ms();
  close_all(nodes, 4);
  assert_within(began, 2500);
}

#define WITH_A_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_A_SERVER(test_a_member_hears_that_the_store_is_silent),
      WITH_A_SERVER(test_a_rejoin_gives_a_silent_store_up),
      WITH_A_SERVER(test_a_rejoin_gives_a_store_that_is_gone_up),
      WITH_A_SERVER(test_a_rejoin_that_waits_for_its_permit_gives_up),
      WITH_A_SERVER(test_no_call_waits_beyond_its_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
