/* SPDX-License-Identifier: BSD-3-Clause */
/* Child processes of a program that may have threads. The child calls only what is safe between fork and exec. */
#ifndef RDZV_BASE_OS_PROCESS_H
#define RDZV_BASE_OS_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* Forks. All signals are blocked in the child, so that no handler of the program acts there on what both share; the
 * child calls process_take_signals. */
pid_t process_fork(void);

/* Forks into the cgroup whose folder that is, in one step. -1 where the kernel cannot, before 5.7. */
pid_t process_fork_into(int cgroup_fd);

/* Forks a child that wait(2) does not see without __WALL, where the kernel can: the program does not hear of it. */
pid_t process_fork_hidden(void);

/* Waits for the end of a child, hidden or not. */
void process_reap(pid_t pid);

/* In the child: handled signals get their default action, ignored ones stay ignored, and none is blocked. */
void process_take_signals(void);

/* Closes all descriptors from `first` on, now or at exec. */
void process_close_from(int first);
void process_close_from_at_exec(int first);

#endif
