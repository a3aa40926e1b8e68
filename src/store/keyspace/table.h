/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hash table that grows by one place at a time (linear hashing), so that no key costs more than another: a table that
 * doubles would move a million keys for the sake of one, while everybody waits. The nodes are parts of the owner's
 * structs. All zero is an empty table.
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

enum { TABLE_SEGMENTS = 40 };

struct table {
  struct table_node **segments[TABLE_SEGMENTS]; /* each as large as all before it */
  size_t places;
  size_t count;
};

/* The first node of those that may have this hash; the others follow by `next`. NULL: none. */
struct table_node *table_first(const struct table *table, uint64_t hash);

/* node->hash is set by the caller. False: no memory. */
bool table_add(struct table *table, struct table_node *node);
void table_remove(struct table *table, struct table_node *node);

/* Any node at or behind place *at, which is moved on; NULL: none is left. For emptying a table. */
struct table_node *table_any(const struct table *table, size_t *at);

/* Frees the table, not the nodes. */
void table_free(struct table *table);

#endif
