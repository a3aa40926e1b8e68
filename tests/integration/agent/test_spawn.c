/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes as the agent starts them. */
#include "agent/worker/spawn.h"
#include "base/os/process.h"

#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What `words` print when they run on these processors. */
static void output_of(char *const *words, const cpu_set_t *cpus, char *out, size_t size) {
  struct guard guard;
  rdzv_error error;
  int ends[2];
  pid_t pid;
  assert_code(guard_open(&guard, &error), 0);
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  const struct spawn how = {
      .argv = words, .environment = environ, .out = ends[1], .err = -1, .bound = true, .cpus = *cpus};
  if (spawn(&guard, &how, 1, NULL, &pid, &error) < 0) fail_msg("%s", error.message);
  close(ends[1]);
  const ssize_t got = read(ends[0], out, size - 1);
  close(ends[0]);
  out[got > 0 ? got : 0] = '\0';
  assert_int_equal(waitpid(pid, NULL, 0), pid); /* our child, whoever forked it */
  guard_close(&guard);
}

static void test_a_process_runs_on_the_processors_that_it_is_given(void **state) {
  (void)state;
  char *const words[] = {"sh", "-c", "grep Cpus_allowed_list /proc/self/status", NULL};
  cpu_set_t all;
  char text[256], wanted[64];
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  for (size_t i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, &all)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    output_of(words, &one, text, sizeof text);
    snprintf(wanted, sizeof wanted, "Cpus_allowed_list:\t%zu\n", i);
    assert_string_equal(text, wanted);
  }
}

/* Those that fail are left out, and the first of them is named, with the step and the cause; the others run. */
static void test_each_process_that_cannot_run_its_program_is_known(void **state) {
  (void)state;
  enum { COUNT = 300 };
  char *const good[] = {"true", NULL}, *const bad[] = {"/no/such/program", NULL}, *const worse[] = {"/", NULL};
  struct guard guard;
  rdzv_error error;
  static pid_t pids[COUNT];
  static struct spawn list[COUNT];
  for (size_t i = 0; i < COUNT; i++)
    list[i] = (struct spawn){.argv = i % 3 != 1 ? good
                                     : i == 1   ? bad
                                                : worse,
                             .environment = environ,
                             .out = -1,
                             .err = -1};
  assert_code(guard_open(&guard, &error), 0);
  assert_code(spawn(&guard, list, COUNT, NULL, pids, &error), RDZV_E_IO);
  assert_string_equal(error.message, "cannot start '/no/such/program': exec: No such file or directory");
  for (size_t i = 0; i < COUNT; i++) {
    assert_int_equal(pids[i] == 0, i % 3 == 1);
    if (pids[i]) assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
  }
  assert_int_equal(waitpid(-1, NULL, WNOHANG), process_has_siblings() ? -1 : 0); /* but for the guard */
  guard_close(&guard);
}

/* What is done to a starter while it forks. */
struct blow {
  char children[64]; /* the file with the children of the thread that spawns */
  int signal;
  struct flag *then; /* raised after that; NULL: none */
};

/* Signals the first child once there are two: the starter, unless it has ended. */
static void *strike(void *user) {
  struct blow *blow = user;
  long first = 0, second;
  while (first == 0) {
    FILE *children = fopen(blow->children, "r");
    if (!children || fscanf(children, "%ld %ld", &first, &second) != 2) first = 0;
    if (children) fclose(children);
  }
  kill((pid_t)first, blow->signal);
  if (blow->then) flag_raise(blow->then);
  return NULL;
}

/* Starts many and strikes the starter; each process that it forked must be in the list, so that none is left behind. */
static void spawn_and_strike(int signal, struct flag *cancel) {
  enum { COUNT = 200 };
  char *const words[] = {"sleep", "1000", NULL};
  const struct guard none = GUARD_NONE;
  struct blow blow = {.signal = signal, .then = cancel};
  rdzv_error error;
  pthread_t striker;
  pid_t pids[COUNT];
  struct spawn list[COUNT];
  for (size_t i = 0; i < COUNT; i++)
    list[i] = (struct spawn){.argv = words, .environment = environ, .out = -1, .err = -1};
  snprintf(blow.children, sizeof blow.children, "/proc/self/task/%ld/children", (long)gettid());
  if (access(blow.children, R_OK) < 0 || !process_has_siblings()) skip();
  assert_int_equal(pthread_create(&striker, NULL, strike, &blow), 0);
  const int result = spawn(&none, list, COUNT, cancel, pids, &error);
  pthread_join(striker, NULL);
  if (result < 0) assert_string_equal(error.message, "cannot start 'sleep': the process that starts it was killed");
  for (size_t i = 0; i < COUNT; i++) {
    if (pids[i] == 0) continue;
    kill(pids[i], SIGKILL);
    assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
  }
  for (int status; waitpid(-1, &status, 0) > 0;) assert_int_equal(WEXITSTATUS(status), 127); /* came late, and saw it */
}

static void test_a_starter_that_is_killed_leaves_no_process_that_we_do_not_know(void **state) {
  (void)state;
  spawn_and_strike(SIGKILL, NULL);
}

static void test_a_starter_that_is_stopped_is_not_waited_for_after_a_cancel(void **state) {
  (void)state;
  struct flag cancel;
  if (!process_has_siblings()) skip(); /* before there is anything to be freed */
  assert_code(flag_open(&cancel, NULL), 0);
  spawn_and_strike(SIGSTOP, &cancel);
  flag_close(&cancel);
}

/* The guard is not among the children that the program waits for. */
static void test_a_guard_is_hidden_from_wait(void **state) {
  (void)state;
  struct guard guard;
  rdzv_error error;
  assert_code(guard_open(&guard, &error), 0);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), process_has_siblings() ? -1 : 0); /* a sanitizer takes fork(2) only */
  guard_close(&guard);
  assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_process_runs_on_the_processors_that_it_is_given),
      cmocka_unit_test(test_each_process_that_cannot_run_its_program_is_known),
      cmocka_unit_test(test_a_starter_that_is_killed_leaves_no_process_that_we_do_not_know),
      cmocka_unit_test(test_a_starter_that_is_stopped_is_not_waited_for_after_a_cancel),
      cmocka_unit_test(test_a_guard_is_hidden_from_wait)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
