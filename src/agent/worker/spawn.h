/* SPDX-License-Identifier: BSD-3-Clause */
/* One process, in a session of its own, that is killed when we die. */
#ifndef RDZV_AGENT_WORKER_SPAWN_H
#define RDZV_AGENT_WORKER_SPAWN_H

#include "agent/guard/guard.h"

#include <rdzv/error.h>
#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn {
  const struct guard *guard; /* which knows of the process before it can start others */
  char *const *argv;         /* argv[0] is looked for in PATH */
  char *const *environment;
  int out, err;          /* its stdout and stderr; -1: ours */
  uint64_t descriptors;  /* how many it may open; 0: as many as we */
  const cpu_set_t *cpus; /* that it may run on; NULL: as we */
};

/* From a thread that lives as long as the process is to. The process gets our stdin, and no other descriptor; it blocks
 * no signal, and ignores those that we do, but for SIGPIPE. RDZV_E_IO names the step that failed. */
int spawn(const struct spawn *spawn, pid_t *pid, rdzv_error *error);

#endif
