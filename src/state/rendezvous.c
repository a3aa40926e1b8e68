/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/rendezvous.h"

#include "base/error.h"
#include "state/differences.h"
#include "state/ending.h"

/* ---- questions about a state ---------------------------------------------------------------------------------- */

enum rendezvous_phase rendezvous_phase(const struct rendezvous_state *state) {
  if (state->closed) return PHASE_CLOSED;
  if (state->complete) return PHASE_COMPLETE;
  if (state->count == 0 && ending_read(state, &(struct ending){0})) return PHASE_ENDED;
  return state->deadline == DATETIME_NONE || state->deadline == WORLD_LEFT ? PHASE_GATHERING : PHASE_LAST_CALL;
}

const char *rendezvous_phase_name(enum rendezvous_phase phase) {
  static const char *const names[] = {"gathering", "last call", "complete", "closed", "ended"};
  return names[phase];
}

/* Then no participant is missing, except perhaps those with the highest ranks. */
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

/* ---- what a node does next ------------------------------------------------------------------------------------ */

/* Each decide_* is the counterpart of a class in PyTorch's dynamic_rendezvous.py (_RendezvousExitOp,
 * _RendezvousJoinOp, …), and decides as it does. */

const char *rendezvous_action_name(enum rendezvous_action action) {
  static const char *const names[] = {"KEEP_ALIVE",
                                      "ADD_TO_PARTICIPANTS",
                                      "ADD_TO_WAIT_LIST",
                                      "ADD_TO_REDUNDANCY_LIST",
                                      "REMOVE_FROM_PARTICIPANTS",
                                      "REMOVE_FROM_WAIT_LIST",
                                      "REMOVE_FROM_REDUNDANCY_LIST",
                                      "MARK_RENDEZVOUS_COMPLETE",
                                      "MARK_RENDEZVOUS_CLOSED",
                                      "ENTER_SETTINGS",
                                      "SYNC",
                                      "ERROR_CLOSED",
                                      "ERROR_GRACEFUL_EXIT",
                                      "ERROR_TIMEOUT",
                                      "ERROR_CLASH",
                                      "FINISH"};
  return (size_t)action < sizeof names / sizeof names[0] ? names[action] : "?";
}

static const struct state_node *self(const struct rendezvous_context *context) {
  return state_find(context->state, context->node);
}

static bool is(const struct state_node *node, unsigned kind) { return node && (node->kinds & kind) != 0; }

/* A node without a heartbeat in the state was evicted, or never was there: it is not kept alive. */
static bool should_keep_alive(const struct rendezvous_context *context) {
  const struct state_node *node = self(context);
  return node && node->last_heartbeat != DATETIME_NONE && context->keep_alive_due;
}

static bool is_past(const struct rendezvous_context *context, int64_t deadline_ms) {
  return context->now.mono_ms > deadline_ms;
}

static enum rendezvous_action keep_alive_or_wait(const struct rendezvous_context *context) {
  return should_keep_alive(context) ? ACTION_KEEP_ALIVE : ACTION_SYNC;
}

enum rendezvous_action decide_exit(const struct rendezvous_context *context) {
  if (!is(self(context), NODE_PARTICIPANT)) return ACTION_FINISH;
  return is_past(context, context->deadline_ms) ? ACTION_ERROR_TIMEOUT : ACTION_REMOVE_FROM_PARTICIPANTS;
}

enum rendezvous_action decide_close(const struct rendezvous_context *context) {
  if (context->state->closed) return ACTION_FINISH;
  return is_past(context, context->deadline_ms) ? ACTION_ERROR_TIMEOUT : ACTION_MARK_RENDEZVOUS_CLOSED;
}

enum rendezvous_action decide_keep_alive(const struct rendezvous_context *context) {
  if (!should_keep_alive(context)) return ACTION_FINISH;
  return is_past(context, context->deadline_ms) ? ACTION_ERROR_TIMEOUT : ACTION_KEEP_ALIVE;
}

enum rendezvous_action decide_leave(const struct rendezvous_context *context) {
  const struct state_node *node = self(context);
  if (!is(node, NODE_PARTICIPANT | NODE_WAITING | NODE_SPARE)) return ACTION_FINISH;
  if (is_past(context, context->deadline_ms)) return ACTION_ERROR_TIMEOUT;
  if (is(node, NODE_PARTICIPANT)) return ACTION_REMOVE_FROM_PARTICIPANTS;
  return is(node, NODE_WAITING) ? ACTION_REMOVE_FROM_WAIT_LIST : ACTION_REMOVE_FROM_REDUNDANCY_LIST;
}

