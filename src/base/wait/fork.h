/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recognises an object that is used in a child of the process that created it. The child has a copy of the memory, but
 * not the threads of the library, and it shares the descriptors: what it sends, the peer of the parent receives.
 *
 * An object keeps the mark of the process that created it, and compares it in each call; that costs one load. In a
 * child
 *   - freeing the object frees memory and closes descriptors, which the parent does not notice. It must not send, shut
 *     down, unlink, write to event descriptors, change an epoll set, take locks (the child may lack their holder),
 *     destroy condition variables (glibc waits for their waiters) or join threads. It should not walk memory that a
 *     thread of the object was changing at the fork.
 *   - each other call returns fork_fail.
 */
#ifndef RDZV_BASE_WAIT_FORK_H
#define RDZV_BASE_WAIT_FORK_H

#include <rdzv/error.h>
#include <stdbool.h>

/* Counts the forks between a process and its first ancestor that used the library. */
typedef unsigned fork_mark;

/* The mark of this process, for a new object. */
fork_mark fork_mark_here(void);

/* Was the object with this mark created before this process was forked? Children made by a bare clone(2) or by _Fork
 * are not recognised. */
bool fork_crossed(fork_mark mark);

/* RDZV_E_INVALID; `what` is the object: "the store", "the handler". */
int fork_fail(const char *what, rdzv_error *error);

#endif
