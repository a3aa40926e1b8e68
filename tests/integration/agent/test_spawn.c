/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes as the agent starts them. */
#include "agent/worker/spawn.h"
#include "base/os/process.h"

#include "unit.h"

#include <fcntl.h>
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
  if (spawn(&guard, &how, 1, &pid, &error) < 0) fail_msg("%s", error.message);
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
static void test_one_pipe_tells_which_processes_could_not_run_their_program(void **state) {
  (void)state;
  enum { COUNT = 300 }; /* more than one piece of the pipe */
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
  assert_code(spawn(&guard, list, COUNT, pids, &error), RDZV_E_IO);
  assert_string_equal(error.message, "cannot start '/no/such/program': exec: No such file or directory");
  for (size_t i = 0; i < COUNT; i++) {
    assert_int_equal(pids[i] == 0, i % 3 == 1);
    if (pids[i]) assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
  }
  assert_int_equal(waitpid(-1, NULL, WNOHANG), process_has_siblings() ? -1 : 0); /* but for the guard */
  guard_close(&guard);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_process_runs_on_the_processors_that_it_is_given),
                                     cmocka_unit_test(test_one_pipe_tells_which_processes_could_not_run_their_program),
                                     cmocka_unit_test(test_a_guard_is_hidden_from_wait)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
