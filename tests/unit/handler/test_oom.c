/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation of a scenario fails once: it runs once to count them, then twice for each of them, with that one
 * failing and with all from that one on failing. No leak, no crash, no error but those of the contract, nothing
 * changed by what failed, and everything works when there is memory again.
 *
 * Linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free, so that the calls of the library come here.
 */
#include "store/keyspace/keyspace.h"
#include "unit.h"
#include "wire/writer.h"

#include <rdzv/server.h>
#include <rdzv/store.h>
#include <unistd.h>

/* ---- the allocator ------------------------------------------------------------------------------------------ */

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *memory);

/* Weak, so that a build that forgot the link options says so. */
extern void *__real_malloc(size_t size) __attribute__((weak));
extern void *__real_calloc(size_t count, size_t size) __attribute__((weak));
extern void *__real_realloc(void *old, size_t size) __attribute__((weak));
extern void __real_free(void *memory) __attribute__((weak));

static struct {
  bool on;    /* a scenario runs: its allocations count, those of the checks do not */
  long calls; /* so far */
  long from;  /* the first that fails; 0: none */
  long to;    /* the last that fails */
  long live;  /* allocated and not freed */
} heap;

static bool fails(void) {
  if (!heap.on) return false;
  heap.calls++;
  return heap.from > 0 && heap.calls >= heap.from && heap.calls <= heap.to;
}

void *__wrap_malloc(size_t size) {
  void *memory = fails() ? NULL : __real_malloc(size);
  heap.live += memory != NULL;
  return memory;
}

void *__wrap_calloc(size_t count, size_t size) {
  void *memory = fails() ? NULL : __real_calloc(count, size);
  heap.live += memory != NULL;
  return memory;
}

void *__wrap_realloc(void *old, size_t size) {
  void *memory = fails() ? NULL : __real_realloc(old, size);
  heap.live += memory != NULL && old == NULL;
  return memory;
}

void __wrap_free(void *memory) {
  heap.live -= memory != NULL;
  __real_free(memory);
}

static bool has_failed(void) { return heap.from > 0 && heap.calls >= heap.from; }

/* A step of a scenario: with memory it succeeds, without it may say so, and nothing else. */
#define STEP(call) step_((call), #call, __LINE__)

static bool step_(int result, const char *what, int line) {
  const bool on = heap.on;
  heap.on = false;
  if (result != 0 && !(result == RDZV_E_NO_MEMORY && has_failed())) {
    print_error("%s with allocation %ld failing: %s\n", what, heap.from, rdzv_error_name(result));
    _fail(__FILE__, line);
  }
  heap.on = on;
  return result == 0;
}

static void run(void (*scenario)(void), long from, long to) {
  const long live = heap.live;
  heap.calls = 0;
  heap.from = from;
  heap.to = to;
  heap.on = true;
  scenario();
  heap.on = false;
  if (heap.live != live) fail_msg("allocation %ld failing: %ld were not freed", from, heap.live - live);
}

static void run_all(void (*scenario)(void)) {
  run(scenario, 0, 0);
  const long count = heap.calls;
  assert_true(count > 0);
  for (long n = 1; n <= count; n++) {
    run(scenario, n, n);
    run(scenario, n, __LONG_MAX__);
  }
}

/* ---- the writer --------------------------------------------------------------------------------------------- */

static void write_messages(void) {
  char text[200] = {0};
  struct wire_writer out = {0};
  for (int i = 0; i < 20; i++) {
    const struct buf before = out.buf;
    const bool failed = out.failed;
    wire_put_op(&out, WIRE_DIALECT_RDZV, WIRE_OP_SET);
    wire_put32(&out, 1);
    wire_put64(&out, 2);
    wire_put_bytes(&out, (rdzv_bytes){text, sizeof text});
    assert_true(out.failed || out.buf.len == before.len + 1 + 4 + 8 + 8 + sizeof text);
    assert_true(out.failed || !failed); /* once failed, it stays so until it is looked at */
  }
  assert_int_equal(out.failed, has_failed());
  buf_free(&out.buf);
}

/* A writer that found no memory is failed at the end, whatever was written afterwards. */
static void test_a_writer_without_memory_is_failed(void **state) {
  (void)state;
  run_all(write_messages);
}

/* ---- the keyspace ------------------------------------------------------------------------------------------- */

static struct {
  struct budget budget;
  struct keyspace *ks;
  int wakes;
  int changes;
} world;

static void on_wake(void *user, struct ks_waiter *waiter) {
  (void)user, (void)waiter;
  world.wakes++;
}

static void on_change(void *user, struct ks_waiter *waiter, const struct ks_news *news) {
  (void)user, (void)waiter, (void)news;
  world.changes++;
}

