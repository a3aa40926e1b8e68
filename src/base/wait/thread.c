/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/thread.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int errnum = pthread_create(thread, NULL, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return errnum;
}

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

static pid_t clone_into(int cgroup_fd) {
  const struct clone_args how = {
      .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)(unsigned)cgroup_fd};
  if (KNOWS_CLONE3) return (pid_t)syscall(SYS_clone3, &how, sizeof how);
  errno = ENOSYS;
  return -1;
}

static pid_t fork_blocked(int cgroup_fd) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = cgroup_fd >= 0 ? clone_into(cgroup_fd) : fork();
  const int errnum = errno;
  if (pid != 0) pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = errnum;
  return pid;
}

pid_t thread_fork(void) { return fork_blocked(-1); }
pid_t thread_fork_into(int cgroup_fd) { return fork_blocked(cgroup_fd); }

void thread_cond_init(pthread_cond_t *cond) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, deadline until) {
  const struct timespec at = {.tv_sec = (time_t)(until / 1000), .tv_nsec = (long)(until % 1000) * 1000000};
  if (until == INT64_MAX) return pthread_cond_wait(cond, lock) == 0;
  return pthread_cond_timedwait(cond, lock, &at) == 0;
}
