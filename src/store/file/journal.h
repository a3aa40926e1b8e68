/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a file store, and a copy of its keys. Every process locks the file (flock), exclusively to write, and
 * reads only what is new since the last time.
 *
 * Reading:  journal_refresh, then look into `keys` and `own`.
 * Writing:  journal_begin (locks the file and refreshes `keys` and `own`), journal_write, journal_end. The new records
 *           are not put into `keys` and `own`: the next refresh reads them like all others.
 *
 * What can happen to the file:
 *   - It is removed, replaced or truncated: the copy is cleared, and the file is read from its start.
 *   - Its writer died in a record: readers ignore the partial record; the next writer, which has the lock, cuts it off.
 *   - There is no space for all of a record: the writer cuts its own partial record off before it unlocks the file.
 *   - A lock is never released: RDZV_E_TIMEOUT.
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
  char shown[208]; /* the path in messages; only its end where it is long */
  const rdzv_log *log;
  struct keyspace *keys; /* the users' */
  struct keyspace *own;  /* the file's */
  struct budget budget;
  uint64_t births; /* incremented when the copy is cleared: it is another file then */

  /* The file that was read, held open (O_PATH) so that no other file gets its inode number; -1: none. */
  int pin;
  dev_t device;
  ino_t inode;
  int64_t pos;    /* how much of it was read; always the end of a record */
  time_t written; /* when it was last written, by the clock of its file system */

  int fd; /* between journal_begin and journal_end; -1: there is no file */
};

/* A call waits for the lock until its deadline, and this long in any case. Others hold the lock for moments only, so a
 * call that must not wait for a key still gets it. */
enum { JOURNAL_LOCK_GRACE_MS = 500 };

/* Checks, without a lock, that the file exists or could be created. Borrows log. RDZV_E_IO, RDZV_E_NO_MEMORY. */
int journal_open(struct journal *journal, const char *path, const rdzv_log *log, rdzv_error *error);
void journal_close(struct journal *journal);

/* Reads what is new, without a lock where nothing is. A missing file has no keys. Fails, as does journal_begin, with
 * RDZV_E_IO, RDZV_E_CORRUPT, RDZV_E_TIMEOUT, RDZV_E_CANCELED, RDZV_E_NO_MEMORY. */
int journal_refresh(struct journal *journal, const struct store_call *call);

/* Opens, locks and reads the file. A missing file is created if `create` says so, else fd is -1. After success
 * journal_end must follow. */
int journal_begin(struct journal *journal, bool create, const struct store_call *call);

/* Appends all the records or none. At most once before journal_end. RDZV_E_NO_SPACE, RDZV_E_IO. */
int journal_write(struct journal *journal, const struct buf *records, rdzv_error *error);

/* Unlocks and closes the file. An error means that the records may not have arrived (network file systems). */
int journal_end(struct journal *journal, rdzv_error *error);

#endif
