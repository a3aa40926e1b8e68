/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A wait that is not silent. Code that waits reports here what it waits for and why its tries fail; lines go to the log
 * when waiting_pace.h says so. A line is "<about>: <cause or phase>; <time left>".
 *
 *   struct waiting waiting;
 *   waiting_begin(&waiting, &log, until);
 *   const struct flag telling = flag_with(cancel, &waiting);
 *   … every flag_poll and flag_pause with `telling` says what is due, and so does waiting_fail …
 *
 * A loop that waits elsewhere wakes by waiting_until() and calls waiting_tick(). A function that is given a flag with a
 * wait of its caller's (cancel->waiting) reports to that one, so that one wait has one voice, and calls waiting_clear()
 * when its own part is done. There is nothing to end: a wait that is over says no more. One thread uses it at a time;
 * every function takes NULL, for a wait that nobody wants to hear of.
 */
#ifndef RDZV_BASE_WAIT_WAITING_H
#define RDZV_BASE_WAIT_WAITING_H

#include "base/wait/clock.h"
#include "base/wait/waiting_pace.h"

#include <rdzv/error.h>
#include <rdzv/log.h>

enum { WAITING_ABOUT_SIZE = 512, WAITING_PHASE_SIZE = 512, WAITING_CAUSE_SIZE = 2 * RDZV_MESSAGE_SIZE };

struct waiting {
  struct waiting_pace pace;
  rdzv_log log;
  rdzv_log_level level; /* of its lines: RDZV_LOG_WARNING unless changed */
  deadline until;       /* INT64_MAX: no end */

  /* If set, called each second once a line may be due: brings `about` up to date. */
  void (*refresh)(struct waiting *waiting, void *user);
  void *user;
  int64_t refreshed;

  char about[WAITING_ABOUT_SIZE];
  char phase[WAITING_PHASE_SIZE];
  int64_t phase_began;
  char cause[WAITING_CAUSE_SIZE];
  uint64_t said; /* a hash of the last line's text, without the time left */
};

void waiting_begin(struct waiting *waiting, const rdzv_log *log, deadline until);

/* What the whole wait is about: "waiting for rank 0 at 'node0:29500'". */
void waiting_about(struct waiting *waiting, const char *format, ...) RDZV_PRINTF(2, 3);

/* What is waited for at the moment, part of a try: "looking up 'node0'". Said where no try has failed, or it takes
 * longer than a second. */
void waiting_for(struct waiting *waiting, const char *format, ...) RDZV_PRINTF(2, 3);

/* A try has failed: the cause, and the likely cure. */
void waiting_fail(struct waiting *waiting, const char *format, ...) RDZV_PRINTF(2, 3);

/* Forgets phase and cause: the tries have succeeded, and what the wait is about goes on. */
void waiting_clear(struct waiting *waiting);

/* Says what is due. */
void waiting_tick(struct waiting *waiting);

/* When to call waiting_tick at the latest, but not after `until`. */
deadline waiting_until(struct waiting *waiting, deadline until);

#endif
