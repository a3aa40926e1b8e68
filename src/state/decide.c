/* SPDX-License-Identifier: BSD-3-Clause */
/* What a node does next. Each function is the counterpart of the class of that name in PyTorch's
 * dynamic_rendezvous.py (_RendezvousExitOp, _RendezvousJoinOp, …), and decides as it does. */
#include "state/rendezvous.h"

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
                                      "SYNC",
                                      "ERROR_CLOSED",
                                      "ERROR_GRACEFUL_EXIT",
                                      "ERROR_TIMEOUT",
                                      "FINISH"};
  return (size_t)action < sizeof names / sizeof names[0] ? names[action] : "?";
}

static const struct state_node *self(const struct rendezvous_context *context) {
  return state_find(context->state, context->node);
}

static bool is(const struct state_node *node, unsigned kind) { return node && (node->kinds & kind) != 0; }

void rendezvous_judge_by_wall(struct rendezvous_context *context) {
  const struct state_node *node = self(context);
  const int64_t now = context->now.wall_us, deadline = context->state->deadline;
  context->keep_alive_due = node && node->last_heartbeat <= now - context->settings->keep_alive_interval * 1000;
  context->last_call_over = deadline != DATETIME_NONE && deadline < now;
}

/* Who has no heartbeat in the state is not to be kept alive: it was evicted, or never was there. */
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

/* The round is complete without us. A full one has spares, which nobody takes for a reason to begin another round. */
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
