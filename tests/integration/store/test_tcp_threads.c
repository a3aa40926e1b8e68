/* SPDX-License-Identifier: BSD-3-Clause */
/* Many threads at one server: on one handle, on clones, on handles of their own; and timeouts. */
#include "live.h"

enum { THREADS = 8, ROUNDS = 60 };

struct worker {
  rdzv_store *store;
  int number;
  pthread_t thread;
  char failed[RDZV_MESSAGE_SIZE + 200]; /* empty: all went well */
};

#define TRY(call)                                                                      \
  do {                                                                                 \
    if ((call) < 0) {                                                                  \
      snprintf(worker->failed, sizeof worker->failed, "%s: %s", #call, error.message); \
      return NULL;                                                                     \
    }                                                                                  \
  } while (0)

/* Sets, gets, adds and waits under keys of its own and under one that all share. */
static void *work(void *arg) {
  struct worker *worker = arg;
  rdzv_error error = {0};
  for (int i = 0; i < ROUNDS; i++) {
    char key[32], text[32];
    snprintf(key, sizeof key, "%d/%d", worker->number, i);
    snprintf(text, sizeof text, "%d", worker->number * ROUNDS + i);
    const rdzv_bytes k = rdzv_str(key);
    rdzv_value value;
    int64_t sum;
    bool all = false;
    TRY(rdzv_store_set(worker->store, k, rdzv_str(text), &error));
    TRY(rdzv_store_get(worker->store, k, &value, &error));
    const bool same = strcmp(value.data, text) == 0;
    rdzv_value_free(&value);
    TRY(rdzv_store_add(worker->store, BYTES("shared"), 1, &sum, &error));
    TRY(rdzv_store_wait(worker->store, &k, 1, SOON_MS, &error));
    TRY(rdzv_store_check(worker->store, &k, 1, &all, &error));
    if (!same || !all) {
      snprintf(worker->failed, sizeof worker->failed, "%s has another value, or none", key);
      return NULL;
    }
    rdzv_store_features(worker->store);
  }
  return NULL;
}

static void run_workers(rdzv_store *const *stores) {
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.store = stores[i], .number = i};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  for (int i = 0; i < THREADS; i++) assert_string_equal(workers[i].failed, "");
}

/* Calls on one handle take their turns: none is lost, none gets another's answer. */
static void test_many_threads_on_one_handle(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server), *stores[THREADS];
  for (int i = 0; i < THREADS; i++) stores[i] = store;
  run_workers(stores);
  assert_int_equal(must_add(store, "shared", 0), THREADS * ROUNDS);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* Clones have connections of their own. */
static void test_many_threads_on_clones(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *stores[THREADS] = {store_of(server)};
  for (int i = 1; i < THREADS; i++) assert_code(rdzv_store_clone(stores[0], &stores[i], NULL), 0);
  run_workers(stores);
  assert_int_equal(must_add(stores[0], "shared", 0), THREADS * ROUNDS);
  for (int i = 0; i < THREADS; i++) rdzv_store_free(stores[i]);
  rdzv_server_free(server);
}

static void *clone_and_work(void *arg) {
  struct worker *worker = arg;
  rdzv_store *base = worker->store;
  rdzv_error error = {0};
  TRY(rdzv_store_clone(base, &worker->store, &error));
  work(worker);
  rdzv_store_free(worker->store);
  return NULL;
}

/* A handle can be cloned by many threads at once. */
static void test_one_handle_cloned_by_many_threads(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.store = store, .number = i};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, clone_and_work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  for (int i = 0; i < THREADS; i++) assert_string_equal(workers[i].failed, "");
  rdzv_store_free(store);
  rdzv_server_free(server);
}

static void *get_awaited(void *arg) {
  struct worker *worker = arg;
  rdzv_error error = {0};
  rdzv_value value;
  TRY(rdzv_store_get(worker->store, BYTES("awaited"), &value, &error));
  if (strcmp(value.data, "it is here") != 0) snprintf(worker->failed, sizeof worker->failed, "another value");
  rdzv_value_free(&value);
  return NULL;
}

/* A clone works while the handle it came from is blocked, and can end that wait. */
static void test_a_clone_works_while_the_other_is_blocked(void **state) {
  (void)state;
  rdzv_server *server = serve();
  struct worker blocked = {.store = store_of(server)};
  rdzv_store *clone;
  assert_int_equal(pthread_create(&blocked.thread, NULL, get_awaited, &blocked), 0);
  assert_code(rdzv_store_clone(blocked.store, &clone, NULL), 0);
  for (int i = 1; i <= 50; i++) assert_int_equal(must_add(clone, "n", 1), i);
  must_set(clone, "awaited", "it is here");
  pthread_join(blocked.thread, NULL);
  assert_string_equal(blocked.failed, "");
  rdzv_store_free(clone);
  rdzv_store_free(blocked.store);
  rdzv_server_free(server);
}

static void *pop_items(void *arg) {
  struct worker *worker = arg;
  rdzv_error error = {0};
  for (int i = 0; i < ROUNDS; i++) {
    rdzv_value value;
    TRY(rdzv_store_queue_pop(worker->store, BYTES("q"), true, &value, &error));
    worker->number += atoi(value.data);
    rdzv_value_free(&value);
  }
  return NULL;
}

