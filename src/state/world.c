/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/rendezvous.h"

/* Nobody but those with the highest ranks can be missing. */
static bool ranks_have_no_gap(const struct rendezvous_state *state) {
  int64_t highest = -1;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    if ((node->kinds & NODE_PARTICIPANT) && node->rank > highest) highest = node->rank;
  }
  return highest == (int64_t)state->num_participants - 1;
}

bool world_is_whole(const struct rendezvous_state *state) {
  return state->deadline == DATETIME_NONE && ranks_have_no_gap(state);
}
