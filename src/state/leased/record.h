/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rendezvous keeps in etcd v3, below <prefix>/<run>/:
 *
 *   - <round>/nodes/<node>.<lease>: a node that joins that round or is in it, under its own lease. JSON, struct
 *     leased_node.
 *   - world: the round that was completed last. JSON, struct leased_world.
 *   - closed: the rendezvous is closed. JSON: {"reason": …}.
 *   - want: a node waits for the round after the world's, and there is room for it: {"node": …}.
 *
 * The last three are the board, which every node watches. A key is identified by its lease, which no other node ever
 * has; the name before it is for people.
 */
#ifndef RDZV_STATE_LEASED_RECORD_H
#define RDZV_STATE_LEASED_RECORD_H

#include "state/rendezvous.h"

#define LEASED_WORLD "world"
#define LEASED_CLOSED "closed"
#define LEASED_WANT "want"

/* In the order of keys, those of nodes are from the first to below the second, the board from the third to the end. */
#define LEASED_NODES_BEGIN "0"
#define LEASED_NODES_END ":"
#define LEASED_BOARD_BEGIN "a"

enum {
  LEASED_MAX_VALUE = 8 << 20, /* of a world of STATE_MAX_NODES */
  LEASED_MAX_REASON = 1024,
  LEASED_KEY_SIZE = 3 * STATE_MAX_ADDR + 128,
};

struct leased_key {
  char text[LEASED_KEY_SIZE];
};

/* The key of that node in that round. A slash in its address is written as %2F. */
struct leased_key leased_key(int64_t round, const struct node_desc *node, int64_t lease);

/* False: it is not the key of a node. */
bool leased_key_parse(const char *key, int64_t *round, int64_t *lease);

/* ---- nodes ---- */

struct leased_node {
  struct node_desc desc; /* the address is owned */
  char *master_addr;     /* where it can be reached as rank 0 */
  int64_t master_port;
  int64_t min_nodes, max_nodes; /* as the node wrote them; only read. 0: it did not */
  char *settings;               /* as state/differences.h has them; only read. "": it does not say */
  bool left;                    /* it is leaving: its key goes next */
};
void leased_node_free(struct leased_node *node);

/* To be freed; NULL: no memory. */
char *leased_node_write(const struct leased_node *node, const struct rendezvous_settings *settings);

/* RDZV_E_CORRUPT, RDZV_E_NO_MEMORY. */
int leased_node_read(const char *text, struct leased_node *out, rdzv_error *error);

/* ---- worlds ---- */

struct leased_member {
  struct node_desc desc; /* the address is owned by the world */
  int64_t lease;
  uint64_t gone; /* in which step of the machine its key went; 0: it is there */
  bool died;     /* else it left */
};

struct leased_world {
  int64_t round;
  char *master_addr; /* of rank 0 */
  int64_t master_port;
  struct leased_member *members; /* by rank */
  size_t count;                  /* 0: the round was given up, and has no nodes */
  char *texts;                   /* private */
};
#define LEASED_WORLD_NONE ((struct leased_world){.round = -1})

void leased_world_free(struct leased_world *world);
char *leased_world_write(const struct leased_world *world);
int leased_world_read(const char *text, struct leased_world *out, rdzv_error *error);

/* The rank of that lease; -1: it is not in it. */
int64_t leased_world_rank(const struct leased_world *world, int64_t lease);

/* ---- the rest of the board ---- */

/* {"reason": …} or {"node": …}. */
char *leased_note_write(const char *name, const char *text);

/* The text of a note; "": there is none. To be freed; NULL: no memory. */
char *leased_note_read(const char *note, const char *name);

#endif
