/* SPDX-License-Identifier: BSD-3-Clause */
/* What a store in a file keeps, and the bytes of the file. */
#include "file_scene.h"

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
  assert_fails(rdzv_store_get(store, rdzv_str("a"), &value, &error), RDZV_E_TIMEOUT, "get 'a'", "timed out");
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
  assert_fails(rdzv_store_add(store, rdzv_str("word"), 1, &sum, &error), RDZV_E_NOT_A_NUMBER, "'word'", "not a number");
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
  assert_fails(rdzv_store_set(store, over, rdzv_str(""), &error), RDZV_E_LIMIT, "65537", "over the limit of 65536");
  assert_fails(rdzv_store_set(store, rdzv_str("a"), big, &error), RDZV_E_LIMIT, "'a'", "over the limit");
  assert_fails(rdzv_store_multi_set(store, both, values, 2, &error), RDZV_E_LIMIT, "over the limit");
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
  assert_fails(rdzv_store_queue_push(store, rdzv_str("q"), rdzv_str("1"), &error), RDZV_E_UNSUPPORTED, "file store");
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
