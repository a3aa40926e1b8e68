/* SPDX-License-Identifier: BSD-3-Clause */
/* The agent as a library: opened, run and stopped in this process. What its workers do is test_run*.py's. */
#include "live.h"

#include <dirent.h>
#include <rdzv/agent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MOST_EVENTS = 64 };

enum { OF_WORKER = 100 };

/* What was told of, and who stops the agent when. */
struct watcher {
  rdzv_agent *agent;
  int states[MOST_EVENTS]; /* of the agent; or OF_WORKER + a worker's */
  size_t count;
  int stop_at; /* by SIGTERM, so often */
  int stops;
  int64_t rank, exit_code;
  struct rlimit limit; /* of descriptors, when the workers run */
};

static void note(struct watcher *watcher, int state) {
  assert_true(watcher->count < MOST_EVENTS);
  watcher->states[watcher->count++] = state;
  for (int i = 0; i < watcher->stops && state == watcher->stop_at; i++) rdzv_agent_stop(watcher->agent, SIGTERM);
}

static void on_agent(void *user, const rdzv_agent_event *event) {
  struct watcher *watcher = user;
  assert_non_null(event->run_id);
  assert_non_null(event->message);
  if (event->state == RDZV_AGENT_RUNNING) getrlimit(RLIMIT_NOFILE, &watcher->limit);
  note(watcher, (int)event->state);
}

static void on_worker(void *user, const rdzv_worker_event *event) {
  struct watcher *watcher = user;
  assert_non_null(event->run_id);
  assert_non_null(event->message);
  watcher->rank = event->rank;
  watcher->exit_code = event->exit_code;
  note(watcher, OF_WORKER + (int)event->state);
}

static bool has_seen(const struct watcher *watcher, int state) {
  for (size_t i = 0; i < watcher->count; i++)
    if (watcher->states[i] == state) return true;
  return false;
}

#define PROGRAM(text) ((const char *const[]){"sh", "-c", (text), NULL})

static rdzv_agent_options alone(const char *const *argv, struct watcher *watcher) {
  return (rdzv_agent_options){.size = sizeof(rdzv_agent_options),
                              .standalone = true,
                              .argv = argv,
                              .log_dir = "/dev/null",
                              .on_agent = watcher ? on_agent : NULL,
                              .on_worker = watcher ? on_worker : NULL,
                              .event_user = watcher};
}

static rdzv_agent *open_agent(const rdzv_agent_options *options) {
  rdzv_agent *agent = NULL;
  rdzv_error error = {0};
  if (rdzv_agent_open(options, &agent, &error) < 0) fail_msg("%s", error.message);
  return agent;
}

static rdzv_agent_result *run(rdzv_agent *agent) {
  rdzv_agent_result *result = NULL;
  rdzv_error error = {0};
  if (rdzv_agent_run(agent, &result, &error) < 0) fail_msg("%s", error.message);
  return result;
}

/* Opens, runs, closes. */
static rdzv_agent_result *run_alone(const char *text, struct watcher *watcher, int64_t max_restarts) {
  rdzv_agent_options options = alone(PROGRAM(text), watcher);
  options.max_restarts = max_restarts;
  rdzv_agent *agent = open_agent(&options);
  if (watcher) watcher->agent = agent;
  rdzv_agent_result *result = run(agent);
  rdzv_agent_free(agent);
  return result;
}

/* ---- nothing is left ------------------------------------------------------------------------------------------ */

