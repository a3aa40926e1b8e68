/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts processes, each in a session of its own, that are killed when we die. spawn does not wait until the program
 * runs: all processes of a spawner tell through one pipe, which exec closes, what went wrong before exec.
 */
#ifndef RDZV_AGENT_WORKER_SPAWN_H
#define RDZV_AGENT_WORKER_SPAWN_H

#include "agent/guard/guard.h"

#include <rdzv/error.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn {
  const struct guard *guard; /* knows of the process before it can start others */
  size_t slot;               /* the process' place in the guard, and its name in a spawn_failure */
  char *const *argv;         /* argv[0] is looked for in PATH */
  char *const *environment;
  int out, err;          /* stdout and stderr; -1: ours */
  uint64_t descriptors;  /* how many it may open; 0: as many as we */
  const cpu_set_t *cpus; /* that it may run on; NULL: as we */
};

struct spawner {
  int failures[2]; /* a pipe; -1: closed */
};

struct spawn_failure {
  size_t slot;
  int step, errnum;
};

int spawner_open(struct spawner *spawner, rdzv_error *error);

/* From a thread that lives as long as the process is to. The process gets our stdin, and no other descriptor; it blocks
 * no signal, and ignores those that we do, but for SIGPIPE. RDZV_E_IO: it could not be forked. */
int spawn(const struct spawner *spawner, const struct spawn *spawn, pid_t *pid, rdzv_error *error);

/* After the last spawn: waits for the next process that fails before its program runs. That process is to be reaped.
 * False: all others run theirs. */
bool spawner_await_failure(struct spawner *spawner, struct spawn_failure *out);

/* RDZV_E_IO, which names the program and the step. */
int fail_spawn(const struct spawn_failure *failure, const char *program, rdzv_error *error);

void spawner_close(struct spawner *spawner);

#endif
