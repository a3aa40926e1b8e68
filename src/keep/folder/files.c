/* SPDX-License-Identifier: BSD-3-Clause */
#include "keep/folder/files.h"

#include "base/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *join(const char *folder, const char *name) {
  char *path;
  return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int name_folder(struct folder_files *files, const char *path, rdzv_error *error) {
  if (*path == '/') {
    files->path = strdup(path);
  } else {
    char *here = getcwd(NULL, 0);
    if (!here) return error_errno(error, RDZV_E_IO, errno, "cannot find the state folder '%s'", path);
    files->path = join(here, path);
    free(here);
  }
  return files->path ? 0 : error_no_memory(error);
}

int files_name(struct folder_files *files, const char *path, rdzv_error *error) {
  const int result = name_folder(files, path, error);
  if (result < 0) return result;
  files->database = join(files->path, "state.db");
  files->log = join(files->path, "state.db-wal");
  return files->database && files->log ? 0 : error_no_memory(error);
}

void files_free(struct folder_files *files) {
  free(files->path);
  free(files->database);
  free(files->log);
}

static bool find(const char *path, struct file_id *found) {
  struct stat status;
  if (stat(path, &status) < 0) return false;
  *found = (struct file_id){status.st_dev, status.st_ino};
  return true;
}

static bool is_at(const char *path, struct file_id wanted) {
  struct file_id found;
  return find(path, &found) && found.device == wanted.device && found.inode == wanted.inode;
}

int files_note(struct folder_files *files, rdzv_error *error) {
  if (find(files->database, &files->database_id) && find(files->log, &files->log_id)) return 0;
  return error_errno(error, RDZV_E_IO, errno, "cannot read the state folder '%s'", files->path);
}

static int fail_gone(const struct folder_files *files, const char *what, rdzv_error *error) {
  if (errno != ENOENT && errno != ENOTDIR)
    return error_errno(error, RDZV_E_IO, errno, "cannot read the state folder '%s'", files->path);
  return error_set(error, RDZV_E_IO, "%s'%s' was deleted or moved (move it back, or stop the server)", what,
                   files->path);
}

/* The log belongs to the database: without the right one, that lacks the last commits. */
int files_check(const struct folder_files *files, rdzv_error *error) {
  struct file_id found;
  if (is_at(files->database, files->database_id)) {
    if (is_at(files->log, files->log_id)) return 0;
    errno = ENOENT;
    return fail_gone(files, "state.db-wal in ", error);
  }
  if (find(files->database, &found))
    return error_set(error, RDZV_E_STALE,
                     "another state is in '%s': the folder or its state.db was replaced (start the server again to use "
                     "it)",
                     files->path);
  struct stat folder;
  const bool is_there = errno == ENOENT && stat(files->path, &folder) == 0;
  if (is_there) errno = ENOENT;
  return fail_gone(files, is_there ? "state.db in " : "the state folder ", error);
}
