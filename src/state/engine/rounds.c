/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/engine/rounds.h"

static bool takes_part(const struct rendezvous_state *state, const struct node_desc *self) {
  const struct state_node *node = state_find(state, self);
  return node && (node->kinds & NODE_PARTICIPANT);
}

static void know(struct rounds *rounds, int64_t round) {
  if (round >= rounds->first) rounds->first = round + 1;
}

void rounds_write(struct rounds *rounds, const struct rendezvous_state *state, const struct node_desc *self,
                  uint64_t token) {
  rounds->entering = takes_part(state, self) ? state->round : -1;
  rounds->token = token;
}

void rounds_written(struct rounds *rounds) {
  rounds->entered = rounds->entering;
  rounds->entering = -1;
  rounds->doubtful = false;
}

void rounds_not_written(struct rounds *rounds) { rounds->entering = -1; }

void rounds_maybe_written(struct rounds *rounds) {
  if (rounds->entering > rounds->entered) {
    rounds->entered = rounds->entering;
    rounds->doubtful = true;
  }
  rounds->entering = -1;
}

/* What we wrote without an answer has not taken effect by now, but may do so later. */
static bool is_open(const struct rounds *rounds, const struct rendezvous_state *state, uint64_t token) {
  return rounds->doubtful && (token == rounds->token || (state->complete && state->round < rounds->entered));
}

/* A round that we have entered, and that neither gathers with us nor was completed before our eyes, may have been
 * completed all the same. */
void rounds_observe(struct rounds *rounds, const struct rendezvous_state *state, const struct node_desc *self,
                    uint64_t token) {
  const bool gathers = !state->complete && takes_part(state, self);
  if (state->complete) know(rounds, state->round);
  if (!gathers && is_open(rounds, state, token)) return;
  const bool goes_on = (gathers || state->complete) && state->round >= rounds->entered;
  if (rounds->entered >= 0 && !goes_on) know(rounds, rounds->entered);
  rounds->entered = gathers ? state->round : -1;
  rounds->doubtful = false;
}
