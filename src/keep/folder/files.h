/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Are the files of a state folder still where they were opened? An open file can be written after it was deleted, or
 * after its folder was moved, and then a later server does not find what was written. So the engine compares what is at
 * the path with what it has open, by device and inode: before a commit counts, and when the server asks for room.
 */
#ifndef RDZV_KEEP_FOLDER_FILES_H
#define RDZV_KEEP_FOLDER_FILES_H

#include <rdzv/error.h>
#include <sys/types.h>

struct file_id {
  dev_t device;
  ino_t inode; /* 0: not noted */
};

struct folder_files {
  char *path;           /* of the folder; absolute, so that it stays the same when the process changes its folder */
  char *database, *log; /* state.db, state.db-wal */
  struct file_id database_id, log_id;
};

/* Fills the names. RDZV_E_IO: there is no current folder; RDZV_E_NO_MEMORY. Free it in both cases. */
int files_name(struct folder_files *files, const char *path, rdzv_error *error);
void files_free(struct folder_files *files);

/* Notes which files are at their paths. The process has them open, so their inodes are given to no other file. */
int files_note(struct folder_files *files, rdzv_error *error);

/* 0: all are there. RDZV_E_IO: one is not, and may come back. RDZV_E_STALE: another database is there. */
int files_check(const struct folder_files *files, rdzv_error *error);

#endif
