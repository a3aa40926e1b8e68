/* SPDX-License-Identifier: BSD-3-Clause */
/* Work in steps: wakes and news that are deferred, waits and sets of many keys, walks while keys come and go. */
#include "keyspace_world.h"

static int deferred_open(void **state) {
  const int result = world_open(state);
  if (result == 0) ks_defer(((struct world *)*state)->ks);
  return result;
}

#define DEFERRED(test) cmocka_unit_test_setup_teardown(test, deferred_open, world_close)

static void wait_for(struct world *world, struct someone *who, char name, const char *key) {
  who->name = name;
  WAIT(world, who, KS_WANT_PRESENT, rdzv_str(key));
}

/* A write wakes nobody by itself; ks_settle does, as many as it may. */
static void test_wakes_come_when_they_are_asked_for(void **state) {
  struct world *world = *state;
  struct someone a = {0}, b = {0}, c = {0};
  wait_for(world, &a, 'A', "k");
  wait_for(world, &b, 'B', "k");
  wait_for(world, &c, 'C', "k");
  set(world, "k", "v");
  assert_trace(world, "");
  assert_true(ks_is_busy(world->ks));
  assert_int_equal(ks_settle(world->ks, 2), 2);
  assert_trace(world, "AB");
  assert_int_equal(ks_settle(world->ks, 2), 1);
  assert_trace(world, "C");
  assert_false(ks_is_busy(world->ks));
}

/* A key that has gone since does not take its wakes along; whoever begins to wait after it has gone is not woken. */
static void test_a_wake_that_is_due_outlives_its_key(void **state) {
  struct world *world = *state;
  struct someone a = {0}, b = {0};
  wait_for(world, &a, 'A', "k");
  set(world, "k", "v");
  assert_true(ks_delete(world->ks, BYTES("k")));
  wait_for(world, &b, 'B', "k");
  ks_settle(world->ks, SIZE_MAX);
  assert_trace(world, "A");
  set(world, "k", "v");
  ks_settle(world->ks, SIZE_MAX);
  assert_trace(world, "B");
}

static void test_a_wake_that_is_due_can_be_canceled(void **state) {
  struct world *world = *state;
  struct someone a = {0}, b = {0};
  wait_for(world, &a, 'A', "k");
  wait_for(world, &b, 'B', "k");
  set(world, "k", "v");
  ks_cancel(world->ks, &a.waiter);
  ks_settle(world->ks, SIZE_MAX);
  assert_trace(world, "B");
}

/* One key with very many waiters does not hold up those of another. */
static void test_keys_take_turns(void **state) {
  enum { MANY = 1000 };
  struct world *world = *state;
  struct someone *many = calloc(MANY, sizeof *many), one = {0};
  for (int i = 0; i < MANY; i++) wait_for(world, &many[i], 'm', "many");
  wait_for(world, &one, '!', "one");
  set(world, "many", "v");
  set(world, "one", "v");
  ks_settle(world->ks, 100);
  assert_non_null(strchr(world->trace, '!'));
  ks_settle(world->ks, SIZE_MAX);
  assert_int_equal(strlen(world->trace), MANY + 1);
  world->trace[0] = '\0';
  free(many);
}

/* Each watcher is told each change once, in order; those who came or left meanwhile what is theirs. */
static void test_watchers_are_told_what_happened_then(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'}, b = {.name = 'B'}, c = {.name = 'C'};
  assert_code(ks_watch(world->ks, &a.waiter, BYTES("k")), 0);
  assert_code(ks_watch(world->ks, &b.waiter, BYTES("k")), 0);
  set(world, "k", "1");
  set(world, "k", "2");
  assert_int_equal(ks_settle(world->ks, 1), 1);
  assert_trace(world, "A created k '' -> '1'; ");
  assert_code(ks_watch(world->ks, &c.waiter, BYTES("k")), 0);
  assert_true(ks_delete(world->ks, BYTES("k")));
  ks_cancel(world->ks, &a.waiter);
  ks_settle(world->ks, SIZE_MAX);
  assert_trace(world, "B created k '' -> '1'; B updated k '1' -> '2'; C deleted k '2' -> ''; B deleted k '2' -> ''; ");
  ks_cancel(world->ks, &b.waiter);
  ks_cancel(world->ks, &c.waiter);
}

/* A value that somebody holds stays as it is, whatever is written. */
static void test_a_value_that_is_shared_is_not_written_to(void **state) {
  struct world *world = *state;
  set(world, "k", "first");
  struct blob *held = ks_share(world->ks, BYTES("k"));
  set(world, "k", "other");
  assert_code(ks_append(world->ks, BYTES("k"), BYTES("!")), 0);
  assert_bytes(blob_bytes(held), "first");
  assert_value(world, "k", "other!");
  assert_true(ks_delete(world->ks, BYTES("k")));
  assert_bytes(blob_bytes(held), "first");
  blob_drop(held);
}

/* It is not woken before its last key was named, and then not if all are there. */
static void test_a_wait_in_steps(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'};
  for (int late = 0; late < 2; late++) {
    assert_code(ks_wait_open(world->ks, &a.waiter, 2), 0);
    assert_code(ks_wait_add(world->ks, &a.waiter, KS_WANT_PRESENT, BYTES("x")), 0);
    set(world, "x", "v");
    ks_settle(world->ks, SIZE_MAX);
    assert_trace(world, "");
    if (!late) set(world, "y", "v");
    assert_code(ks_wait_add(world->ks, &a.waiter, KS_WANT_PRESENT, BYTES("y")), 0);
    assert_int_equal(ks_wait_close(world->ks, &a.waiter), late);
    set(world, "y", "v");
    ks_settle(world->ks, SIZE_MAX);
    assert_trace(world, late ? "A" : "");
    assert_null(a.waiter.links);
    ks_delete(world->ks, BYTES("x"));
    ks_delete(world->ks, BYTES("y"));
  }
}

