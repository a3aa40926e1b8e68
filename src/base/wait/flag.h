/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A flag that can be raised from any thread or signal handler and be waited for together with a descriptor.
 *
 * A process with thousands of handlers has few descriptors to spare. So a flag may be opened without one: it gets an
 * event descriptor when a caller first waits for it together with descriptors, or asks for it. And flags of one group
 * are waited for together without any.
 */
#ifndef RDZV_BASE_WAIT_FLAG_H
#define RDZV_BASE_WAIT_FLAG_H

#include "base/wait/clock.h"

#include <poll.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stddef.h>

struct waiting;    /* base/wait/waiting.h */
struct flag_state; /* private */

/* Counts how often a flag of the group was raised: what its waiters sleep on. All zero at first. It must outlive its
 * flags. */
struct flag_group {
  _Atomic unsigned raised;
};

struct flag {
  struct flag_state *state; /* shared by all names of the flag; NULL: there is no flag, or: */
  int borrowed_fd;          /* a descriptor of the caller's is the flag; 0 or less: none */
  struct waiting *waiting;  /* writes its lines while the flag is waited for; NULL: none */
};

/* The same flag, for one thread that reports to `waiting` while it waits. `flag` may be NULL. Not to be closed. */
struct flag flag_with(const struct flag *flag, struct waiting *waiting);

/* The wait that this flag is looked at for, to report to; `flag` may be NULL. */
static inline struct waiting *flag_waiting(const struct flag *flag) { return flag ? flag->waiting : NULL; }

/* No flag: closing it does nothing. */
#define FLAG_NONE ((struct flag){0})

int flag_open(struct flag *flag, rdzv_error *error);

/* A flag that is up also while the caller's descriptor is readable; 0: there is none. Borrows it. */
int flag_open_with(struct flag *flag, int also, rdzv_error *error);

/* A flag without a descriptor at first, but for `also` as above. Of a group, for flag_await; NULL: of none. */
int flag_open_in(struct flag *flag, struct flag_group *group, int also, rdzv_error *error);

/* A second name of the same flag: raising one raises both. */
int flag_share(struct flag *flag, const struct flag *with, rdzv_error *error);
void flag_raise(struct flag *flag);

/* Takes it down again, unless the caller's descriptor holds it up. Not while another thread asks for its descriptor for
 * the first time. */
void flag_lower(struct flag *flag);

/* A descriptor that is readable while the flag is up. -1: there is no flag; or there is none, and errno says why. */
int flag_fd(const struct flag *flag);

/* Makes the descriptor now, for a caller that can report why it fails. `flag` may be NULL. RDZV_E_IO. */
int flag_need_fd(const struct flag *flag, rdzv_error *error);

/* Looks at another descriptor, too; for a flag that was opened with one. */
bool flag_also(struct flag *flag, int also);

/* Stops watching the caller's descriptor, which it was opened with. */
void flag_forget(struct flag *flag, int also);
bool flag_raised(const struct flag *flag);
void flag_close(struct flag *flag);

/* Waits for the events on the descriptors, of which the last place of `fds` is kept free for the flag (`count` does
 * not count it). RDZV_E_TIMEOUT and RDZV_E_CANCELED leave the message to the caller, which knows what was waited for;
 * `flag` may be NULL. */
int flag_poll(const struct flag *flag, struct pollfd *fds, nfds_t count, deadline until);

/* Cancels the waits of this thread for any flag while the descriptor is readable; 0: none. See rdzv_thread_cancel_fd.
 */
void flag_set_thread_fd(int fd);

/* That descriptor, for a wait for this flag; -1: none. */
int flag_thread_fd(const struct flag *flag);

/* Is the flag up, or is this thread canceled? */
bool flag_canceled(const struct flag *flag);

/* Waits for nothing but the flag: 0 when the deadline has passed, RDZV_E_CANCELED. */
int flag_pause(const struct flag *flag, deadline until);

/* Waits until `awaited` is up: 0; or `cancel`, which may be NULL: RDZV_E_CANCELED. The rest as flag_poll. Takes no
 * descriptor if both are of one group, and `cancel` has no descriptor of the caller's. */
int flag_await(const struct flag *awaited, const struct flag *cancel, deadline until);

#endif
