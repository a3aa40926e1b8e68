/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/change.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

void change_add_node(struct rdzv_change *change, const char *node) {
  const bool full = (change->count & (change->count - 1)) == 0; /* the room is a power of two */
  char *copy = strdup(node);
  char **more =
      copy && full ? realloc(change->nodes, (change->count ? 2 * change->count : 1) * sizeof *more) : change->nodes;
  if (!copy || !more) {
    free(copy);
    return;
  }
  change->nodes = more;
  change->nodes[change->count++] = copy;
}

int change_take(struct rdzv_change *change, rdzv_change **out, rdzv_error *error) {
  rdzv_change *taken = malloc(sizeof *taken);
  if (!taken) return error_no_memory(error);
  *taken = *change;
  *change = (struct rdzv_change){0};
  *out = taken;
  return 0;
}

void change_clear(struct rdzv_change *change) {
  for (size_t i = 0; i < change->count; i++) free(change->nodes[i]);
  free(change->nodes);
  *change = (struct rdzv_change){0};
}

unsigned rdzv_change_what(const rdzv_change *change) { return change->what; }

size_t rdzv_change_node_count(const rdzv_change *change) { return change->count; }

const char *rdzv_change_node(const rdzv_change *change, size_t index) {
  return index < change->count ? change->nodes[index] : NULL;
}

void rdzv_change_free(rdzv_change *change) {
  if (!change) return;
  change_clear(change);
  free(change);
}
