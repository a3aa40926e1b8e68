/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the last call of a round is over. The deadline in the state is by the wall clock of the node that wrote it;
 * compared with ours, a clock that is wrong by ten minutes would end the call at once, or ten minutes late. So each
 * node counts the time that is left down on its own monotonic clock, from when it first sees the deadline.
 *
 * The writer knows how much is left. The others estimate it: a participant's heartbeat that is before the deadline by
 * at most last_call_timeout may be by the writer's clock (the writer's own heartbeat is), and then deadline -
 * heartbeat was left when it beat. They take the longest of these, or last_call_timeout if there are none. So no call
 * is cut short, and none lasts longer than last_call_timeout after it was first seen. A writer that lives ends it in
 * time.
 *
 * A node in the wait list has announced itself for this very round. While there is one, the call goes on, for the dead
 * time at most. Otherwise a crowd that needs longer than the last call to get in would complete one round after the
 * other, each without some nodes, which makes all begin again.
 */
#ifndef RDZV_STATE_ENGINE_LAST_CALL_H
#define RDZV_STATE_ENGINE_LAST_CALL_H

#include "state/rendezvous.h"

struct last_call {
  int64_t deadline; /* as the state has it, or DATETIME_NONE */
  int64_t ends_ms;  /* on our monotonic clock */
};
#define LAST_CALL_NONE ((struct last_call){.deadline = DATETIME_NONE})

/* Takes note of a state's deadline. `ours`: we have just written it. Another node's call ends `later_ms` later for us,
 * so that not all nodes complete the round at once. */
void last_call_observe(struct last_call *call, const struct rendezvous_state *state,
                       const struct rendezvous_settings *settings, struct moment now, bool ours, int64_t later_ms);

/* On our monotonic clock; INT64_MAX: none was called. */
static inline int64_t last_call_end(const struct last_call *call, const struct rendezvous_state *state,
                                    const struct rendezvous_settings *settings) {
  if (call->deadline == DATETIME_NONE) return INT64_MAX;
  return call->ends_ms + (state->num_waiting > 0 ? rendezvous_dead_time(settings) : 0);
}

#endif
