/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a wait writes a line. Pure: times are arguments, in milliseconds of one clock.
 * - The first line comes half a second after the first failed try, or after 3 s without a failure.
 * - A changed text comes 3 s after the last line, and each time after twice as long, so that a text that alternates
 * does not flood the log. The same text is repeated after 30 s, and halves that time again.
 */
#ifndef RDZV_BASE_WAIT_WAITING_PACE_H
#define RDZV_BASE_WAIT_WAITING_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
  WAITING_FAILED_MS = 500,
  WAITING_QUIET_MS = 3000,
  WAITING_CHANGE_MS = 3000,
  WAITING_REPEAT_MS = 30000,
};

struct waiting_pace {
  int64_t first; /* when the first line is due */
  bool has_failed;
  bool has_said;
  int64_t said; /* the time of the last line */
  int64_t gap;  /* before a changed text is said */
};

void waiting_pace_begin(struct waiting_pace *pace, int64_t now);

/* A try has failed. */
void waiting_pace_fail(struct waiting_pace *pace, int64_t now);

/* When the next line is due. `changed`: the text differs from the last line's. */
int64_t waiting_pace_due(const struct waiting_pace *pace, bool changed);

/* A line is said. */
void waiting_pace_say(struct waiting_pace *pace, int64_t now, bool changed);

#endif
