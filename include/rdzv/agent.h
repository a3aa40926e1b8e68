/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_AGENT_H
#define RDZV_AGENT_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/handler.h>
#include <rdzv/log.h>
#include <rdzv/params.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The agent of one node, PyTorch's LocalElasticAgent: joins the rendezvous, agrees with the other agents on the ranks
 * of all workers, starts this node's workers and watches over them.
 *
 *   rdzv_agent_open -> rdzv_agent_run -> rdzv_agent_free
 *
 * A worker that fails stops all, here and on the other nodes; a restart is used up, and everybody joins the next round.
 * When members of the round go, or others wait to come in, the same happens without a restart being used up. The agents
 * of other nodes may be torchrun's.
 *
 * Workers are processes, each of a session of its own. They get the environment that torchrun's workers get. When the
 * agent's process dies, in whatever way, they are killed.
 *
 * SIGCHLD must not be ignored, and nobody else may wait for the workers. Linux 5.3 or later.
 *
 * Threads: run in the thread that opened it; rdzv_agent_stop from any thread and from a signal handler,
 * rdzv_agent_suspend from any thread.
 */
typedef struct rdzv_agent rdzv_agent;

typedef enum rdzv_agent_state {
  RDZV_AGENT_RENDEZVOUS = 0, /* joins a round; rdzv_agent_handler can be asked who is there */
  RDZV_AGENT_STARTING,       /* is in a round: ranks are known, workers are started */
  RDZV_AGENT_RUNNING,
  RDZV_AGENT_STOPPING, /* ends its workers, for the reason in the message */
  RDZV_AGENT_BARRIER,  /* its workers are done, it waits for the other agents' */
  RDZV_AGENT_SUCCEEDED,
  RDZV_AGENT_FAILED,
  RDZV_AGENT_LEFT, /* was told to stop */
} rdzv_agent_state;

typedef enum rdzv_worker_state {
  RDZV_WORKER_STARTED = 0,
  RDZV_WORKER_SUCCEEDED,
  RDZV_WORKER_FAILED,
  RDZV_WORKER_STOPPED, /* by the agent */
} rdzv_worker_state;

/* A change of the agent's state. The texts are valid during the call only, and never NULL. Made by the library; later
 * versions may add fields at its end. */
typedef struct rdzv_agent_event {
  int64_t time_us; /* since 1970, by this machine's clock */
  rdzv_agent_state state;
  const char *run_id;
  const char *role;
  int64_t round;      /* -1: in none */
  int64_t group_rank; /* of this node; -1: none */
  int64_t group_world_size;
  int64_t restart_count;
  int64_t pid; /* of this process */
  const char *message;
} rdzv_agent_event;

/* A change of a worker's state; as rdzv_agent_event. */
typedef struct rdzv_worker_event {
  int64_t time_us;
  rdzv_worker_state state;
  const char *run_id;
  const char *role;
  int64_t round;
  int64_t group_rank; /* of this node */
  int64_t group_world_size;
  int64_t restart_count;
  int64_t local_rank, rank;
  int64_t pid;
  int exit_code; /* of a worker that ended; 128+n where signal n ended it */
  const char *message;
} rdzv_worker_event;

/* Called from the thread that runs the agent. Neither may call back into the agent but for rdzv_agent_stop and
 * rdzv_agent_handler. */
typedef void rdzv_on_agent_event(void *user, const rdzv_agent_event *event);
typedef void rdzv_on_worker_event(void *user, const rdzv_worker_event *event);

/* Zero means the default in every field; `size` is always sizeof the struct. Everything is copied but the functions'
 * `user`s. The texts take what torchrun's flags of the same names take. */
