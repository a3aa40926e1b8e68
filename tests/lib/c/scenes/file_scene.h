/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the store in a file: a folder for each test, stores in it, and other processes that hold its lock. */
#ifndef RDZV_TESTS_FILE_SCENE_H
#define RDZV_TESTS_FILE_SCENE_H

#include "asleep.h"
#include "base/buf.h"
#include "base/wait/clock.h"
#include "store/file/record.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdzv/store.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 30000 }; /* for what must not take long: ends a test that hangs */

static char folder[200], path[256]; /* of the running test */
static char logged[1024];           /* its last log line */

static inline int make_folder(void **state) {
  (void)state;
  const char *tmp = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/rdzv-file-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/store", folder);
  logged[0] = '\0';
  return 0;
}

static inline int remove_folder(void **state) {
  (void)state;
  DIR *dir = opendir(folder);
  if (!dir) return -1;
  for (const struct dirent *entry; (entry = readdir(dir));)
    if (unlinkat(dirfd(dir), entry->d_name, 0) < 0) unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
  closedir(dir);
  return rmdir(folder);
}

static inline void keep_line(void *user, rdzv_log_level level, const char *line) {
  (void)user, (void)level;
  snprintf(logged, sizeof logged, "%s", line);
}

static inline rdzv_file_options options(int64_t timeout_ms) {
  static const rdzv_log log = {.size = sizeof log, .write = keep_line, .level = RDZV_LOG_DEBUG};
  return (rdzv_file_options){.size = sizeof(rdzv_file_options), .timeout_ms = timeout_ms, .log = &log};
}

static inline rdzv_store *open_with(const rdzv_file_options *with) {
  rdzv_store *store;
  rdzv_error error = {0};
  if (rdzv_store_open_file(path, with, &store, &error) < 0) fail_msg("%s", error.message);
  return store;
}

static inline rdzv_store *open_store(int64_t timeout_ms) {
  const rdzv_file_options with = options(timeout_ms);
  return open_with(&with);
}

static inline rdzv_store *open_run(const char *run_id) {
  rdzv_file_options with = options(LONG_MS);
  with.run_id = run_id;
  return open_with(&with);
}

static inline rdzv_store *open_worker(int64_t num_workers) {
  rdzv_file_options with = options(LONG_MS);
  with.num_workers = num_workers;
  return open_with(&with);
}

static inline void set(rdzv_store *store, const char *key, const char *value) {
  rdzv_error error = {0};
  if (rdzv_store_set(store, rdzv_str(key), rdzv_str(value), &error) < 0) fail_msg("%s", error.message);
}

static inline bool is_value(rdzv_store *store, const char *key, const char *value) {
  rdzv_value got;
  if (rdzv_store_get(store, rdzv_str(key), &got, NULL) < 0) return false;
  const bool equal = bytes_equal(rdzv_value_bytes(&got), rdzv_str(value));
  rdzv_value_free(&got);
  return equal;
}

static inline bool is_there(rdzv_store *store, const char *key) {
  const rdzv_bytes bytes = rdzv_str(key);
  bool all;
  assert_int_equal(rdzv_store_check(store, &bytes, 1, &all, NULL), 0);
  return all;
}

static inline int64_t key_count(rdzv_store *store) {
  int64_t count;
  assert_int_equal(rdzv_store_num_keys(store, &count, NULL), 0);
  return count;
}

static inline int64_t file_size(void) {
  struct stat status;
  return stat(path, &status) < 0 ? -1 : status.st_size;
}

static inline void write_file(const char *name, const void *data, size_t len) {
  const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, len), len);
  close(fd);
}

static inline struct buf read_file(void) {
  struct buf buf = {0};
  const int64_t size = file_size();
  const int fd = open(path, O_RDONLY);
  assert_true(fd >= 0 && buf_reserve(&buf, (size_t)size + 1));
  assert_int_equal(read(fd, buf.data, (size_t)size), size);
  buf.len = (size_t)size;
  close(fd);
  return buf;
}

static inline void add_user(struct buf *buf, const char *key, const char *value) {
  assert_true(file_record_encode(buf, (struct file_key){.name = rdzv_str(key)}, rdzv_str(value)));
}

static inline void add_own(struct buf *buf, const char *key, const char *value) {
  assert_true(file_record_encode(buf, (struct file_key){.own = true, .name = rdzv_str(key)}, rdzv_str(value)));
}

/* The file holds these records and nothing else; empties `expected`. */
static inline void assert_file(struct buf *expected) {
  struct buf found = read_file();
  assert_int_equal(found.len, expected->len);
  assert_memory_equal(found.data, expected->data, found.len);
  buf_free(&found);
  buf_free(expected);
}

#define assert_fails(call, code_, ...)                                                                \
  do {                                                                                                \
    rdzv_error error = {0};                                                                           \
    (void)error;                                                                                      \
    assert_int_equal(call, code_);                                                                    \
    const char *words[] = {__VA_ARGS__};                                                              \
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)                                       \
      if (!strstr(error.message, words[w])) fail_msg("'%s' is not in '%s'", words[w], error.message); \
  } while (0)

/* In a child, where cmocka's asserts do not reach: ends it with a status that names the line. */
#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: in the child: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                     \
    }                                                                               \
  } while (0)

static inline pid_t start_child(void (*run)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child > 0) return child;
  run();
  _exit(0);
}

static inline void join_child(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* Another process that holds the lock of the file until it is let go. */
struct holder {
  pid_t child;
  int gate;
};

static inline struct holder hold_lock(void) {
  int ready[2], gate[2];
  char byte;
  assert_int_equal(pipe(ready) + pipe(gate), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const int fd = open(path, O_RDWR | O_CREAT, 0644);
    close(gate[1]);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0 && write(ready[1], "x", 1) == 1);
    CHECK(read(gate[0], &byte, 1) == 0);
    _exit(0);
  }
  close(ready[1]), close(gate[0]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return (struct holder){child, gate[1]};
}

static inline void let_go(struct holder holder) {
  close(holder.gate);
  join_child(holder.child);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

#endif
