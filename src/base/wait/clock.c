/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/clock.h"

#include <limits.h>
#include <sys/random.h>
#include <time.h>

int64_t clock_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t clock_wall_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

deadline deadline_after(int64_t timeout_ms) {
  const int64_t now = clock_now_ms();
  return timeout_ms > INT64_MAX - now ? INT64_MAX : now + timeout_ms;
}

int64_t deadline_left(deadline at) {
  const int64_t now = clock_now_ms();
  return at > now ? at - now : 0;
}

int deadline_poll(deadline at) {
  const int64_t left = deadline_left(at);
  return left > INT_MAX ? INT_MAX : (int)left;
}

int64_t jitter(int64_t ms) {
  uint64_t random = 0;
  if (ms <= 0 || getrandom(&random, sizeof random, GRND_NONBLOCK) < 0) return ms;
  return ms / 2 + (int64_t)(random % (uint64_t)(ms + 1));
}

deadline backoff_next(struct backoff *backoff) {
  const deadline next = deadline_after(jitter(backoff->pause_ms));
  const int64_t longer = backoff->pause_ms * 8 / 5 + 1;
  backoff->pause_ms = longer < backoff->longest_ms ? longer : backoff->longest_ms;
  return next;
}
