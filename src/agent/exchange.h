/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The role exchange, the exit barrier and failures: what the agents of a round publish in its store, under PyTorch's
 * keys:
 *
 *   torchelastic/role_info<rank>                 PyTorch before 2.4: each agent reads all of them,
 *   torchelastic/role_info<rank>.FIN             and confirms it; the agent of rank 0 waits for these
 *   torchelastic/role_info/<rank>                since 2.4: the agent of rank 0 reads all of them,
 *   torchelastic/assigned_ranks/<rank>           and assigns the ranks of each agent's workers
 *   torchelastic/agent/terminal_state<rank>[.FIN]               before 2.4: the agent's workers are done
 *   torchelastic/agent/terminal_state/{num_members,last_member} since 2.4
 *   rdzv/terms                                   of an rdzv rank 0: struct round_terms
 *   rdzv/failure/<attempt>                       of our agents: the first failure of a worker in this round
 *
 * Our agents write the keys of both schemes, so that PyTorch agents of either kind find theirs. A round of our agents
 * alone takes three requests per agent. Which kind another agent is matters only if it does not answer in time.
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
  int interrupt_fds[2]; /* readable: the exchange ends with RDZV_E_CANCELED */
  int64_t timeout_ms;
  const rdzv_log *log; /* for lines about waits */
  int64_t attempt;     /* part of the key of failures */
  int fresh_port;      /* as rank 0: a port for the workers' store that no earlier round used; 0: none */
};

/* Ranks and terms, where the server has told them with the round: then no key is needed. */
bool exchange_is_told(const struct exchange *exchange, const rdzv_result *round, struct worker_ranks *ranks,
                      struct round_terms *terms);

/* Agrees on ranks and terms. RDZV_E_CANCELED; RDZV_E_TIMEOUT names the agents that are missing; RDZV_E_CORRUPT. */
int exchange_ranks(const struct exchange *exchange, const struct role_info *own, struct worker_ranks *ranks,
                   struct round_terms *terms, rdzv_error *error);

/* The exit barrier: publishes that our workers are done, once; waits until those of all agents are. The same errors. */
int exchange_tell_exit(const struct exchange *exchange, rdzv_error *error);
int exchange_await_exit(const struct exchange *exchange, deadline until, rdzv_error *error);

/* Are the workers of any agent done? False also if the store does not answer. */
bool exchange_any_done(const struct exchange *exchange);

/* Publishes a failure as text, unless one was published before. */
int exchange_tell_failure(const struct exchange *exchange, const char *text, rdzv_error *error);

/* Publishes more of a failure in the place of `before`, which this agent has published; not if another one was first.
 */
int exchange_tell_more(const struct exchange *exchange, const char *before, const char *text, rdzv_error *error);

/* Removes a failure that was published, once all agents have read it. */
void exchange_withdraw_failure(const struct exchange *exchange);

/* The published failure, to be freed. NULL: none, or the store does not answer. */
char *exchange_failure(const struct exchange *exchange);

#endif
