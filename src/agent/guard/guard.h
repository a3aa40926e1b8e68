/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that outlives the agent by a moment and kills what the agent leaves behind: the process groups of the
 * workers, all processes in the cgroup, and daemons that have the mark. Then it removes the temporary folder. The
 * kernel kills only the agent's own children (see spawn.h).
 *
 * The guard learns which processes to kill from memory that it shares with the agent, and is woken only by the agent's
 * end.
 */
#ifndef RDZV_AGENT_GUARD_GUARD_H
#define RDZV_AGENT_GUARD_GUARD_H

#include "agent/guard/cgroup.h"

#include <rdzv/error.h>
#include <stddef.h>
#include <sys/types.h>

struct guard_table;

struct guard {
  int fd; /* -1: none. Readable when the guard is dead, which only SIGKILL makes it */
  pid_t pid;
  struct cgroup cgroup; /* that workers are started in */
  struct guard_table *table;
};

#define GUARD_NONE ((struct guard){-1, -1, CGROUP_NONE, NULL})

int guard_open(struct guard *guard, rdzv_error *error);

/* After the guard's death: starts another one, with the same descriptor and the same table. */
int guard_renew(struct guard *guard, rdzv_error *error);

/* Sets the process group that worker `slot` leads; 0: none. Also between fork and exec. Slots beyond the table's size
 * are not guarded by their group. */
void guard_set_group(const struct guard *guard, size_t slot, pid_t group);

/* Sets the mark: "NAME=beginning of a value" that only the environment of our workers has. A mark that is too long is
 * ignored. */
void guard_set_mark(const struct guard *guard, const char *mark);

/* Sets the folder that is removed, with all that is in it; "": none. A path that is too long is ignored. */
void guard_set_folder(const struct guard *guard, const char *path);

/* Ends the guard; it kills nothing. guard_close waits for its end. */
void guard_quit(const struct guard *guard);
void guard_close(struct guard *guard);

#endif
