/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks the workers of each agent get, and how agents tell each other, as text. An agent says its role and how
 * many workers it has; the workers of the agent of group rank 0 come first, and so on; among those of one role the
 * same.
 */
#ifndef RDZV_AGENT_ROLES_H
#define RDZV_AGENT_ROLES_H

#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stdint.h>

/* What an agent says of itself: {"role": "default", "rank": 0, "local_world_size": 2}. */
struct role_info {
  char role[64];
  int64_t rank, local_world_size;
  int64_t restart_count; /* ours say it, too */
  bool ours;             /* another member, by which we know each other */
};

/* To be freed; NULL: no memory. */
char *role_info_write(const struct role_info *info);
int role_info_read(rdzv_bytes text, struct role_info *out, rdzv_error *error);

/* Of one agent's workers: the first one's rank, and of how many. */
struct worker_ranks {
  int64_t base, world_size;
  int64_t role_base, role_world_size;
};

/* Of all agents, in the order of their group ranks. Takes O(count log count). False: no memory. */
bool assign_ranks(const struct role_info *infos, size_t count, struct worker_ranks *out);

/* PyTorch's list of four numbers. To be freed; NULL: no memory. */
char *worker_ranks_write(const struct worker_ranks *ranks);
int worker_ranks_read(rdzv_bytes text, struct worker_ranks *out, rdzv_error *error);

/* What our agent of group rank 0 says to ours for the round. */
struct round_terms {
  int64_t restart_count; /* the most that anybody has used up: workers put it into the names of their keys */
  bool agent_store;      /* the agent of rank 0 serves the workers' store */
  int master_port;       /* of the workers' store in this round alone; 0: the one that rank 0 has published */
};
char *round_terms_write(const struct round_terms *terms);
int round_terms_read(rdzv_bytes text, struct round_terms *out, rdzv_error *error);

#endif
