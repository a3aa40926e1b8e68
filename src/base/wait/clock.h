/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks are read only here. A deadline is a time of the monotonic clock, in milliseconds. */
#ifndef RDZV_BASE_WAIT_CLOCK_H
#define RDZV_BASE_WAIT_CLOCK_H

#include <stdint.h>

typedef int64_t deadline;

int64_t clock_now_ms(void);

/* The same clock in microseconds, to measure short times. */
int64_t clock_now_us(void);

/* Microseconds since 1970 in UTC. Only to be shown or sent, never to measure time. */
int64_t clock_wall_us(void);

/* The deadline `timeout_ms` from now; never overflows. */
deadline deadline_after(int64_t timeout_ms);

static inline deadline deadline_sooner(deadline a, deadline b) { return a < b ? a : b; }

/* Milliseconds left, 0 when it has passed. */
int64_t deadline_left(deadline at);

/* The same for poll(2), which takes an int. */
int deadline_poll(deadline at);

/* A random time from half to one and a half of `ms`, so that many clients do not come back at once. */
int64_t jitter(int64_t ms);

/* Pauses between tries: each is longer than the one before, up to the longest. */
struct backoff {
  int64_t pause_ms, longest_ms;
};

/* When the next try is due: jitter(pause_ms) from now. */
deadline backoff_next(struct backoff *backoff);

#endif
