/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is used up: whatever is refused leaves nothing changed, and what is given back can be used again. */
#include "keyspace_world.h"

/* Everything that can be seen of a keyspace, as text. */
struct picture {
  char text[2048];
};

static struct picture take_picture(const struct world *world) {
  struct picture picture = {""};
  size_t at = 0;
  rdzv_bytes key, value;
  for (const void *i = NULL; (i = ks_next(world->ks, i, &key)) != NULL;) {
    const uint64_t version = ks_get(world->ks, key, &value);
    at +=
        (size_t)snprintf(picture.text + at, sizeof picture.text - at, "%.*s='%.*s'@%llu ", (int)key.len,
                         (const char *)key.data, (int)value.len, (const char *)value.data, (unsigned long long)version);
  }
  snprintf(picture.text + at, sizeof picture.text - at, "keys %zu, queue %zu, used %zu, trace '%s'",
           ks_count(world->ks), ks_queue_len(world->ks, BYTES("queue")), world->budget.used, world->trace);
  return picture;
}

static struct someone newcomer;

static const char long_text[] =
    "a value that is so much longer than the one before that room has to be made for it, wherever it goes";

static int op_set_new(struct world *world) { return ks_set(world->ks, BYTES("new"), BYTES(long_text)); }
static int op_set_empty(struct world *world) { return ks_set(world->ks, BYTES("new"), BYTES("")); }
static int op_set_longer(struct world *world) { return ks_set(world->ks, BYTES("old"), BYTES(long_text)); }
static int op_set_watched(struct world *world) { return ks_set(world->ks, BYTES("watched"), BYTES(long_text)); }
static int op_set_awaited(struct world *world) { return ks_set(world->ks, BYTES("awaited"), BYTES(long_text)); }
static int op_append(struct world *world) { return ks_append(world->ks, BYTES("old"), BYTES(long_text)); }
static int op_append_new(struct world *world) { return ks_append(world->ks, BYTES("new"), BYTES(long_text)); }

static int op_add(struct world *world) {
  int64_t sum = 77;
  const int result = ks_add(world->ks, BYTES("number"), INT64_MIN, &sum);
  if (result < 0) assert_int_equal(sum, 77);
  return result;
}

static int op_compare_set(struct world *world) {
  rdzv_bytes now;
  return ks_compare_set(world->ks, BYTES("old"), BYTES("1"), BYTES(long_text), &now);
}

static int op_compare_set_new(struct world *world) {
  rdzv_bytes now;
  return ks_compare_set(world->ks, BYTES("new"), BYTES(""), BYTES(long_text), &now);
}

static int op_compare_set_version(struct world *world) {
  bool swapped;
  return ks_compare_set_version(world->ks, BYTES("old"), version_of(world, "old"), BYTES(long_text), &swapped);
}

static int op_push(struct world *world) { return ks_queue_push(world->ks, BYTES("queue"), BYTES(long_text)); }
static int op_push_new(struct world *world) { return ks_queue_push(world->ks, BYTES("new"), BYTES(long_text)); }

static int op_barrier(struct world *world) {
  bool full;
  return ks_barrier(world->ks, BYTES("new"), 2, &full);
}

static int op_wait(struct world *world) {
  const rdzv_bytes keys[] = {BYTES("x"), BYTES("old"), BYTES("y"), BYTES("x"), BYTES("awaited"), BYTES("z")};
  return ks_wait(world->ks, &newcomer.waiter, KS_WANT_PRESENT, keys, COUNT_OF(keys));
}

static int op_wait_queue(struct world *world) {
  const rdzv_bytes key = BYTES("x");
  return ks_wait(world->ks, &newcomer.waiter, KS_WANT_QUEUE, &key, 1);
}

static int op_wait_change(struct world *world) { return ks_wait_change(world->ks, &newcomer.waiter, BYTES("new")); }
static int op_wait_barrier(struct world *world) { return ks_wait_barrier(world->ks, &newcomer.waiter, BYTES("new")); }
static int op_watch(struct world *world) { return ks_watch(world->ks, &newcomer.waiter, BYTES("new")); }
static int op_watch_old(struct world *world) { return ks_watch(world->ks, &newcomer.waiter, BYTES("old")); }