typedef struct rdzv_agent_options {
  size_t size;
  const rdzv_params *rendezvous; /* cancel_fd is looked at while opening only, rdzv_agent_stop is for the rest. Stores
                                    that the agent serves log there, too */
  bool standalone;            /* one node: serves the store itself, on a free port; backend, endpoint, run id and number
                                 of nodes are its own; `conf` is for backend c10d */
  const char *const *argv;    /* the program and its arguments, ending with NULL; looked for in PATH. "${local_rank}" in
                                 them is replaced */
  const char *nproc_per_node; /* a number, "auto", "cpu" or "gpu"; default "1" */
  const char *role;           /* default "default" */
  int64_t max_restarts;
  const char *log_dir;   /* below it a folder for this run; default a temporary one, which is removed at the end unless
                            workers failed, or `redirects` or `tee` asked for files. "/dev/null": none, and no error
                            files. A folder without files is never left */
  const char *redirects; /* "0" none, "1" stdout, "2" stderr, "3" both, or "local_rank:value,…"; default "0" */
  const char *tee;       /* the same */
  const char *local_ranks_filter;  /* "0,2": only these are shown; default all */
  const char *line_prefix;         /* of lines that are shown by tee; ${role_name}, ${rank} and ${local_rank} in it are
                                      replaced. Default "[${role_name}${rank}]:" */
  int64_t shutdown_timeout_ms;     /* from the signal to SIGKILL; default 30 s */
  int64_t exit_barrier_timeout_ms; /* for the other agents to finish; default 300 s */
  rdzv_on_agent_event *on_agent;   /* default none */
  rdzv_on_worker_event *on_worker; /* default none */
  void *event_user;                /* for both */
  const rdzv_log *log;
  bool virtual_local_rank; /* LOCAL_RANK is 0 for all workers, and CUDA_VISIBLE_DEVICES names the worker's GPU only */
  bool numa_binding;       /* each worker runs on the processors of its GPU's NUMA node only; without a GPU they are
                              spread over the nodes */
  bool adopt_orphans;      /* for a program that has no other children: daemons that workers start become its children
                              (PR_SET_CHILD_SUBREAPER in prctl(2)), and are killed when the workers have ended */
  uint64_t worker_descriptors; /* how many descriptors a worker may open (the soft RLIMIT_NOFILE); default as many as
                                  this process. The agent itself opens up to 8 for each worker */
} rdzv_agent_options;

/* A worker that failed. Made by the library; later versions may add fields at its end. */
typedef struct rdzv_worker_failure {
  int64_t rank, local_rank; /* -1: of an agent that says only that it failed */
  const char *host;
  int64_t pid;
  int exit_code;          /* 128+n where signal n ended it */
  int signal;             /* 0: none */
  int64_t time_us;        /* since 1970 */
  const char *message;    /* what it left in its error file, or how it ended */
  const char *log;        /* its last lines on stderr; "" where they are not known */
  const char *error_file; /* "" where there is none */
} rdzv_worker_failure;

/* How it went. Everything in it is its own. Made by the library; later versions may add fields at its end. */
typedef struct rdzv_agent_result {
  rdzv_agent_state state; /* RDZV_AGENT_SUCCEEDED, RDZV_AGENT_FAILED, RDZV_AGENT_LEFT */
  int exit_code;          /* for the process: 0, that of the first failure, or 128+n for a stop by signal n */
  int64_t restarts;       /* used up */
  const char *reason;     /* a sentence */
  const char *log_dir;    /* of this run; "" where there are no files */
} rdzv_agent_result;

RDZV_BEGIN

/* Opens the rendezvous, too; what rdzv_handler_open returns. RDZV_E_INVALID names the option. RDZV_E_CANCELED. */
RDZV_API int rdzv_agent_open(const rdzv_agent_options *options, rdzv_agent **out, rdzv_error *error);

/* Until the job is over for this node. 0 also where it failed: *out says how it went, to be freed with
 * rdzv_agent_result_free. Errors are those of the rendezvous (RDZV_E_TIMEOUT, RDZV_E_CLOSED, RDZV_E_GRACEFUL_EXIT,
 * RDZV_E_CONNECTION …), and of starting workers (RDZV_E_IO names the step and the program). Once. */
RDZV_API int rdzv_agent_run(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error);

/* Passes the signal on to the workers and ends: this node leaves, the others go on. The second call kills the workers
 * at once. */
RDZV_API void rdzv_agent_stop(rdzv_agent *agent, int signal);

/* Stops the workers and what they have started as SIGSTOP does, or lets them go on: for a program that is stopped by
 * its terminal itself. The others miss this node when that takes longer than they wait for a heartbeat. From any
 * thread, but not from a signal handler. */
RDZV_API void rdzv_agent_suspend(rdzv_agent *agent, bool suspended);

/* The rendezvous that the agent is a node of, to look at; owned by the agent. */
RDZV_API rdzv_handler *rdzv_agent_handler(rdzv_agent *agent);

/* NULL is fine. */
RDZV_API void rdzv_agent_free(rdzv_agent *agent);

/* The workers that failed in the last attempt, the first in time first; also another node's, if it was first and told.
 * Owned by the result; NULL where there are not so many. */
RDZV_API size_t rdzv_agent_result_failure_count(const rdzv_agent_result *result);
RDZV_API const rdzv_worker_failure *rdzv_agent_result_failure(const rdzv_agent_result *result, size_t index);

/* NULL is fine. */
RDZV_API void rdzv_agent_result_free(rdzv_agent_result *result);

/* "RENDEZVOUS", "STARTING", … Static storage. */
RDZV_API const char *rdzv_agent_state_name(rdzv_agent_state state);

/* "STARTED", "SUCCEEDED", "FAILED", "STOPPED". Static storage. */
RDZV_API const char *rdzv_worker_state_name(rdzv_worker_state state);

RDZV_END

#endif
