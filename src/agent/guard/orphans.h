/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Daemons: processes that left their worker's process group and lost their parent. They are found by whose child they
 * have become. No memory is allocated, so that a process that was forked from one with threads can look, too.
 */
#ifndef RDZV_AGENT_GUARD_ORPHANS_H
#define RDZV_AGENT_GUARD_ORPHANS_H

#include "base/wait/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Is a child of ours one that is no orphan? */
struct orphans_known {
  bool (*is)(const void *user, pid_t pid);
  const void *user;
};

/* From here on, or no longer, orphans below us become our children. Gives what was before. */
bool orphans_adopt(bool adopt);

/* Reaps those of our children that have ended, but for the known ones. */
void orphans_reap(const struct orphans_known *known);

/* Kills and reaps all our children but for the known ones, and what they leave behind; until then. Gives how many. */
size_t orphans_kill(const struct orphans_known *known, deadline until);

/* Where their parent is dead: kills those that have the variable `mark` ("NAME=beginning of a value") in their
 * environment and are children of `reaper`, to which orphans go, and those below that have it, too; until then. */
void orphans_kill_marked(const char *mark, pid_t reaper, deadline until);

#endif
