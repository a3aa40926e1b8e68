/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_WAIT_THREAD_H
#define RDZV_BASE_WAIT_THREAD_H

#include "base/wait/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* A thread of the library: it takes no signals, which are for the threads that the program knows of. 0, or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* Forks. In the child all signals are blocked, so that no handler of the program's acts there on what both share; the
 * child restores them itself. */
pid_t thread_fork(void);

/* The same, into the cgroup whose folder that is, in one step. Where the kernel cannot, before 5.7, -1. */
pid_t thread_fork_into(int cgroup_fd);

/* A condition whose timed waits go by the monotonic clock, as deadlines do. */
void thread_cond_init(pthread_cond_t *cond);

/* Waits for it, with the lock held, until then; INT64_MAX is never. False: the time is over. */
bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, deadline until);

#endif
