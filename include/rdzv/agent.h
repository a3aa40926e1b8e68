/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * The launcher of one node: rounds, ranks, workers, restarts. */
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

/**
 * The agent of one node: PyTorch's LocalElasticAgent. It joins the rendezvous, agrees with the other agents on the
 * ranks of all workers, starts the workers of this node, and watches them.
 *
 *   rdzv_agent_open -> rdzv_agent_run -> rdzv_agent_free
 *
 * A failed worker stops all workers of the job and uses up one of max_restarts; then all agents join the next round.
 * Workers that fail again and again, each time within a minute of their start, are restarted after a delay that grows
 * to 10 s. A program that cannot be started at a restart counts as a failed worker with exit code 127.
 * When participants leave or die, or nodes wait for the next round, the same happens without using up a restart. The
 * other agents may be those of torchrun.
 *
 * Workers are processes, each in a session of its own, with the environment that torchrun gives its workers. When the
 * process of the agent ends, however that happens, its workers are killed.
 *
 * Threads: rdzv_agent_run in the thread that opened the agent; rdzv_agent_stop and rdzv_agent_suspend from any thread.
 *
 * Signals: rdzv_agent_stop can be called in a signal handler, the other calls cannot. No handler is installed. SIGCHLD
 * must not be ignored, and no other code may wait for the workers (waitpid(-1), for example). All signals are blocked
 * in the threads of the agent. Workers start with the default action for SIGPIPE and for signals that this process
 * handles.
 *
 * Forks: an agent belongs to the process that opened it. In a child, rdzv_agent_run returns RDZV_E_INVALID,
 * rdzv_agent_stop and rdzv_agent_suspend do nothing, and rdzv_agent_free frees the copy of the child.
 *
 * Effects on the process: child processes (the workers, and a guard that kills them), threads and descriptors, which
 * are gone after rdzv_agent_free; and the pipe that libuv opens once, as for rdzv_server. With adopt_orphans the
 * process is a subreaper until rdzv_agent_free. Limits, environment and folder of this process are not changed.
 * Linux 5.4 or later.
 */
typedef struct rdzv_agent rdzv_agent;

/** What an agent does. */
typedef enum rdzv_agent_state {
  RDZV_AGENT_RENDEZVOUS = 0, /**< It joins a round. */
  RDZV_AGENT_STARTING,       /**< It is in a round, and starts its workers. */
  RDZV_AGENT_RUNNING,        /**< Its workers run. */
  RDZV_AGENT_STOPPING,       /**< It ends its workers; the message has the reason. */
  RDZV_AGENT_BARRIER,        /**< Its workers are done, and it waits for the workers of the other agents. */
  RDZV_AGENT_SUCCEEDED,      /**< All workers succeeded. */
  RDZV_AGENT_FAILED,         /**< The job failed. */
  RDZV_AGENT_LEFT,           /**< It was stopped. */
} rdzv_agent_state;

/** What a worker does. */
typedef enum rdzv_worker_state {
  RDZV_WORKER_STARTED = 0, /**< It was started. */
  RDZV_WORKER_SUCCEEDED,   /**< It ended with exit code 0. */
  RDZV_WORKER_FAILED,      /**< It ended with another exit code, or by a signal. */
  RDZV_WORKER_STOPPED,     /**< The agent ended it. */
} rdzv_worker_state;

/** A new state of the agent. The library creates it; a later version may add fields at its end. The texts are valid
 * during the callback only, and never NULL. */
typedef struct rdzv_agent_event {
  int64_t time_us;          /**< Microseconds since 1970 by the clock of this machine. */
  rdzv_agent_state state;   /**< The state. */
  const char *run_id;       /**< The run. */
  const char *role;         /**< The role of the workers. */
  int64_t round;            /**< The round; -1 if there is none. */
  int64_t group_rank;       /**< The rank of this node; -1 if there is none. */
  int64_t group_world_size; /**< The number of nodes; -1 if there is no round. */
  int64_t restart_count;    /**< Restarts that were used up. */
  int64_t pid;              /**< This process. */
  const char *message;      /**< A sentence. */
} rdzv_agent_event;

/** A new state of a worker. The library creates it; a later version may add fields at its end. The texts are valid
 * during the callback only, and never NULL. */
typedef struct rdzv_worker_event {
  int64_t time_us;          /**< Microseconds since 1970 by the clock of this machine. */
  rdzv_worker_state state;  /**< The state. */
  const char *run_id;       /**< The run. */
  const char *role;         /**< The role of the worker. */
  int64_t round;            /**< The round. */
  int64_t group_rank;       /**< The rank of this node. */
  int64_t group_world_size; /**< The number of nodes. */
  int64_t restart_count;    /**< Restarts that were used up. */
  int64_t local_rank;       /**< The rank of the worker on this node. */
  int64_t rank;             /**< The rank of the worker in the job. */
  int64_t pid;              /**< The process of the worker. */
  int exit_code;            /**< Of a worker that ended; 128+n if signal n ended it. */
  const char *message;      /**< A sentence. */
} rdzv_worker_event;