/* What can be seen of it; a failed operation must leave it as it was. */
static uint64_t picture(void) {
  uint64_t hash = 5381;
  rdzv_bytes key, value;
  for (const void *at = NULL; (at = ks_next(world.ks, at, &key)) != NULL;) {
    hash = hash * 31 + ks_get(world.ks, key, &value);
    for (size_t i = 0; i < value.len; i++) hash = hash * 31 + ((const unsigned char *)value.data)[i];
  }
  hash = hash * 31 + ks_queue_len(world.ks, BYTES("queue"));
  return ((hash * 31 + ks_count(world.ks)) * 31 + world.budget.used) * 31 + (uint64_t)(world.wakes + world.changes);
}

/* Runs one operation and checks that it did all or nothing. */
#define CHANGE(call)                                    \
  do {                                                  \
    const uint64_t before_ = picture();                 \
    if (!STEP(call)) assert_true(picture() == before_); \
  } while (0)

static void use_keyspace(void) {
  static const struct ks_events events = {.wake = on_wake, .changed = on_change};
  struct ks_waiter waiter = {0}, watcher = {0}, many = {0};
  rdzv_bytes now;
  int64_t sum;
  bool flag;
  memset(&world, 0, sizeof world);
  world.budget.max = SIZE_MAX / 2;
  world.ks = ks_new(&world.budget, &events, NULL);
  if (!world.ks) {
    assert_true(has_failed());
    return;
  }
  const rdzv_bytes keys[] = {BYTES("a"), BYTES("b"), BYTES("a"), BYTES("number"), BYTES("never")};
  CHANGE(ks_wait(world.ks, &waiter, KS_WANT_PRESENT, keys, 4));
  CHANGE(ks_watch(world.ks, &watcher, BYTES("a")));
  CHANGE(ks_set(world.ks, BYTES("a"), BYTES("1")));
  CHANGE(ks_set(world.ks, BYTES("a"), BYTES("a longer value, for which room must be made")));
  CHANGE(ks_append(world.ks, BYTES("a"), BYTES(" and more of it, and more of it")));
  CHANGE(ks_set(world.ks, BYTES("a"), BYTES("s")));
  CHANGE(ks_add(world.ks, BYTES("number"), 5, &sum));
  CHANGE(ks_compare_set(world.ks, BYTES("b"), BYTES(""), BYTES("x"), &now));
  CHANGE(ks_compare_set_version(world.ks, BYTES("c"), 0, BYTES("y"), &flag));
  CHANGE(ks_barrier(world.ks, BYTES("barrier"), 2, &flag));
  CHANGE(ks_queue_push(world.ks, BYTES("queue"), BYTES("item")));
  CHANGE(ks_wait(world.ks, &many, KS_WANT_VALUE, keys, COUNT_OF(keys)));
  for (int i = 0; i < 200; i++) { /* the map grows */
    char key[8];
    snprintf(key, sizeof key, "%d", i);
    CHANGE(ks_set(world.ks, rdzv_str(key), BYTES("v")));
  }
  heap.from = 0; /* memory again: everything works */
  assert_code(ks_set(world.ks, BYTES("after"), BYTES("v")), 0);
  assert_true(ks_get(world.ks, BYTES("after"), &now) != 0);
  ks_cancel(world.ks, &waiter);
  ks_cancel(world.ks, &watcher);
  ks_cancel(world.ks, &many);
  ks_free(world.ks);
  assert_int_equal(world.budget.used, 0);
}

/* Each operation of a keyspace does all or nothing. */
static void test_a_keyspace_without_memory_does_all_or_nothing(void **state) {
  (void)state;
  run_all(use_keyspace);
}

/* ---- the hash store ----------------------------------------------------------------------------------------- */

static void free_value(rdzv_value *value) { rdzv_value_free(value); }

static void use_values(rdzv_store *store) {
  rdzv_error error;
  rdzv_value value;
  int64_t number;
  bool flag;
  uint64_t version;
  STEP(rdzv_store_set(store, BYTES("k"), BYTES("v"), &error));
  STEP(rdzv_store_append(store, BYTES("k"), BYTES("w"), NULL));
  STEP(rdzv_store_add(store, BYTES("n"), 1, &number, &error));
  if (STEP(rdzv_store_compare_set(store, BYTES("k"), BYTES("x"), BYTES("y"), &value, &error))) free_value(&value);
  if (STEP(rdzv_store_compare_set_version(store, BYTES("u"), 0, BYTES("y"), &flag, &value, &version, &error)))
    free_value(&value);
  if (STEP(rdzv_store_get_version(store, BYTES("u"), &value, &version, &error))) free_value(&value);
  STEP(rdzv_store_num_keys(store, &number, &error));
  STEP(rdzv_store_delete_key(store, BYTES("u"), &flag, &error));
}

