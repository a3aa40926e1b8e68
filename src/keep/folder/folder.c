/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine of `--state-dir`: a folder with a database of SQLite, in WAL mode, with one sync for a commit.
 *
 *   state.db, state.db-wal  the records, and under an empty name, beside the head, the number of the last commit
 *   mark                    that number again, written behind each commit without a sync
 *   reserve                 bytes that are given up when the disk is full
 *
 * SQLite recovers from a torn write: of its log, it uses what has right check sums. So if another program truncates the
 * log, it finds an older state. The mark tells: it is never ahead of what was durable, so a state with a lower number
 * has lost commits, and is refused.
 *
 * A full disk. What the server has accepted must become durable. So the engine gives up its reserve, and tries again;
 * the server refuses writes from then on, until the reserve can be made again (`room`).
 *
 * Files that are deleted, moved or replaced while the server runs: files.h. A commit to them fails. At the end SQLite
 * looks, too: it deletes its log by name, and not where the database is another one.
 */
#include "base/error.h"
#include "keep/folder/files.h"
#include "keep/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  APPLICATION = 0x7264767a, /* "rdvz", in the file's header */
  FORMAT = 1,               /* of the tables; the records have their own */
  RESERVE_BYTES = 4 << 20,  /* a commit is rarely longer */
  LOG_PAGES = 2000,         /* of 4 KiB: the log is folded into the database when it is so long, and written again */
  LOG_KEPT = 16 << 20,      /* from its begin; a sync is faster where the file does not grow. A longer one is cut */
  REST_PAGES = 1024,        /* free pages that are given back at once */
  REST_LEAST = 64,
};

struct folder {
  struct keep keep;
  struct folder_files files;
  const char *path; /* files.path */
  sqlite3 *db;
  sqlite3_stmt *begin, *put, *remove, *count, *commit, *rollback;
  int dir_fd;
  volatile uint64_t *mark;
  uint64_t commits; /* the number of the last one */
  bool has_reserve;
  int is_gone; /* the code of the last look at the files; 0: all are there */
  bool failed; /* the database must not be touched when it is closed */
};

/* ---- errors ------------------------------------------------------------------------------------------------- */

static int code_of(int result, int errnum) {
  if (errnum == ENOSPC || errnum == EDQUOT) return RDZV_E_NO_SPACE;
  switch (result & 0xff) {
    case SQLITE_FULL: return RDZV_E_NO_SPACE;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return RDZV_E_IN_USE;
    case SQLITE_CORRUPT: return RDZV_E_CORRUPT;
    case SQLITE_NOTADB: return RDZV_E_UNSUPPORTED;
    case SQLITE_NOMEM: return RDZV_E_NO_MEMORY;
    default: return RDZV_E_IO;
  }
}

/* What a result of SQLite means for the folder. */
static int fail(const struct folder *folder, int result, const char *what, rdzv_error *error) {
  const int errnum = folder->db ? sqlite3_system_errno(folder->db) : 0;
  const int code = code_of(result, errnum);
  const char *cause = folder->db ? sqlite3_errmsg(folder->db) : sqlite3_errstr(result);
  if (code == RDZV_E_IN_USE)
    return error_set(error, code, "the state folder '%s' is in use by another server", folder->path);
  if (code == RDZV_E_UNSUPPORTED)
    return error_set(error, code, "'%s/state.db' is damaged, or was not made by rdzv: %s", folder->path, cause);
  if (code == RDZV_E_NO_SPACE)
    return error_set(error, code, "no space is left for the state in '%s': %s", folder->path, cause);
  if (errnum != 0)
    return error_errno(error, code, errnum, "cannot %s the state in '%s': %s", what, folder->path, cause);
  return error_set(error, code, "cannot %s the state in '%s': %s", what, folder->path, cause);
}

static int fail_errno(const struct folder *folder, const char *what, rdzv_error *error) {
  const int errnum = errno;
  return error_errno(error, code_of(SQLITE_IOERR, errnum), errnum, "cannot %s the state folder '%s'", what,
                     folder->path);
}

/* ---- statements --------------------------------------------------------------------------------------------- */

