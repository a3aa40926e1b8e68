/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits until a file may have changed. inotify reports when a process of this machine writes and closes the file,
 * creates it, or moves it there. It does not report changes by another machine on a shared file system, nor behind a
 * symbolic link, so a wait also ends after a while: the first after 10 ms, later ones up to 250 ms.
 *
 * Start, look, wait, look, wait …, stop: then no change is missed. Keep a stopped watch and start it again: closing
 * costs milliseconds (inotify), stopping nothing. One thread uses a watch at a time.
 */
#ifndef RDZV_STORE_FILE_WATCH_H
#define RDZV_STORE_FILE_WATCH_H

#include "base/wait/flag.h"

struct file_watch {
  int fd;                 /* -1: closed, or there is no notification */
  int directory;          /* the watch of the directory; -1: none, waits only end by time */
  const char *name;       /* of the file in its directory */
  struct backoff backoff; /* between looks */
};

#define FILE_WATCH_CLOSED ((struct file_watch){.fd = -1, .directory = -1})

/* Never fails: without inotify, waits only end by time. Borrows path until it is stopped. */
void file_watch_start(struct file_watch *watch, const char *path);
void file_watch_stop(struct file_watch *watch);
void file_watch_close(struct file_watch *watch);

/* 0: look again, because of a change, or of the time, or because the deadline has passed. RDZV_E_CANCELED and RDZV_E_IO
 * leave the message to the caller. */
int file_watch_wait(struct file_watch *watch, const struct flag *cancel, deadline until);

#endif
