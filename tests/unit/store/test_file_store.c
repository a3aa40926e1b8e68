/* SPDX-License-Identifier: BSD-3-Clause */
/* The store in a file: what others do to the file meanwhile, what the machine refuses, and who waits for what. */
#include "base/buf.h"
#include "base/wait/clock.h"
#include "store/file/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <rdzv/store.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG_MS = 30000 }; /* for what must not take long: ends a test that hangs */

/* ---- helpers --------------------------------------------------------------------------------------------------- */

static char folder[200], path[256]; /* of the running test */
static char logged[1024];           /* its last log line */

static int make_folder(void **state) {
  (void)state;
  const char *tmp = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/rdzv-file-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/store", folder);
  logged[0] = '\0';
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  DIR *dir = opendir(folder);
  if (!dir) return -1;
  for (const struct dirent *entry; (entry = readdir(dir));)
    if (unlinkat(dirfd(dir), entry->d_name, 0) < 0) unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
  closedir(dir);
  return rmdir(folder);
}

static void keep_line(void *user, rdzv_log_level level, const char *line) {
  (void)user, (void)level;
  snprintf(logged, sizeof logged, "%s", line);
}

static rdzv_file_options options(int64_t timeout_ms) {
  static const rdzv_log log = {.size = sizeof log, .write = keep_line, .level = RDZV_LOG_DEBUG};
  return (rdzv_file_options){.size = sizeof(rdzv_file_options), .timeout_ms = timeout_ms, .log = &log};
}

static rdzv_store *open_with(const rdzv_file_options *with) {
  rdzv_store *store;
  rdzv_error error = {0};
  if (rdzv_store_open_file(path, with, &store, &error) < 0) fail_msg("%s", error.message);
  return store;
}

static rdzv_store *open_store(int64_t timeout_ms) {
  const rdzv_file_options with = options(timeout_ms);
  return open_with(&with);
}

static rdzv_store *open_run(const char *run_id) {
  rdzv_file_options with = options(LONG_MS);
  with.run_id = run_id;
  return open_with(&with);
}

static rdzv_store *open_worker(int64_t num_workers) {
  rdzv_file_options with = options(LONG_MS);
  with.num_workers = num_workers;
  return open_with(&with);
}

static void set(rdzv_store *store, const char *key, const char *value) {
  rdzv_error error = {0};
  if (rdzv_store_set(store, rdzv_str(key), rdzv_str(value), &error) < 0) fail_msg("%s", error.message);
}

static bool is_value(rdzv_store *store, const char *key, const char *value) {
  rdzv_value got;
  if (rdzv_store_get(store, rdzv_str(key), &got, NULL) < 0) return false;
  const bool equal = bytes_equal(rdzv_value_bytes(&got), rdzv_str(value));
  rdzv_value_free(&got);
  return equal;
}

static bool is_there(rdzv_store *store, const char *key) {
  const rdzv_bytes bytes = rdzv_str(key);
  bool all;
  assert_int_equal(rdzv_store_check(store, &bytes, 1, &all, NULL), 0);
  return all;
}

static int64_t key_count(rdzv_store *store) {
  int64_t count;
  assert_int_equal(rdzv_store_num_keys(store, &count, NULL), 0);
  return count;
}

static int64_t file_size(void) {
  struct stat status;
  return stat(path, &status) < 0 ? -1 : status.st_size;
}

static void write_file(const char *name, const void *data, size_t len) {
  const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, len), len);
  close(fd);
}

static struct buf read_file(void) {
  struct buf buf = {0};
  const int64_t size = file_size();
  const int fd = open(path, O_RDONLY);
  assert_true(fd >= 0 && buf_reserve(&buf, (size_t)size + 1));
  assert_int_equal(read(fd, buf.data, (size_t)size), size);
  buf.len = (size_t)size;
  close(fd);
  return buf;
}

static void add_user(struct buf *buf, const char *key, const char *value) {
  assert_true(file_record_encode(buf, (struct file_key){.name = rdzv_str(key)}, rdzv_str(value)));
}

static void add_own(struct buf *buf, const char *key, const char *value) {
  assert_true(file_record_encode(buf, (struct file_key){.own = true, .name = rdzv_str(key)}, rdzv_str(value)));
}

/* The file holds these records and nothing else; empties `expected`. */
static void assert_file(struct buf *expected) {
  struct buf found = read_file();
  assert_int_equal(found.len, expected->len);
  assert_memory_equal(found.data, expected->data, found.len);
  buf_free(&found);
  buf_free(expected);
}

#define assert_error(call, code_, ...)                                                                \
  do {                                                                                                \
    rdzv_error error = {0};                                                                           \
    (void)error;                                                                                      \
    assert_int_equal(call, code_);                                                                    \
    const char *words[] = {__VA_ARGS__};                                                              \
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)                                       \
      if (!strstr(error.message, words[w])) fail_msg("'%s' is not in '%s'", words[w], error.message); \
  } while (0)

/* Waits until a thread (or process) sleeps in the kernel, which is how one looks that waits. */
static void until_asleep(pid_t thread) {
  char name[64], line[512], run = 'R';
  snprintf(name, sizeof name, "/proc/%d/stat", thread);
  for (const deadline end = deadline_after(LONG_MS); run != 'S' && deadline_left(end) > 0; sched_yield()) {
    FILE *file = fopen(name, "r");
    if (!file) return;
    const char *paren = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (paren) run = paren[2];
    fclose(file);
  }
}

/* In a child, where cmocka's asserts do not reach: ends it with a status that names the line. */
#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: in the child: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                     \
    }                                                                               \
  } while (0)

