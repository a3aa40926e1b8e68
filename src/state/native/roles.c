/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of the workers of native agents, as agent/roles.c assigns them: those of group rank 0 first, then those of
 * group rank 1, and so on; ranks within a role in the same order. */
#include "state/native/run.h"

#include <stdlib.h>
#include <string.h>

struct role_entry {
  struct native_node *node;
  size_t rank;
};

static int by_role(const void *left, const void *right) {
  const struct role_entry *a = left, *b = right;
  const int order = strcmp(a->node->workers.role, b->node->workers.role);
  return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static void assign_role(const struct role_entry *first, const struct role_entry *end) {
  int64_t workers = 0;
  for (const struct role_entry *entry = first; entry < end; entry++) {
    entry->node->ranks.role_base = workers;
    workers += entry->node->workers.local_world_size;
  }
  for (const struct role_entry *entry = first; entry < end; entry++) entry->node->ranks.role_world_size = workers;
}

static void assign_all(struct native_node *const *nodes, size_t count) {
  int64_t workers = 0, restarts = 0;
  for (size_t i = 0; i < count; i++) {
    nodes[i]->ranks.base = workers;
    workers += nodes[i]->workers.local_world_size;
    if (nodes[i]->workers.restart_count > restarts) restarts = nodes[i]->workers.restart_count;
  }
  for (size_t i = 0; i < count; i++) {
    nodes[i]->ranks.world_size = workers;
    nodes[i]->ranks.restart_count = restarts;
  }
}

bool roles_assign(struct native_node *const *nodes, size_t count) {
  struct role_entry *sorted = calloc(count + 1, sizeof *sorted);
  if (!sorted) return false;
  for (size_t i = 0; i < count; i++) sorted[i] = (struct role_entry){nodes[i], i};
  assign_all(nodes, count);
  qsort(sorted, count, sizeof *sorted, by_role);
  for (size_t first = 0, end; first < count; first = end) {
    const char *role = sorted[first].node->workers.role;
    for (end = first + 1; end < count && strcmp(sorted[end].node->workers.role, role) == 0;) end++;
    assign_role(sorted + first, sorted + end);
  }
  free(sorted);
  return true;
}
