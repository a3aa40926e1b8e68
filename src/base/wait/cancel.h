/* SPDX-License-Identifier: BSD-3-Clause */
/* A flag that can be raised from any thread or signal handler and be waited for together with a descriptor. */
#ifndef RDZV_BASE_WAIT_CANCEL_H
#define RDZV_BASE_WAIT_CANCEL_H

#include "base/wait/clock.h"

#include <poll.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stddef.h>

struct waiting; /* base/wait/waiting.h */

struct cancel {
  int fd;       /* readable when it is up */
  int raise_fd; /* an event descriptor; the same as fd, unless fd also looks at a descriptor of the caller's */
  struct waiting *waiting; /* says its lines while the flag is waited for; mostly NULL: nobody wants to hear of it */
};

/* The same flag, for one thread that reports to `waiting` while it waits. `cancel` may be NULL. Not to be closed. */
struct cancel cancel_with(const struct cancel *cancel, struct waiting *waiting);

/* The wait that this flag is looked at for, to report to; `cancel` may be NULL. */
static inline struct waiting *cancel_waiting(const struct cancel *cancel) { return cancel ? cancel->waiting : NULL; }

/* No flag: closing it does nothing. */
#define CANCEL_NONE ((struct cancel){.fd = -1, .raise_fd = -1})

int cancel_open(struct cancel *cancel, rdzv_error *error);

/* A flag that is up also while the caller's descriptor is readable; 0: there is none. Borrows it. */
int cancel_open_with(struct cancel *cancel, int also, rdzv_error *error);

/* A second name of the same flag: raising one raises both. */
int cancel_share(struct cancel *cancel, const struct cancel *with, rdzv_error *error);
void cancel_raise(struct cancel *cancel);

/* Takes it down again, unless the caller's descriptor holds it up. */
void cancel_lower(struct cancel *cancel);

/* Looks at another descriptor, too; for a flag that was opened with one. */
bool cancel_also(struct cancel *cancel, int also);

/* Looks no more at the caller's descriptor, which it was opened with. */
void cancel_forget(struct cancel *cancel, int also);
bool cancel_raised(const struct cancel *cancel);
void cancel_close(struct cancel *cancel);

/* Waits for the events on the descriptors, of which the last place of `fds` is kept free for the flag (`count` does
 * not count it). RDZV_E_TIMEOUT and RDZV_E_CANCELED leave the message to the caller, who knows what was waited for;
 * cancel may be NULL. */
int cancel_poll(const struct cancel *cancel, struct pollfd *fds, nfds_t count, deadline until);

/* Waits for nothing but the flag: 0 when the deadline has passed, RDZV_E_CANCELED. */
int cancel_pause(const struct cancel *cancel, deadline until);

#endif
