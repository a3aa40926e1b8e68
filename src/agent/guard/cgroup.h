/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control group (v2) for the workers, below our own, where we may make one: whatever they start is in it, and can be
 * killed at once. Usually that takes root, or a part of the tree that was delegated to us.
 */
#ifndef RDZV_AGENT_GUARD_CGROUP_H
#define RDZV_AGENT_GUARD_CGROUP_H

#include "base/wait/clock.h"

struct cgroup {
  int parent_fd, fd; /* folders; -1: there is none */
  char name[48];     /* below the parent */
};

#define CGROUP_NONE ((struct cgroup){-1, -1, ""})

/* Where we may not, CGROUP_NONE. */
void cgroup_open(struct cgroup *cgroup);

/* This process joins it. */
void cgroup_join(const struct cgroup *cgroup);

/* Kills all that are in it, and waits for their end until then. Does no harm in a forked child, as what follows. */
void cgroup_kill(const struct cgroup *cgroup, deadline until);

/* Removes it, with those that others have made in it, if nobody is there any more. */
void cgroup_remove(const struct cgroup *cgroup);

/* Closes the descriptors. */
void cgroup_close(struct cgroup *cgroup);

#endif