/* Steps a statement that gives no row, and resets it. */
static int step(sqlite3_stmt *statement) {
  const int result = sqlite3_step(statement), reset = sqlite3_reset(statement);
  return result == SQLITE_DONE || result == SQLITE_ROW ? reset : result;
}

static int prepare(struct folder *folder, const char *text, sqlite3_stmt **out) {
  return sqlite3_prepare_v3(folder->db, text, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
}

/* The number that a query gives. */
static int ask(struct folder *folder, const char *text, int64_t *number) {
  sqlite3_stmt *statement;
  int result = prepare(folder, text, &statement);
  if (result != SQLITE_OK) return result;
  result = sqlite3_step(statement);
  if (result == SQLITE_ROW) *number = sqlite3_column_int64(statement, 0);
  const int end = sqlite3_finalize(statement);
  return result == SQLITE_ROW ? SQLITE_OK : end != SQLITE_OK ? end : SQLITE_ERROR;
}

static int run(struct folder *folder, const char *text) { return sqlite3_exec(folder->db, text, NULL, NULL, NULL); }

/* ---- the mark and the reserve ------------------------------------------------------------------------------- */

/* The mark is mapped: a store to it costs nothing, and the kernel writes it at its leisure. */
static int open_mark(struct folder *folder, rdzv_error *error) {
  const int fd = openat(folder->dir_fd, "mark", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno(folder, "write to", error);
  errno = posix_fallocate(fd, 0, sizeof(uint64_t));
  void *mark = errno ? MAP_FAILED : mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int result = mark == MAP_FAILED ? fail_errno(folder, "write to", error) : 0;
  if (result == 0) folder->mark = mark;
  close(fd);
  return result;
}

/* 0: there is none yet. */
static uint64_t read_mark(const struct folder *folder) { return folder->mark ? *folder->mark : 0; }

static bool make_reserve(struct folder *folder) {
  const int fd = openat(folder->dir_fd, "reserve", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  folder->has_reserve = fd >= 0 && posix_fallocate(fd, 0, RESERVE_BYTES) == 0;
  if (fd >= 0) close(fd);
  if (!folder->has_reserve) unlinkat(folder->dir_fd, "reserve", 0);
  return folder->has_reserve;
}

static void give_up_reserve(struct folder *folder) {
  unlinkat(folder->dir_fd, "reserve", 0);
  folder->has_reserve = false;
}

/* ---- commits ------------------------------------------------------------------------------------------------ */

static int put_one(struct folder *folder, const struct keep_change *change) {
  sqlite3_stmt *put = folder->put;
  const size_t len = change->head.len + change->body.len;
  sqlite3_bind_blob(put, 1, change->name.data, (int)change->name.len, SQLITE_STATIC);
  if (change->body.len == 0) {
    sqlite3_bind_blob(put, 2, change->head.data, (int)len, SQLITE_STATIC);
    return step(put);
  }
  char *value = sqlite3_malloc((int)len);
  if (!value) return SQLITE_NOMEM;
  memcpy(value, change->head.data, change->head.len);
  memcpy(value + change->head.len, change->body.data, change->body.len);
  sqlite3_bind_blob(put, 2, value, (int)len, sqlite3_free);
  return step(put);
}

static int change_one(struct folder *folder, const struct keep_change *change) {
  if (!change->gone) return put_one(folder, change);
  sqlite3_bind_blob(folder->remove, 1, change->name.data, (int)change->name.len, SQLITE_STATIC);
  return step(folder->remove);
}

static int commit_once(struct folder *folder, const struct keep_change *changes, size_t count) {
  int result = step(folder->begin);
  for (size_t i = 0; i < count && result == SQLITE_OK; i++) result = change_one(folder, &changes[i]);
  const uint64_t number = folder->commits + 1;
  sqlite3_bind_int64(folder->count, 1, (sqlite3_int64)number);
  if (result == SQLITE_OK) result = step(folder->count);
  if (result == SQLITE_OK) result = step(folder->commit);
  sqlite3_clear_bindings(folder->put);
  return result;
}

static int note_files(struct folder *folder, rdzv_error *error) {
  return folder->is_gone = files_check(&folder->files, error);
}

static void undo(struct folder *folder) {
  if (!sqlite3_get_autocommit(folder->db)) step(folder->rollback);
}

static int folder_commit(struct keep *keep, const struct keep_change *changes, size_t count, rdzv_error *error) {
  struct folder *folder = (struct folder *)keep;
  if (folder->is_gone && note_files(folder, error) < 0) return folder->is_gone;
  int result = commit_once(folder, changes, count);
  rdzv_error first;
  if (result != SQLITE_OK && fail(folder, result, "write", &first) == RDZV_E_NO_SPACE && folder->has_reserve) {
    undo(folder);
    give_up_reserve(folder);
    result = commit_once(folder, changes, count);
  }
  if (result != SQLITE_OK) {
    fail(folder, result, "write", error);
    undo(folder);
    return error ? error->code : code_of(result, 0);
  }
  folder->commits++;
  *folder->mark = folder->commits;
  return note_files(folder, error); /* a commit to files that are not found again does not count */
}

static int folder_room(struct keep *keep, rdzv_error *error) {
  struct folder *folder = (struct folder *)keep;
  if (note_files(folder, error) < 0) return folder->is_gone;
  if (folder->has_reserve || make_reserve(folder)) return 0;
  return error_set(error, RDZV_E_NO_SPACE, "no space is left for the state in '%s'", folder->path);
}

/* Pages that are free go back to the file system, some at a time, and a log that is too long is cut. */
static bool folder_rest(struct keep *keep) {
  struct folder *folder = (struct folder *)keep;
  int64_t free_pages = 0;
  struct stat log;
  const bool vacuum = ask(folder, "PRAGMA freelist_count", &free_pages) == SQLITE_OK && free_pages > REST_LEAST;
  if (vacuum) {
    char text[64];
    sqlite3_snprintf(sizeof text, text, "PRAGMA incremental_vacuum(%d)", REST_PAGES);
    if (run(folder, text) != SQLITE_OK) return false;
  }
  if (free_pages > REST_PAGES + REST_LEAST) return true;
  if (vacuum || (fstatat(folder->dir_fd, "state.db-wal", &log, 0) == 0 && log.st_size > LOG_KEPT))
    run(folder, "PRAGMA wal_checkpoint(TRUNCATE)");
  return false;
}

/* ---- loading ------------------------------------------------------------------------------------------------ */

static int take_row(struct folder *folder, sqlite3_stmt *rows, keep_take *take, void *user, rdzv_error *error) {
  const rdzv_bytes name = {sqlite3_column_blob(rows, 0), (size_t)sqlite3_column_bytes(rows, 0)};
  const rdzv_bytes value = {sqlite3_column_blob(rows, 1), (size_t)sqlite3_column_bytes(rows, 1)};
  if (name.len > KEEP_MAX_NAME || value.len > KEEP_MAX_VALUE || !name.data || !value.data)
    return error_set(error, RDZV_E_CORRUPT, "the state in '%s' is damaged: a record has a wrong length", folder->path);
  const int result = take(user, name, value, error);
  return result < 0 ? error_prefix(error, result, "cannot load the state in '%s'", folder->path) : 0;
}

static int folder_load(struct keep *keep, keep_take *take, void *user, rdzv_error *error) {
  struct folder *folder = (struct folder *)keep;
  sqlite3_stmt *rows;
  int taken = 0, result = prepare(folder, "SELECT name, value FROM records WHERE name > x'' ORDER BY name", &rows);
  if (result != SQLITE_OK) return fail(folder, result, "read", error);
  while (taken == 0 && (result = sqlite3_step(rows)) == SQLITE_ROW) taken = take_row(folder, rows, take, user, error);
  if (taken == 0 && result != SQLITE_DONE) taken = fail(folder, result, "read", error);
  sqlite3_finalize(rows);
  folder->failed = taken < 0;
  return taken;
}

/* ---- opening ------------------------------------------------------------------------------------------------ */

static void folder_close(struct keep *keep) {
  struct folder *folder = (struct folder *)keep;
  sqlite3_stmt *const statements[] = {folder->begin, folder->put,    folder->remove,
                                      folder->count, folder->commit, folder->rollback};
  for (size_t i = 0; i < sizeof statements / sizeof(sqlite3_stmt *); i++) sqlite3_finalize(statements[i]);
  if (folder->db && folder->failed) sqlite3_db_config(folder->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
  sqlite3_close(folder->db);
  if (folder->mark) munmap((void *)folder->mark, sizeof(uint64_t));
  if (folder->dir_fd >= 0) close(folder->dir_fd);
  files_free(&folder->files);
  free(folder);
}

static const struct keep_ops folder_ops = {.name = "folder",
                                           .load = folder_load,
                                           .commit = folder_commit,
                                           .room = folder_room,
                                           .rest = folder_rest,
                                           .close = folder_close};

static int open_folder(struct folder *folder, rdzv_error *error) {
  if (mkdir(folder->path, 0700) < 0 && errno != EEXIST) return fail_errno(folder, "make", error);
  folder->dir_fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder->dir_fd < 0) return fail_errno(folder, "open", error);
  return 0;
}

/* The file is ours alone to read, and SQLite gives its log the same rights. SQLite would take an empty file for a new
 * one, and drop its log. A file that is there is not opened: closing it would release the locks of another server of
 * this process. */
static int make_file(struct folder *folder, bool *is_empty, rdzv_error *error) {
  struct stat status;
  const int fd = openat(folder->dir_fd, "state.db", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno != EEXIST) return fail_errno(folder, "write to", error);
  if (fd >= 0) close(fd);
  if (fstatat(folder->dir_fd, "state.db", &status, 0) < 0) return fail_errno(folder, "read", error);
  *is_empty = status.st_size == 0;
  if (!*is_empty || read_mark(folder) == 0) return 0;
  return error_set(error, RDZV_E_CORRUPT, "the state in '%s' is damaged: state.db is empty", folder->path);
}

/* How pages are freed can be chosen only once. */
static int open_database(struct folder *folder, bool is_empty, rdzv_error *error) {
  int result =
      sqlite3_open_v2(folder->files.database, &folder->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE, NULL);
  if (result == SQLITE_OK) result = run(folder, "PRAGMA locking_mode = EXCLUSIVE");
  if (result == SQLITE_OK && is_empty) result = run(folder, "PRAGMA auto_vacuum = INCREMENTAL");
  if (result == SQLITE_OK) result = run(folder, "BEGIN IMMEDIATE; ROLLBACK"); /* which takes the lock */
  return result == SQLITE_OK ? 0 : fail(folder, result, "open", error);
}

/* Whose is it? *is_new: it has no tables yet, maybe because a server was killed before it made them. */
static int check_database(struct folder *folder, bool *is_new, rdzv_error *error) {
  int64_t tables = 0, application = 0, format = 0;
  int result = ask(folder, "SELECT count(*) FROM sqlite_master", &tables);
  if (result == SQLITE_OK) result = ask(folder, "PRAGMA application_id", &application);
  if (result == SQLITE_OK) result = ask(folder, "PRAGMA user_version", &format);
  if (result != SQLITE_OK) return fail(folder, result, "read", error);
  *is_new = tables == 0 && format == 0 && (application == 0 || application == APPLICATION);
  if (*is_new && read_mark(folder) > 0)
    return error_set(error, RDZV_E_CORRUPT, "the state in '%s' is damaged: state.db has no tables", folder->path);
  if (*is_new) return 0;
  if (application != APPLICATION)
    return error_set(error, RDZV_E_UNSUPPORTED, "'%s/state.db' was not made by rdzv (give --state-dir another folder)",
                     folder->path);
  if (format != FORMAT)
    return error_set(error, RDZV_E_UNSUPPORTED,
                     "the state in '%s' has format %lld, but this version of rdzv reads only format %d", folder->path,
                     (long long)format, FORMAT);
  return 0;
}

static int check_whole(struct folder *folder, rdzv_error *error) {
  sqlite3_stmt *check;
  int result = prepare(folder, "PRAGMA quick_check(1)", &check);
  if (result != SQLITE_OK) return fail(folder, result, "read", error);
  result = sqlite3_step(check);
  const char *said = result == SQLITE_ROW ? (const char *)sqlite3_column_text(check, 0) : NULL;
  int code = 0;
  if (!said)
    code = fail(folder, result, "read", error);
  else if (strcmp(said, "ok") != 0)
    code = error_set(error, RDZV_E_CORRUPT, "the state in '%s' is damaged: %s", folder->path, said);
  sqlite3_finalize(check);
  return code;
}

static int make_tables(struct folder *folder, rdzv_error *error) {
  char text[640];
  sqlite3_snprintf(sizeof text, text,
                   "PRAGMA application_id = %d; PRAGMA journal_mode = WAL;"
                   "PRAGMA synchronous = FULL; BEGIN IMMEDIATE; PRAGMA user_version = %d;"
                   "CREATE TABLE records(name BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
                   "INSERT INTO records VALUES(x'', 1); COMMIT",
                   APPLICATION, FORMAT);
  const int result = run(folder, text);
  if (result != SQLITE_OK) return fail(folder, result, "make", error);
  if (fsync(folder->dir_fd) < 0) return fail_errno(folder, "write to", error);
  return 0;
}

static int check_mark(struct folder *folder, rdzv_error *error) {
  int64_t number = 0;
  const int result = ask(folder, "SELECT value FROM records WHERE name = x''", &number);
  if (result != SQLITE_OK) return fail(folder, result, "read", error);
  folder->commits = (uint64_t)number;
  if (read_mark(folder) <= folder->commits) return 0;
  return error_set(
      error, RDZV_E_CORRUPT,
      "the state in '%s' is damaged: commit %llu is there, and %llu was the last one (is its log missing?)",
      folder->path, (unsigned long long)folder->commits, (unsigned long long)read_mark(folder));
}

static int set_up(struct folder *folder, rdzv_error *error) {
  char text[160];
  sqlite3_snprintf(sizeof text, text,
                   "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = %d; PRAGMA journal_size_limit = %d; "
                   "PRAGMA cache_size = -8000",
                   LOG_PAGES, LOG_KEPT);
  int result = run(folder, text);
  if (result == SQLITE_OK) result = prepare(folder, "BEGIN IMMEDIATE", &folder->begin);
  if (result == SQLITE_OK) result = prepare(folder, "INSERT OR REPLACE INTO records VALUES(?, ?)", &folder->put);
  if (result == SQLITE_OK) result = prepare(folder, "DELETE FROM records WHERE name = ?", &folder->remove);
  if (result == SQLITE_OK) result = prepare(folder, "INSERT OR REPLACE INTO records VALUES(x'', ?)", &folder->count);
  if (result == SQLITE_OK) result = prepare(folder, "COMMIT", &folder->commit);
  if (result == SQLITE_OK) result = prepare(folder, "ROLLBACK", &folder->rollback);
  return result == SQLITE_OK ? 0 : fail(folder, result, "open", error);
}

static int open_all(struct folder *folder, rdzv_error *error) {
  bool is_new = false, is_empty = false;
  int result = open_folder(folder, error);
  if (result == 0) result = open_mark(folder, error);
  if (result == 0) result = make_file(folder, &is_empty, error);
  if (result == 0) result = open_database(folder, is_empty, error);
  if (result == 0) result = check_database(folder, &is_new, error);
  if (result == 0 && is_new) result = make_tables(folder, error);
  if (result == 0) result = check_whole(folder, error);
  if (result == 0) result = check_mark(folder, error);
  if (result == 0) result = set_up(folder, error);
  if (result == 0) result = files_note(&folder->files, error);
  if (result == 0) *folder->mark = folder->commits;
  if (result == 0) make_reserve(folder); /* without one, there is no room */
  return result;
}

int keep_open_folder(const char *path, struct keep **out, rdzv_error *error) {
  struct folder *folder = calloc(1, sizeof *folder);
  if (!folder) return error_no_memory(error);
  folder->keep.ops = &folder_ops;
  folder->dir_fd = -1;
  int result = files_name(&folder->files, path, error);
  folder->path = folder->files.path;
  if (result == 0) result = open_all(folder, error);
  if (result == 0) {
    *out = &folder->keep;
    return 0;
  }
  folder->failed = true;
  folder_close(&folder->keep);
  return result;
}
