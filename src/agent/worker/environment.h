/* SPDX-License-Identifier: BSD-3-Clause */
/* What a worker finds in its environment, and its arguments. */
#ifndef RDZV_AGENT_WORKER_ENVIRONMENT_H
#define RDZV_AGENT_WORKER_ENVIRONMENT_H

#include "agent/roles.h"

/* What all workers of an attempt have in common. */
struct attempt {
  const char *run_id, *role;
  int64_t group_rank, group_world_size, local_world_size;
  struct worker_ranks ranks;
  struct round_terms terms;
  int64_t max_restarts;
  const char *master_addr;
  int master_port;
  bool virtual_local_rank; /* see rdzv/agent.h */
  bool numa_binding;
};

/* Ours, with torchrun's variables in it. NULL: no memory. To be freed with list_free, as what follows. */
char **environment_of(const struct attempt *attempt, int64_t local_rank, const char *error_file);

/* The words with "${local_rank}" replaced. */
char **arguments_of(char *const *argv, int64_t local_rank);

void list_free(char **list);

#endif
