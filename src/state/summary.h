/* SPDX-License-Identifier: BSD-3-Clause */
/* A rendezvous in a sentence, for errors and traces. */
#ifndef RDZV_STATE_SUMMARY_H
#define RDZV_STATE_SUMMARY_H

#include "state/engine/liveness.h"

struct summary {
  char text[400]; /* leaves room in an rdzv_error for what was tried */
};

/* How many nodes have joined, how many are needed, and when each was heard; names as many as fit, the longest silent
 * first:
 * "2 of at least 4 nodes joined: 'b_7_0' (heard 12 s ago), 'a_3_0' (heard 0 s ago)" */
struct summary summary_joined(const struct rendezvous_state *state, const struct rendezvous_settings *settings,
                              const struct liveness *liveness, int64_t now_ms);

/* The same, where others than `liveness` know when a node was heard: ms ago; below 0: not known. */
typedef int64_t summary_age(const void *argument, const struct state_node *node);
struct summary summary_joined_by(const struct rendezvous_state *state, const struct rendezvous_settings *settings,
                                 summary_age *age, const void *argument);

/* What a node that joins waits for, without ages, so that it changes only with the rendezvous:
 * "waiting for nodes: 1 of at least 2 have joined: 'a_3_0'" */
struct summary summary_waiting(const struct rendezvous_state *state, const struct rendezvous_settings *settings,
                               const struct node_desc *node);

/* What a decision is made on: "round 1 last call, 2 joined (2..4), this node is a participant, keep-alive due" */
struct summary summary_condition(const struct rendezvous_context *context);

#endif
