/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts processes, each in a session of its own, that are killed when we die.
 *
 * A starter, which is forked for that and ends then, forks all of them as our children. It does not wait for any: on a
 * busy machine each may have to wait for a processor before its program runs. It is forked once and has one thread, so
 * its own forks are cheap; and it has a session of its own, so that the kernel, which divides the processors among
 * sessions (sched(7), autogroup), lets it run beside whatever else runs in ours.
 */
#ifndef RDZV_AGENT_WORKER_SPAWN_H
#define RDZV_AGENT_WORKER_SPAWN_H

#include "agent/guard/guard.h"
#include "base/wait/flag.h"

#include <rdzv/error.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn {
  char *const *argv; /* argv[0] is looked for in PATH */
  char *const *environment;
  int out, err;         /* stdout and stderr; -1: ours */
  uint64_t descriptors; /* how many it may open; 0: as many as we */
  bool bound;
  cpu_set_t cpus; /* that it may run on, if it is bound */
};

/* Starts all, from a thread that lives as long as they are to, and waits until their programs run, for 30 s at most,
 * and for 1 s after `cancel` (may be NULL) was raised. `guard` knows of
 * each process, by its place in the list, before that can start others. A process gets our stdin, and no other
 * descriptor; it blocks no signal, and ignores those that we do, but for SIGPIPE.
 *
 * pids[i] is that of list[i]; 0: it could not be started. Then RDZV_E_IO names the first such program and the step that
 * failed, and others may run. */
int spawn(const struct guard *guard, const struct spawn *list, size_t count, const struct flag *cancel, pid_t *pids,
          rdzv_error *error);

#endif
