/* SPDX-License-Identifier: BSD-3-Clause */
#include "state_equal.h"

#include <string.h>

static bool pyvalue_equal(const struct pyvalue *a, const struct pyvalue *b);

static bool items_equal(const struct pyvalue *a, const struct pyvalue *b) {
  for (size_t i = 0; i < a->count; i++)
    if (!pyvalue_equal(&a->items[i], &b->items[i])) return false;
  return true;
}

static uint64_t bits_of(double real) {
  uint64_t bits;
  memcpy(&bits, &real, sizeof bits);
  return bits;
}

static bool pyvalue_equal(const struct pyvalue *a, const struct pyvalue *b) {
  if (a->kind != b->kind || a->count != b->count) return false;
  if (pyvalue_has_items(a->kind)) return items_equal(a, b);
  switch (a->kind) {
    case PYVALUE_NONE: return true;
    case PYVALUE_BOOL: return a->truth == b->truth;
    case PYVALUE_INT: return a->number == b->number;
    case PYVALUE_FLOAT: return bits_of(a->real) == bits_of(b->real); /* NaN is itself, 0 is not -0 */
    default: return memcmp(a->bytes, b->bytes, a->count) == 0;
  }
}

static bool pynames_equal(const struct pynames *a, const struct pynames *b) {
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count; i++)
    if (strcmp(a->items[i].name, b->items[i].name) != 0 || !pyvalue_equal(&a->items[i].value, &b->items[i].value))
      return false;
  return true;
}

static bool nodes_equal(const struct state_node *a, const struct state_node *b) {
  return a->kinds == b->kinds && a->rank == b->rank && a->last_heartbeat == b->last_heartbeat && a->ours == b->ours &&
         node_compare(&a->desc, &b->desc) == 0;
}

bool state_equal(const struct rendezvous_state *a, const struct rendezvous_state *b) {
  if (a->round != b->round || a->complete != b->complete || a->closed != b->closed || a->deadline != b->deadline ||
      a->count != b->count || !pynames_equal(&a->extra, &b->extra))
    return false;
  for (size_t i = 0; i < a->count; i++)
    if (!nodes_equal(&a->nodes[i], &b->nodes[i])) return false;
  return true;
}
