/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/log_dir.h"

#include "base/error.h"
#include "base/os/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* With all folders above it. */
static int make_dirs(const char *path, rdzv_error *error) {
  char part[PATH_MAX];
  for (size_t len = 1; len <= strlen(path); len++) {
    if (path[len] != '/' && path[len] != '\0') continue;
    snprintf(part, sizeof part, "%.*s", (int)len, path);
    if (mkdir(part, 0755) < 0 && errno != EEXIST)
      return error_errno(error, RDZV_E_IO, errno, "cannot create the log folder '%s'", part);
  }
  return 0;
}

static int make_temporary(char path[PATH_MAX], rdzv_error *error) {
  if (mkdtemp(path)) return 0;
  const int result = error_errno(error, RDZV_E_IO, errno, "cannot create the log folder '%s'", path);
  path[0] = '\0';
  return result;
}

/* Error files alone go to memory, where there is some: on a disk, making and removing a folder for each worker takes
 * longer than starting the worker does. */
static int make_temporary_base(struct log_dir *dir, rdzv_error *error) {
  const char *tmp = getenv("TMPDIR");
  const bool chosen = tmp && *tmp && strlen(tmp) <= PATH_MAX / 2;
  dir->own_base = true;
  if (!chosen && dir->in_memory) {
    strcpy(dir->base, "/dev/shm/rdzv_XXXXXX");
    if (mkdtemp(dir->base)) return 0;
  }
  snprintf(dir->base, sizeof dir->base, "%s/rdzv_XXXXXX", chosen ? tmp : "/tmp");
  const int result = make_temporary(dir->base, error);
  return result < 0 && chosen ? error_prefix(error, result, "TMPDIR is '%s'", tmp) : result;
}

static int make_base(struct log_dir *dir, rdzv_error *error) {
  char full[PATH_MAX]; /* a worker may change its directory */
  if (!dir->base[0] || dir->own_base) return make_temporary_base(dir, error);
  const int result = make_dirs(dir->base, error);
  if (result == 0 && realpath(dir->base, full)) memcpy(dir->base, full, sizeof full);
  return result;
}

/* Can folders be made in the base? Known before the node joins: a failure later ends the job of the others, too. */
static int try_base(const struct log_dir *dir, rdzv_error *error) {
  struct log_dir probe = *dir;
  int result = make_base(&probe, error);
  if (result == 0 && !probe.own_base) {
    snprintf(probe.run, sizeof probe.run, "%.*s/rdzv_XXXXXX", PATH_MAX - 16, probe.base);
    result = make_temporary(probe.run, error);
  }
  if (result < 0 && !probe.own_base) return error_prefix(error, result, "option 'log_dir' is '%s'", dir->base);
  if (result == 0) rmdir(probe.own_base ? probe.base : probe.run);
  return result;
}

int log_dir_init(struct log_dir *dir, const char *base, bool output, rdzv_error *error) {
  struct stat status;
  *dir = (struct log_dir){.none = base && strcmp(base, "/dev/null") == 0, .in_memory = !output};
  if (dir->none) return 0;
  if (!base || !*base) return try_base(dir, error);
  if (strlen(base) > PATH_MAX / 2) return error_set(error, RDZV_E_INVALID, "option 'log_dir' is too long");
  if (stat(base, &status) == 0 && !S_ISDIR(status.st_mode))
    return error_set(error, RDZV_E_INVALID, "option 'log_dir' is '%s': not a folder", base);
  snprintf(dir->base, sizeof dir->base, "%s", base);
  return try_base(dir, error);
}

static int make_run(struct log_dir *dir, const char *run_id, rdzv_error *error) {
  int result = make_base(dir, error);
  if (result < 0) return result;
  const int base = snprintf(dir->run, sizeof dir->run, "%s/", dir->base);
  const int all = snprintf(dir->run + base, sizeof dir->run - (size_t)base, "%.200s_XXXXXX", run_id);
  for (int i = base; i < base + all; i++)
    if (dir->run[i] == '/') dir->run[i] = '_';
  return make_temporary(dir->run, error);
}

/* What is left in the folder of an earlier run of the same attempt stays, but for an error file. */
static int make_worker(const char *path, rdzv_error *error) {
  char stale[PATH_MAX + 16];
  if (mkdir(path, 0755) == 0) return 0;
  if (errno != EEXIST) return error_errno(error, RDZV_E_IO, errno, "cannot create the log folder '%s'", path);
  snprintf(stale, sizeof stale, "%s/error.json", path);
  unlink(stale);
  return 0;
}

int log_dir_worker(struct log_dir *dir, const char *run_id, int64_t attempt, int64_t local_rank, char path[PATH_MAX],
                   rdzv_error *error) {
  path[0] = '\0';
  if (dir->none) return 0;
  int result = dir->run[0] ? 0 : make_run(dir, run_id, error);
  if (result < 0) return result;
  const int base = snprintf(path, PATH_MAX, "%s/attempt_%" PRId64, dir->run, attempt);
  const int len = base < PATH_MAX ? snprintf(path + base, PATH_MAX - (size_t)base, "/%" PRId64, local_rank) : 0;
  if (base + len >= PATH_MAX) return error_set(error, RDZV_E_LIMIT, "the path of the folder for logs is too long");
  if (local_rank == 0) {
    path[base] = '\0';
    result = make_dirs(path, error);
    path[base] = '/';
  }
  return result < 0 ? result : make_worker(path, error);
}

const char *log_dir_useless(const struct log_dir *dir) { return dir->own_base && dir->in_memory ? dir->base : ""; }

void log_dir_end(struct log_dir *dir, bool keep) {
  if (!dir->base[0]) return;
  const char *top = dir->own_base ? dir->base : dir->run; /* the folder that the user named stays */
  if (dir->own_base && !keep)
    folder_remove(AT_FDCWD, top);
  else if (*top)
    folder_remove_empty(AT_FDCWD, top);
  if (access(dir->run, F_OK) < 0) dir->run[0] = '\0';
}