/* While it is being canceled it is not woken. */
static void test_a_cancel_in_steps(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'};
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("x"), BYTES("y"), BYTES("z"));
  assert_int_equal(ks_cancel_some(world->ks, &a.waiter, 2), 2);
  assert_non_null(a.waiter.links);
  set(world, "x", "v");
  set(world, "y", "v");
  set(world, "z", "v");
  ks_settle(world->ks, SIZE_MAX);
  assert_int_equal(ks_cancel_some(world->ks, &a.waiter, 2), 1);
  assert_null(a.waiter.links);
  assert_trace(world, "");
}

/* What is staged is not there before the commit, and its keys may come and go meanwhile. */
static void test_a_set_in_steps(void **state) {
  struct world *world = *state;
  struct ks_stage stages[3];
  set(world, "x", "old");
  assert_code(ks_stage(world->ks, BYTES("x"), BYTES("1"), &stages[0]), 0);
  assert_code(ks_stage(world->ks, BYTES("y"), BYTES("2"), &stages[1]), 0);
  assert_code(ks_stage(world->ks, BYTES("x"), BYTES("3"), &stages[2]), 0);
  assert_true(ks_delete(world->ks, BYTES("x")));
  assert_false(ks_present(world->ks, BYTES("y")));
  assert_int_equal(ks_count(world->ks), 0);
  ks_commit(world->ks, stages, 3);
  for (int i = 0; i < 3; i++) ks_unstage(world->ks, &stages[i]);
  assert_value(world, "x", "3");
  assert_value(world, "y", "2");
  assert_int_equal(ks_count(world->ks), 2);
}

static void test_a_set_in_steps_that_is_given_up_leaves_nothing(void **state) {
  struct world *world = *state;
  struct ks_stage stage;
  const size_t used = world->budget.used;
  assert_code(ks_stage(world->ks, BYTES("x"), BYTES("1"), &stage), 0);
  ks_unstage(world->ks, &stage);
  assert_int_equal(world->budget.used, used);
  assert_false(ks_present(world->ks, BYTES("x")));
}

static void walk_to_end(struct world *world, char *out) {
  rdzv_bytes key;
  for (size_t at = 0; ks_walk(world->ks, &key); at += key.len) memcpy(out + at, key.data, key.len);
}

/* A walk gives each key that is there from its start to its turn; those that come later are not for it. */
static void test_a_walk_while_keys_come_and_go(void **state) {
  struct world *world = *state;
  for (int gone = 0; gone < 4; gone++) {
    const char *const names[] = {"a", "b", "c", "d"};
    char found[16] = "";
    rdzv_bytes key;
    for (int i = 0; i < 4; i++) set(world, names[i], "v");
    ks_walk_start(world->ks);
    assert_true(ks_walk(world->ks, &key));
    assert_bytes(key, "a");
    ks_delete(world->ks, rdzv_str(names[gone]));
    set(world, "new", "v");
    set(world, names[gone], "again");
    walk_to_end(world, found);
    const char *const expected[] = {"bcd", "cd", "bd", "bc"};
    assert_string_equal(found, expected[gone]);
    while (ks_next(world->ks, NULL, &key)) ks_delete(world->ks, key);
    assert_false(ks_walk(world->ks, &key));
  }
  ks_walk_start(world->ks);
  rdzv_bytes key;
  assert_false(ks_walk(world->ks, &key));
}

/* The length of all keys is known, also where names are only waited for. */
static void test_the_bytes_of_all_keys(void **state) {
  struct world *world = *state;
  struct someone a = {0};
  const uint64_t version = ks_keys_version(world->ks);
  wait_for(world, &a, 'A', "only waited for");
  assert_int_equal(ks_keys_bytes(world->ks), 0);
  assert_true(ks_keys_version(world->ks) == version);
  set(world, "abc", "v");
  assert_int_equal(ks_keys_bytes(world->ks), 3 + 8);
  assert_true(ks_keys_version(world->ks) != version);
  ks_delete(world->ks, BYTES("abc"));
  assert_int_equal(ks_keys_bytes(world->ks), 0);
  ks_cancel(world->ks, &a.waiter);
}

/* Those that are due when the keyspace ends are forgotten, with what they hold. */
static void test_what_is_due_at_the_end_is_forgotten(void **state) {
  struct world *world = *state;
  static struct someone a, b;
  wait_for(world, &a, 'A', "k");
  b.name = 'B';
  assert_code(ks_watch(world->ks, &b.waiter, BYTES("k")), 0);
  set(world, "k", "v");
  set(world, "k", "w");
  assert_trace(world, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      DEFERRED(test_wakes_come_when_they_are_asked_for),
      DEFERRED(test_a_wake_that_is_due_outlives_its_key),
      DEFERRED(test_a_wake_that_is_due_can_be_canceled),
      DEFERRED(test_keys_take_turns),
      DEFERRED(test_watchers_are_told_what_happened_then),
      DEFERRED(test_a_value_that_is_shared_is_not_written_to),
      DEFERRED(test_a_wait_in_steps),
      DEFERRED(test_a_cancel_in_steps),
      DEFERRED(test_a_set_in_steps),
      DEFERRED(test_a_set_in_steps_that_is_given_up_leaves_nothing),
      DEFERRED(test_a_walk_while_keys_come_and_go),
      DEFERRED(test_the_bytes_of_all_keys),
      DEFERRED(test_what_is_due_at_the_end_is_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
