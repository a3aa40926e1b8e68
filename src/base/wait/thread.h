/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_WAIT_THREAD_H
#define RDZV_BASE_WAIT_THREAD_H

#include "base/wait/clock.h"

#include <pthread.h>
#include <stdbool.h>

/* A thread of the library: it takes no signals, which are for the threads that the program knows of. 0, or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* A condition whose timed waits go by the monotonic clock, as deadlines do. */
void thread_cond_init(pthread_cond_t *cond);

/* Waits for it, with the lock held, until then; INT64_MAX is never. False: the time is over. */
bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, deadline until);

#endif
