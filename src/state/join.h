/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a node of this library does beyond PyTorch's rules (state/rendezvous.h) when it joins, whether it swaps the
 * state itself (state/engine/engine.h) or a server does it for the node (state/native/coordinator.h):
 *   - a node that is in the wait list when a round gets full makes itself a spare. PyTorch leaves it in the wait list,
 *     for which every agent begins another round, and another;
 *   - a spare stays one while the round has more nodes than its own max_nodes. PyTorch's leaves the redundancy list and
 *     comes back to it, without end;
 *   - a node that exits a round and goes into the wait list, or the next round, does both at once;
 *   - a round that a participant left before we could enter it is not entered, nor one that is not after our last;
 *   - a node whose number of nodes can never be in one round with that of a node before does not join.
 */
#ifndef RDZV_STATE_JOIN_H
#define RDZV_STATE_JOIN_H

#include "state/summary.h"

/* decide_join, but for the first two and the last of these. */
enum rendezvous_action join_decide(const struct rendezvous_context *context);

static inline bool action_removes(enum rendezvous_action action) {
  return action >= ACTION_REMOVE_FROM_PARTICIPANTS && action <= ACTION_REMOVE_FROM_REDUNDANCY_LIST;
}

/* The second half of a removal in a join, whose deadline context->deadline_ms is: where the node goes now, at once;
 * ACTION_SYNC: nowhere. To be applied by the caller. */
enum rendezvous_action join_come_back(const struct rendezvous_context *context);

/* Why a participant of the complete round does not enter it; NULL: it does. `joined` is the last round that it was in,
 * `whole` is world_is_whole(state). */
const char *join_obstacle(const struct rendezvous_state *state, int64_t joined, bool whole);

/* Sets the error for ACTION_ERROR_…; `summary` tells which nodes were there, for a timeout, or how nodes differ, for a
 * clash. Gives its code. */
int join_fail(rdzv_error *error, enum rendezvous_action action, const char *wish, const struct summary *summary);

#endif
