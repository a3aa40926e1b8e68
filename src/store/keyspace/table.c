/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/keyspace/table.h"

#include <stdlib.h>

static bool make_first(struct table *table) {
  table->segments[0] = calloc((size_t)1 << TABLE_FIRST_BITS, sizeof *table->segments[0]); /* NOLINT: of pointers */
  if (!table->segments[0]) return false;
  table->places = (size_t)1 << TABLE_FIRST_BITS;
  return true;
}

/* Adds one place, and moves the nodes there that belong there. Without memory the chains just get longer. */
static void grow(struct table *table) {
  const size_t added = table->places;
  const unsigned top = table_top_bit(added), segment = top - TABLE_FIRST_BITS + 1;
  if (segment >= TABLE_SEGMENTS) return;
  if (!table->segments[segment]) {
    table->segments[segment] = calloc((size_t)1 << top, sizeof *table->segments[segment]); /* NOLINT: of pointers */
    if (!table->segments[segment]) return;
  }
  struct table_node **from = table_place_at(table, added - ((size_t)1 << top)), **to = table_place_at(table, added);
  table->places++;
  while (*from) {
    struct table_node *node = *from;
    if ((node->hash & ((size_t)1 << top)) == 0) {
      from = &node->next;
      continue;
    }
    *from = node->next;
    node->next = *to;
    *to = node;
  }
}

bool table_add(struct table *table, struct table_node *node) {
  if (!table->places && !make_first(table)) return false;
  if (table->count >= table->places) grow(table);
  struct table_node **place = table_place_of(table, node->hash);
  node->next = *place;
  *place = node;
  table->count++;
  return true;
}

void table_remove(struct table *table, struct table_node *node) {
  struct table_node **at = table_place_of(table, node->hash);
  while (*at != node) at = &(*at)->next;
  *at = node->next;
  table->count--;
}

struct table_node *table_any(const struct table *table, size_t *at) {
  for (; *at < table->places; (*at)++) {
    struct table_node *node = *table_place_at(table, *at);
    if (node) return node;
  }
  return NULL;
}

void table_free(struct table *table) {
  for (int i = 0; i < TABLE_SEGMENTS; i++) free(table->segments[i]);
  *table = (struct table){0};
}
