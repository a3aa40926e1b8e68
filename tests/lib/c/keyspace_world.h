/* SPDX-License-Identifier: BSD-3-Clause */
/* A keyspace whose events are written down, so that a test can compare the whole story. */
#ifndef RDZV_TESTS_KEYSPACE_WORLD_H
#define RDZV_TESTS_KEYSPACE_WORLD_H

#include "store/keyspace/keyspace.h"
#include "unit.h"

struct world {
  struct budget budget;
  struct keyspace *ks;
  char trace[4096]; /* "A" for a wake of A; "W created k '' -> 'v'; " for what a watcher W is told */
};

/* Somebody who waits. */
struct someone {
  struct ks_waiter waiter; /* first */
  char name;
};

static void world_wake(void *user, struct ks_waiter *waiter) {
  struct world *world = user;
  assert_null(waiter->links);
  assert_int_equal(waiter->missing, 0);
  const size_t len = strlen(world->trace);
  snprintf(world->trace + len, sizeof world->trace - len, "%c", ((struct someone *)waiter)->name);
}

static void world_changed(void *user, struct ks_waiter *waiter, const struct ks_news *news) {
  static const char *const names[] = {"updated", "created", "deleted"};
  struct world *world = user;
  assert_true(waiter->watching);
  assert_non_null(news);
  const rdzv_bytes before = blob_bytes(news->before), after = blob_bytes(news->after);
  const size_t len = strlen(world->trace);
  snprintf(world->trace + len, sizeof world->trace - len, "%c %s %.*s '%.*s' -> '%.*s'; ",
           ((struct someone *)waiter)->name, names[news->change], (int)news->key.len, (const char *)news->key.data,
           (int)before.len, (const char *)before.data, (int)after.len, (const char *)after.data);
}

static int world_open(void **state) {
  static const struct ks_events events = {.wake = world_wake, .changed = world_changed};
  struct world *world = calloc(1, sizeof *world);
  if (!world) return -1;
  world->budget.max = 1u << 20;
  world->ks = ks_new(&world->budget, &events, world);
  *state = world;
  return world->ks ? 0 : -1;
}

/* Every byte that was taken from the budget is given back. */
static int world_close(void **state) {
  struct world *world = *state;
  ks_free(world->ks);
  const size_t left = world->budget.used;
  free(world);
  if (left > 0) print_error("%zu bytes of the budget were not given back\n", left);
  return left > 0 ? -1 : 0;
}

#define IN_A_WORLD(test) cmocka_unit_test_setup_teardown(test, world_open, world_close)

/* Compares what was written down since the last time. */
#define assert_trace(world, expected)              \
  do {                                             \
    assert_string_equal((world)->trace, expected); \
    (world)->trace[0] = '\0';                      \
  } while (0)

static inline void set(struct world *world, const char *key, const char *value) {
  assert_code(ks_set(world->ks, rdzv_str(key), rdzv_str(value)), 0);
}

static inline void push(struct world *world, const char *key, const char *value) {
  assert_code(ks_queue_push(world->ks, rdzv_str(key), rdzv_str(value)), 0);
}

static inline void wait_keys(struct world *world, struct someone *who, enum ks_want want, const rdzv_bytes *keys,
                             size_t count) {
  assert_code(ks_wait(world->ks, &who->waiter, want, keys, count), 0);
}

/* Waits for one or more keys; the test goes on, the trace tells when it is over. */
#define WAIT(world, who, want, ...)                              \
  wait_keys((world), (who), (want), (rdzv_bytes[]){__VA_ARGS__}, \
            sizeof((rdzv_bytes[]){__VA_ARGS__}) / sizeof(rdzv_bytes))

#define assert_value(world, key, expected)                         \
  do {                                                             \
    rdzv_bytes value_;                                             \
    assert_true(ks_get((world)->ks, rdzv_str(key), &value_) != 0); \
    assert_bytes(value_, expected);                                \
  } while (0)

static inline uint64_t version_of(const struct world *world, const char *key) {
  rdzv_bytes value;
  return ks_get(world->ks, rdzv_str(key), &value);
}

#endif
