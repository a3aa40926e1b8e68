/* SPDX-License-Identifier: BSD-3-Clause */
/* One process as the agent starts it. */
#include "agent/worker/spawn.h"

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
      .guard = &guard, .argv = words, .environment = environ, .out = ends[1], .err = -1, .cpus = cpus};
  if (spawn(&how, &pid, &error) < 0) fail_msg("%s", error.message);
  close(ends[1]);
  const ssize_t got = read(ends[0], out, size - 1);
  close(ends[0]);
  out[got > 0 ? got : 0] = '\0';
  waitpid(pid, NULL, 0);
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_process_runs_on_the_processors_that_it_is_given)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
