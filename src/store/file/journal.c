/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file/journal.h"

#include "base/error.h"
#include "base/wait/waiting.h"
#include "store/file/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, FIRST_LOCK_PAUSE_MS = 1, MAX_LOCK_PAUSE_MS = 32 };

static int code_of(int errnum) {
  switch (errnum) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return RDZV_E_NO_SPACE;
    case ENOMEM: return RDZV_E_NO_MEMORY;
    default: return RDZV_E_IO;
  }
}

static int fail_io(const struct journal *journal, const char *what, int errnum, rdzv_error *error) {
  return error_errno(error, code_of(errnum), errnum, "cannot %s '%s'", what, journal->shown);
}

/* ---- opening and locking ----------------------------------------------------------------------------------- */

static int check_kind(const struct journal *journal, int fd, rdzv_error *error) {
  struct stat status;
  if (fstat(fd, &status) < 0) return fail_io(journal, "examine", errno, error);
  if (S_ISREG(status.st_mode)) return 0;
  if (S_ISDIR(status.st_mode)) return fail_io(journal, "open", EISDIR, error);
  return error_set(error, RDZV_E_IO, "cannot open '%s': not a regular file", journal->shown);
}

/* *fd is -1 where the file does not exist and is not created. */
static int open_file(const struct journal *journal, int flags, int *fd, rdzv_error *error) {
  do { /* O_NONBLOCK: opening a named pipe would block */
    *fd = open(journal->path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
  } while (*fd < 0 && errno == EINTR);
  if (*fd < 0) return errno == ENOENT && !(flags & O_CREAT) ? 0 : fail_io(journal, "open", errno, error);
  const int result = check_kind(journal, *fd, error);
  if (result < 0) {
    close(*fd);
    *fd = -1;
  }
  return result;
}

static int fail_lock(const struct journal *journal, int errnum, rdzv_error *error) {
  error_errno(error, RDZV_E_IO, errnum, "cannot lock '%s'", journal->shown);
  error_append(error, " (a file store needs a file system with locks)");
  return RDZV_E_IO;
}

/* flock alone would wait forever for a process that was stopped while it held the lock, so it is tried repeatedly. */
static int lock(const struct journal *journal, int fd, int kind, const struct store_call *call) {
  const int64_t start = clock_now_ms();
  const deadline grace = deadline_after(JOURNAL_LOCK_GRACE_MS), end = call->until > grace ? call->until : grace;
  struct waiting alone, *waiting = flag_waiting(call->cancel);
  if (!waiting) waiting_begin(waiting = &alone, journal->log, end);
  const struct flag telling = flag_with(call->cancel, waiting);
  struct backoff backoff = {FIRST_LOCK_PAUSE_MS, MAX_LOCK_PAUSE_MS};
  while (flock(fd, kind | LOCK_NB) < 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fail_lock(journal, errno, call->error);
    if (deadline_left(end) == 0)
      return error_set(call->error, RDZV_E_TIMEOUT, "cannot lock '%s' within %lld ms: another process holds its lock",
                       journal->shown, (long long)(clock_now_ms() - start));
    if (!waiting->phase[0]) waiting_for(waiting, "another process holds the lock of '%s'", journal->shown);
    const int result = flag_pause(&telling, deadline_sooner(backoff_next(&backoff), end));
    if (result < 0)
      return error_set(call->error, result, "cannot lock '%s': %s", journal->shown, rdzv_error_text(result));
  }
  waiting_clear(waiting);
  return 0;
}

/* Unlocks explicitly, because a forked child may hold a copy of the descriptor. */
static int unlock_and_close(int fd) {
  flock(fd, LOCK_UN);
  return close(fd);
}

/* ---- which file it is ---------------------------------------------------------------------------------------- */

static void unpin(struct journal *journal) {
  if (journal->pin >= 0) close(journal->pin);
  journal->pin = -1;
}

static bool is_known(const struct journal *journal, const struct stat *status) {
  return journal->pin >= 0 && status->st_dev == journal->device && status->st_ino == journal->inode &&
         status->st_size >= journal->pos;
}

static void clear(struct keyspace *ks) {
  rdzv_bytes key;
  while (ks_next(ks, NULL, &key)) ks_delete(ks, key);
}

/* Clears the copy: the file that was read is gone. */
static void forget(struct journal *journal) {
  unpin(journal);
  clear(journal->keys);
  clear(journal->own);
  journal->pos = 0;
  journal->births++;
}

/* Without a pin the file is read from its start each time, which is slow and correct. */
static void pin(struct journal *journal, const struct stat *status) {
  struct stat pinned;
  unpin(journal);
  journal->device = status->st_dev;
  journal->inode = status->st_ino;
  journal->pin = open(journal->path, O_PATH | O_CLOEXEC);
  if (journal->pin < 0) return;
  if (fstat(journal->pin, &pinned) < 0 || pinned.st_dev != status->st_dev || pinned.st_ino != status->st_ino)
    unpin(journal);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static int take(struct journal *journal, const struct file_record *record) {
  struct keyspace *ks = record->key.own ? journal->own : journal->keys;
  if (!record->key.deleted) return ks_set(ks, record->key.name, record->value);
  ks_delete(ks, record->key.name);
  return 0;
}

/* Takes the records out of the buffer, whose first byte is at pos. *want is the least length of the next one. */
static int take_records(struct journal *journal, struct buf *buf, size_t *want, rdzv_error *error) {
  size_t used = 0;
  for (;;) {
    struct file_record record;
    switch (file_record_decode(buf->data + used, buf->len - used, &record)) {
      case FILE_RECORD_MORE:
        *want = record.size;
        buf_consume(buf, used);
        return 0;
      case FILE_RECORD_BAD:
        return error_set(error, RDZV_E_CORRUPT, "cannot read '%s': not a store, or corrupt at offset %lld: %s",
                         journal->shown, (long long)journal->pos, record.why);
      case FILE_RECORD_DONE:
        if (take(journal, &record) < 0) return error_no_memory(error);
        used += record.size;
        journal->pos += (int64_t)record.size;
    }
  }
}

/* Fills the buffer up to `len` bytes, all of which the file has. */
static int fill(const struct journal *journal, int fd, struct buf *buf, size_t len, rdzv_error *error) {
  if (buf->len < len && !buf_reserve(buf, len - buf->len)) return error_no_memory(error);
  while (buf->len < len) {
    const ssize_t got = pread(fd, buf->data + buf->len, len - buf->len, journal->pos + (int64_t)buf->len);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_io(journal, "read", errno, error);
    if (got == 0) return error_set(error, RDZV_E_IO, "cannot read '%s': it was truncated meanwhile", journal->shown);
    buf->len += (size_t)got;
  }
  return 0;
}

/* Reads the records between pos and `size`. pos stays at the beginning of a record that is longer. */
static int read_records(struct journal *journal, int fd, int64_t size, rdzv_error *error) {
  struct buf buf = {0};
  size_t want = 1;
  int result = 0;
  while (result == 0 && want <= (uint64_t)(size - journal->pos)) {
    const uint64_t left = (uint64_t)(size - journal->pos), chunk = want > CHUNK ? want : CHUNK;
    result = fill(journal, fd, &buf, (size_t)(chunk < left ? chunk : left), error);
    if (result == 0) result = take_records(journal, &buf, &want, error);
  }
  buf_free(&buf);
  return result;
}

/* ---- accesses ------------------------------------------------------------------------------------------------ */

enum { GONE = 1 };

/* Locks the open file and reads what is new. GONE: the file was removed before it was locked, so no process would see
 * what is written to it. */
static int lock_and_read(struct journal *journal, int fd, int kind, int64_t *size, const struct store_call *call) {
  struct stat status;
  const int result = lock(journal, fd, kind, call);
  if (result < 0) return result;
  if (fstat(fd, &status) < 0) return fail_io(journal, "examine", errno, call->error);
  if (status.st_nlink == 0) return GONE;
  if (!is_known(journal, &status)) {
    forget(journal);
    pin(journal, &status);
  }
  journal->written = status.st_mtime;
  *size = status.st_size;
  return read_records(journal, fd, status.st_size, call->error);
}

/* Needs no lock: each completed write has made the file longer, or replaced it. */
static bool is_unchanged(const struct journal *journal, int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && is_known(journal, &status) && status.st_size == journal->pos;
}

/* *fd is -1 where there is no file. Else it is locked, unless it is for reading and nothing is new. */
static int open_and_read(struct journal *journal, int flags, int kind, int *fd, int64_t *size,
                         const struct store_call *call) {
  int result;
  do {
    result = open_file(journal, flags, fd, call->error);
    if (result < 0) return result;
    if (*fd < 0) {
      forget(journal);
      return 0;
    }
    if (kind == LOCK_SH && is_unchanged(journal, *fd)) return 0;
    result = lock_and_read(journal, *fd, kind, size, call);
    if (result != 0) {
      unlock_and_close(*fd);
      *fd = -1;
    }
  } while (result == GONE);
  return result;
}

int journal_refresh(struct journal *journal, const struct store_call *call) {
  int fd = -1;
  int64_t size = 0;
  const int result = open_and_read(journal, O_RDONLY, LOCK_SH, &fd, &size, call);
  if (fd >= 0) unlock_and_close(fd);
  return result;
}

/* Cuts off what follows the last whole record. */
static int cut_off(const struct journal *journal, rdzv_error *error) {
  return ftruncate(journal->fd, journal->pos) < 0 ? fail_io(journal, "truncate", errno, error) : 0;
}

int journal_begin(struct journal *journal, bool create, const struct store_call *call) {
  int64_t size = 0;
  int result = open_and_read(journal, O_RDWR | (create ? O_CREAT : 0), LOCK_EX, &journal->fd, &size, call);
  if (result < 0 || journal->fd < 0 || size == journal->pos) return result;
  log_line(journal->log, RDZV_LOG_WARNING, "'%s': removing %lld bytes of a record that its writer did not finish",
           journal->shown, (long long)(size - journal->pos));
  result = cut_off(journal, call->error);
  if (result < 0) journal_end(journal, NULL);
  return result;
}

int journal_write(struct journal *journal, const struct buf *records, rdzv_error *error) {
  size_t done = 0;
  while (done < records->len) { /* again only after a short write, to learn its reason */
    const ssize_t put = pwrite(journal->fd, records->data + done, records->len - done, journal->pos + (int64_t)done);
    if (put > 0) done += (size_t)put;
    if (put > 0 || (put < 0 && errno == EINTR)) continue;
    const int result = fail_io(journal, "write to", put < 0 ? errno : ENOSPC, error);
    rdzv_error left;
    if (cut_off(journal, &left) < 0)
      log_line(journal->log, RDZV_LOG_WARNING, "a partial record is left for the next writer: %s", left.message);
    return result;
  }
  return 0;
}

int journal_end(struct journal *journal, rdzv_error *error) {
  const int fd = journal->fd;
  journal->fd = -1;
  return fd >= 0 && unlock_and_close(fd) < 0 ? fail_io(journal, "write to", errno, error) : 0;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

static void set_path(struct journal *journal, const char *path) {
  const size_t len = strlen(path), room = sizeof journal->shown - sizeof "…";
  const bool cut = len > room;
  journal->path = strdup(path);
  snprintf(journal->shown, sizeof journal->shown, "%s%s", cut ? "…" : "", cut ? path + len - room : path);
}

/* Fails if the directory of a file that does not exist yet does not exist either. */
static int check_directory(const struct journal *journal, rdzv_error *error) {
  const char *slash = strrchr(journal->path, '/');
  char *directory = slash ? strndup(journal->path, (size_t)(slash - journal->path) + 1) : strdup(".");
  if (!directory) return error_no_memory(error);
  struct stat status;
  const int errnum = stat(directory, &status) < 0 ? errno : 0;
  free(directory);
  if (errnum == ENOENT)
    return error_set(error, RDZV_E_IO, "cannot open '%s': its directory does not exist", journal->shown);
  return errnum ? fail_io(journal, "open", errnum, error) : 0;
}

static int check_path(const struct journal *journal, rdzv_error *error) {
  int fd;
  const int result = open_file(journal, O_RDONLY, &fd, error);
  if (fd >= 0) close(fd);
  return result == 0 && fd < 0 ? check_directory(journal, error) : result;
}

int journal_open(struct journal *journal, const char *path, const rdzv_log *log, rdzv_error *error) {
  *journal = (struct journal){.log = log, .pin = -1, .fd = -1, .budget = {.max = SIZE_MAX}};
  static const struct ks_events events = {0}; /* the keyspaces have no waiters */
  set_path(journal, path);
  journal->keys = ks_new(&journal->budget, &events, NULL);
  journal->own = ks_new(&journal->budget, &events, NULL);
  const bool made = journal->path && journal->keys && journal->own;
  const int result = made ? check_path(journal, error) : error_no_memory(error);
  if (result < 0) journal_close(journal);
  return result;
}

void journal_close(struct journal *journal) {
  unpin(journal);
  ks_free(journal->keys);
  ks_free(journal->own);
  free(journal->path);
  journal->keys = journal->own = NULL;
  journal->path = NULL;
}
