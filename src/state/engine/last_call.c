/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/engine/last_call.h"

enum { SLACK_US = 1000000 }; /* PyTorch reads the clock again for the deadline, after the heartbeat */

static int64_t longest_left_us(const struct rendezvous_state *state, int64_t timeout_us) {
  int64_t longest = -1;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    if (!(node->kinds & NODE_PARTICIPANT) || node->last_heartbeat == DATETIME_NONE) continue;
    const int64_t left = state->deadline - node->last_heartbeat;
    if (left >= 0 && left <= timeout_us + SLACK_US && left > longest) longest = left;
  }
  return longest < 0 || longest > timeout_us ? timeout_us : longest;
}

void last_call_observe(struct last_call *call, const struct rendezvous_state *state,
                       const struct rendezvous_settings *settings, struct moment now, bool ours, int64_t later_ms) {
  if (state->deadline == call->deadline) return;
  call->deadline = state->deadline;
  if (state->deadline == DATETIME_NONE) return;
  const int64_t timeout_us = settings->last_call_timeout * 1000;
  const int64_t left_us = ours ? timeout_us : longest_left_us(state, timeout_us);
  call->ends_ms = now.mono_ms + (left_us + 999) / 1000 + (ours ? 0 : later_ms);
}
