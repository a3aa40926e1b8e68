/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_THREAD_H
#define RDZV_BASE_THREAD_H

#include <pthread.h>

/* A thread of the library: it takes no signals, which are for the threads that the program knows of. 0, or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* A condition whose timed waits go by the monotonic clock, as deadlines do. */
void thread_cond_init(pthread_cond_t *cond);

#endif
