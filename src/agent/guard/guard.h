/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that outlives us by a moment, and kills what we leave behind. */
#ifndef RDZV_AGENT_GUARD_GUARD_H
#define RDZV_AGENT_GUARD_GUARD_H

#include "agent/guard/cgroup.h"

#include <limits.h>
#include <rdzv/error.h>
#include <sys/types.h>

/* What is killed when this process is gone, in whatever way: the process groups that it knows, all in the cgroup, and
 * daemons that have the mark. The kernel kills only our own children then (see spawn.h). */
struct guard {
  int fd; /* -1: none. Readable when it is dead, which only SIGKILL makes it */
  pid_t pid;
  struct cgroup cgroup; /* which workers are started in */
  char mark[PATH_MAX];  /* "NAME=beginning of a value" that is in the environment of our workers only; "": none */
};

#define GUARD_NONE ((struct guard){-1, -1, CGROUP_NONE, ""})

int guard_open(struct guard *guard, rdzv_error *error);

/* After its death: another one, with the same descriptor, which knows no groups yet. */
int guard_renew(struct guard *guard, rdzv_error *error);

/* From here on it knows that group, or knows it no more. The first also between fork and exec. */
void guard_add(const struct guard *guard, pid_t group);
void guard_remove(const struct guard *guard, pid_t group);

/* From here on that is the mark. One that is too long is none. */
void guard_set_mark(struct guard *guard, const char *mark);

/* Nothing is killed. */
void guard_close(struct guard *guard);

#endif
