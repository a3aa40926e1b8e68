/* SPDX-License-Identifier: BSD-3-Clause */
/* How an action changes the state. The counterparts are the methods of _DistributedRendezvousOpExecutor. */
#include "base/error.h"
#include "state/rendezvous.h"

void rendezvous_participant_removed(struct rendezvous_state *state, const struct rendezvous_settings *settings) {
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
  if (participant) rendezvous_participant_removed(state, settings);
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
  return 0;
}

static int mark_complete(struct rendezvous_context *context, rdzv_error *error) {
  context->state->complete = true;
  context->state->deadline = DATETIME_NONE;
  return rendezvous_assign_ranks(context->state, context->settings->rank_order, error);
}

/* A round whose number was given before gets another. The one that makes the number of nodes sufficient calls the last
 * call; the one that makes it full completes the round. */
static int add_to_participants(struct rendezvous_context *context, rdzv_error *error) {
  struct rendezvous_state *state = context->state;
  const struct rendezvous_settings *settings = context->settings;
  const int result = move_self(context, NODE_PARTICIPANT, NODE_WAITING, error);
  if (result < 0) return result;
  if (state->round < context->first_round) state->round = context->first_round;
  if ((int64_t)state->num_participants == settings->min_nodes)
    state->deadline = context->now.wall_us + settings->last_call_timeout * 1000;
  return (int64_t)state->num_participants == settings->max_nodes ? mark_complete(context, error) : 0;
}

/* Takes us out of one collection and out of the heartbeats. */
static int remove_self(struct rendezvous_context *context, unsigned kind) {
  struct state_node *node = state_find(context->state, context->node);
  if (!node) return 0;
  const unsigned left = node->kinds & ~kind;
  state_set_kinds(context->state, node, left);
  node->last_heartbeat = DATETIME_NONE;
  if (left == 0) state_remove(context->state, node);
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
      rendezvous_participant_removed(context->state, context->settings);
      return 0;
    case ACTION_REMOVE_FROM_WAIT_LIST: return remove_self(context, NODE_WAITING);
    case ACTION_REMOVE_FROM_REDUNDANCY_LIST: return remove_self(context, NODE_SPARE);
    case ACTION_MARK_RENDEZVOUS_COMPLETE: return mark_complete(context, error);
    case ACTION_MARK_RENDEZVOUS_CLOSED: context->state->closed = true; return 0;
    default: return 0; /* changes nothing */
  }
}
