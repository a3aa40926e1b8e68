/* SPDX-License-Identifier: BSD-3-Clause */
/* A flag that can be raised from any thread or signal handler and be waited for together with a descriptor. */
#ifndef RDZV_BASE_WAIT_FLAG_H
#define RDZV_BASE_WAIT_FLAG_H

#include "base/wait/clock.h"

#include <poll.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stddef.h>

struct waiting; /* base/wait/waiting.h */

struct flag {
  int fd;       /* readable when it is up */
  int raise_fd; /* an event descriptor; the same as fd, unless fd also looks at a descriptor of the caller's */
  struct waiting *waiting; /* writes its lines while the flag is waited for; NULL: none */
};

/* The same flag, for one thread that reports to `waiting` while it waits. `flag` may be NULL. Not to be closed. */
struct flag flag_with(const struct flag *flag, struct waiting *waiting);

/* The wait that this flag is looked at for, to report to; `flag` may be NULL. */
static inline struct waiting *flag_waiting(const struct flag *flag) { return flag ? flag->waiting : NULL; }

/* No flag: closing it does nothing. */
#define FLAG_NONE ((struct flag){.fd = -1, .raise_fd = -1})

int flag_open(struct flag *flag, rdzv_error *error);

/* A flag that is up also while the caller's descriptor is readable; 0: there is none. Borrows it. */
int flag_open_with(struct flag *flag, int also, rdzv_error *error);

/* A second name of the same flag: raising one raises both. */
int flag_share(struct flag *flag, const struct flag *with, rdzv_error *error);
void flag_raise(struct flag *flag);

/* Takes it down again, unless the caller's descriptor holds it up. */
void flag_lower(struct flag *flag);

/* Looks at another descriptor, too; for a flag that was opened with one. */
bool flag_also(struct flag *flag, int also);

/* Looks no more at the caller's descriptor, which it was opened with. */
void flag_forget(struct flag *flag, int also);
bool flag_raised(const struct flag *flag);
void flag_close(struct flag *flag);

/* Waits for the events on the descriptors, of which the last place of `fds` is kept free for the flag (`count` does
 * not count it). RDZV_E_TIMEOUT and RDZV_E_CANCELED leave the message to the caller, who knows what was waited for;
 * `flag` may be NULL. */
int flag_poll(const struct flag *flag, struct pollfd *fds, nfds_t count, deadline until);

/* Waits for nothing but the flag: 0 when the deadline has passed, RDZV_E_CANCELED. */
int flag_pause(const struct flag *flag, deadline until);

#endif
