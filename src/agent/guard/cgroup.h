/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control group (v2) for the workers, below our own. All processes that workers start are in it and can be killed at
 * once. Creating one usually needs root, or a delegated subtree.
 */
#ifndef RDZV_AGENT_GUARD_CGROUP_H
#define RDZV_AGENT_GUARD_CGROUP_H

#include "base/wait/clock.h"

struct cgroup {
  int parent_fd, fd; /* folders; -1: there is none */
  char name[48];     /* below the parent */
};

#define CGROUP_NONE ((struct cgroup){-1, -1, ""})

/* CGROUP_NONE if it cannot be created. */
void cgroup_open(struct cgroup *cgroup);

/* Moves this process into it. */
void cgroup_join(const struct cgroup *cgroup);

/* Kills all processes in it, and waits for their end until then. Safe in a forked child, as cgroup_remove is. */
void cgroup_kill(const struct cgroup *cgroup, deadline until);

/* Removes it, with the cgroups below it, if no process is left in them. */
void cgroup_remove(const struct cgroup *cgroup);

/* Closes the descriptors. */
void cgroup_close(struct cgroup *cgroup);

#endif