/** Receives the states of the agent, in the thread that runs it. It must not call back into the agent, except
 * rdzv_agent_stop and rdzv_agent_handler. */
typedef void rdzv_on_agent_event(void *user, const rdzv_agent_event *event);

/** Receives the states of workers, as rdzv_on_agent_event. */
typedef void rdzv_on_worker_event(void *user, const rdzv_worker_event *event);

/** Options of an agent. Set `size`; a field that is zero has its default. Everything is copied. Texts have the same
 * values as the flags of torchrun with the same names. */
typedef struct rdzv_agent_options {
  size_t size;                   /**< sizeof(rdzv_agent_options) */
  const rdzv_params *rendezvous; /**< The rendezvous. Its cancel_fd is used while the agent is opened only; use
                                    rdzv_agent_stop afterwards. Its log also gets the lines of stores that the agent
                                    serves. NULL: all defaults, enough for `standalone` only. */
  bool standalone;               /**< A job of one node: the agent serves the store itself, on a free port. Backend,
                                    endpoint, run id and number of nodes are ignored; conf is for backend c10d. */
  const char *const *argv;       /**< The program, which is looked up in PATH, and its arguments; ends with NULL.
                                    "${local_rank}" in them is replaced. Required. */
  const char *nproc_per_node;    /**< Workers on this node: a number, "auto", "cpu", "gpu" or "xpu"; default "1". */
  const char *role;              /**< The role of the workers; default "default". */
  int64_t max_restarts;          /**< Restarts after failed workers; default 0. */
  const char *log_dir;   /**< The run has a folder below it. Default a temporary folder, which is removed at the end
                            unless workers failed, or redirects or tee asked for files. "/dev/null": no files. A
                            folder without files is always removed. */
  const char *redirects; /**< "0" none, "1" stdout, "2" stderr, "3" both to files, or "local_rank:value,…"; default
                            "0". */
  const char *tee;       /**< The same, to files and to the output of this process; default "0". */
  const char *local_ranks_filter; /**< "0,2": show the output of these workers only; default all. */
  const char *line_prefix;        /**< Before lines that tee shows; ${role_name}, ${rank} and ${local_rank} in it are
                                     replaced. Default "[${role_name}${rank}]:". */
  const char *duplicate_stdout_filters; /**< "a,b": lines of stdout that tee shows and that have one of these texts also
                                           go to filtered_stdout.log in the folder of the attempt; ",," is a comma in a
                                           text. Default none. */
  const char *duplicate_stderr_filters; /**< The same for stderr and filtered_stderr.log. */
  int64_t shutdown_timeout_ms;          /**< From the signal that ends the workers to SIGKILL; default 30 s. */
  int64_t exit_barrier_timeout_ms;      /**< For the other agents to finish; default 300 s. */
  rdzv_on_agent_event *on_agent;        /**< Receives the states of the agent; default none. */
  rdzv_on_worker_event *on_worker;      /**< Receives the states of workers; default none. */
  void *event_user;                     /**< Passed to both. */
  const rdzv_log *log;                  /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  bool virtual_local_rank;  /**< LOCAL_RANK is 0 for all workers, and CUDA_VISIBLE_DEVICES has the GPU of the worker
                               only. */
  const char *numa_binding; /**< Each worker runs on processors near its GPU: "node", those of its NUMA node; "socket",
                               those of its socket; "exclusive", a part of the cores of its NUMA node that no other
                               GPU has; "core-complex", cores of its NUMA node that share their last cache. Without
                               GPUs the workers are spread over the NUMA nodes. Default: all processors. */
  bool adopt_orphans;       /**< Kill daemons that workers started, too, after the workers have ended. Only for a
                               process that has no other children: all orphans become its children
                               (PR_SET_CHILD_SUBREAPER, prctl(2)), and all its children are killed. */
  uint64_t worker_descriptors; /**< Descriptors that a worker may open (soft RLIMIT_NOFILE); default as many as this
                                  process. The agent itself opens up to 10 for each worker. */
  bool direct_master;          /**< In a protected rendezvous (rdzv_handler_protection), workers reach their store by a
                                  port of the agent on loopback, which MASTER_ADDR and MASTER_PORT name, and the store
                                  itself is protected. With this they name the machine of rank 0, as without protection,
                                  and the store there is not protected. */
} rdzv_agent_options;

