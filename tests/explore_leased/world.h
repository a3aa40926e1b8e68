/* SPDX-License-Identifier: BSD-3-Clause */
/* Three nodes of the rendezvous made for etcd v3, over the simulator's model of etcd, and all that can happen next: a
 * request is done, its answer comes or gets lost, a watch tells of one more revision, a lease ends under a node that
 * does not know it yet, a node dies, and one that was told of a change joins again. No clock: a pause is over when it
 * is. */
#ifndef RDZV_EXPLORE_LEASED_WORLD_H
#define RDZV_EXPLORE_LEASED_WORLD_H

#include "model.h"

enum { WORLD_NODES = 3, WORLD_ROUNDS = 16 };

enum move_kind {
  MOVE_DO,
  MOVE_TAKE,
  MOVE_LOSE_BEFORE,
  MOVE_LOSE_AFTER,
  MOVE_HEAR,
  MOVE_WAKE,
  MOVE_EXPIRE,
  MOVE_DIE,
  MOVE_REJOIN
};
struct move {
  uint8_t node, kind;
};

struct world_node {
  bool alive, told;
  struct leased machine;
  struct leased_update update;
  struct model_answer answer;
  bool done;   /* the request is; its answer is on the way */
  int64_t now; /* its own clock */
  uint64_t watch_id;
  struct leased_watch watch;
  size_t watch_pos;
  int64_t last_round;
};

struct world {
  struct model model;
  struct world_node nodes[WORLD_NODES];
  int faults;    /* left */
  bool unfenced; /* a rule is broken: worlds are written whatever is there */
  struct {
    int64_t leases[WORLD_NODES + 2];
    size_t count;
  } rounds[WORLD_ROUNDS];
  int64_t last_world;
  size_t joins;
  char failure[256]; /* "": none */
};

/* Where it begins. */
enum world_root {
  ROOT_NOTHING,
  ROOT_COMPLETING /* one is about to write the world */,
  ROOT_IN /* two are in a round, and the third waits */
};
struct world *world_new(enum world_root root, bool unfenced, int faults);
size_t world_moves(const struct world *world, struct move moves[64]);
void world_do(struct world *world, struct move move);
uint64_t world_digest(const struct world *world);
const char *world_move_name(struct move move);

#endif
