/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a folder without memory of its own: also in a process that was forked from one with threads. */
#ifndef RDZV_AGENT_GUARD_FOLDER_H
#define RDZV_AGENT_GUARD_FOLDER_H

#include <stdbool.h>

/* Calls `visit` with each name but "." and "..", until it says false. */
void folder_each(int fd, bool (*visit)(void *user, int fd, const char *name), void *user);

#endif
