/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits until a file may have changed. The kernel tells of a file that a process of this machine has written and
 * closed, or moved there, also where there was none before. Of what another machine does on a shared file system
 * it tells nothing, nor where a link leads to another directory, so a look is due after a while in any case: the
 * first after 10 ms, the later ones further apart, up to 250 ms.
 *
 * Start, look, wait, look, wait …, stop: then no change is missed. It can be started again, and should be: to close it
 * costs milliseconds (inotify), to stop it nothing. One waits with it at a time.
 */
#ifndef RDZV_STORE_FILE_WATCH_H
#define RDZV_STORE_FILE_WATCH_H

#include "base/wait/flag.h"

struct file_watch {
  int fd;                 /* -1: closed, or there is no notification */
  int directory;          /* watched; -1: none, so only looks are left */
  const char *name;       /* of the file in its directory */
  struct backoff backoff; /* between looks */
};

#define FILE_WATCH_CLOSED ((struct file_watch){.fd = -1, .directory = -1})

/* Does not fail: where there is no notification it does without. Borrows path until it is stopped. */
void file_watch_start(struct file_watch *watch, const char *path);
void file_watch_stop(struct file_watch *watch);
void file_watch_close(struct file_watch *watch);

/* 0: look again, because of a change, or because it is time to, or because the deadline has passed. RDZV_E_CANCELED
 * and RDZV_E_IO leave the message to the caller. */
int file_watch_wait(struct file_watch *watch, const struct flag *cancel, deadline until);

#endif
