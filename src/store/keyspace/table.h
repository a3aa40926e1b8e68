/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hash table that grows by one place at a time (linear hashing), so that each key costs the same: a table that
 * doubles would move a million keys at once while all clients wait. Nodes are embedded in structs of the owner. All
 * zero is an empty table.
 */
#ifndef RDZV_STORE_KEYSPACE_TABLE_H
#define RDZV_STORE_KEYSPACE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_node {
  struct table_node *next; /* of the same place */
  uint64_t hash;
};

enum { TABLE_SEGMENTS = 40, TABLE_FIRST_BITS = 6 };

struct table {
  struct table_node **segments[TABLE_SEGMENTS]; /* each as large as all before it */
  size_t places;
  size_t count;
};

static inline unsigned table_top_bit(size_t number) { return 63u - (unsigned)__builtin_clzll(number); }

/* Segment 0 has the first 2^TABLE_FIRST_BITS places; segment n begins at place 2^(TABLE_FIRST_BITS + n - 1). */
static inline struct table_node **table_place_at(const struct table *table, size_t i) {
  if (i >> TABLE_FIRST_BITS == 0) return &table->segments[0][i];
  const unsigned top = table_top_bit(i);
  return &table->segments[top - TABLE_FIRST_BITS + 1][i - ((size_t)1 << top)];
}

/* Places up to the last power of two are chosen by as many bits of the hash; those that were split by one bit more. */
static inline struct table_node **table_place_of(const struct table *table, uint64_t hash) {
  const size_t half = (size_t)1 << table_top_bit(table->places);
  const size_t i = (size_t)hash & (2 * half - 1);
  return table_place_at(table, i < table->places ? i : i & (half - 1));
}

/* The first node of those that may have this hash; the others follow by `next`. NULL: none. */
static inline struct table_node *table_first(const struct table *table, uint64_t hash) {
  return table->places ? *table_place_of(table, hash) : NULL;
}

/* node->hash is set by the caller. False: no memory. */
bool table_add(struct table *table, struct table_node *node);
void table_remove(struct table *table, struct table_node *node);

/* Returns a node at or after place *at, and advances *at; NULL: there is none. For emptying a table. */
struct table_node *table_any(const struct table *table, size_t *at);

/* Frees the table, not the nodes. */
void table_free(struct table *table);

#endif