static pid_t start_child(void (*run)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child > 0) return child;
  run();
  _exit(0);
}

static void join_child(pid_t child) {
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

static struct holder hold_lock(void) {
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

static void let_go(struct holder holder) {
  close(holder.gate);
  join_child(holder.child);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static void test_the_bytes_of_the_file_are_those_of_pytorch(void **state) {
  (void)state;
  struct buf expected = {0};
  rdzv_store *store = open_store(LONG_MS);
  assert_int_equal(file_size(), -1); /* made by the first write */
  set(store, "a", "1");
  assert_int_equal(rdzv_store_add(store, rdzv_str("c"), 5, NULL, NULL), 0);
  assert_int_equal(rdzv_store_delete_key(store, rdzv_str("a"), NULL, NULL), 0);
  add_user(&expected, "a", "1");
  add_user(&expected, "c", "5");
  assert_true(file_record_encode(&expected, (struct file_key){.deleted = true, .name = rdzv_str("a")}, rdzv_str("")));
  assert_file(&expected);
  struct stat status;
  assert_int_equal(stat(path, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0644);
  rdzv_store_free(store);
}

static void test_a_value_is_there_for_another_handle_at_once(void **state) {
  (void)state;
  rdzv_store *one = open_store(LONG_MS), *two = open_store(0);
  for (int i = 0; i < 3; i++) {
    set(one, "key", i == 1 ? "" : "value");
    assert_true(is_value(two, "key", i == 1 ? "" : "value"));
  }
  assert_true(is_value(one, "key", "value"));
  rdzv_store_free(one);
  rdzv_store_free(two);
}

static void test_a_file_that_is_not_there_has_no_keys_and_is_not_made_by_reading(void **state) {
  (void)state;
  rdzv_store *store = open_store(0);
  rdzv_store_set_timeout(store, 0, NULL);
  rdzv_value value;
  assert_false(is_there(store, "a"));
  assert_int_equal(key_count(store), 0);
  assert_error(rdzv_store_get(store, rdzv_str("a"), &value, &error), RDZV_E_TIMEOUT, "get 'a'", "timed out");
  assert_int_equal(file_size(), -1);
  rdzv_store_free(store);
}

static void test_add_takes_an_absent_or_empty_value_for_zero(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  int64_t sum = 7;
  assert_int_equal(rdzv_store_add(store, rdzv_str("absent"), 3, &sum, NULL), 0);
  assert_int_equal(sum, 3);
  set(store, "empty", "");
  assert_int_equal(rdzv_store_add(store, rdzv_str("empty"), -4, &sum, NULL), 0);
  assert_int_equal(sum, -4);
  set(store, "tail", "12xyz");
  assert_int_equal(rdzv_store_add(store, rdzv_str("tail"), 1, &sum, NULL), 0);
  assert_int_equal(sum, 13);
  assert_true(is_value(store, "tail", "13"));
  rdzv_store_free(store);
}

static void test_add_to_what_is_no_number_changes_nothing(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  int64_t sum = 7;
  set(store, "word", "abc");
  const int64_t size = file_size();
  assert_error(rdzv_store_add(store, rdzv_str("word"), 1, &sum, &error), RDZV_E_NOT_A_NUMBER, "'word'", "not a number");
  assert_int_equal(sum, 7);
  assert_int_equal(file_size(), size);
  rdzv_store_free(store);
}

static void assert_compare_set(rdzv_store *store, const char *key, const char *expected, const char *desired,
                               const char *now) {
  rdzv_value value;
  assert_int_equal(rdzv_store_compare_set(store, rdzv_str(key), rdzv_str(expected), rdzv_str(desired), &value, NULL),
                   0);
  assert_string_equal(value.data, now);
  rdzv_value_free(&value);
}

/* Rule: PyTorch's table, absent and present, equal and not. */
static void test_compare_set_answers_as_pytorch(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  assert_compare_set(store, "a", "old", "new", "old");
  assert_false(is_there(store, "a"));
  assert_compare_set(store, "a", "", "new", "new");
  assert_compare_set(store, "a", "", "newer", "new");
  assert_compare_set(store, "a", "other", "newer", "new");
  assert_compare_set(store, "a", "new", "newer", "newer");
  assert_true(is_value(store, "a", "newer"));
  rdzv_store_free(store);
}

static void test_delete_always_says_yes(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  bool deleted = false;
  set(store, "a", "1");
  assert_int_equal(rdzv_store_delete_key(store, rdzv_str("a"), &deleted, NULL), 0);
  assert_true(deleted);
  deleted = false;
  assert_int_equal(rdzv_store_delete_key(store, rdzv_str("never"), &deleted, NULL), 0);
  assert_true(deleted);
  assert_false(is_there(store, "a"));
  rdzv_store_free(store);
}

static void test_all_keys_are_counted_and_those_of_users_listed(void **state) {
  (void)state;
  struct buf file = {0};
  add_own(&file, "refcount/", "1");
  add_user(&file, "refcount/", "mine"); /* a user's key of the same name is another */
  add_own(&file, "cleanup/", "4");
  write_file(path, file.data, file.len);
  buf_free(&file);
  rdzv_store *store = open_store(LONG_MS);
  assert_int_equal(key_count(store), 3);
  rdzv_value *keys;
  size_t count;
  assert_int_equal(rdzv_store_list_keys(store, &keys, &count, NULL), 0);
  assert_int_equal(count, 1);
  assert_string_equal(keys[0].data, "refcount/");
  rdzv_values_free(keys, count);
  assert_false(is_there(store, "cleanup/"));
  rdzv_store_free(store);
}

static void test_append_adds_to_what_is_there(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  for (int i = 0; i < 3; i++) assert_int_equal(rdzv_store_append(store, rdzv_str("log"), rdzv_str("xy"), NULL), 0);
  assert_true(is_value(store, "log", "xyxyxy"));
  rdzv_store_free(store);
}

static void test_many_keys_are_set_in_one_step_and_read_in_order(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  const rdzv_bytes keys[] = {rdzv_str("a"), {"b\0c", 3}, {NULL, 0}},
                   values[] = {rdzv_str("1"), rdzv_str("2"), {NULL, 0}};
  assert_int_equal(rdzv_store_multi_set(store, keys, values, 3, NULL), 0);
  rdzv_value *got;
  assert_int_equal(rdzv_store_multi_get(store, keys, 3, &got, NULL), 0);
  for (int i = 0; i < 3; i++) assert_true(bytes_equal(rdzv_value_bytes(&got[i]), values[i]));
  rdzv_values_free(got, 3);
  assert_int_equal(key_count(store), 3);
  rdzv_store_free(store);
}

static void test_what_is_over_a_limit_is_refused_before_anything_is_written(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  char *name = calloc(1, FILE_MAX_KEY + 1);
  assert_non_null(name);
  const rdzv_bytes longest = {name, FILE_MAX_KEY}, over = {name, FILE_MAX_KEY + 1}, big = {name, FILE_MAX_VALUE + 1u};
  const rdzv_bytes both[] = {rdzv_str("a"), over}, values[] = {rdzv_str("1"), rdzv_str("2")};
  assert_error(rdzv_store_set(store, over, rdzv_str(""), &error), RDZV_E_LIMIT, "65537", "over the limit of 65536");
  assert_error(rdzv_store_set(store, rdzv_str("a"), big, &error), RDZV_E_LIMIT, "'a'", "over the limit");
  assert_error(rdzv_store_multi_set(store, both, values, 2, &error), RDZV_E_LIMIT, "over the limit");
  assert_int_equal(file_size(), -1);
  assert_int_equal(rdzv_store_set(store, longest, rdzv_str("1"), NULL), 0);
  assert_int_equal(key_count(store), 1);
  free(name);
  rdzv_store_free(store);
}

static void test_what_a_file_store_cannot_do_is_unsupported(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  assert_int_equal(rdzv_store_features(store), RDZV_FEATURE_APPEND | RDZV_FEATURE_LIST_KEYS);
  assert_error(rdzv_store_queue_push(store, rdzv_str("q"), rdzv_str("1"), &error), RDZV_E_UNSUPPORTED, "file store");
  assert_true(strncmp(rdzv_store_describe(store), "file /", 6) == 0);
  rdzv_store_free(store);
}

/* Many records, and one longer than what is read at once, over both sides of its border. */
static void test_records_of_any_size_are_read_by_a_new_handle(void **state) {
  (void)state;
  rdzv_store *one = open_store(LONG_MS);
  static const size_t sizes[] = {0, 1, 65000, 65535, 65536, 65537, 300000};
  char key[16], *data = malloc(300000);
  assert_non_null(data);
  memset(data, 'v', 300000);
  for (size_t i = 0; i < 7; i++) {
    snprintf(key, sizeof key, "k%zu", i);
    assert_int_equal(rdzv_store_set(one, rdzv_str(key), (rdzv_bytes){data, sizes[i]}, NULL), 0);
  }
  rdzv_store *two = open_store(LONG_MS);
  for (size_t i = 0; i < 7; i++) {
    rdzv_value value;
    snprintf(key, sizeof key, "k%zu", i);
    assert_int_equal(rdzv_store_get(two, rdzv_str(key), &value, NULL), 0);
    assert_true(bytes_equal(rdzv_value_bytes(&value), (rdzv_bytes){data, sizes[i]}));
    rdzv_value_free(&value);
  }
  free(data);
  rdzv_store_free(one);
  rdzv_store_free(two);
}

/* ---- what others do to the file -------------------------------------------------------------------------------- */

/* Rule: at every byte where a writer can die, readers see what was whole, and the next writer cuts the rest off. */
static void test_a_partial_record_of_a_dead_writer_is_cut_off_by_the_next_write(void **state) {
  (void)state;
  struct buf file = {0}, expected = {0};
  add_user(&file, "first", "1");
  const size_t whole = file.len;
  add_user(&file, "second", "longer than the record that will stand in its place");
  for (size_t cut = whole + 1; cut < file.len; cut++) {
    write_file(path, file.data, cut);
    rdzv_store *store = open_store(LONG_MS);
    assert_true(is_value(store, "first", "1"));
    assert_false(is_there(store, "second"));
    assert_int_equal(file_size(), cut); /* readers leave it */
    logged[0] = '\0';
    set(store, "third", "3");
    assert_non_null(strstr(logged, "cutting off"));
    assert_true(is_value(store, "third", "3"));
    add_user(&expected, "first", "1");
    add_user(&expected, "third", "3");
    assert_file(&expected);
    rdzv_store_free(store);
  }
  buf_free(&file);
}

/* Rule: a possible length that goes beyond the end is a record whose writer died; an impossible one is never cut. */
static void test_an_impossible_length_is_corrupt_and_nothing_is_cut_off(void **state) {
  (void)state;
  static const char *const tails[] = {"\xff\xff\xff\xff", "\0\0\0\0\0\0\0\0", "\2\0\0\0/k\1\0\0\x40"};
  static const size_t lens[] = {4, 8, 10};
  for (int i = 0; i < 3; i++) {
    struct buf file = {0};
    add_user(&file, "a", "1"); /* 11 bytes */
    assert_true(buf_append(&file, tails[i], lens[i]));
    write_file(path, file.data, file.len);
    rdzv_store *store = open_store(LONG_MS);
    rdzv_value value;
    assert_error(rdzv_store_get(store, rdzv_str("a"), &value, &error), RDZV_E_CORRUPT, path, "offset 11");
    assert_error(rdzv_store_set(store, rdzv_str("b"), rdzv_str("2"), &error), RDZV_E_CORRUPT, path, "offset 11");
    assert_file(&file);
    rdzv_store_free(store);
  }
}

static void test_a_file_that_is_no_store_is_left_alone(void **state) {
  (void)state;
  const char text[] = "127.0.0.1 localhost\n";
  struct buf expected = {0};
  write_file(path, text, sizeof text - 1);
  rdzv_store *store = open_store(LONG_MS);
  assert_error(rdzv_store_set(store, rdzv_str("b"), rdzv_str("2"), &error), RDZV_E_CORRUPT, "not a store");
  assert_true(buf_append(&expected, text, sizeof text - 1));
  assert_file(&expected);
  rdzv_store_free(store);
}

static void test_a_removed_file_is_forgotten_and_made_again_by_a_write(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  set(store, "a", "1");
  assert_int_equal(unlink(path), 0);
  assert_false(is_there(store, "a"));
  set(store, "b", "2");
  assert_int_equal(key_count(store), 1);
  rdzv_store_free(store);
}

/* Rule: the new file mostly gets the number of the old one, if that is free, so the number alone tells nothing. */
static void test_a_file_that_was_made_anew_is_not_taken_for_the_old_one(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  struct buf file = {0};
  set(store, "a", "1");
  assert_true(is_value(store, "a", "1"));
  add_user(&file, "b", "2"); /* as long as the old one */
  for (int i = 0; i < 8; i++) {
    assert_int_equal(unlink(path), 0);
    write_file(path, file.data, file.len);
    assert_true(is_value(store, "b", "2"));
    assert_false(is_there(store, "a"));
    assert_int_equal(key_count(store), i == 0 ? 1 : 2);
    add_user(&file, "more", "3"); /* the next one is longer */
  }
  buf_free(&file);
  rdzv_store_free(store);
}

static void test_a_file_that_was_moved_over_the_old_one_is_read_from_its_start(void **state) {
  (void)state;
  char other[300];
  snprintf(other, sizeof other, "%s.new", path);
  rdzv_store *store = open_store(LONG_MS);
  struct buf file = {0};
  set(store, "a", "1");
  assert_true(is_there(store, "a"));
  add_user(&file, "b", "2");
  add_user(&file, "c", "3");
  write_file(other, file.data, file.len);
  assert_int_equal(rename(other, path), 0);
  assert_int_equal(key_count(store), 2);
  assert_false(is_there(store, "a"));
  buf_free(&file);
  rdzv_store_free(store);
}

static void test_a_truncated_file_is_read_from_its_start(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  set(store, "a", "1");
  set(store, "b", "2");
  assert_int_equal(key_count(store), 2);
  assert_int_equal(truncate(path, 11), 0);
  assert_int_equal(key_count(store), 1);
  assert_int_equal(truncate(path, 0), 0);
  assert_false(is_there(store, "a"));
  rdzv_store_free(store);
}

static bool has_open(pid_t process, const char *name) {
  char folder_name[64], target[512];
  bool found = false;
  snprintf(folder_name, sizeof folder_name, "/proc/%d/fd", process);
  DIR *dir = opendir(folder_name);
  for (const struct dirent *entry; dir && !found && (entry = readdir(dir));) {
    const ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
    found = len >= 0 && (size_t)len == strlen(name) && memcmp(target, name, (size_t)len) == 0;
  }
  if (dir) closedir(dir);
  return found;
}

/* Holds the lock until its parent has the file open and waits, then removes the file. */
static void remove_under_the_writer(void) {
  const int fd = open(path, O_RDWR);
  CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
  CHECK(creat(strcat(folder, "/ready"), 0644) >= 0);
  const deadline end = deadline_after(LONG_MS);
  while (!has_open(getppid(), path) && deadline_left(end) > 0) sched_yield();
  CHECK(unlink(path) == 0 && flock(fd, LOCK_UN) == 0);
}

/* Rule: who got the lock of a file that is gone must not write into it, where nobody would ever see it. */
static void test_a_write_is_not_lost_in_a_file_that_was_removed_while_it_waited_for_the_lock(void **state) {
  (void)state;
  char ready[300];
  write_file(path, "", 0);
  snprintf(ready, sizeof ready, "%s/ready", folder);
  rdzv_store *store = open_store(LONG_MS);
  const pid_t child = start_child(remove_under_the_writer);
  const deadline end = deadline_after(LONG_MS);
  while (access(ready, F_OK) < 0 && deadline_left(end) > 0) sched_yield();
  set(store, "a", "1");
  join_child(child);
  assert_true(is_value(store, "a", "1"));
  assert_int_equal(file_size(), 11);
  rdzv_store_free(store);
}

/* ---- what the machine refuses ---------------------------------------------------------------------------------- */

static void write_to_a_full_file(void) {
  char big[4096] = {0};
  signal(SIGXFSZ, SIG_IGN);
  rdzv_store *store = open_store(LONG_MS);
  set(store, "first", "1");
  const rlim_t size = (rlim_t)file_size();
  for (rlim_t room = 0; room < 64; room += 7) { /* from no byte to a part of the record */
    rdzv_error error = {0};
    const struct rlimit limit = {size + room, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(rdzv_store_set(store, rdzv_str("big"), (rdzv_bytes){big, sizeof big}, &error) == RDZV_E_NO_SPACE);
    CHECK(strstr(error.message, path) && strstr(error.message, "File too large"));
    CHECK((rlim_t)file_size() == size);
    CHECK(!is_there(store, "big") && is_value(store, "first", "1"));
  }
  const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
  CHECK(rdzv_store_set(store, rdzv_str("big"), (rdzv_bytes){big, sizeof big}, NULL) == 0);
  CHECK(is_there(store, "big") && is_value(store, "first", "1"));
  rdzv_store_free(store);
}

static void test_a_full_disk_leaves_nothing_half_and_loses_nothing(void **state) {
  (void)state;
  join_child(start_child(write_to_a_full_file));
}

static void test_a_missing_directory_is_told_when_opening(void **state) {
  (void)state;
  rdzv_store *store;
  char name[300];
  snprintf(name, sizeof name, "%s/none/store", folder);
  assert_error(rdzv_store_open_file(name, NULL, &store, &error), RDZV_E_IO, "cannot open '", name,
               "': its directory does not exist");
}

static void test_what_is_no_regular_file_is_told_when_opening(void **state) {
  (void)state;
  rdzv_store *store;
  assert_error(rdzv_store_open_file(folder, NULL, &store, &error), RDZV_E_IO, folder, "': Is a directory");
  assert_int_equal(mkfifo(path, 0644), 0);
  assert_error(rdzv_store_open_file(path, NULL, &store, &error), RDZV_E_IO, path, "': not a regular file");
  assert_error(rdzv_store_open_file("", NULL, &store, &error), RDZV_E_INVALID, "empty");
}

static void open_without_permission(void) {
  rdzv_store *store;
  rdzv_error error = {0};
  CHECK(geteuid() != 0 || setuid(65534) == 0);
  CHECK(rdzv_store_open_file(path, NULL, &store, &error) == RDZV_E_IO);
  CHECK(strstr(error.message, "cannot open '") && strstr(error.message, "': Permission denied"));
}

static void test_a_file_without_permission_is_told_when_opening(void **state) {
  (void)state;
  write_file(path, "", 0);
  assert_int_equal(chmod(path, 0), 0);
  assert_int_equal(chmod(folder, 0755), 0);
  join_child(start_child(open_without_permission));
}

/* From now on flock fails as on an NFS mount without a lock server. */
static void forbid_locks(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void write_without_locks(void) {
  rdzv_error error = {0};
  rdzv_store *store = open_store(LONG_MS);
  forbid_locks();
  CHECK(rdzv_store_set(store, rdzv_str("a"), rdzv_str("1"), &error) == RDZV_E_IO);
  CHECK(strstr(error.message, "cannot lock '") && strstr(error.message, ": No locks available"));
  rdzv_store_free(store);
}

static void test_a_file_system_without_locks_is_told(void **state) {
  (void)state;
  join_child(start_child(write_without_locks));
}

static void test_a_long_path_does_not_push_the_cause_out_of_the_message(void **state) {
  (void)state;
  rdzv_store *store;
  char name[2000];
  memset(name, '/', sizeof name);
  snprintf(name + 1500, sizeof name - 1500, "%s/none/store", folder);
  assert_error(rdzv_store_open_file(name, NULL, &store, &error), RDZV_E_IO, "'…/",
               "/none/store': its directory does not");
}

/* ---- many at once ---------------------------------------------------------------------------------------------- */

enum { PROCESSES = 8, ADDS = 50 };

static void add_many(void) {
  rdzv_store *store = open_store(LONG_MS);
  for (int i = 0; i < ADDS; i++) CHECK(rdzv_store_add(store, rdzv_str("n"), 1, NULL, NULL) == 0);
  rdzv_store_free(store);
}

static void test_no_count_is_lost_among_processes(void **state) {
  (void)state;
  pid_t children[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) children[i] = start_child(add_many);
  for (int i = 0; i < PROCESSES; i++) join_child(children[i]);
  rdzv_store *store = open_store(LONG_MS);
  assert_true(is_value(store, "n", "400"));
  rdzv_store_free(store);
}

/* A thread that runs one function with a store. */
struct helper {
  pthread_t thread;
  rdzv_store *store;
  _Atomic pid_t id; /* 0: not running yet */
  int result;
  rdzv_error error;
};

static void start_helper(void *(*run)(void *), rdzv_store *store, struct helper *helper) {
  *helper = (struct helper){.store = store};
  assert_int_equal(pthread_create(&helper->thread, NULL, run, helper), 0);
}

static void until_helper_asleep(const struct helper *helper) {
  pid_t id;
  while ((id = helper->id) == 0) sched_yield();
  until_asleep(id);
}

static void *helper_adds(void *data) {
  struct helper *helper = data;
  for (int i = 0; i < ADDS; i++) helper->result |= rdzv_store_add(helper->store, rdzv_str("n"), 1, NULL, NULL);
  return NULL;
}

static void test_threads_take_their_turns_on_one_handle(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  struct helper helpers[4];
  for (int i = 0; i < 4; i++) start_helper(helper_adds, store, &helpers[i]);
  for (int i = 0; i < 4; i++) {
    pthread_join(helpers[i].thread, NULL);
    assert_int_equal(helpers[i].result, 0);
  }
  assert_true(is_value(store, "n", "200"));
  rdzv_store_free(store);
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void *helper_gets(void *data) {
  struct helper *helper = data;
  rdzv_value value;
  helper->id = (pid_t)syscall(SYS_gettid);
  helper->result = rdzv_store_get(helper->store, rdzv_str("later"), &value, &helper->error);
  if (helper->result == 0) rdzv_value_free(&value);
  return NULL;
}

static void *helper_sets(void *data) {
  struct helper *helper = data;
  helper->id = (pid_t)syscall(SYS_gettid);
  helper->result = rdzv_store_set(helper->store, rdzv_str("a"), rdzv_str("1"), &helper->error);
  return NULL;
}

static void test_a_blocked_get_holds_nobody_back_on_its_handle(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  struct helper helper;
  start_helper(helper_gets, store, &helper);
  until_helper_asleep(&helper);
  set(store, "later", "1");
  pthread_join(helper.thread, NULL);
  assert_int_equal(helper.result, 0);
  rdzv_store_free(store);
}

/* Rule: what wakes one thread must not be taken away from another on the same handle. */
static void test_all_threads_that_wait_on_one_handle_are_woken_more_than_once(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  struct helper helpers[3];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 3; i++) start_helper(helper_gets, store, &helpers[i]);
    for (int i = 0; i < 3; i++) until_helper_asleep(&helpers[i]);
    set(store, "later", "1");
    for (int i = 0; i < 3; i++) {
      pthread_join(helpers[i].thread, NULL);
      assert_int_equal(helpers[i].result, 0);
    }
    assert_int_equal(rdzv_store_delete_key(store, rdzv_str("later"), NULL, NULL), 0);
  }
  rdzv_store_free(store);
}

static void set_when_the_parent_sleeps(void) {
  until_asleep(getppid());
  rdzv_store *store = open_store(LONG_MS);
  set(store, "early", "1");
  set(store, "later", "2");
  rdzv_store_free(store);
}

static void test_a_get_before_there_is_a_file_is_woken_by_another_process(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  const pid_t child = start_child(set_when_the_parent_sleeps);
  assert_true(is_value(store, "later", "2"));
  join_child(child);
  rdzv_store_free(store);
}

static void test_a_wait_is_over_when_all_of_its_keys_are_there(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  const rdzv_bytes keys[] = {rdzv_str("later"), rdzv_str("early")};
  const pid_t child = start_child(set_when_the_parent_sleeps);
  assert_int_equal(rdzv_store_wait(store, keys, 2, RDZV_TIMEOUT_STORE, NULL), 0);
  join_child(child);
  rdzv_store_free(store);
}

/* Moves a file with the key to its place: nobody writes or closes it there. */
static void move_there_when_the_parent_sleeps(void) {
  char other[300];
  struct buf file = {0};
  snprintf(other, sizeof other, "%s.new", path);
  add_user(&file, "later", "2");
  write_file(other, file.data, file.len);
  until_asleep(getppid());
  CHECK(rename(other, path) == 0);
  buf_free(&file);
}

static void test_a_get_sees_a_file_that_is_moved_there(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  const pid_t child = start_child(move_there_when_the_parent_sleeps);
  assert_true(is_value(store, "later", "2"));
  join_child(child);
  rdzv_store_free(store);
}

/* Rule: through a link from another directory nothing is told, as on a file system of another machine. */
static void test_a_get_without_notification_looks_again_by_itself(void **state) {
  (void)state;
  char target[300];
  snprintf(target, sizeof target, "%s/elsewhere", folder);
  assert_int_equal(mkdir(target, 0755), 0);
  assert_int_equal(symlink("elsewhere/store", path), 0);
  rdzv_store *store = open_store(LONG_MS);
  const int64_t start = clock_now_ms();
  const pid_t child = start_child(set_when_the_parent_sleeps);
  assert_true(is_value(store, "later", "2"));
  assert_in_range(clock_now_ms() - start, 0, LONG_MS / 2); /* at the end there is a look in any case */
  join_child(child);
  rdzv_store_free(store);
  strcat(target, "/store");
  assert_int_equal(unlink(target), 0);
}

static void test_a_get_that_waits_in_vain_says_for_what_and_how_long(void **state) {
  (void)state;
  rdzv_store *store = open_store(50);
  rdzv_value value;
  const int64_t start = clock_now_ms();
  assert_error(rdzv_store_get(store, rdzv_str("later"), &value, &error), RDZV_E_TIMEOUT, "get 'later'", "after 50 ms");
  assert_in_range(clock_now_ms() - start, 50, LONG_MS);
  rdzv_store_free(store);
}

static void test_a_canceled_get_ends_and_so_does_every_later_call(void **state) {
  (void)state;
  rdzv_store *store = open_store(LONG_MS);
  struct helper helper;
  start_helper(helper_gets, store, &helper);
  until_helper_asleep(&helper);
  rdzv_store_cancel(store);
  pthread_join(helper.thread, NULL);
  assert_int_equal(helper.result, RDZV_E_CANCELED);
  assert_non_null(strstr(helper.error.message, "get 'later': canceled"));
  assert_error(rdzv_store_set(store, rdzv_str("a"), rdzv_str("1"), &error), RDZV_E_CANCELED, "cancel");
  rdzv_store_free(store);
}

/* ---- the lock -------------------------------------------------------------------------------------------------- */

static void test_a_lock_that_is_never_given_up_ends_in_a_timeout_that_says_so(void **state) {
  (void)state;
  const struct holder holder = hold_lock();
  rdzv_store *store = open_store(50);
  const int64_t start = clock_now_ms();
  assert_error(rdzv_store_set(store, rdzv_str("a"), rdzv_str("1"), &error), RDZV_E_TIMEOUT, "cannot lock '", path,
               " ms: another process holds its lock");
  assert_in_range(clock_now_ms() - start, 50, LONG_MS);
  let_go(holder);
  set(store, "a", "1");
  rdzv_store_free(store);
}

static void test_a_cancel_ends_the_wait_for_the_lock(void **state) {
  (void)state;
  const struct holder holder = hold_lock();
  rdzv_store *store = open_store(LONG_MS);
  struct helper helper;
  start_helper(helper_sets, store, &helper);
  until_helper_asleep(&helper);
  rdzv_store_cancel(store);
  pthread_join(helper.thread, NULL);
  assert_int_equal(helper.result, RDZV_E_CANCELED);
  assert_non_null(strstr(helper.error.message, "canceled"));
  assert_int_equal(file_size(), 0);
  let_go(holder);
  rdzv_store_free(store);
}

/* Rule: nothing new, no lock; something new, the lock. */
static void test_what_is_known_is_read_while_another_holds_the_lock(void **state) {
  (void)state;
  rdzv_store *store = open_store(50), *other = open_store(50);
  set(store, "a", "1");
  assert_true(is_value(store, "a", "1"));
  const struct holder holder = hold_lock();
  rdzv_value value;
  assert_true(is_value(store, "a", "1"));
  assert_error(rdzv_store_get(other, rdzv_str("a"), &value, &error), RDZV_E_TIMEOUT, "another process holds its lock");
  let_go(holder);
  assert_true(is_value(other, "a", "1"));
  rdzv_store_free(store);
  rdzv_store_free(other);
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

static void test_the_first_store_of_a_run_marks_the_file(void **state) {
  (void)state;
  struct buf expected = {0};
  rdzv_store *one = open_run("job-7"), *two = open_run("job-7");
  set(two, "a", "1");
  assert_true(is_value(one, "a", "1"));
  assert_int_equal(key_count(one), 2); /* the mark, too, as PyTorch counts */
  add_own(&expected, "run_id/", "job-7");
  add_user(&expected, "a", "1");
  assert_file(&expected);
  rdzv_store_free(one);
  rdzv_store_free(two);
}

static void test_the_file_of_another_run_is_stale(void **state) {
  (void)state;
  rdzv_store *store = open_run("job-7");
  set(store, "a", "1");
  rdzv_store_free(store);
  const struct timespec old[2] = {{.tv_sec = time(NULL) - 3 * 3600}, {.tv_sec = time(NULL) - 3 * 3600}};
  assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
  rdzv_file_options with = options(LONG_MS);
  with.run_id = "job-8";
  with.num_workers = 2;
  const int64_t size = file_size();
  assert_error(rdzv_store_open_file(path, &with, &store, &error), RDZV_E_STALE, path, "'job-8'", "'job-7'", "3 h ago");
  assert_int_equal(file_size(), size);
  store = open_store(LONG_MS); /* no run, no check */
  assert_true(is_value(store, "a", "1"));
  rdzv_store_free(store);
}

static void test_a_file_that_is_made_anew_is_marked_again(void **state) {
  (void)state;
  struct buf expected = {0};
  rdzv_store *store = open_run("job-7");
  assert_int_equal(unlink(path), 0);
  set(store, "a", "1");
  add_user(&expected, "a", "1");
  add_own(&expected, "run_id/", "job-7");
  assert_file(&expected);
  rdzv_store_free(store);
}

static void test_values_of_another_run_that_took_the_file_over_are_not_given(void **state) {
  (void)state;
  rdzv_store *old = open_run("job-7");
  rdzv_value value;
  set(old, "a", "1");
  assert_int_equal(unlink(path), 0);
  rdzv_store *new = open_run("job-8");
  set(new, "a", "2");
  assert_error(rdzv_store_get(old, rdzv_str("a"), &value, &error), RDZV_E_STALE, "'job-7'", "'job-8'");
  assert_error(rdzv_store_set(old, rdzv_str("a"), rdzv_str("3"), &error), RDZV_E_STALE, "'job-7'", "'job-8'");
  assert_true(is_value(new, "a", "2"));
  rdzv_store_free(old);
  rdzv_store_free(new);
}

/* ---- counting -------------------------------------------------------------------------------------------------- */

static void test_the_last_of_the_workers_removes_the_file(void **state) {
  (void)state;
  struct buf expected = {0};
  rdzv_store *one = open_worker(2), *two = open_worker(2);
  set(one, "a", "1");
  rdzv_store_free(one);
  add_own(&expected, "refcount/", "1"); /* as PyTorch 2 writes it */
  add_own(&expected, "refcount/", "2");
  add_user(&expected, "a", "1");
  add_own(&expected, "cleanup/", "1");
  add_own(&expected, "refcount/", "1");
  assert_file(&expected);
  rdzv_store_free(two);
  assert_int_equal(file_size(), -1);
  assert_string_equal(logged, "");
}

/* Rule: a worker that comes late still finds what the ones before left. */
static void test_the_file_stays_while_not_all_workers_have_come_and_gone(void **state) {
  (void)state;
  rdzv_store *one = open_worker(2);
  set(one, "a", "1");
  rdzv_store_free(one);
  rdzv_store *two = open_worker(2);
  assert_true(is_value(two, "a", "1"));
  rdzv_store_free(two);
  assert_int_equal(file_size(), -1);
}

static void test_a_clone_counts_as_a_store_of_its_own(void **state) {
  (void)state;
  rdzv_store *one = open_worker(2), *two;
  rdzv_store_set_timeout(one, 1234, NULL);
  assert_int_equal(rdzv_store_clone(one, &two, NULL), 0);
  assert_int_equal(rdzv_store_get_timeout(two), 1234);
  set(two, "a", "1");
  rdzv_store_free(one);
  assert_true(is_value(two, "a", "1"));
  rdzv_store_free(two);
  assert_int_equal(file_size(), -1);
}

static void test_a_store_that_is_not_counted_leaves_no_trace(void **state) {
  (void)state;
  struct buf expected = {0};
  rdzv_store *store = open_store(LONG_MS);
  set(store, "a", "1");
  rdzv_store_free(store);
  add_user(&expected, "a", "1");
  assert_file(&expected);
  rdzv_file_options with = options(LONG_MS);
  with.num_workers = -1;
  assert_error(rdzv_store_open_file(path, &with, &store, &error), RDZV_E_INVALID, "-1");
}

static void test_a_worker_signs_off_neither_in_no_file_nor_in_another_one(void **state) {
  (void)state;
  rdzv_store *store = open_worker(1);
  assert_int_equal(unlink(path), 0);
  rdzv_store_free(store);
  assert_int_equal(file_size(), -1);
  store = open_worker(1);
  struct buf other = {0};
  add_own(&other, "refcount/", "1");
  assert_int_equal(unlink(path), 0);
  write_file(path, other.data, other.len);
  rdzv_store_free(store);
  assert_file(&other);
}

static void test_a_canceled_worker_still_signs_off(void **state) {
  (void)state;
  rdzv_store *store = open_worker(1);
  rdzv_store_cancel(store);
  rdzv_store_free(store);
  assert_int_equal(file_size(), -1);
}

static void test_a_worker_that_cannot_sign_off_says_so_in_the_log(void **state) {
  (void)state;
  rdzv_store *store = open_worker(2);
  const int fd = open(path, O_WRONLY | O_APPEND);
  assert_int_equal(write(fd, "\xff\xff\xff\xff", 4), 4);
  close(fd);
  rdzv_store_free(store);
  assert_non_null(strstr(logged, "could not sign off"));
  assert_non_null(strstr(logged, path));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_the_bytes_of_the_file_are_those_of_pytorch),
      TEST(test_a_value_is_there_for_another_handle_at_once),
      TEST(test_a_file_that_is_not_there_has_no_keys_and_is_not_made_by_reading),
      TEST(test_add_takes_an_absent_or_empty_value_for_zero),
      TEST(test_add_to_what_is_no_number_changes_nothing),
      TEST(test_compare_set_answers_as_pytorch),
      TEST(test_delete_always_says_yes),
      TEST(test_all_keys_are_counted_and_those_of_users_listed),
      TEST(test_append_adds_to_what_is_there),
      TEST(test_many_keys_are_set_in_one_step_and_read_in_order),
      TEST(test_what_is_over_a_limit_is_refused_before_anything_is_written),
      TEST(test_what_a_file_store_cannot_do_is_unsupported),
      TEST(test_records_of_any_size_are_read_by_a_new_handle),
      TEST(test_a_partial_record_of_a_dead_writer_is_cut_off_by_the_next_write),
      TEST(test_an_impossible_length_is_corrupt_and_nothing_is_cut_off),
      TEST(test_a_file_that_is_no_store_is_left_alone),
      TEST(test_a_removed_file_is_forgotten_and_made_again_by_a_write),
      TEST(test_a_file_that_was_made_anew_is_not_taken_for_the_old_one),
      TEST(test_a_file_that_was_moved_over_the_old_one_is_read_from_its_start),
      TEST(test_a_truncated_file_is_read_from_its_start),
      TEST(test_a_write_is_not_lost_in_a_file_that_was_removed_while_it_waited_for_the_lock),
      TEST(test_a_full_disk_leaves_nothing_half_and_loses_nothing),
      TEST(test_a_missing_directory_is_told_when_opening),
      TEST(test_what_is_no_regular_file_is_told_when_opening),
      TEST(test_a_file_without_permission_is_told_when_opening),
      TEST(test_a_file_system_without_locks_is_told),
      TEST(test_a_long_path_does_not_push_the_cause_out_of_the_message),
      TEST(test_no_count_is_lost_among_processes),
      TEST(test_threads_take_their_turns_on_one_handle),
      TEST(test_a_blocked_get_holds_nobody_back_on_its_handle),
      TEST(test_all_threads_that_wait_on_one_handle_are_woken_more_than_once),
      TEST(test_a_get_before_there_is_a_file_is_woken_by_another_process),
      TEST(test_a_wait_is_over_when_all_of_its_keys_are_there),
      TEST(test_a_get_sees_a_file_that_is_moved_there),
      TEST(test_a_get_without_notification_looks_again_by_itself),
      TEST(test_a_get_that_waits_in_vain_says_for_what_and_how_long),
      TEST(test_a_canceled_get_ends_and_so_does_every_later_call),
      TEST(test_a_lock_that_is_never_given_up_ends_in_a_timeout_that_says_so),
      TEST(test_a_cancel_ends_the_wait_for_the_lock),
      TEST(test_what_is_known_is_read_while_another_holds_the_lock),
      TEST(test_the_first_store_of_a_run_marks_the_file),
      TEST(test_the_file_of_another_run_is_stale),
      TEST(test_a_file_that_is_made_anew_is_marked_again),
      TEST(test_values_of_another_run_that_took_the_file_over_are_not_given),
      TEST(test_the_last_of_the_workers_removes_the_file),
      TEST(test_the_file_stays_while_not_all_workers_have_come_and_gone),
      TEST(test_a_clone_counts_as_a_store_of_its_own),
      TEST(test_a_store_that_is_not_counted_leaves_no_trace),
      TEST(test_a_worker_signs_off_neither_in_no_file_nor_in_another_one),
      TEST(test_a_canceled_worker_still_signs_off),
      TEST(test_a_worker_that_cannot_sign_off_says_so_in_the_log),
  };
  return cmocka_run_group_tests_name("file store", tests, NULL, NULL);
}
