/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a file store and what has been read of it. Everybody who uses the file takes its lock (flock), exclusive
 * to write, and reads only what is new since the last time.
 *
 * Reading:  journal_refresh, then look into `keys` and `own`.
 * Writing:  journal_begin (locked, and `keys` and `own` are up to date) -> journal_write -> journal_end. What was
 *           written is not put into `keys` and `own`: it is read with everything else the next time.
 *
 * What else can happen to the file:
 *   removed, replaced, truncated   what was read is forgotten, the new one is read from its start
 *   its writer died in a record    readers leave the partial record alone; the next writer, who has the lock and so
 *                                  knows that nobody is still at it, cuts it off
 *   no space for all of a record   the writer cuts its own partial record off before anybody else can see it
 *   a lock that is never given up  RDZV_E_TIMEOUT
 *
 * Not thread-safe: the store locks its handle.
 */
#ifndef RDZV_STORE_FILE_JOURNAL_H
#define RDZV_STORE_FILE_JOURNAL_H

#include "base/buf.h"
#include "base/log.h"
#include "store/keyspace/keyspace.h"
#include "store/store.h"

#include <sys/stat.h>

struct journal {
  char *path;
  char shown[208]; /* path for messages, only its end where it is long */
  const rdzv_log *log;
  struct keyspace *keys; /* the users' */
  struct keyspace *own;  /* the file's */
  struct budget budget;
  uint64_t births; /* changes when what was read is forgotten: then it is another file */

  /* The file that all this was read from, held open (O_PATH) so that its number cannot go to another; -1: none. */
  int pin;
  dev_t device;
  ino_t inode;
  int64_t pos;    /* how much of it was read: always the end of a record */
  time_t written; /* when it was last written, by the clock of its file system */

  int fd; /* between journal_begin and journal_end; -1: there is no file */
};

/* The lock is waited for until the call's deadline, and this long in any case: others hold it for moments only, which
 * somebody who does not want to block for a key need not hear of. */
enum { JOURNAL_LOCK_GRACE_MS = 500 };

/* Borrows log. Looks whether there is, or can be, such a file, without a lock. RDZV_E_IO, RDZV_E_NO_MEMORY. */
int journal_open(struct journal *journal, const char *path, const rdzv_log *log, rdzv_error *error);
void journal_close(struct journal *journal);

/* Reads what is new. A file that is not there is like one without keys. It costs no lock where nothing is new.
 * RDZV_E_IO, RDZV_E_CORRUPT, RDZV_E_TIMEOUT, RDZV_E_CANCELED, RDZV_E_NO_MEMORY; also for journal_begin. */
int journal_refresh(struct journal *journal, const struct store_call *call);

/* Opens, locks and reads the file and makes it if told to; else fd is -1 where it is not there. On success
 * journal_end must follow. */
int journal_begin(struct journal *journal, bool create, const struct store_call *call);

/* Adds records to the end, all or none. Once at most before journal_end. RDZV_E_NO_SPACE, RDZV_E_IO. */
int journal_write(struct journal *journal, const struct buf *records, rdzv_error *error);

/* Unlocks and closes. An error tells that what was written may not have arrived (file systems over a network). */
int journal_end(struct journal *journal, rdzv_error *error);

#endif
