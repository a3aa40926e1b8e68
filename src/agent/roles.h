/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of each agent's workers, and the texts that agents exchange about them. An agent publishes its role and its
 * number of workers. Ranks go to the workers of group rank 0 first, then to those of group rank 1, and so on; ranks
 * within a role in the same order.
 */
#ifndef RDZV_AGENT_ROLES_H
#define RDZV_AGENT_ROLES_H

#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stdint.h>

/* What an agent publishes: {"role": "default", "rank": 0, "local_world_size": 2}. */
struct role_info {
  char role[64];
  int64_t rank, local_world_size;
  int64_t restart_count; /* of our agents only */
  bool ours;             /* an rdzv agent: the text has an extra field */
};

/* To be freed; NULL: no memory. */
char *role_info_write(const struct role_info *info);
int role_info_read(rdzv_bytes text, struct role_info *out, rdzv_error *error);

/* Of one agent's workers: the rank of the first, and the world size. */
struct worker_ranks {
  int64_t base, world_size;
  int64_t role_base, role_world_size;
};

/* Assigns the ranks of all agents, in the order of their group ranks, in O(count log count). False: no memory. */
bool assign_ranks(const struct role_info *infos, size_t count, struct worker_ranks *out);

/* PyTorch's list of four numbers. To be freed; NULL: no memory. */
char *worker_ranks_write(const struct worker_ranks *ranks);
int worker_ranks_read(rdzv_bytes text, struct worker_ranks *out, rdzv_error *error);

/* What group rank 0, if it is an rdzv agent, sets for all rdzv agents in the round. */
struct round_terms {
  int64_t restart_count; /* the most that any agent has used; part of the names of keys that workers use */
  bool agent_store;      /* the agent of rank 0 serves the workers' store */
  int master_port;       /* of the workers' store in this round alone; 0: the one that rank 0 has published */
  bool torch_serves;     /* the agent of rank 0 serves it, and is of PyTorch 2.4 or later; not in the text */
};
char *round_terms_write(const struct round_terms *terms);
int round_terms_read(rdzv_bytes text, struct round_terms *out, rdzv_error *error);

#endif
