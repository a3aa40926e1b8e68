/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/join.h"

#include "base/error.h"
#include "state/differences.h"

static bool waits_in_vain(const struct rendezvous_context *context) {
  const struct rendezvous_state *state = context->state;
  const struct state_node *self = state_find(state, context->node);
  return state->complete && (int64_t)state->num_participants >= context->settings->max_nodes && self &&
         self->kinds == NODE_WAITING;
}

/* A round that others let have more nodes than we would has no place for us, either. */
static bool is_overfull(const struct rendezvous_context *context) {
  return context->state->complete && (int64_t)context->state->num_participants > context->settings->max_nodes;
}

static enum rendezvous_action stay(const struct rendezvous_context *context) {
  struct rendezvous_context without_deadline = *context;
  without_deadline.deadline_ms = INT64_MAX;
  return decide_keep_alive(&without_deadline) == ACTION_KEEP_ALIVE ? ACTION_KEEP_ALIVE : ACTION_SYNC;
}

/* The others are warned before this node fails. */
static enum rendezvous_action decide_clash(const struct rendezvous_context *context) {
  if (!differences_is_entered(context->state, context->settings)) return ACTION_ENTER_SETTINGS;
  return context->clash == CLASH_SURE ? ACTION_ERROR_CLASH : stay(context);
}

enum rendezvous_action join_decide(const struct rendezvous_context *context) {
  const enum rendezvous_action action = decide_join(context);
  const bool ends = action == ACTION_FINISH || (action >= ACTION_ERROR_CLOSED && action <= ACTION_ERROR_TIMEOUT);
  if (context->clash && !ends && context->now.mono_ms <= context->deadline_ms) return decide_clash(context);
  const bool waits = action == ACTION_SYNC || action == ACTION_KEEP_ALIVE;
  if (action == ACTION_REMOVE_FROM_REDUNDANCY_LIST && is_overfull(context)) return stay(context);
  return waits && waits_in_vain(context) ? ACTION_REMOVE_FROM_WAIT_LIST : action;
}

enum rendezvous_action join_come_back(const struct rendezvous_context *context) {
  const enum rendezvous_action action = join_decide(context);
  const bool comes = action >= ACTION_ADD_TO_PARTICIPANTS && action <= ACTION_ADD_TO_REDUNDANCY_LIST;
  return comes ? action : ACTION_SYNC;
}

const char *join_obstacle(const struct rendezvous_state *state, int64_t joined, bool whole) {
  if (state->round <= joined) return "is not newer than the last round";
  return whole ? NULL : "lost a participant before this node joined";
}

int join_fail(rdzv_error *error, enum rendezvous_action action, const char *wish, const struct summary *summary) {
  if (action == ACTION_ERROR_TIMEOUT) return error_set(error, RDZV_E_TIMEOUT, "%s timed out: %s", wish, summary->text);
  if (action == ACTION_ERROR_CLASH) return error_set(error, RDZV_E_LIMIT, "%s", summary->text);
  const bool spare = action == ACTION_ERROR_GRACEFUL_EXIT;
  return error_set(error, spare ? RDZV_E_GRACEFUL_EXIT : RDZV_E_CLOSED, "%s",
                   spare ? "the rendezvous was closed while this node was a spare" : "the rendezvous is closed");
}
