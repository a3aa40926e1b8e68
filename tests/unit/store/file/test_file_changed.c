/* SPDX-License-Identifier: BSD-3-Clause */
/* The store in a file: what others do to the file meanwhile. */
#include "file_scene.h"

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
    assert_non_null(strstr(logged, "removing"));
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
    assert_fails(rdzv_store_get(store, rdzv_str("a"), &value, &error), RDZV_E_CORRUPT, path, "offset 11");
    assert_fails(rdzv_store_set(store, rdzv_str("b"), rdzv_str("2"), &error), RDZV_E_CORRUPT, path, "offset 11");
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
  assert_fails(rdzv_store_set(store, rdzv_str("b"), rdzv_str("2"), &error), RDZV_E_CORRUPT, "not a store");
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

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_a_partial_record_of_a_dead_writer_is_cut_off_by_the_next_write),
      TEST(test_an_impossible_length_is_corrupt_and_nothing_is_cut_off),
      TEST(test_a_file_that_is_no_store_is_left_alone),
      TEST(test_a_removed_file_is_forgotten_and_made_again_by_a_write),
      TEST(test_a_file_that_was_made_anew_is_not_taken_for_the_old_one),
      TEST(test_a_file_that_was_moved_over_the_old_one_is_read_from_its_start),
      TEST(test_a_truncated_file_is_read_from_its_start),
      TEST(test_a_write_is_not_lost_in_a_file_that_was_removed_while_it_waited_for_the_lock),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
