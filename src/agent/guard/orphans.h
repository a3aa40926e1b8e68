/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Daemons: processes that left their worker's process group and lost their parent. Their new parent tells whose they
 * are. Nothing here allocates memory, so a child of a process with threads can call it.
 */
#ifndef RDZV_AGENT_GUARD_ORPHANS_H
#define RDZV_AGENT_GUARD_ORPHANS_H

#include "base/wait/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Tells which children of this process are not orphans. */
struct orphans_known {
  bool (*is)(const void *user, pid_t pid);
  const void *user;
};

/* Makes orphans below us our children, or no longer. Returns whether they were before. */
bool orphans_adopt(bool adopt);

/* Reaps our ended children, except the known ones. */
void orphans_reap(const struct orphans_known *known);

/* Kills and reaps all our children except the known ones, and the orphans that they leave. Returns their number. */
size_t orphans_kill(const struct orphans_known *known, deadline until);

/* After the agent's death: kills the children of `reaper`, which adopts orphans, that have the variable `mark`
 * ("NAME=beginning of a value") in their environment, and those of their descendants that have it. */
void orphans_kill_marked(const char *mark, pid_t reaper, deadline until);

#endif
