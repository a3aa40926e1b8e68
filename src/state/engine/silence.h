/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For how long the store has not answered. A node whose store was silent for the dead time is dead to the others, and
 * gives up.
 *
 * As in state/engine/liveness.h, time in which we did not look does not count: of the time between two looks at most a
 * third of the dead time is credited. A process that was stopped, or a machine that was suspended, finds no more
 * silence than that when it goes on, and the store has the rest of the dead time to answer. Look at least every
 * silence_look_interval(), and nothing is lost.
 */
#ifndef RDZV_STATE_ENGINE_SILENCE_H
#define RDZV_STATE_ENGINE_SILENCE_H

#include "state/rendezvous.h"

/* All zero: the store has answered just now, at time 0. */
struct silence {
  int64_t lasted_ms; /* credited up to the last look */
  int64_t looked_ms; /* the last look, on the monotonic clock */
};

/* The store has answered, or was not asked anything before: silence begins again. */
void silence_end(struct silence *silence, int64_t now_ms);

/* Looks, and gives how long it has lasted. */
int64_t silence_look(struct silence *silence, const struct rendezvous_settings *settings, int64_t now_ms);

static inline int64_t silence_look_interval(const struct rendezvous_settings *settings) {
  return 1 + rendezvous_dead_time(settings) / 3;
}

/* When to look again, on the monotonic clock: the silence may have lasted for the dead time then. Always later than the
 * last look. */
int64_t silence_wake(const struct silence *silence, const struct rendezvous_settings *settings);

#endif