/* The join deadline does not hold for a spare: it waits for a free place as long as it likes. */
static enum rendezvous_action join_as_spare(const struct rendezvous_context *context) {
  const bool full = (int64_t)context->state->num_participants == context->settings->max_nodes;
  return full ? keep_alive_or_wait(context) : ACTION_REMOVE_FROM_REDUNDANCY_LIST;
}

static enum rendezvous_action join_too_late(const struct rendezvous_context *context) {
  if (is_past(context, context->deadline_ms + RENDEZVOUS_ROLLBACK_MS)) return ACTION_ERROR_TIMEOUT;
  const struct state_node *node = self(context);
  if (is(node, NODE_PARTICIPANT)) return ACTION_REMOVE_FROM_PARTICIPANTS;
  return is(node, NODE_WAITING) ? ACTION_REMOVE_FROM_WAIT_LIST : ACTION_ERROR_TIMEOUT;
}

/* The round is complete without us. A full one has spares, for which no agent begins another round. */
static enum rendezvous_action join_next_round(const struct rendezvous_context *context) {
  if (is(self(context), NODE_WAITING)) return keep_alive_or_wait(context);
  if ((int64_t)context->state->num_participants < context->settings->max_nodes) return ACTION_ADD_TO_WAIT_LIST;
  return context->settings->has_redundancy_list ? ACTION_ADD_TO_REDUNDANCY_LIST : keep_alive_or_wait(context);
}

/* We are a participant of a round that still gathers. */
static enum rendezvous_action join_gathering(const struct rendezvous_context *context) {
  const int64_t count = (int64_t)context->state->num_participants;
  const bool enough = count >= context->settings->min_nodes && count <= context->settings->max_nodes;
  const bool called = context->state->deadline != DATETIME_NONE && context->last_call_over;
  return enough && called ? ACTION_MARK_RENDEZVOUS_COMPLETE : keep_alive_or_wait(context);
}

enum rendezvous_action decide_join(const struct rendezvous_context *context) {
  const struct rendezvous_state *state = context->state;
  const struct state_node *node = self(context);
  if (state->closed) return is(node, NODE_SPARE) ? ACTION_ERROR_GRACEFUL_EXIT : ACTION_ERROR_CLOSED;
  if (is(node, NODE_SPARE)) return join_as_spare(context);
  if (state->complete && is(node, NODE_PARTICIPANT)) return ACTION_FINISH;
  if (is_past(context, context->deadline_ms)) return join_too_late(context);
  if (state->complete) return join_next_round(context);
  return is(node, NODE_PARTICIPANT) ? join_gathering(context) : ACTION_ADD_TO_PARTICIPANTS;
}

/* ---- how an action changes the state: the methods of _DistributedRendezvousOpExecutor ------------------------- */

/* Updates the state after a participant was removed, because it left or died. */
static void participant_removed(struct rendezvous_state *state, const struct rendezvous_settings *settings) {
  if (state->complete) {
    if (state->num_participants > 0) {
      if (settings->marks) state->deadline = WORLD_LEFT;
      return;
    }
    state->complete = false;
    state->round++;
    if (state->deadline == WORLD_LEFT) state->deadline = DATETIME_NONE;
  } else if ((int64_t)state->num_participants < settings->min_nodes) {
    state->deadline = DATETIME_NONE;
  }
}

size_t rendezvous_sanitize(struct rendezvous_state *state, const struct rendezvous_settings *settings,
                           bool (*is_dead)(void *argument, const struct state_node *node), void *argument) {
  size_t removed = 0;
  bool participant = false;
  for (size_t i = state->count; i > 0; i--) {
    struct state_node *node = &state->nodes[i - 1];
    if (!is_dead(argument, node)) continue;
    participant |= (node->kinds & NODE_PARTICIPANT) != 0;
    state_remove(state, node);
    removed++;
  }
  if (participant) participant_removed(state, settings);
  if (removed > 0 && settings->marks) differences_clean(state);
  return removed;
}

