/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the last call of a round is over. The deadline in the state is by the wall clock of whoever wrote it; compared
 * with ours, a clock that is wrong by ten minutes would end the call at once, or ten minutes late. So each node counts
 * what is left down on its own monotonic clock, from when it first sees the deadline.
 *
 * What is left then? The writer knows. For the others: a participant's heartbeat that is before the deadline by no more
 * than last_call_timeout may be by the writer's clock (the writer's own is), and then deadline - heartbeat is what was
 * left when it beat. The longest of these is taken, or last_call_timeout if there are none: so no call is cut short,
 * and none is longer than last_call_timeout after it was first seen. The writer, if it lives, ends it in time.
 *
 * Who is in the wait list has announced itself for this very round and is on its way in: as long as somebody is, the
 * call goes on, for the dead time at most. Else a crowd that needs longer than the last call to get in would complete
 * one round after the other, each without some, who wait, so that all begin anew.
 */
#ifndef RDZV_STATE_ENGINE_LAST_CALL_H
#define RDZV_STATE_ENGINE_LAST_CALL_H

#include "state/rendezvous.h"

struct last_call {
  int64_t deadline; /* as the state has it, or DATETIME_NONE */
  int64_t ends_ms;  /* on our monotonic clock */
};
#define LAST_CALL_NONE ((struct last_call){.deadline = DATETIME_NONE})

/* Takes note of a state's deadline. A new one that is `ours` has just been written by us; in the end of somebody else's
 * `later_ms` are put, so that not everybody comes at once. */
void last_call_observe(struct last_call *call, const struct rendezvous_state *state,
                       const struct rendezvous_settings *settings, struct moment now, bool ours, int64_t later_ms);

/* On our monotonic clock; INT64_MAX: none was called. */
static inline int64_t last_call_end(const struct last_call *call, const struct rendezvous_state *state,
                                    const struct rendezvous_settings *settings) {
  if (call->deadline == DATETIME_NONE) return INT64_MAX;
  return call->ends_ms + (state->num_waiting > 0 ? rendezvous_dead_time(settings) : 0);
}

#endif
