/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/fair_lock.h"

int fair_lock_open(struct fair_lock *lock, rdzv_error *error) {
  *lock = FAIR_LOCK_NONE;
  return flag_open(&lock->wanted, error);
}

void fair_lock_close(struct fair_lock *lock) {
  flag_close(&lock->wanted);
  pthread_mutex_destroy(&lock->mutex);
  pthread_cond_destroy(&lock->given);
}

void fair_lock_take(struct fair_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  const uint64_t place = lock->asked++;
  if (place == lock->served) flag_raise(&lock->wanted);
  while (place != lock->served || lock->lent) pthread_cond_wait(&lock->given, &lock->mutex);
  pthread_mutex_unlock(&lock->mutex);
}

void fair_lock_give(struct fair_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  if (++lock->served == lock->asked) flag_lower(&lock->wanted);
  pthread_cond_broadcast(&lock->given);
  pthread_mutex_unlock(&lock->mutex);
}

void fair_lock_borrow(struct fair_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  while (lock->asked != lock->served) pthread_cond_wait(&lock->given, &lock->mutex);
  lock->lent = true;
  pthread_mutex_unlock(&lock->mutex);
}

void fair_lock_return(struct fair_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  lock->lent = false;
  pthread_cond_broadcast(&lock->given);
  pthread_mutex_unlock(&lock->mutex);
}

void fair_lock_await_caller(struct fair_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  const uint64_t before = lock->served;
  lock->lent = false;
  pthread_cond_broadcast(&lock->given);
  while (lock->served == before || lock->asked != lock->served) pthread_cond_wait(&lock->given, &lock->mutex);
  lock->lent = true;
  pthread_mutex_unlock(&lock->mutex);
}
