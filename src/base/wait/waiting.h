/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log lines of a long wait. Code that waits reports here what it waits for and why its tries fail; struct waiting_pace
 * decides when a line goes to the log. A line is "<about>: <cause or phase>; <time left>".
 *
 *   struct waiting waiting;
 *   waiting_begin(&waiting, &log, until);
 *   const struct flag telling = flag_with(cancel, &waiting);
 *   … flag_poll and flag_pause with `telling` write the lines that are due, and so does waiting_fail …
 *
 * A loop that waits by other means wakes by waiting_until() and calls waiting_tick(). A function whose flag has a wait
 * of its caller (cancel->waiting) reports to that one, so that there is one set of lines, and calls waiting_clear()
 * or waiting_succeed() when its own part is done. A wait needs no end call: it stops writing lines. One thread uses a
 * wait at a time. Each function takes NULL for a wait without lines.
 */
#ifndef RDZV_BASE_WAIT_WAITING_H
#define RDZV_BASE_WAIT_WAITING_H

#include "base/wait/clock.h"

#include <rdzv/error.h>
#include <rdzv/log.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- when a line goes to the log ---- */

/*
 * When a wait writes a line. Pure: times are arguments, in milliseconds of one clock.
 * - The first line comes half a second after the first failed try, or after 3 s without a failure.
 * - A changed text comes 3 s after the last line, and each time after twice as long, so that a text that alternates
 * does not flood the log. The same text is repeated after 30 s, and halves that time again.
 */
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

/* ---- the wait ---- */

enum { WAITING_ABOUT_SIZE = 512, WAITING_PHASE_SIZE = 512, WAITING_CAUSE_SIZE = 2 * RDZV_MESSAGE_SIZE };

struct waiting {
  struct waiting_pace pace;
  rdzv_log log;
  rdzv_log_level level; /* of its lines: RDZV_LOG_WARNING unless changed */
  deadline until;       /* INT64_MAX: no end */

  /* If set, is called at most each second before a line is due, to bring `about` up to date. */
  void (*refresh)(struct waiting *waiting, void *user);
  void *user;
  int64_t refreshed;

  char about[WAITING_ABOUT_SIZE];
  char phase[WAITING_PHASE_SIZE];
  int64_t phase_began;
  char cause[WAITING_CAUSE_SIZE];
  uint64_t said;     /* a hash of the last line's text, without the time left */
  bool warned;       /* a line told of a cause */
  int64_t failed_ms; /* since when tries have failed; 0: none has */
};

void waiting_begin(struct waiting *waiting, const rdzv_log *log, deadline until);

/* What the whole wait is about: "waiting for rank 0 at 'node0:29500'". */
void waiting_about(struct waiting *waiting, const char *format, ...) RDZV_PRINTF(2, 3);

/* The current part of a try: "looking up 'node0'". It is shown if no try has failed yet, or if it takes longer than a
 * second. */
void waiting_for(struct waiting *waiting, const char *format, ...) RDZV_PRINTF(2, 3);

/* A try has failed: the cause, and the likely cure. */
void waiting_fail(struct waiting *waiting, const char *format, ...) RDZV_PRINTF(2, 3);

/* Clears phase and cause: the tries are over, and the wait goes on. */
void waiting_clear(struct waiting *waiting);

/* The same, where they have succeeded. If a line told that they failed, another one, of the same level, tells that this
 * is over: "connected to 'node0:29400' after 4 s". */
void waiting_succeed(struct waiting *waiting, const char *format, ...) RDZV_PRINTF(2, 3);

/* Writes the line that is due, if any. */
void waiting_tick(struct waiting *waiting);

/* When to call waiting_tick at the latest, but not after `until`. */
deadline waiting_until(struct waiting *waiting, deadline until);

#endif
