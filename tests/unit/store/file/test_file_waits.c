/* SPDX-License-Identifier: BSD-3-Clause */
/* The store in a file: many at once, and who waits for what. */
#include "file_scene.h"

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
  atomic_int id; /* of the thread; 0: not running yet */
  int result;
  rdzv_error error;
};

static void start_helper(void *(*run)(void *), rdzv_store *store, struct helper *helper) {
  *helper = (struct helper){.store = store};
  assert_int_equal(pthread_create(&helper->thread, NULL, run, helper), 0);
}

static void until_helper_asleep(const struct helper *helper) { assert_true(await_asleep(&helper->id)); }

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
  helper->id = gettid();
  helper->result = rdzv_store_get(helper->store, rdzv_str("later"), &value, &helper->error);
  if (helper->result == 0) rdzv_value_free(&value);
  return NULL;
}

static void *helper_sets(void *data) {
  struct helper *helper = data;
  helper->id = gettid();
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
  const atomic_int parent = getppid();
  CHECK(await_asleep(&parent));
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
  const atomic_int parent = getppid();
  CHECK(await_asleep(&parent));
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
  assert_fails(rdzv_store_get(store, rdzv_str("later"), &value, &error), RDZV_E_TIMEOUT, "get 'later'", "after 50 ms");
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
  assert_fails(rdzv_store_set(store, rdzv_str("a"), rdzv_str("1"), &error), RDZV_E_CANCELED, "cancel");
  rdzv_store_free(store);
}

/* ---- the lock -------------------------------------------------------------------------------------------------- */

static void test_a_lock_that_is_never_given_up_ends_in_a_timeout_that_says_so(void **state) {
  (void)state;
  const struct holder holder = hold_lock();
  rdzv_store *store = open_store(50);
  const int64_t start = clock_now_ms();
  assert_fails(rdzv_store_set(store, rdzv_str("a"), rdzv_str("1"), &error), RDZV_E_TIMEOUT, "cannot lock '", path,
               " ms: another process holds its lock");
  assert_in_range(clock_now_ms() - start, 50, LONG_MS);
  let_go(holder);
  set(store, "a", "1");
  rdzv_store_free(store);
}

static void test_the_time_of_a_request_bounds_the_wait_for_the_lock(void **state) {
  (void)state;
  const struct holder holder = hold_lock();
  rdzv_store *store = open_store(LONG_MS), *clone;
  rdzv_value value;
  assert_int_equal(rdzv_store_set_request_timeout(store, 50, NULL), 0);
  assert_int_equal(rdzv_store_clone(store, &clone, NULL), 0);
  const int64_t start = clock_now_ms();
  assert_fails(rdzv_store_set(store, rdzv_str("a"), rdzv_str("1"), &error), RDZV_E_TIMEOUT, "cannot lock '");
  assert_fails(rdzv_store_get(clone, rdzv_str("a"), &value, &error), RDZV_E_TIMEOUT, "cannot lock '");
  assert_in_range(clock_now_ms() - start, 100, LONG_MS);
  let_go(holder);
  rdzv_store_free(clone);
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
  assert_fails(rdzv_store_get(other, rdzv_str("a"), &value, &error), RDZV_E_TIMEOUT, "another process holds its lock");
  let_go(holder);
  assert_true(is_value(other, "a", "1"));
  rdzv_store_free(store);
  rdzv_store_free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
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
      TEST(test_the_time_of_a_request_bounds_the_wait_for_the_lock),
      TEST(test_a_cancel_ends_the_wait_for_the_lock),
      TEST(test_what_is_known_is_read_while_another_holds_the_lock),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
