/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_TESTS_JUDGE_BY_WALL_H
#define RDZV_TESTS_JUDGE_BY_WALL_H

#include "state/rendezvous.h"

/* Fills in keep_alive_due and last_call_over as PyTorch judges them, by the wall clock. */
static inline void judge_by_wall(struct rendezvous_context *context) {
  const struct state_node *node = state_find(context->state, context->node);
  const int64_t now = context->now.wall_us, deadline = context->state->deadline;
  context->keep_alive_due = node && node->last_heartbeat <= now - context->settings->keep_alive_interval * 1000;
  context->last_call_over = deadline != DATETIME_NONE && deadline < now;
}

#endif
