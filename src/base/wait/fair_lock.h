/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock for calls that hold it for long, and for one thread that works between them. Callers get it in the order in
 * which they asked, and before the thread. While a caller holds the lock or waits for it, the flag `wanted` is up: it
 * cancels what the thread does with the lock, so that callers need not wait for it.
 */
#ifndef RDZV_BASE_WAIT_FAIR_LOCK_H
#define RDZV_BASE_WAIT_FAIR_LOCK_H

#include "base/wait/flag.h"

#include <pthread.h>
#include <stdint.h>

struct fair_lock {
  struct flag wanted;
  pthread_mutex_t mutex; /* guards what follows; never held for long */
  pthread_cond_t given;
  uint64_t asked, served; /* callers, so far: equal while no caller wants it */
  bool lent;              /* the thread has it */
};

/* A lock that is not open: closing it does nothing. */
#define FAIR_LOCK_NONE \
  ((struct fair_lock){.wanted = FLAG_NONE, .mutex = PTHREAD_MUTEX_INITIALIZER, .given = PTHREAD_COND_INITIALIZER})

int fair_lock_open(struct fair_lock *lock, rdzv_error *error);
void fair_lock_close(struct fair_lock *lock);

/* For callers. */
void fair_lock_take(struct fair_lock *lock);
void fair_lock_give(struct fair_lock *lock);

/* For the thread. */
void fair_lock_borrow(struct fair_lock *lock);
void fair_lock_return(struct fair_lock *lock);

/* With the lock borrowed: returns it, and borrows it again after at least one caller has had it. */
void fair_lock_await_caller(struct fair_lock *lock);

#endif
