/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agents of a round tell each other through its store, under PyTorch's keys:
 *
 *   torchelastic/role_info<rank>                 of PyTorch before 2.4, whose agents read all of them,
 *   torchelastic/role_info<rank>.FIN             and say so; that of rank 0 waits for these
 *   torchelastic/role_info/<rank>                newer: the agent of rank 0 reads all of them,
 *   torchelastic/assigned_ranks/<rank>           and tells each its workers' ranks
 *   torchelastic/agent/terminal_state<rank>[.FIN]               older: its workers are done
 *   torchelastic/agent/terminal_state/{num_members,last_member} newer
 *   rdzv/terms                                   ours, if rank 0 is one: struct round_terms
 *   rdzv/failure/<attempt>                       ours: the first failure of a worker in this round
 *
 * Ours write both, so that either kind finds what it waits for. In a round of ours alone it takes each agent three
 * requests; which kind another is, is found out only when somebody does not come forward.
 */
#ifndef RDZV_AGENT_EXCHANGE_H
#define RDZV_AGENT_EXCHANGE_H

#include "agent/roles.h"
#include "base/wait/clock.h"

#include <rdzv/handler.h>

struct exchange {
  rdzv_store *store; /* of the round */
  int64_t rank, world_size;
  const char *backend;
  int interrupt_fds[2]; /* readable: give up */
  int64_t timeout_ms;
  const rdzv_log *log; /* of what is waited for */
  int64_t attempt;     /* names the failures of this one */
  int fresh_port;      /* as rank 0: one for the workers' store that no round had before; 0: none */
};

/* Ranks and terms. RDZV_E_CANCELED: interrupted; RDZV_E_TIMEOUT says who is missing; RDZV_E_CORRUPT. */
int exchange_ranks(const struct exchange *exchange, const struct role_info *own, struct worker_ranks *ranks,
                   struct round_terms *terms, rdzv_error *error);

/* Our workers are done: says so, once; waits until all others' are, or then. The same errors. */
int exchange_tell_exit(const struct exchange *exchange, rdzv_error *error);
int exchange_await_exit(const struct exchange *exchange, deadline until, rdzv_error *error);

/* Are the workers of any agent done? False also where that cannot be found out. */
bool exchange_any_done(const struct exchange *exchange);

/* Tells of a failure, as text, unless another was told before. */
int exchange_tell_failure(const struct exchange *exchange, const char *text, rdzv_error *error);

/* What was told; NULL: nothing, or it cannot be found out. To be freed. */
char *exchange_failure(const struct exchange *exchange);

#endif
