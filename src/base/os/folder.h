/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading and removing folders without memory of its own: also in a process that was forked from one with threads. */
#ifndef RDZV_BASE_OS_FOLDER_H
#define RDZV_BASE_OS_FOLDER_H

#include <stdbool.h>

/* Calls `visit` with each name but "." and "..", until it says false. */
void folder_each(int fd, bool (*visit)(void *user, int fd, const char *name), void *user);

/* Removes what `name` is below the folder `parent_fd`, which may be AT_FDCWD: a folder with all below it, or a file. A
 * symbolic link is not followed. What cannot be removed stays. */
void folder_remove(int parent_fd, const char *name);

/* The same, but files stay, and so do the folders that they are in. */
void folder_remove_empty(int parent_fd, const char *name);

#endif