/** A failed worker. The library creates it; a later version may add fields at its end. */
typedef struct rdzv_worker_failure {
  int64_t rank;           /**< The rank in the job; -1: the agent reported only its failure. */
  int64_t local_rank;     /**< The rank on its node; -1 likewise. */
  const char *host;       /**< The machine. */
  int64_t pid;            /**< The process. */
  int exit_code;          /**< 128+n if signal n ended it. */
  int signal;             /**< The signal that ended it; 0: none. */
  int64_t time_us;        /**< Microseconds since 1970 by the clock of its machine. */
  const char *message;    /**< The text of its error file, or how it ended. */
  const char *log;        /**< Its last lines on stderr; "" if they are not known. */
  const char *error_file; /**< "" if there is none. */
  int64_t attempt;        /**< TORCHELASTIC_RESTART_COUNT of the worker. */
} rdzv_worker_failure;

/** How a job ended on this node. It owns everything in it. The library creates it; a later version may add fields at
 * its end. */
typedef struct rdzv_agent_result {
  rdzv_agent_state state; /**< RDZV_AGENT_SUCCEEDED, RDZV_AGENT_FAILED or RDZV_AGENT_LEFT. */
  int exit_code; /**< For this process: 0, that of the first failure, or 128+n after rdzv_agent_stop with signal n; 7 if
                    all workers succeeded, but some of their output is lost. */
  int64_t restarts;    /**< Restarts that were used up. */
  const char *reason;  /**< A sentence. */
  const char *log_dir; /**< The folder of this run; "" if there are no files. */
  uint64_t lost_bytes; /**< Output of workers that could not be written, to a full disk for example. */
  const char *lost_to; /**< Where the first of it was to go, and why it did not; "" if none is lost. */
} rdzv_agent_result;

RDZV_BEGIN

/** Opens an agent and its rendezvous. Free it with rdzv_agent_free. Errors as rdzv_handler_open. RDZV_E_INVALID: the
 * message names the option. RDZV_E_CANCELED. */
RDZV_API int rdzv_agent_open(const rdzv_agent_options *options, rdzv_agent **out, rdzv_error *error);

/** Runs the job until it is over for this node. Call it once. Returns 0 also if the job failed: *out says how it ended.
 * Free it with rdzv_agent_result_free. Errors are those of the rendezvous (RDZV_E_TIMEOUT, RDZV_E_CLOSED,
 * RDZV_E_GRACEFUL_EXIT, RDZV_E_CONNECTION and others), and RDZV_E_IO if the first workers cannot be started; the
 * message names the step and the program. */
RDZV_API int rdzv_agent_run(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error);

/** Sends the signal to the workers and ends the run: this node leaves, the other nodes continue. The second call kills
 * the workers at once. Can be called from any thread and in a signal handler. */
RDZV_API void rdzv_agent_stop(rdzv_agent *agent, int signal);

/** Stops the workers and their descendants as SIGSTOP does, or lets them continue. For a program that its terminal
 * stops. Other nodes take this one for dead if it is stopped for longer than they wait for a heartbeat. */
RDZV_API void rdzv_agent_suspend(rdzv_agent *agent, bool suspended);

/** Returns the handler of the agent, to look at the rendezvous. Owned by the agent. */
RDZV_API rdzv_handler *rdzv_agent_handler(rdzv_agent *agent);

/** Returns the number of failed attempts that rdzv_agent_failed_attempt knows. Call it after rdzv_agent_run, also if
 * that returned an error. */
RDZV_API size_t rdzv_agent_failed_attempt_count(const rdzv_agent *agent);

/** Returns the first failure of an attempt that failed, in the order of time; its `log` has the last line only. Of more
 * than 32 attempts only the first 8 and the last 24 are known. Owned by the agent. NULL: the index is too large. */
RDZV_API const rdzv_worker_failure *rdzv_agent_failed_attempt(const rdzv_agent *agent, size_t index);

/** Frees an agent. NULL is ignored. */
RDZV_API void rdzv_agent_free(rdzv_agent *agent);

/** Returns the number of known failures. */
RDZV_API size_t rdzv_agent_result_failure_count(const rdzv_agent_result *result);

/** Returns a worker that failed in the last attempt; owned by the result. The first failure comes first; it may be that
 * of another node. NULL: the index is too large. */
RDZV_API const rdzv_worker_failure *rdzv_agent_result_failure(const rdzv_agent_result *result, size_t index);

/** Frees a result. NULL is ignored. */
RDZV_API void rdzv_agent_result_free(rdzv_agent_result *result);

/** Returns the name of a state: "RENDEZVOUS", "STARTING", … Static storage. */
RDZV_API const char *rdzv_agent_state_name(rdzv_agent_state state);

/** Returns the name of a state: "STARTED", "SUCCEEDED", "FAILED", "STOPPED". Static storage. */
RDZV_API const char *rdzv_worker_state_name(rdzv_worker_state state);

RDZV_END

#endif
