/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handle of a file store, and a call's access to its file: a look at it, or an edit of it. Either one first checks
 * that the file belongs to our run.
 */
#ifndef RDZV_STORE_FILE_ACCESS_H
#define RDZV_STORE_FILE_ACCESS_H

#include "store/file/journal.h"
#include "store/file/record.h"
#include "store/file/watch.h"

#include <pthread.h>

struct file_store {
  rdzv_store base;
  pthread_mutex_t lock; /* guards the journal and the watch; held during an access */
  struct journal journal;
  struct file_watch watch; /* for the next call that waits; a waiting call takes it out */
  int64_t num_workers;
  char *run_id;     /* NULL: none */
  uint64_t counted; /* journal.births when this store was counted; 0: it was not */
  char *text;       /* of describe */
};

/* Locks the handle and reads what is new in the file. After success file_end_look must follow. Fails with RDZV_E_STALE
 * and with what journal_refresh returns. */
int file_begin_look(struct file_store *file, const struct store_call *call);
void file_end_look(struct file_store *file);

/* An edit of the file: records are collected, and file_end_edit writes all of them at once. */
struct file_edit {
  struct file_store *file;
  const struct store_call *call;
  bool only_existing; /* does not make a file */
  bool begun;         /* holds the locks of the handle and of the file */
  bool marked;        /* the file has the mark of a run, or will */
  struct buf records;
};

/* Locks the handle and the file and reads what is new in the file. file_end_edit must follow, also after an error.
 * Fails with RDZV_E_STALE and with what journal_begin returns. */
int file_begin_edit(struct file_edit *edit);

/* Writes the records if the result so far is 0, and unlocks file and handle. Returns the result of the whole edit. A
 * file without the mark of our run gets it, too: the file may be newer than the handle. */
int file_end_edit(struct file_edit *edit, int result);

/* Collects a record, before or after file_begin_edit. RDZV_E_LIMIT, RDZV_E_NO_MEMORY. */
int file_add_record(struct file_edit *edit, struct file_key key, rdzv_bytes value);

/* The same with a number in decimal text. */
int file_add_number(struct file_edit *edit, struct file_key key, int64_t number);

/* Collects the mark of our run where it is missing; after file_begin_edit. */
int file_add_mark(struct file_edit *edit);

static inline struct file_key file_user_key(rdzv_bytes key) { return (struct file_key){.name = key}; }

static inline struct file_key file_own_key(const char *name) {
  return (struct file_key){.own = true, .name = rdzv_str(name)};
}

#endif
