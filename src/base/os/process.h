/* SPDX-License-Identifier: BSD-3-Clause */
/* Child processes of a program that may have threads. The child calls only what is safe between fork and exec. */
#ifndef RDZV_BASE_OS_PROCESS_H
#define RDZV_BASE_OS_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

enum {
  PROCESS_HIDDEN = 1 << 0,  /* wait(2) does not see the child without __WALL: the program does not hear of it */
  PROCESS_SIBLING = 1 << 1, /* the child of our parent, which waits for it, not ours; see process_has_siblings */
};

/* Forks. All signals are blocked in the child, so that no handler of the program acts there on what both share; the
 * child calls process_take_signals. `flags` are PROCESS_…; where the kernel has no hidden ones, the child is seen.
 * `cgroup_fd` is the folder of a cgroup for the child; -1: ours. Before Linux 5.7 that fails. */
pid_t process_fork(unsigned flags, int cgroup_fd);

/* False: under a sanitizer, which has to know of every fork. */
bool process_has_siblings(void);

/* Waits for the end of a child, hidden or not. */
void process_reap(pid_t pid);

/* In the child: handled signals get their default action, ignored ones stay ignored, and none is blocked. */
void process_take_signals(void);

/* Closes all descriptors from `first` on, now or at exec. */
void process_close_from(int first);
void process_close_from_at_exec(int first);

#endif
