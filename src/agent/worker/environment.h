/* SPDX-License-Identifier: BSD-3-Clause */
/* What a worker finds in its environment, and its arguments. */
#ifndef RDZV_AGENT_WORKER_ENVIRONMENT_H
#define RDZV_AGENT_WORKER_ENVIRONMENT_H

#include "agent/roles.h"
#include "agent/worker/numa.h"

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
  enum numa_mode numa;
};

/* Our environment with torchrun's variables that are the same for all workers. NULL: no memory. list_free frees it. */
char **environment_common(const struct attempt *attempt);

/* That of one worker, which borrows from the common one. NULL: no memory. */
char **environment_of(char *const *common, const struct attempt *attempt, int64_t local_rank, const char *error_file);
void environment_free(char **list, char *const *common);

/* The words with "${local_rank}" replaced. NULL: no memory. list_free frees it. */
char **arguments_of(char *const *argv, int64_t local_rank);

void list_free(char **list);

#endif
