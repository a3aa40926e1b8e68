/* SPDX-License-Identifier: BSD-3-Clause */
/* A server that is opened with few descriptors left: it opens, or says what the limit is. Each try is a process of its
 * own, because what libuv does with its first loop, it does once in a process. */
#include "unit.h"

#include <rdzv/server.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPENED = 0, REFUSED = 1, WRONG = 2, MOST = 24 };

/* The descriptors that are not used yet, below the limit. */
static void leave_free(int count) {
  const int next = dup(STDERR_FILENO); /* the first that is not in use */
  close(next);
  const struct rlimit limit = {(rlim_t)(next + count), (rlim_t)(next + count)};
  setrlimit(RLIMIT_NOFILE, &limit);
}

static int try_with(int count) {
  rdzv_server *server;
  rdzv_error error = {0};
  leave_free(count);
  const int result = rdzv_server_open(&(rdzv_server_options){.size = sizeof(rdzv_server_options)}, &server, &error);
  if (result == 0) {
    rdzv_server_free(server);
    return OPENED;
  }
  const bool told = strstr(error.message, "Too many open files (the limit is") && strstr(error.message, "ulimit -n)");
  if (!told) fprintf(stderr, "with %d free: %s\n", count, error.message);
  return told && result == RDZV_E_IO ? REFUSED : WRONG;
}

static int status_with(int count) {
  int status;
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(try_with(count));
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

static void test_a_server_with_few_descriptors(void **state) {
  (void)state;
  for (int count = 0; count <= MOST; count++) {
    const int status = status_with(count);
    if (!WIFEXITED(status)) fail_msg("with %d free: killed by signal %d", count, WTERMSIG(status));
    assert_int_not_equal(WEXITSTATUS(status), WRONG);
    if (count <= 3) assert_int_equal(WEXITSTATUS(status), REFUSED);
    if (count == MOST) assert_int_equal(WEXITSTATUS(status), OPENED);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_server_with_few_descriptors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
