/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/thread.h"

#include <signal.h>
#include <time.h>

int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int errnum = pthread_create(thread, NULL, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return errnum;
}

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
