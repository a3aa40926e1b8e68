/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_WAIT_THREAD_H
#define RDZV_BASE_WAIT_THREAD_H

#include "base/wait/clock.h"

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread with all signals blocked: they are for the threads of the program. Returns 0 or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* Initialises a condition whose timed waits use the monotonic clock, as deadlines do. */
void thread_cond_init(pthread_cond_t *cond);

/* Waits for the condition with the lock held; INT64_MAX: without a deadline. False: the deadline has passed. */
bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, deadline until);

#endif
