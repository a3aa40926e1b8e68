/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the agent. The supervisor decides; the thread that calls rdzv_agent_run carries out.
 *
 *   agent.c      open and free, options, events
 *   run.c        carries out what the supervisor requests     outcome.c  how it ended
 *   monitor.c    the loop while workers run
 *   round.c      a round: rendezvous, ranks, the workers' store, workers
 *   exchange.c   what agents tell each other in a round's store
 *   group.c      the workers of an attempt     spawn.c  their processes
 *   streams.c    where their output goes       pump.c   the thread that passes it on
 *   guard.c      the process that kills what we leave behind     cgroup.c, orphans.c  how that is found
 *   torch/       what workers left in the store of a PyTorch agent
 *   failure.c    what is known of workers that failed
 */
#ifndef RDZV_AGENT_AGENT_H
#define RDZV_AGENT_AGENT_H

#include "agent/exchange.h"
#include "agent/failure.h"
#include "agent/supervisor.h"
#include "agent/torch/leftovers.h"
#include "agent/worker/group.h"
#include "base/wait/flag.h"
#include "base/wait/fork.h"

#include <rdzv/agent.h>
#include <rdzv/server.h>
#include <stdatomic.h>

enum { AGENT_LEAVE_MS = 2000 }; /* for leaving, while the workers do not yet know */

struct rdzv_agent {
  fork_mark born;
  rdzv_log log, server_log;
  rdzv_on_agent_event *on_agent;
  rdzv_on_worker_event *on_worker;
  void *event_user;
  char **argv;
  char *role, *run_id, *line_prefix;
  bool virtual_local_rank, direct_master, standalone;
  enum numa_mode numa;
  int64_t local_world_size, max_restarts, shutdown_timeout, exit_barrier_timeout;
  struct log_dir log_dir;
  struct streams_settings streams;

  rdzv_handler *handler;
  struct guard guard;
  bool adopted_before; /* orphans were adopted before the agent was opened */
  uv_loop_t loop;
  bool loop_made;

  /* Signals, from any thread. */
  struct flag stop;  /* raised by the first one */
  int told_fd;       /* an event descriptor that counts them */
  atomic_int signal; /* the last one */

  struct supervisor supervisor;
  struct failures failures; /* of the last attempt that had some */
  struct failure_history history;
  rdzv_error error;  /* why it ended, if not by its workers */
  char reason[1024]; /* for people */

  /* Of the round. */
  rdzv_result *round; /* NULL: in none */
  bool has_left;
  struct exchange exchange;
  struct attempt attempt;
  rdzv_server *workers_store; /* NULL: another process serves it */
  struct relay *relay;        /* by which our workers reach it; NULL: directly */
  int port_fd;                /* as rank 0, reserves the port of the workers' store; -1: none */
  struct worker_group group;
  struct leftovers leftovers; /* of earlier rounds */

  /* The last round in which we published a failure; NULL: none. The next round makes it superfluous. */
  rdzv_result *failed_round;
  struct exchange failed_exchange;
  char *published; /* the failure that we published in the current round; NULL: none */
};

/* Reports a change of the agent's state, or of a worker's. */
void agent_note(rdzv_agent *agent, rdzv_agent_state state, const char *format, ...) RDZV_PRINTF(3, 4);
void agent_note_worker(rdzv_agent *agent, rdzv_worker_state state, const struct worker *worker, const char *text);

/* Sets the reason for the next state, for people. */
void agent_because(rdzv_agent *agent, const char *format, ...) RDZV_PRINTF(2, 3);

/* Does output of workers go to files? */
bool agent_has_output(const rdzv_agent *agent);

/* ---- monitor.c ---- */

/* Runs until the supervisor requests something else than to monitor. */
void monitor_workers(rdzv_agent *agent);

/* Runs until all workers have ended, or the time is over, or, unless `killed`, a second signal comes. */
void monitor_until_ended(rdzv_agent *agent, int64_t timeout_ms, bool killed);

/* Runs for so long, or until the supervisor requests something else. */
void monitor_pause(rdzv_agent *agent, int64_t ms);

/* Reports a worker that failed, and publishes it to the other agents. */
void monitor_failure(rdzv_agent *agent, const struct worker *worker, const char *text);

/* After a call that ended with RDZV_E_CANCELED because of a signal: runs until the supervisor has heard of it. */
void monitor_signal(rdzv_agent *agent);

/* ---- outcome.c ---- */

rdzv_agent_state outcome_state(const rdzv_agent *agent);
int outcome_make(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error);

/* ---- round.c ---- */

/* Joins the next round and starts the workers. RDZV_E_CANCELED: after a signal. 1: the round ended before its workers
 * started, and another one follows. */
int round_begin(rdzv_agent *agent, rdzv_error *error);

/* The workers of the round run: removes the earlier failures that this agent published. */
void round_begun(rdzv_agent *agent);

/* Frees the round, once its workers are gone. */
void round_end(rdzv_agent *agent);

#endif