/* Puts us in these collections and takes us out of those, with a fresh heartbeat. */
static int move_self(struct rendezvous_context *context, unsigned to, unsigned from, rdzv_error *error) {
  struct state_node *node;
  const int result = state_insert(context->state, context->node, &node, error);
  if (result < 0) return result;
  state_set_kinds(context->state, node, (node->kinds & ~from) | to);
  if (to & NODE_PARTICIPANT) node->rank = 0; /* until the round is complete */
  node->last_heartbeat = context->now.wall_us;
  node->ours = context->settings->marks;
  if (node->ours) differences_enter(context->state, context->node, context->settings);
  if (!context->state->closed) ending_forget(context->state);
  return 0;
}

static int mark_complete(struct rendezvous_context *context, rdzv_error *error) {
  struct rendezvous_state *state = context->state;
  const int result = rendezvous_assign_ranks(state, context->settings->rank_order, error);
  if (result < 0) {
    for (size_t i = 0; i < state->count; i++) state->nodes[i].rank = 0; /* as in every round that gathers */
    return result;
  }
  state->complete = true;
  state->deadline = DATETIME_NONE;
  return 0;
}

/* The one that makes the number of nodes sufficient calls the last call; the one that makes it full completes the
 * round. */
static int count_participants(struct rendezvous_context *context, rdzv_error *error) {
  struct rendezvous_state *state = context->state;
  const struct rendezvous_settings *settings = context->settings;
  if ((int64_t)state->num_participants == settings->min_nodes)
    state->deadline = context->now.wall_us + settings->last_call_timeout * 1000;
  return (int64_t)state->num_participants == settings->max_nodes ? mark_complete(context, error) : 0;
}

/* A round whose number was given before gets another. */
static int add_to_participants(struct rendezvous_context *context, rdzv_error *error) {
  struct rendezvous_state *state = context->state;
  const struct state_node *self_before = self(context);
  const struct state_node before = self_before ? *self_before : (struct state_node){0};
  const int64_t deadline = state->deadline, round = state->round;
  int result = move_self(context, NODE_PARTICIPANT, NODE_WAITING, error);
  if (result < 0) return result;
  if (state->round < context->first_round) state->round = context->first_round;
  result = count_participants(context, error);
  if (result == 0) return 0;
  state->deadline = deadline;
  state->round = round;
  struct state_node *node = state_find(state, context->node);
  state_set_kinds(state, node, before.kinds);
  node->last_heartbeat = before.last_heartbeat;
  node->ours = before.ours;
  if (!self_before) state_remove(state, node);
  return result;
}

/* Takes us out of one collection and out of the heartbeats. */
static int remove_self(struct rendezvous_context *context, unsigned kind) {
  struct state_node *node = state_find(context->state, context->node);
  if (!node) return 0;
  const unsigned left = node->kinds & ~kind;
  state_set_kinds(context->state, node, left);
  node->last_heartbeat = DATETIME_NONE;
  if (left == 0) state_remove(context->state, node);
  if (left == 0 && context->settings->marks) differences_clean(context->state);
  if (context->state->count == 0 && context->settings->marks && !context->state->closed)
    ending_note(context->state, context->node, false, context->now.wall_us);
  return 0;
}

int rendezvous_apply(struct rendezvous_context *context, enum rendezvous_action action, rdzv_error *error) {
  switch (action) {
    case ACTION_KEEP_ALIVE: return move_self(context, 0, 0, error);
    case ACTION_ADD_TO_PARTICIPANTS: return add_to_participants(context, error);
    case ACTION_ADD_TO_WAIT_LIST: return move_self(context, NODE_WAITING, NODE_SPARE, error);
    case ACTION_ADD_TO_REDUNDANCY_LIST: return move_self(context, NODE_SPARE, 0, error);
    case ACTION_REMOVE_FROM_PARTICIPANTS:
      remove_self(context, NODE_PARTICIPANT);
      participant_removed(context->state, context->settings);
      return 0;
    case ACTION_REMOVE_FROM_WAIT_LIST: return remove_self(context, NODE_WAITING);
    case ACTION_REMOVE_FROM_REDUNDANCY_LIST: return remove_self(context, NODE_SPARE);
    case ACTION_MARK_RENDEZVOUS_COMPLETE: return mark_complete(context, error);
    case ACTION_MARK_RENDEZVOUS_CLOSED:
      context->state->closed = true;
      if (context->settings->marks) ending_note(context->state, context->node, false, context->now.wall_us);
      return 0;
    case ACTION_ENTER_SETTINGS: differences_enter(context->state, context->node, context->settings); return 0;
    default: return 0; /* changes nothing */
  }
}
