/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_DESCRIPTORS = 65536 };

/* ---- forking -------------------------------------------------------------------------------------------------- */

/* The sanitizer has to know of a fork. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define KNOWS_CLONE3 false
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define KNOWS_CLONE3 false
#endif
#endif
#ifndef KNOWS_CLONE3
#define KNOWS_CLONE3 true
#endif

static pid_t clone_with(unsigned flags, int cgroup_fd) {
  const uint64_t into = cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0;
  const uint64_t sibling = flags & PROCESS_SIBLING ? CLONE_PARENT : 0;
  const struct clone_args how = {.flags = into | sibling,
                                 .exit_signal = flags ? 0u : (uint64_t)SIGCHLD, /* a sibling has our own */
                                 .cgroup = (uint64_t)(unsigned)cgroup_fd}; /* looked at with CLONE_INTO_CGROUP only */
  if (KNOWS_CLONE3) return (pid_t)syscall(SYS_clone3, &how, sizeof how);
  errno = ENOSYS;
  return -1;
}

/* Before Linux 5.3, or where a filter forbids clone3. */
static pid_t clone_sibling(void) {
#ifdef __s390__
  return (pid_t)syscall(SYS_clone, NULL, CLONE_PARENT, NULL, NULL, NULL);
#else
  return (pid_t)syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, NULL);
#endif
}

static pid_t fork_now(unsigned flags, int cgroup_fd) {
  const pid_t pid = flags || cgroup_fd >= 0 ? clone_with(flags, cgroup_fd) : -1;
  if (pid >= 0 || cgroup_fd >= 0) return pid;
  return flags & PROCESS_SIBLING ? clone_sibling() : fork();
}

pid_t process_fork(unsigned flags, int cgroup_fd) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork_now(flags, cgroup_fd);
  const int errnum = errno;
  if (pid != 0) pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = errnum;
  return pid;
}

bool process_has_siblings(void) { return KNOWS_CLONE3; }

void process_reap(pid_t pid) {
  while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR) {
  }
}

/* ---- in the child --------------------------------------------------------------------------------------------- */

void process_take_signals(void) {
  struct sigaction action;
  sigset_t none;
  for (int number = 1; number < NSIG; number++)
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL)
      signal(number, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Where the kernel has no close_range, before 5.9, or a filter forbids it, one by one. */
void process_close_from(int first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  for (int fd = first; fd < MOST_DESCRIPTORS; fd++) close(fd);
}

void process_close_from_at_exec(int first) {
  if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = first; fd < MOST_DESCRIPTORS; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
}