static size_t count_in(const char *folder) {
  DIR *dir = opendir(folder);
  size_t count = 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

struct before {
  size_t fds, threads;
};

static int setup(void **state) {
  static struct before before;
  before = (struct before){count_in("/proc/self/fd"), count_in("/proc/self/task")};
  *state = &before;
  return 0;
}

static int teardown(void **state) {
  const struct before *before = *state;
  if (waitpid(-1, NULL, WNOHANG) != -1) return print_error("a child is left\n"), -1;
  if (count_in("/proc/self/fd") != before->fds) return print_error("a descriptor is left\n"), -1;
  const int64_t until = live_now_ms() + SOON_MS; /* a thread that was joined is there for a moment */
  while (count_in("/proc/self/task") != before->threads && live_now_ms() < until) usleep(1000);
  return count_in("/proc/self/task") == before->threads ? 0 : (print_error("a thread is left\n"), -1);
}

/* ---- one node ------------------------------------------------------------------------------------------------- */

static void test_success(void **state) {
  (void)state;
  struct watcher watcher = {0};
  rdzv_agent_result *result = run_alone("exit 0", &watcher, 0);
  assert_int_equal(result->state, RDZV_AGENT_SUCCEEDED);
  assert_int_equal(result->exit_code, 0);
  assert_int_equal(rdzv_agent_result_failure_count(result), 0);
  assert_string_equal(result->log_dir, "");
  static const int wanted[] = {RDZV_AGENT_RENDEZVOUS,
                               RDZV_AGENT_STARTING,
                               OF_WORKER + RDZV_WORKER_STARTED,
                               RDZV_AGENT_RUNNING,
                               OF_WORKER + RDZV_WORKER_SUCCEEDED,
                               RDZV_AGENT_BARRIER,
                               RDZV_AGENT_SUCCEEDED};
  assert_int_equal(watcher.count, COUNT_OF(wanted));
  assert_memory_equal(watcher.states, wanted, sizeof wanted);
  rdzv_agent_result_free(result);
}

static void test_a_failure_is_told_with_all_that_is_known(void **state) {
  (void)state;
  struct watcher watcher = {0};
  rdzv_agent_result *result = run_alone("echo why >&2; exit 44", &watcher, 1);
  assert_int_equal(result->state, RDZV_AGENT_FAILED);
  assert_int_equal(result->exit_code, 44);
  assert_int_equal(result->restarts, 1);
  assert_int_equal(rdzv_agent_result_failure_count(result), 1);
  const rdzv_worker_failure *failure = rdzv_agent_result_failure(result, 0);
  assert_int_equal(failure->rank, 0);
  assert_int_equal(failure->exit_code, 44);
  assert_int_equal(failure->signal, 0);
  assert_true(failure->pid > 0 && failure->time_us > 0 && *failure->host);
  assert_string_equal(failure->message, "exit code 44");
  assert_string_equal(failure->error_file, "");
  assert_true(*result->reason);
  assert_int_equal(watcher.exit_code, 44);
  rdzv_agent_result_free(result);
}

static void test_a_program_that_cannot_start_is_an_error_of_run(void **state) {
  (void)state;
  const rdzv_agent_options options = alone((const char *const[]){"/no/such/program", NULL}, NULL);
  rdzv_agent *agent = open_agent(&options);
  rdzv_agent_result *result = NULL;
  rdzv_error error;
  assert_error(rdzv_agent_run(agent, &result, &error), RDZV_E_IO, &error, "cannot start '/no/such/program': exec");
  rdzv_agent_free(agent);
}

/* ---- stopping ------------------------------------------------------------------------------------------------- */

static void test_stopped_while_workers_run(void **state) {
  (void)state;
  struct watcher watcher = {.stop_at = RDZV_AGENT_RUNNING, .stops = 1};
  rdzv_agent_result *result = run_alone("exec sleep 1000", &watcher, 3);
  assert_int_equal(result->state, RDZV_AGENT_LEFT);
  assert_int_equal(result->exit_code, 128 + SIGTERM);
  assert_int_equal(result->restarts, 0);
  assert_true(has_seen(&watcher, OF_WORKER + RDZV_WORKER_STOPPED));
  rdzv_agent_result_free(result);
}

/* It hears no SIGTERM, and 30 s are the usual time for it. */
static void test_stopped_twice_it_kills(void **state) {
  (void)state;
  struct watcher watcher = {.stop_at = RDZV_AGENT_RUNNING, .stops = 2};
  const int64_t before = live_now_ms();
  rdzv_agent_result *result = run_alone("trap '' TERM; while :; do sleep 1; done", &watcher, 0);
  assert_int_equal(result->state, RDZV_AGENT_LEFT);
  assert_within(before, 25000);
  rdzv_agent_result_free(result);
}

static void test_stopped_while_it_begins(void **state) {
  (void)state;
  static const int whens[] = {RDZV_AGENT_RENDEZVOUS, RDZV_AGENT_STARTING, OF_WORKER + RDZV_WORKER_STARTED};
  for (size_t i = 0; i < COUNT_OF(whens); i++) {
    struct watcher watcher = {.stop_at = whens[i], .stops = 1};
    rdzv_agent_result *result = run_alone("exec sleep 1000", &watcher, 0);
    assert_int_equal(result->state, RDZV_AGENT_LEFT);
    assert_int_equal(result->exit_code, 128 + SIGTERM);
    rdzv_agent_result_free(result);
  }
}

static void test_stopped_before_it_runs(void **state) {
  (void)state;
  struct watcher watcher = {0};
  const rdzv_agent_options options = alone(PROGRAM("exec sleep 1000"), &watcher);
  rdzv_agent *agent = open_agent(&options);
  rdzv_agent_stop(agent, SIGINT);
  rdzv_agent_result *result = run(agent);
  assert_int_equal(result->state, RDZV_AGENT_LEFT);
  assert_int_equal(result->exit_code, 128 + SIGINT);
  assert_false(has_seen(&watcher, OF_WORKER + RDZV_WORKER_STARTED));
  rdzv_agent_result_free(result);
  rdzv_agent_free(agent);
}

/* ---- a signal in the middle of a fork --------------------------------------------------------------------------- */

static rdzv_agent *to_stop;
static pid_t we;
static atomic_bool raises;

static void stop_it(int number) { rdzv_agent_stop(to_stop, number); }

/* Instead of libc's: a process of the agent's calls it between fork and exec, and gets a signal there. */
pid_t setsid(void) {
  if (atomic_load(&raises) && getpid() != we) raise(SIGUSR1);
  return (pid_t)syscall(SYS_setsid);
}

/* The program's handler must not run in a child, where it would tell the agent in the parent to stop. */
static void test_a_signal_between_fork_and_exec_is_the_workers(void **state) {
  (void)state;
  rdzv_agent_options options = alone(PROGRAM("exit 0"), NULL);
  we = getpid();
  to_stop = open_agent(&options);
  signal(SIGUSR1, stop_it);
  atomic_store(&raises, true);
  rdzv_agent_result *result = run(to_stop);
  atomic_store(&raises, false);
  signal(SIGUSR1, SIG_DFL);
  assert_int_equal(result->state, RDZV_AGENT_FAILED);
  assert_int_equal(rdzv_agent_result_failure(result, 0)->signal, SIGUSR1);
  rdzv_agent_free(to_stop);
  rdzv_agent_result_free(result);
}

static void test_closed_without_being_run(void **state) {
  (void)state;
  const rdzv_agent_options options = alone(PROGRAM("exit 0"), NULL);
  rdzv_agent_free(open_agent(&options));
  rdzv_agent_free(NULL);
  rdzv_agent_result_free(NULL);
}

/* ---- several in one process ----------------------------------------------------------------------------------- */

struct node {
  rdzv_agent_options options;
  pthread_t thread;
  rdzv_agent_state state;
};

static void *run_node(void *argument) {
  struct node *node = argument;
  rdzv_agent *agent = open_agent(&node->options);
  rdzv_agent_result *result = run(agent);
  node->state = result->state;
  rdzv_agent_result_free(result);
  rdzv_agent_free(agent);
  return NULL;
}

/* Whoever is opened while another's guard or worker is forked must not be held by that. */
static void test_two_agents_in_one_process(void **state) {
  (void)state;
  rdzv_server *server = serve();
  const char *const *program = PROGRAM("test $WORLD_SIZE = 2");
  const rdzv_params params = {
      .size = sizeof params,
      .endpoint = rdzv_server_address(server),
      .run_id = "job",
      .min_nodes = 2,
      .conf = "is_host=false", /* libuv closes in a way that the thread sanitizer does not see */
      .local_addr = "127.0.0.1"};
  struct watcher watchers[2] = {{0}};
  struct node nodes[2];
  for (int i = 0; i < 2; i++) {
    nodes[i].options = alone(program, &watchers[i]);
    nodes[i].options.standalone = false;
    nodes[i].options.rendezvous = &params;
    assert_int_equal(pthread_create(&nodes[i].thread, NULL, run_node, &nodes[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(nodes[i].thread, NULL);
    assert_int_equal(nodes[i].state, RDZV_AGENT_SUCCEEDED);
  }
  assert_int_equal(watchers[0].rank + watchers[1].rank, 1);
  rdzv_server_free(server);
}

/* ---- options -------------------------------------------------------------------------------------------------- */

static void refuse(const rdzv_agent_options *options, const char *says) {
  rdzv_agent *agent = NULL;
  rdzv_error error;
  assert_error(rdzv_agent_open(options, &agent, &error), RDZV_E_INVALID, &error, says);
  assert_null(agent);
}

static void test_wrong_options_are_named(void **state) {
  (void)state;
  const rdzv_agent_options right = alone(PROGRAM("exit 0"), NULL);
  rdzv_agent_options options = right;
  options.argv = NULL;
  refuse(&options, "no program");
  options.argv = (const char *const[]){NULL};
  refuse(&options, "no program");
  options = right, options.nproc_per_node = "none";
  refuse(&options, "nproc_per_node");
  options = right, options.max_restarts = -1;
  refuse(&options, "max_restarts");
  options = right, options.redirects = "4";
  refuse(&options, "redirects");
  options = right, options.tee = "x";
  refuse(&options, "tee");
  options = right, options.local_ranks_filter = "x";
  refuse(&options, "local_ranks_filter");
  options = right, options.numa_binding = "near";
  refuse(&options, "invalid value 'near' for numa_binding: expected node|socket|exclusive|core-complex");
  options = right, options.log_dir = "/proc/self/exe";
  refuse(&options, "log_dir");
  options = right, options.standalone = false;
  refuse(&options, "run");
  options = right, options.size = 0;
  refuse(&options, "size");
}

/* The limits of the process that uses the library are its own; a worker gets what the options say. */
static void test_the_limit_on_descriptors_is_left_alone(void **state) {
  (void)state;
  struct rlimit before;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit lower = {200, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &lower), 0);
  struct watcher watcher = {0};
  rdzv_agent_options options = alone(PROGRAM("test $(ulimit -Sn) = 150"), &watcher);
  options.nproc_per_node = "3";
  options.worker_descriptors = 150;
  rdzv_agent *agent = open_agent(&options);
  rdzv_agent_result *result = run(agent);
  rdzv_agent_free(agent);
  setrlimit(RLIMIT_NOFILE, &before);
  assert_int_equal(result->exit_code, 0);
  assert_int_equal(watcher.limit.rlim_cur, 200);
  rdzv_agent_result_free(result);
}

static void test_every_state_has_a_name(void **state) {
  (void)state;
  assert_string_equal(rdzv_agent_state_name(RDZV_AGENT_RENDEZVOUS), "RENDEZVOUS");
  assert_string_equal(rdzv_agent_state_name(RDZV_AGENT_LEFT), "LEFT");
  assert_string_equal(rdzv_worker_state_name(RDZV_WORKER_STARTED), "STARTED");
  assert_string_equal(rdzv_worker_state_name(RDZV_WORKER_STOPPED), "STOPPED");
  assert_string_equal(rdzv_agent_state_name((rdzv_agent_state)99), "UNKNOWN");
}

/* What libraries open once in a process, and keep. */
static int open_for_good(void **state) {
  (void)state;
  const rdzv_agent_options options = alone(PROGRAM("exit 0"), NULL);
  rdzv_agent_free(open_agent(&options));
  return 0;
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_success, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_failure_is_told_with_all_that_is_known, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_program_that_cannot_start_is_an_error_of_run, setup, teardown),
      cmocka_unit_test_setup_teardown(test_stopped_while_workers_run, setup, teardown),
      cmocka_unit_test_setup_teardown(test_stopped_twice_it_kills, setup, teardown),
      cmocka_unit_test_setup_teardown(test_stopped_while_it_begins, setup, teardown),
      cmocka_unit_test_setup_teardown(test_stopped_before_it_runs, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_signal_between_fork_and_exec_is_the_workers, setup, teardown),
      cmocka_unit_test_setup_teardown(test_closed_without_being_run, setup, teardown),
      cmocka_unit_test_setup_teardown(test_two_agents_in_one_process, setup, teardown),
      cmocka_unit_test_setup_teardown(test_wrong_options_are_named, setup, teardown),
      cmocka_unit_test_setup_teardown(test_the_limit_on_descriptors_is_left_alone, setup, teardown),
      cmocka_unit_test(test_every_state_has_a_name),
  };
  return cmocka_run_group_tests(tests, open_for_good, NULL);
}
