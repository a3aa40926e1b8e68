/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The workers of one attempt. Each is monitored through a descriptor of its process. One that has ended stays a zombie
 * until all are, so that its id, which is also that of its process group, is nobody else's when the group is killed.
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
  struct group *group;
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
  char *last_lines; /* of stderr, once it is closed; NULL: none */
};

struct group {
  uv_loop_t *loop;
  struct guard *guard;
  bool adopts; /* orphans of workers become our children */
  const struct streams_settings *streams;
  void (*on_end)(void *user, struct worker *worker);
  void *user;
  pthread_mutex_t lock; /* guards `workers`, their ids and that those are not reaped: another thread may signal */
  struct worker *workers;
  size_t count;
  size_t running;
  bool stopping;        /* an end from here on is our doing */
  uint64_t descriptors; /* that a worker may open; 0: as many as we */
};

/* Starts all, or none. `argv` is the program, `dir` where files go. */
int group_start(struct group *group, char *const *argv, const struct attempt *attempt, struct log_dir *dir,
                rdzv_error *error);

/* Tells of those that have ended and have not been told of yet: from here on an end may be our doing. */
void group_sweep(struct group *group);

/* To all that run, and to what they have started. */
void group_signal(struct group *group, int signal);

/* Stops all that run, and what they have started, or lets them go on. From any thread. */
void group_suspend(struct group *group, bool suspended);

/* Kills what is left of all, and forgets them. What runs even so is left behind: *left is how many. The workers with
 * their ends stay readable until group_free. Gives how many daemons of theirs were killed, as far as that is known. */
size_t group_end(struct group *group, size_t *left);

/* Takes away daemons of workers that have ended. */
void group_reap_orphans(const struct group *group);

void group_free(struct group *group);

#endif