/* Blocking pops of many clients get each item once, and nobody is told that it is empty. */
static void test_every_item_of_a_queue_is_popped_once(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.store = store_of(server)};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, pop_items, &workers[i]), 0);
  }
  int pushed = 0, popped = 0;
  for (int i = 0; i < THREADS * ROUNDS; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    pushed += i;
    assert_code(rdzv_store_queue_push(store, BYTES("q"), rdzv_str(text), NULL), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
    assert_string_equal(workers[i].failed, "");
    popped += workers[i].number;
    rdzv_store_free(workers[i].store);
  }
  assert_int_equal(popped, pushed);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* 0 does not block: what is there is got, what is not is a timeout, and the connection stays in order. */
static void test_a_timeout_of_0_does_not_block(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  rdzv_error error;
  rdzv_value value;
  uint64_t version;
  const rdzv_bytes key = BYTES("absent");
  assert_code(rdzv_store_set_timeout(store, 0, &error), 0);
  must_set(store, "there", "v");
  for (int i = 0; i < 50; i++) {
    assert_error(rdzv_store_get(store, key, &value, &error), RDZV_E_TIMEOUT, &error, "'absent'");
    assert_get(store, "there", "v");
    assert_code(rdzv_store_wait(store, &key, 1, 0, &error), RDZV_E_TIMEOUT);
    assert_code(rdzv_store_queue_pop(store, key, true, &value, &error), RDZV_E_TIMEOUT);
    assert_code(rdzv_store_queue_pop(store, key, false, &value, &error), RDZV_E_EMPTY);
    assert_code(rdzv_store_wait_changed(store, key, 0, 0, &value, &version, &error), RDZV_E_TIMEOUT);
    assert_int_equal(must_add(store, "n", 1), i + 1);
  }
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* A short timeout lasts that long, names the keys and the time, and leaves nothing behind that would answer later. */
static void test_a_short_timeout_leaves_nothing_behind(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server), *other = store_of(server);
  rdzv_error error;
  const rdzv_bytes keys[] = {BYTES("a"), BYTES("b")};
  const int64_t began = live_now_ms();
  assert_error(rdzv_store_wait(store, keys, 2, 50, &error), RDZV_E_TIMEOUT, &error, "'a', 'b'");
  assert_non_null(strstr(error.message, "50 ms"));
  assert_true(live_now_ms() - began >= 49);
  assert_within(began, 20000);
  must_set(other, "a", "1");
  must_set(other, "b", "2");
  assert_get(store, "a", "1");
  assert_int_equal(must_add(store, "n", 1), 1);
  rdzv_store_free(other);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* The longest timeouts there are do not overflow into none. */
static void test_the_longest_timeout_is_no_timeout_at_all(void **state) {
  (void)state;
  rdzv_server *server = serve();
  struct worker blocked = {.store = store_of(server)};
  rdzv_store *clone;
  assert_code(rdzv_store_set_timeout(blocked.store, INT64_MAX, NULL), 0);
  assert_code(rdzv_store_clone(blocked.store, &clone, NULL), 0);
  assert_true(rdzv_store_get_timeout(clone) == INT64_MAX);
  assert_int_equal(pthread_create(&blocked.thread, NULL, get_awaited, &blocked), 0);
  for (int i = 1; i <= 20; i++) assert_int_equal(must_add(clone, "n", 1), i);
  must_set(clone, "awaited", "it is here");
  pthread_join(blocked.thread, NULL);
  assert_string_equal(blocked.failed, "");
  assert_code(rdzv_store_set_timeout(clone, -1, NULL), RDZV_E_INVALID);
  rdzv_store_free(clone);
  rdzv_store_free(blocked.store);
  rdzv_server_free(server);
}

struct reader {
  rdzv_store *store;
  const char *text; /* as the first call gave it */
  bool same;
  pthread_t thread;
};

static void *read_text(void *arg) {
  struct reader *reader = arg;
  for (int i = 0; i < 2000; i++) reader->same &= strcmp(rdzv_store_describe(reader->store), reader->text) == 0;
  return NULL;
}

/* What describe gave is there until the handle is closed, however many threads ask. */
static void test_a_description_stays_when_others_ask(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server), *view, *inner;
  assert_code(rdzv_store_open_prefix(store, BYTES("p"), &view, NULL), 0);
  assert_code(rdzv_store_open_prefix(view, BYTES("q"), &inner, NULL), 0);
  rdzv_store *const stores[] = {store, view, inner};
  struct reader readers[12];
  for (size_t i = 0; i < COUNT_OF(readers); i++) {
    rdzv_store *asked = stores[i % COUNT_OF(stores)];
    readers[i] = (struct reader){.store = asked, .text = rdzv_store_describe(asked), .same = true};
    assert_ptr_equal(rdzv_store_describe(asked), readers[i].text);
  }
  for (size_t i = 0; i < COUNT_OF(readers); i++)
    assert_int_equal(pthread_create(&readers[i].thread, NULL, read_text, &readers[i]), 0);
  for (size_t i = 0; i < COUNT_OF(readers); i++) pthread_join(readers[i].thread, NULL);
  for (size_t i = 0; i < COUNT_OF(readers); i++) assert_true(readers[i].same);
  assert_non_null(strstr(readers[2].text, " under 'p' under 'q'"));
  rdzv_store_free(inner);
  rdzv_store_free(view);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_many_threads_on_one_handle),
      cmocka_unit_test(test_many_threads_on_clones),
      cmocka_unit_test(test_one_handle_cloned_by_many_threads),
      cmocka_unit_test(test_a_clone_works_while_the_other_is_blocked),
      cmocka_unit_test(test_every_item_of_a_queue_is_popped_once),
      cmocka_unit_test(test_a_timeout_of_0_does_not_block),
      cmocka_unit_test(test_a_short_timeout_leaves_nothing_behind),
      cmocka_unit_test(test_the_longest_timeout_is_no_timeout_at_all),
      cmocka_unit_test(test_a_description_stays_when_others_ask),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
