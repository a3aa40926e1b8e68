/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that outlives us by a moment, and kills what we leave behind. */
#ifndef RDZV_AGENT_GUARD_H
#define RDZV_AGENT_GUARD_H

#include <rdzv/error.h>
#include <sys/types.h>

/* The process groups that it knows are killed when this process is gone, in whatever way. The kernel kills only our own
 * children then (see spawn.h), the guard theirs, too. */
struct guard {
  int fd; /* -1: none */
  pid_t pid;
};

int guard_open(struct guard *guard, rdzv_error *error);

/* From here on it knows that group, or knows it no more. The first also between fork and exec. */
void guard_add(const struct guard *guard, pid_t group);
void guard_remove(const struct guard *guard, pid_t group);

/* Nothing is killed. */
void guard_close(struct guard *guard);

#endif
