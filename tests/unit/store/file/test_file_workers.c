/* SPDX-License-Identifier: BSD-3-Clause */
/* The store in a file: whose run it is, and which worker is the last. */
#include "file_scene.h"

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
  assert_fails(rdzv_store_open_file(path, &with, &store, &error), RDZV_E_STALE, path, "'job-8'", "'job-7'", "3 h ago");
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
  assert_fails(rdzv_store_get(old, rdzv_str("a"), &value, &error), RDZV_E_STALE, "'job-7'", "'job-8'");
  assert_fails(rdzv_store_set(old, rdzv_str("a"), rdzv_str("3"), &error), RDZV_E_STALE, "'job-7'", "'job-8'");
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
  assert_fails(rdzv_store_open_file(path, &with, &store, &error), RDZV_E_INVALID, "-1");
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
  assert_non_null(strstr(logged, "was not closed cleanly"));
  assert_non_null(strstr(logged, path));
}

int main(void) {
  const struct CMUnitTest tests[] = {
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
  return cmocka_run_group_tests(tests, NULL, NULL);
}
