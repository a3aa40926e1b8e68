/* SPDX-License-Identifier: BSD-3-Clause */
/* The status of a rendezvous from its keys. Pure. */
#ifndef RDZV_HANDLER_LEASED_LOOK_H
#define RDZV_HANDLER_LEASED_LOOK_H

#include "base/buf.h"
#include "etcd/v3/types.h"
#include "state/leased/record.h"

/* What is there. */
struct look {
  int64_t revision, world_mod;
  struct leased_world world;
  bool closed, exists;
  char *reason;
  struct seat {
    int64_t round, lease, create;
    struct leased_node node;
  } * seats;
  size_t count;
  struct buf text; /* what tells one look from another */
};

/* Reads the keys that were listed below `root`, which ends with a slash; keys that are not below it are left out.
 * `look` begins as LOOK_NONE, and is to be freed in any case. */
#define LOOK_NONE ((struct look){.world = LEASED_WORLD_NONE})
int look_take(struct look *look, const char *root, const struct etcd3_result *found, rdzv_error *error);
void look_free(struct look *look);

#endif
