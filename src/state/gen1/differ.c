/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes that differ in their number of nodes, or in being agents (state/differences.h). The state has an entry for each
 * such setting. A node that comes fails if it clashes with the node of an entry, and that node lives: its keep-alive is
 * there. */
#include "base/error.h"
#include "state/gen1/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DOUBT_MS = 1000 }; /* a node puts its keep-alive right after it has joined */

struct differences_settings gen1_differences_settings(const struct gen1_settings *settings) {
  struct differences_settings out;
  snprintf(out.text, sizeof out.text, "nnodes=%" PRId64 ":%" PRId64 "%s", settings->min_nodes, settings->max_nodes,
           differences_launcher(settings->launcher, settings->max_restarts).text);
  return out;
}

void gen1_warn(struct gen1_node *node, struct gen1_update *update) {
  struct gen1_entry entries[DIFFERENCES_MOST];
  const size_t count = gen1_state_entries(&node->state, entries);
  const struct differences_settings own = gen1_differences_settings(&node->settings);
  for (size_t i = 0; i < count && !(update->happened & GEN1_HAPPENED_WARNING); i++)
    if (differences_tell(&node->differences, own.text, entries[i].settings, entries[i].node, &update->warning))
      update->happened |= GEN1_HAPPENED_WARNING;
}

static bool is_dead(const struct gen1_node *node) {
  return strcmp(node->clash_round, node->state.round) == 0 && node->now >= node->clash_over;
}

bool gen1_find_clash(const struct gen1_node *node, struct gen1_entry *out) {
  const struct rendezvous_settings own = {.min_nodes = node->settings.min_nodes,
                                          .max_nodes = node->settings.max_nodes,
                                          .launcher = node->settings.launcher};
  struct gen1_entry entries[DIFFERENCES_MOST];
  const bool open = node->state.status == GEN1_STATUS_JOINABLE || node->state.status == GEN1_STATUS_FINAL;
  const size_t count = open && !is_dead(node) ? gen1_state_entries(&node->state, entries) : 0;
  for (size_t i = 0; i < count; i++) {
    if (!differences_clashes(&own, entries[i].settings)) continue;
    *out = entries[i];
    return true;
  }
  return false;
}

int64_t gen1_doubt_clash(struct gen1_node *node) {
  if (strcmp(node->clash_round, node->state.round) != 0) {
    memcpy(node->clash_round, node->state.round, sizeof node->clash_round);
    node->clash_over = node->now + DOUBT_MS;
  }
  return node->clash_over;
}

void gen1_error_clash(const struct gen1_node *node, const struct gen1_entry *clash, rdzv_error *error) {
  const struct differences_settings own = gen1_differences_settings(&node->settings);
  error_set(error, RDZV_E_LIMIT, "%s", differences_describe_clash(own.text, clash->settings, clash->node).text);
}

/* A joinable round can still grow. */
bool gen1_error_size(const struct gen1_node *node, rdzv_error *error) {
  const int64_t size = (int64_t)node->state.participants;
  const bool small = node->state.status == GEN1_STATUS_FROZEN && size < node->settings.min_nodes;
  if (!small && size <= node->settings.max_nodes) return false;
  error_set(error, RDZV_E_LIMIT,
            "round %s has %" PRId64 " %s, and this node has nnodes=%" PRId64 ":%" PRId64
            " (use the same values on all nodes)",
            node->state.round, size, size == 1 ? "node" : "nodes", node->settings.min_nodes, node->settings.max_nodes);
  return true;
}
