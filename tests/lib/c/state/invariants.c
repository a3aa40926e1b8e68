/* SPDX-License-Identifier: BSD-3-Clause */
#include "invariants.h"

#include <stdlib.h>

/* ---- one state ------------------------------------------------------------------------------------------------ */

static bool in_one(unsigned kinds) { return kinds != 0 && (kinds & (kinds - 1)) == 0; }

static const char *broken_member(const struct rendezvous_state *state, const struct state_node *member) {
  if (!in_one(member->kinds)) return "a member is in one collection, neither in none nor in two";
  if (member->last_heartbeat == DATETIME_NONE) return "every member has a heartbeat";
  if (!state->complete && member->rank != 0) return "there are no ranks before the round is complete";
  return NULL;
}

/* Each rank once, and below `end`. */
static const char *broken_ranks(const struct rendezvous_state *state, int64_t end) {
  bool *taken = calloc((size_t)end + 1, sizeof *taken);
  const char *broken = taken ? NULL : "there is memory for checking the ranks";
  for (size_t i = 0; i < state->count && !broken; i++) {
    const struct state_node *member = &state->nodes[i];
    if (!(member->kinds & NODE_PARTICIPANT)) continue;
    if (member->rank < 0 || member->rank >= end)
      broken = "every rank is below the size of the world";
    else if (taken[member->rank])
      broken = "no rank is given twice";
    else
      taken[member->rank] = true;
  }
  free(taken);
  return broken;
}

static const char *broken_gathering(const struct rendezvous_state *state, const struct rendezvous_settings *settings) {
  const int64_t count = (int64_t)state->num_participants;
  if (count >= settings->max_nodes) return "a full round is complete";
  if (state->deadline == DATETIME_NONE && count >= settings->min_nodes) return "enough nodes have a last call";
  if (rendezvous_phase(state) == PHASE_LAST_CALL && count < settings->min_nodes)
    return "too few nodes have no last call";
  return NULL;
}

static const char *broken_complete(const struct rendezvous_state *state, const struct rendezvous_settings *settings) {
  if (state->num_participants == 0) return "a complete round has somebody in it";
  if (state->deadline != DATETIME_NONE && state->deadline != WORLD_LEFT) return "a complete round has no last call";
  if ((int64_t)state->num_participants > settings->max_nodes) return "a round has at most max_nodes";
  return broken_ranks(state, world_is_whole(state) ? (int64_t)state->num_participants : settings->max_nodes);
}

const char *rendezvous_broken_invariant(const struct rendezvous_state *state,
                                        const struct rendezvous_settings *settings) {
  const char *broken = state->round < 0 ? "rounds count from 0" : NULL;
  for (size_t i = 0; i < state->count && !broken; i++) broken = broken_member(state, &state->nodes[i]);
  if (!broken) broken = state->complete ? broken_complete(state, settings) : broken_gathering(state, settings);
  if (!broken && state->num_spares > 0 && !settings->has_redundancy_list)
    broken = "nobody is in a list that the layout does not have";
  return broken;
}

/* ---- two states ----------------------------------------------------------------------------------------------- */

/*
 * From a row to a column, the round may be the same (S), or a later one (N). After a complete round all participants
 * were dead or left, and the same step may have begun the next round, up to completing it where one node is enough. One
 * that gathers gets a later number from a participant that knows of later rounds (state/engine/rounds.h).
 */
enum { NEVER = 0, S = 1, N = 2 };
static const unsigned allowed[4][4] = {
    /*                    gathering  last call  complete  closed */
    [PHASE_GATHERING] = {S | N, S | N, S | N, S},
    [PHASE_LAST_CALL] = {S | N, S | N, S | N, S},
    [PHASE_COMPLETE] = {N, N, S | N, S | N},
    [PHASE_CLOSED] = {NEVER, NEVER, NEVER, S | N},
};

static bool has_newcomer(const struct rendezvous_state *before, const struct rendezvous_state *after) {
  for (size_t i = 0; i < after->count; i++) {
    const struct state_node *was = state_find(before, &after->nodes[i].desc);
    if ((after->nodes[i].kinds & NODE_PARTICIPANT) && !(was && (was->kinds & NODE_PARTICIPANT))) return true;
  }
  return false;
}

/* A run that all nodes have left gathers. */
static enum rendezvous_phase phase_of(const struct rendezvous_state *state) {
  const enum rendezvous_phase phase = rendezvous_phase(state);
  return phase == PHASE_ENDED ? PHASE_GATHERING : phase;
}

static const char *broken_phase(const struct rendezvous_state *before, const struct rendezvous_state *after) {
  const unsigned may = allowed[phase_of(before)][phase_of(after)];
  if (before->closed && !after->closed) return "closed is final";
  if (after->round < before->round) return "rounds never go back";
  if (!(may & (after->round == before->round ? S : N))) return "that phase does not follow in that round";
  if (after->round > before->round && !before->complete && (before->closed || !has_newcomer(before, after)))
    return "a round that gathers gets a later number only from a node that comes in";
  return NULL;
}

/* Once complete, participants only go. */
static const char *broken_membership(const struct rendezvous_state *before, const struct rendezvous_state *after) {
  for (size_t i = 0; i < after->count; i++) {
    const struct state_node *member = &after->nodes[i];
    if (!(member->kinds & NODE_PARTICIPANT)) continue;
    const struct state_node *was = state_find(before, &member->desc);
    if (!was || !(was->kinds & NODE_PARTICIPANT)) return "nobody comes into a complete round";
    if (was->rank != member->rank) return "nobody's rank changes in a complete round";
  }
  return NULL;
}

static const char *broken_completion(const struct rendezvous_state *after, const struct rendezvous_settings *settings) {
  const int64_t count = (int64_t)after->num_participants;
  if (count < settings->min_nodes) return "a round is completed by min_nodes at least";
  if (count > settings->max_nodes) return "a round is completed by max_nodes at most";
  return broken_ranks(after, count); /* each once and below count: 0 … n-1 */
}

const char *rendezvous_broken_transition(const struct rendezvous_state *before, const struct rendezvous_state *after,
                                         const struct rendezvous_settings *settings) {
  const char *broken = broken_phase(before, after);
  if (broken || !after->complete) return broken;
  const bool goes_on = before->complete && before->round == after->round;
  return goes_on ? broken_membership(before, after) : broken_completion(after, settings);
}