/* The waits end at once (0), with a timeout (the key is not there), or without the memory to wait. */
static void use_waits(rdzv_store *store) {
  rdzv_error error;
  rdzv_value value;
  const rdzv_bytes keys[] = {BYTES("k"), BYTES("not there")};
  const int result = rdzv_store_wait(store, keys, 2, 0, &error);
  assert_true(result == RDZV_E_TIMEOUT || (result == RDZV_E_NO_MEMORY && has_failed()));
  assert_code(error.code, result);
  if (STEP(rdzv_store_queue_push(store, BYTES("q"), BYTES("item"), &error)) &&
      STEP(rdzv_store_queue_pop(store, BYTES("q"), true, &value, &error)))
    free_value(&value);
}

static void use_lists(rdzv_store *store) {
  rdzv_error error;
  rdzv_value *values;
  size_t count;
  const rdzv_bytes keys[] = {BYTES("m1"), BYTES("m2"), BYTES("m3")};
  const rdzv_bytes texts[] = {BYTES("1"), BYTES("2"), BYTES("3")};
  if (STEP(rdzv_store_multi_set(store, keys, texts, 3, &error)) &&
      STEP(rdzv_store_multi_get(store, keys, 3, &values, &error)))
    rdzv_values_free(values, 3);
  if (STEP(rdzv_store_list_keys(store, &values, &count, &error))) rdzv_values_free(values, count);
}

static void use_hash_store(void) {
  rdzv_error error;
  rdzv_store *store = NULL, *clone = NULL, *view = NULL, *view_clone = NULL;
  if (!STEP(rdzv_store_open_hash(NULL, &store, &error))) return;
  use_values(store);
  use_waits(store);
  use_lists(store);
  if (STEP(rdzv_store_clone(store, &clone, &error))) use_values(clone);
  if (STEP(rdzv_store_open_prefix(store, BYTES("p"), &view, &error))) {
    use_values(view);
    use_lists(view);
    STEP(rdzv_store_clone(view, &view_clone, &error));
  }
  heap.from = 0; /* memory again: everything works */
  assert_code(rdzv_store_set(store, BYTES("after"), BYTES("v"), &error), 0);
  rdzv_value value;
  assert_code(rdzv_store_get(store, BYTES("after"), &value, &error), 0);
  assert_bytes(rdzv_value_bytes(&value), "v");
  free_value(&value);
  rdzv_store_free(view_clone);
  rdzv_store_free(view);
  rdzv_store_free(clone);
  rdzv_store_free(store);
}

/* A hash store, its clones and views say that they have no memory, and go on when they have. */
static void test_a_hash_store_without_memory_says_so(void **state) {
  (void)state;
  run_all(use_hash_store);
}

/* A multi_set is one step: without memory for all of it, none of it is done. */
static void use_multi_set(void) {
  rdzv_error error;
  rdzv_store *store;
  if (!STEP(rdzv_store_open_hash(NULL, &store, &error))) return;
  const rdzv_bytes keys[] = {BYTES("m1"), BYTES("m2"), BYTES("m3")};
  const rdzv_bytes texts[] = {BYTES("1"), BYTES("2"), BYTES("3")};
  const bool done = STEP(rdzv_store_multi_set(store, keys, texts, 3, &error));
  int64_t count;
  heap.on = false;
  assert_code(rdzv_store_num_keys(store, &count, &error), 0);
  assert_int_equal(count, done ? 3 : 0);
  heap.on = true;
  rdzv_store_free(store);
}

static void test_a_multi_set_without_memory_sets_nothing(void **state) {
  (void)state;
  run_all(use_multi_set);
}

/* ---- the server --------------------------------------------------------------------------------------------- */

static int open_descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 256; fd++) count += lseek(fd, 0, SEEK_CUR) >= 0 || dup2(fd, fd) == fd;
  return count;
}

static void open_server(void) {
  const rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT};
  rdzv_server *server = NULL;
  rdzv_error error;
  const int before = open_descriptors();
  if (STEP(rdzv_server_open(&options, &server, &error))) assert_true(rdzv_server_port(server) > 0);
  rdzv_server_free(server);
  assert_int_equal(open_descriptors(), before);
}

/* A server that cannot be made leaves neither memory nor a descriptor behind. */
static void test_a_server_without_memory_is_not_opened(void **state) {
  (void)state;
  rdzv_server *first;
  const rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT};
  assert_code(rdzv_server_open(&options, &first, NULL), 0); /* libuv keeps two descriptors from then on */
  rdzv_server_free(first);
  run_all(open_server);
}

int main(void) {
  if (!__real_malloc || !__real_calloc || !__real_realloc || !__real_free) {
    fprintf(stderr, "SKIP: not linked with --wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free\n");
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_writer_without_memory_is_failed),
      cmocka_unit_test(test_a_keyspace_without_memory_does_all_or_nothing),
      cmocka_unit_test(test_a_hash_store_without_memory_says_so),
      cmocka_unit_test(test_a_multi_set_without_memory_sets_nothing),
      cmocka_unit_test(test_a_server_without_memory_is_not_opened),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
