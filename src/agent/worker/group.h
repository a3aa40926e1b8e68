/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The workers of one attempt. Each is monitored through a descriptor of its process. An ended worker stays a zombie
 * until all have ended: no other process group can get its id before its own group is killed.
 */
#ifndef RDZV_AGENT_WORKER_GROUP_H
#define RDZV_AGENT_WORKER_GROUP_H

#include "agent/guard/guard.h"
#include "agent/worker/environment.h"
#include "agent/worker/log_dir.h"
#include "agent/worker/streams.h"

#include <pthread.h>
#include <uv.h>

enum worker_end { WORKER_RUNS, WORKER_SUCCEEDED, WORKER_FAILED, WORKER_STOPPED /* by us */ };

struct worker {
  struct worker_group *group;
  int64_t local_rank, rank;
  pid_t pid; /* 0: not started */
  bool reaped;
  int pid_fd; /* -1: none */
  uv_poll_t poll;
  bool polled;
  enum worker_end end;
  int exit_code; /* 128+n: ended by signal n */
  int signal;
  int64_t ended_us;
  char error_file[PATH_MAX];
  struct streams streams;
  char *last_lines;  /* of stderr, once it is closed; NULL: none */
  char *start_error; /* why it was not started; NULL: it was */
};

struct worker_group {
  uv_loop_t *loop;
  struct guard *guard;
  bool adopts; /* orphans of workers become our children */
  const struct streams_settings *streams;
  const struct flag *stop; /* ends the wait for programs that hang in their exec */
  void (*on_end)(void *user, struct worker *worker);
  void *user;
  pthread_mutex_t lock; /* guards `workers`, their pids and `reaped`, for group_suspend */
  struct worker *workers;
  size_t count;
  size_t running;
  bool stopping;        /* workers that end from now on were stopped by us */
  uint64_t descriptors; /* the limit for a worker; 0: ours */
};

/* Starts all workers. On failure some may run: the caller ends the group. The worker that failed has the end
 * WORKER_FAILED and the error. `argv` is the program, `dir` is for files. */
int group_start(struct worker_group *group, char *const *argv, const struct attempt *attempt, struct log_dir *dir,
                rdzv_error *error);

/* Calls on_end for workers that have ended since. Before group_signal, after which an end may be our doing. */
void group_sweep(struct worker_group *group);

/* Sends the signal to the process groups of all running workers. */
void group_signal(struct worker_group *group, int signal);

/* Stops the process groups of all workers, or continues them. From any thread. */
void group_suspend(struct worker_group *group, bool suspended);

/* Kills the process groups and daemons of all workers, reaps the workers and closes their streams. *left is the number
 * of workers that cannot be killed. How workers ended stays readable until group_free. Returns the number of daemons
 * that were killed, as far as it is known. */
size_t group_end(struct worker_group *group, size_t *left);

/* Reaps daemons that have ended. */
void group_reap_orphans(const struct worker_group *group);

void group_free(struct worker_group *group);

#endif