static int (*const ops[])(struct world *world) = {
    op_set_new, op_set_empty,   op_set_longer,      op_set_watched,         op_set_awaited, op_append,    op_append_new,
    op_add,     op_compare_set, op_compare_set_new, op_compare_set_version, op_push,        op_push_new,  op_barrier,
    op_wait,    op_wait_queue,  op_wait_change,     op_wait_barrier,        op_watch,       op_watch_old,
};

/* Each operation is tried with every budget from "not one byte more" on: refused, it leaves nothing changed; with the
 * first budget that is enough it does all of it. */
static void test_whatever_is_refused_leaves_nothing_changed(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(ops); i++) {
    void *fresh = NULL;
    assert_int_equal(world_open(&fresh), 0);
    struct world *world = fresh;
    struct someone waiter = {.name = 'A'}, watcher = {.name = 'W'};
    newcomer = (struct someone){.name = 'N'};
    set(world, "old", "1");
    set(world, "number", "1");
    set(world, "watched", "1");
    push(world, "queue", "item");
    WAIT(world, &waiter, KS_WANT_PRESENT, BYTES("awaited"));
    assert_code(ks_watch(world->ks, &watcher.waiter, BYTES("watched")), 0);
    const struct picture before = take_picture(world);
    size_t more = 0;
    for (;; more++) {
      world->budget.max = world->budget.used + more;
      const int result = ops[i](world);
      if (result == 0) break;
      assert_code(result, RDZV_E_LIMIT);
      assert_string_equal(take_picture(world).text, before.text);
      assert_null(newcomer.waiter.links);
      assert_true(more < 4096);
    }
    assert_true(more > 0);
    assert_true(world->budget.used <= world->budget.max);
    ks_cancel(world->ks, &newcomer.waiter);
    ks_cancel(world->ks, &waiter.waiter);
    ks_cancel(world->ks, &watcher.waiter);
    assert_int_equal(world_close(&fresh), 0);
  }
}

/* What makes a value shorter, or takes something away, needs nothing. */
static void test_nothing_is_needed_to_make_room(void **state) {
  struct world *world = *state;
  set(world, "k", long_text);
  push(world, "q", long_text);
  world->budget.max = world->budget.used;
  set(world, "k", "short");
  ks_queue_drop(world->ks, BYTES("q"));
  assert_true(ks_delete(world->ks, BYTES("k")));
  assert_int_equal(world->budget.used, 0);
}

static int fill(struct world *world) {
  int count = 0;
  char key[16];
  for (;; count++) {
    snprintf(key, sizeof key, "%d", count);
    if (ks_set(world->ks, rdzv_str(key), BYTES(long_text)) < 0) return count;
  }
}

/* What a delete gives back is enough for the same once more, again and again. */
static void test_what_is_given_back_can_be_used_again(void **state) {
  struct world *world = *state;
  world->budget.max = 20000;
  const int first = fill(world);
  assert_true(first > 20);
  for (int round = 0; round < 10; round++) {
    char key[16];
    for (int i = 0; i < first; i++) {
      snprintf(key, sizeof key, "%d", i);
      assert_true(ks_delete(world->ks, rdzv_str(key)));
    }
    assert_int_equal(world->budget.used, 0);
    assert_int_equal(fill(world), first);
  }
}

/* A value that shrinks a lot gives back what it does not need. */
static void test_a_value_that_shrinks_gives_memory_back(void **state) {
  struct world *world = *state;
  char *large = calloc(1, 100000);
  assert_non_null(large);
  assert_code(ks_set(world->ks, BYTES("k"), (rdzv_bytes){large, 100000}), 0);
  set(world, "k", "small");
  assert_true(world->budget.used < 1000);
  free(large);
}

/* What is used is never less than what is really held: keys, values, items. */
static void test_what_is_held_is_counted(void **state) {
  struct world *world = *state;
  size_t held = 0;
  for (int i = 0; i < 100; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    set(world, key, long_text);
    push(world, key, long_text);
    held += strlen(key) + 2 * strlen(long_text);
    assert_true(world->budget.used >= held);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_whatever_is_refused_leaves_nothing_changed),
      IN_A_WORLD(test_nothing_is_needed_to_make_room),
      IN_A_WORLD(test_what_is_given_back_can_be_used_again),
      IN_A_WORLD(test_a_value_that_shrinks_gives_memory_back),
      IN_A_WORLD(test_what_is_held_is_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
