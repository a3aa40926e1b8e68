/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recognises an object that is used in a child process of the one that made it. The child has a copy of the memory, but
 * none of the library's threads, and its descriptors are the parent's: what it sends, the parent's peer receives.
 *
 * An object keeps the mark of its birth and asks in every call; the answer costs one load. In the child
 *   - closing frees memory and close(2)s descriptors, which takes nothing from the parent. It must not send, shut down,
 *     unlink, write to event descriptors, change an epoll set, take locks (their holder may not exist here), destroy
 *     condition variables (glibc waits for their waiters) or join threads. Memory that a thread of the object was
 *     changing at the fork is in an unknown state and is better not walked.
 *   - every other call returns fork_fail.
 */
#ifndef RDZV_BASE_WAIT_FORK_H
#define RDZV_BASE_WAIT_FORK_H

#include <rdzv/error.h>
#include <stdbool.h>

/* Counts the forks between a process and its first ancestor that used the library. */
typedef unsigned fork_mark;

/* The mark of this process, for an object that is being made. */
fork_mark fork_mark_here(void);

/* Was the object that has this mark made before this process was forked? A child made by a bare clone(2), or by
 * _Fork, is not recognised. */
bool fork_crossed(fork_mark mark);

/* RDZV_E_INVALID; `what` is the object: "the store", "the handler". */
int fork_fail(const char *what, rdzv_error *error);

#endif
