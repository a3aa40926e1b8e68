/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/guard.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_GROUPS = 4096, MOST_DESCRIPTORS = 65536 };

/* ---- the guard: forked from a process that may have threads, so only what is safe then ------------------------ */

struct groups {
  pid_t ids[MOST_GROUPS];
  size_t count;
};

static void note(struct groups *groups, pid_t message) {
  const pid_t group = message < 0 ? -message : message;
  size_t at = 0;
  while (at < groups->count && groups->ids[at] != group) at++;
  if (message < 0 && at < groups->count) groups->ids[at] = groups->ids[--groups->count];
  if (message > 0 && at == groups->count && at < MOST_GROUPS) groups->ids[groups->count++] = group;
}

/* Where the kernel does not know close_range, or is not let to. */
static void close_others(void) {
  if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0) == 0) return;
  for (int fd = STDERR_FILENO + 1; fd < MOST_DESCRIPTORS; fd++) close(fd);
}

static void run_guard(int fd) {
  static struct groups groups;
  pid_t message;
  setsid(); /* all signals are blocked: only SIGKILL ends it before its time */
  prctl(PR_SET_NAME, "rdzv-guard");
  const int null_fd = open("/dev/null", O_RDWR);
  dup2(fd, STDIN_FILENO);
  dup2(null_fd, STDOUT_FILENO);
  dup2(null_fd, STDERR_FILENO);
  close_others();
  for (;;) {
    const ssize_t got = recv(STDIN_FILENO, &message, sizeof message, 0);
    if (got == (ssize_t)sizeof message) note(&groups, message);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  for (size_t i = 0; i < groups.count; i++) kill(-groups.ids[i], SIGKILL);
  _exit(0);
}

/* ---- for the agent -------------------------------------------------------------------------------------------- */

int guard_open(struct guard *guard, rdzv_error *error) {
  int ends[2];
  *guard = (struct guard){-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot start the workers' guard: no socket pair");
  const pid_t pid = thread_fork();
  if (pid == 0) run_guard(ends[1]);
  const int errnum = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return error_errno(error, RDZV_E_IO, errnum, "cannot start the workers' guard: fork");
  }
  *guard = (struct guard){ends[0], pid};
  return 0;
}

/* A guard that was killed is missed by nobody but in the moment of our own death. */
static void tell(const struct guard *guard, pid_t message) {
  if (guard->fd >= 0 && send(guard->fd, &message, sizeof message, MSG_NOSIGNAL) < 0) { /* as said */
  }
}

void guard_add(const struct guard *guard, pid_t group) { tell(guard, group); }
void guard_remove(const struct guard *guard, pid_t group) { tell(guard, -group); }

void guard_close(struct guard *guard) {
  if (guard->fd < 0) return;
  close(guard->fd);
  while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
  }
  *guard = (struct guard){-1, -1};
}
