/* SPDX-License-Identifier: BSD-3-Clause */
#include "keyspace_world.h"

/* The names of those who wait, in the order in which the trace shows them. */
#define SOMEBODY(letter) \
  { .name = (letter) }

/* Who finds everything as wanted does not wait. */
static void test_what_is_there_is_not_waited_for(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A');
  set(world, "k", "v");
  push(world, "q", "item");
  const size_t used = world->budget.used;
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"), BYTES("q"), BYTES("k"));
  assert_int_equal(a.waiter.missing, 0);
  WAIT(world, &a, KS_WANT_VALUE, BYTES("k"));
  assert_int_equal(a.waiter.missing, 0);
  WAIT(world, &a, KS_WANT_QUEUE, BYTES("q"));
  assert_int_equal(a.waiter.missing, 0);
  wait_keys(world, &a, KS_WANT_PRESENT, NULL, 0);
  assert_int_equal(a.waiter.missing, 0);
  assert_int_equal(world->budget.used, used);
  assert_trace(world, "");
}

/* The write that creates the key wakes, once; a later write wakes nobody. */
static void test_a_set_wakes_who_waits_once(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"));
  assert_int_equal(a.waiter.missing, 1);
  set(world, "other", "v");
  assert_trace(world, "");
  set(world, "k", "v");
  assert_trace(world, "A");
  set(world, "k", "w");
  assert_trace(world, "");
}

/* Only the last of several keys ends the wait, in whatever order they come. */
static void test_the_last_of_several_keys_wakes(void **state) {
  struct world *world = *state;
  const char *const orders[] = {"abc", "acb", "bac", "bca", "cab", "cba"};
  for (size_t i = 0; i < COUNT_OF(orders); i++) {
    struct someone a = SOMEBODY('A');
    WAIT(world, &a, KS_WANT_PRESENT, BYTES("a"), BYTES("b"), BYTES("c"));
    assert_int_equal(a.waiter.missing, 3);
    for (int n = 0; n < 3; n++) {
      assert_trace(world, "");
      assert_code(ks_set(world->ks, (rdzv_bytes){&orders[i][n], 1}, BYTES("")), 0);
    }
    assert_trace(world, "A");
    for (int n = 0; n < 3; n++) ks_delete(world->ks, (rdzv_bytes){&orders[i][n], 1});
    assert_int_equal(world->budget.used, 0);
  }
}

/* A key that was set and deleted again meanwhile counts as having been there, as in PyTorch. */
static void test_a_key_that_came_and_went_counts(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("a"), BYTES("b"));
  set(world, "a", "v");
  ks_delete(world->ks, BYTES("a"));
  set(world, "b", "v");
  assert_trace(world, "A");
}

/* A key named several times is one key, next to each other or not. */
static void test_a_key_named_twice_is_one_key(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A'), b = SOMEBODY('B');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"), BYTES("k"), BYTES("k"));
  assert_int_equal(a.waiter.missing, 1);
  WAIT(world, &b, KS_WANT_PRESENT, BYTES("k"), BYTES("x"), BYTES("k"), BYTES("x"), BYTES("k"));
  assert_int_equal(b.waiter.missing, 2);
  set(world, "k", "v");
  assert_trace(world, "A");
  set(world, "x", "v");
  assert_trace(world, "B");
}

/* Who has waited longest goes first. */
static void test_wakes_come_in_the_order_of_the_waits(void **state) {
  struct world *world = *state;
  struct someone all[20];
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    all[i] = (struct someone){.name = (char)('a' + i)};
    WAIT(world, &all[i], KS_WANT_PRESENT, BYTES("k"));
  }
  set(world, "k", "v");
  assert_trace(world, "abcdefghijklmnopqrst");
}

static void write_with(struct world *world, int how) {
  rdzv_bytes now;
  int64_t sum;
  bool flag;
  switch (how) {
    case 0: assert_code(ks_set(world->ks, BYTES("k"), BYTES("1")), 0); break;
    case 1: assert_code(ks_append(world->ks, BYTES("k"), BYTES("1")), 0); break;
    case 2: assert_code(ks_add(world->ks, BYTES("k"), 1, &sum), 0); break;
    case 3: assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES(""), BYTES("1"), &now), 0); break;
    case 4: assert_code(ks_compare_set_version(world->ks, BYTES("k"), 0, BYTES("1"), &flag), 0); break;
    case 5: assert_code(ks_barrier(world->ks, BYTES("k"), 1, &flag), 0); break;
    default: fail();
  }
}

/* Whatever creates a value wakes those who want it to be there, those who want a value, and those who want a change;
 * who wants an item of a queue goes on waiting. */
static void test_every_kind_of_write_wakes(void **state) {
  struct world *world = *state;
  for (int how = 0; how <= 5; how++) {
    struct someone p = SOMEBODY('P'), v = SOMEBODY('V'), q = SOMEBODY('Q'), c = SOMEBODY('C');
    WAIT(world, &p, KS_WANT_PRESENT, BYTES("k"));
    WAIT(world, &v, KS_WANT_VALUE, BYTES("k"));
    WAIT(world, &q, KS_WANT_QUEUE, BYTES("k"));
    assert_code(ks_wait_change(world->ks, &c.waiter, BYTES("k")), 0);
    write_with(world, how);
    assert_int_equal(q.waiter.missing, 1);
    ks_cancel(world->ks, &q.waiter);
    if (strcmp(world->trace, "CVP") != 0) assert_string_equal(world->trace, "CPV"); /* P and V are alike */
    world->trace[0] = '\0';
    ks_delete(world->ks, BYTES("k"));
  }
}

/* What changes nothing wakes nobody: a failed swap, a failed add, the delete of an absent key. (PyTorch's libuv server
 * wakes on a failed COMPARE_SET.) */
static void test_what_changes_nothing_wakes_nobody(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A'), b = SOMEBODY('B'), c = SOMEBODY('C');
  rdzv_bytes now;
  int64_t sum;
  bool flag;
  set(world, "text", "x");
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"));
  assert_code(ks_wait_change(world->ks, &b.waiter, BYTES("k")), 0);
  assert_code(ks_wait_change(world->ks, &c.waiter, BYTES("text")), 0);
  assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES("e"), BYTES("d"), &now), 0);
  assert_code(ks_compare_set(world->ks, BYTES("text"), BYTES("e"), BYTES("d"), &now), 0);
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), 9, BYTES("d"), &flag), 0);
  assert_code(ks_add(world->ks, BYTES("text"), 1, &sum), RDZV_E_NOT_A_NUMBER);
  assert_code(ks_barrier(world->ks, BYTES("text"), 1, &flag), RDZV_E_NOT_A_NUMBER);
  assert_false(ks_delete(world->ks, BYTES("k")));
  assert_trace(world, "");
  ks_cancel(world->ks, &a.waiter);
  ks_cancel(world->ks, &b.waiter);
  ks_cancel(world->ks, &c.waiter);
}

/* A wait for {a queue that has items, an absent key} is ended by the key (PyTorch's is never ended). */
static void test_a_queue_with_items_counts_as_there_in_a_wait_for_more(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A');
  push(world, "q", "item");
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("q"), BYTES("k"));
  assert_int_equal(a.waiter.missing, 1);
  set(world, "k", "v");
  assert_trace(world, "A");
}

/* Who gives up is not called, leaves no trace in the budget, and gives up twice for nothing. */
static void test_who_gives_up_leaves_nothing_behind(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"), BYTES("l"), BYTES("m"));
  assert_true(world->budget.used > 0);
  ks_cancel(world->ks, &a.waiter);
  assert_int_equal(world->budget.used, 0);
  ks_cancel(world->ks, &a.waiter);
  set(world, "k", "v");
  set(world, "l", "v");
  set(world, "m", "v");
  assert_trace(world, "");
}

/* Giving up when some of the keys have come leaves the others as they were. */
static void test_giving_up_half_way_leaves_the_others_waiting(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A'), b = SOMEBODY('B'), c = SOMEBODY('C');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"), BYTES("l"));
  WAIT(world, &b, KS_WANT_PRESENT, BYTES("k"), BYTES("l"));
  WAIT(world, &c, KS_WANT_PRESENT, BYTES("k"), BYTES("l"));
  set(world, "k", "v");
  ks_cancel(world->ks, &b.waiter);
  set(world, "l", "v");
  assert_trace(world, "AC");
}

/* The same waiter can wait again when it was woken. */
static void test_who_was_woken_can_wait_again(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A');
  for (int i = 0; i < 3; i++) {
    WAIT(world, &a, KS_WANT_VALUE, BYTES("k"));
    set(world, "k", "v");
    assert_trace(world, "A");
    ks_delete(world->ks, BYTES("k"));
  }
}

/* Any change ends a wait for one, a deletion too, and only the next one. */
static void test_any_change_ends_a_wait_for_one(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A');
  int64_t sum;
  bool full;
  set(world, "k", "1");
  assert_code(ks_wait_change(world->ks, &a.waiter, BYTES("k")), 0);
  set(world, "k", "1"); /* the same bytes are a change: it has a new version */
  assert_trace(world, "A");
  assert_code(ks_wait_change(world->ks, &a.waiter, BYTES("k")), 0);
  ks_add(world->ks, BYTES("k"), 1, &sum);
  assert_trace(world, "A");
  assert_code(ks_wait_change(world->ks, &a.waiter, BYTES("k")), 0);
  ks_barrier(world->ks, BYTES("k"), 100, &full);
  assert_trace(world, "A");
  assert_code(ks_wait_change(world->ks, &a.waiter, BYTES("k")), 0);
  ks_delete(world->ks, BYTES("k"));
  assert_trace(world, "A");
  assert_code(ks_wait_change(world->ks, &a.waiter, BYTES("k")), 0);
  set(world, "k", "1");
  assert_trace(world, "A");
}

/* A watcher is told of every change with the value before and after, in the order of the changes. */
static void test_a_watcher_is_told_of_every_change(void **state) {
  struct world *world = *state;
  struct someone w = SOMEBODY('W');
  rdzv_bytes now;
  int64_t sum;
  bool flag;
  assert_code(ks_watch(world->ks, &w.waiter, BYTES("k")), 0);
  set(world, "k", "1");
  set(world, "other", "1");
  ks_add(world->ks, BYTES("k"), 4, &sum);
  ks_append(world->ks, BYTES("k"), BYTES("0"));
  ks_compare_set(world->ks, BYTES("k"), BYTES("wrong"), BYTES("x"), &now);
  ks_compare_set(world->ks, BYTES("k"), BYTES("50"), BYTES(""), &now);
  ks_compare_set_version(world->ks, BYTES("k"), version_of(world, "k"), BYTES("7"), &flag);
  ks_barrier(world->ks, BYTES("k"), 100, &flag);
  ks_delete(world->ks, BYTES("k"));
  ks_delete(world->ks, BYTES("k"));
  set(world, "k", "");
  assert_trace(world,
               "W created k '' -> '1'; W updated k '1' -> '5'; W updated k '5' -> '50'; W updated k '50' -> ''; "
               "W updated k '' -> '7'; W updated k '7' -> '8'; W deleted k '8' -> ''; W created k '' -> ''; ");
  ks_cancel(world->ks, &w.waiter);
  set(world, "k", "2");
  assert_trace(world, "");
}

/* Watchers are told before those who wait are woken, the oldest first; one that left is not told. */
static void test_watchers_are_told_in_their_order_and_before_wakes(void **state) {
  struct world *world = *state;
  struct someone v = SOMEBODY('V'), w = SOMEBODY('W'), x = SOMEBODY('X'), a = SOMEBODY('A');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"));
  assert_code(ks_watch(world->ks, &v.waiter, BYTES("k")), 0);
  assert_code(ks_watch(world->ks, &w.waiter, BYTES("k")), 0);
  assert_code(ks_watch(world->ks, &x.waiter, BYTES("k")), 0);
  ks_cancel(world->ks, &w.waiter);
  set(world, "k", "v");
  assert_trace(world, "V created k '' -> 'v'; X created k '' -> 'v'; A");
  ks_cancel(world->ks, &v.waiter);
  ks_cancel(world->ks, &x.waiter);
}

/* The names under which somebody waits are not keys. */
static void test_a_name_that_is_only_waited_for_is_no_key(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A'), w = SOMEBODY('W');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"));
  assert_code(ks_watch(world->ks, &w.waiter, BYTES("k")), 0);
  assert_int_equal(ks_count(world->ks), 0);
  assert_false(ks_present(world->ks, BYTES("k")));
  assert_false(ks_delete(world->ks, BYTES("k")));
  rdzv_bytes key;
  assert_null(ks_next(world->ks, NULL, &key));
  ks_cancel(world->ks, &a.waiter);
  ks_cancel(world->ks, &w.waiter);
  assert_int_equal(world->budget.used, 0);
}

/* Whoever still waits when the keyspace goes is forgotten: no call, no memory, nothing of the budget left. */
static void test_who_still_waits_at_the_end_is_forgotten(void **state) {
  struct world *world = *state;
  struct someone a = SOMEBODY('A'), b = SOMEBODY('B'), w = SOMEBODY('W');
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"), BYTES("l"));
  WAIT(world, &b, KS_WANT_QUEUE, BYTES("k"));
  assert_code(ks_watch(world->ks, &w.waiter, BYTES("m")), 0);
  set(world, "m", "v");
  assert_trace(world, "W created m '' -> 'v'; ");
  ks_free(world->ks);
  world->ks = NULL;
  assert_trace(world, "");
  assert_int_equal(world->budget.used, 0);
}

/* Thousands of waits on thousands of keys: each ends with its own key and no other. */
static void test_thousands_of_waits_end_with_their_own_key(void **state) {
  struct world *world = *state;
  enum { WAITS = 2000 };
  struct someone *all = calloc(WAITS, sizeof *all);
  assert_non_null(all);
  char key[16];
  for (int i = 0; i < WAITS; i++) {
    all[i].name = (char)('a' + i % 26);
    snprintf(key, sizeof key, "%d", i);
    WAIT(world, &all[i], KS_WANT_VALUE, rdzv_str(key));
  }
  for (int i = WAITS; i-- > 0;) {
    snprintf(key, sizeof key, "%d", i);
    set(world, key, "v");
    const char expected[] = {(char)('a' + i % 26), '\0'};
    assert_trace(world, expected);
  }
  free(all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_WORLD(test_what_is_there_is_not_waited_for),
      IN_A_WORLD(test_a_set_wakes_who_waits_once),
      IN_A_WORLD(test_the_last_of_several_keys_wakes),
      IN_A_WORLD(test_a_key_that_came_and_went_counts),
      IN_A_WORLD(test_a_key_named_twice_is_one_key),
      IN_A_WORLD(test_wakes_come_in_the_order_of_the_waits),
      IN_A_WORLD(test_every_kind_of_write_wakes),
      IN_A_WORLD(test_what_changes_nothing_wakes_nobody),
      IN_A_WORLD(test_a_queue_with_items_counts_as_there_in_a_wait_for_more),
      IN_A_WORLD(test_who_gives_up_leaves_nothing_behind),
      IN_A_WORLD(test_giving_up_half_way_leaves_the_others_waiting),
      IN_A_WORLD(test_who_was_woken_can_wait_again),
      IN_A_WORLD(test_any_change_ends_a_wait_for_one),
      IN_A_WORLD(test_a_watcher_is_told_of_every_change),
      IN_A_WORLD(test_watchers_are_told_in_their_order_and_before_wakes),
      IN_A_WORLD(test_a_name_that_is_only_waited_for_is_no_key),
      IN_A_WORLD(test_who_still_waits_at_the_end_is_forgotten),
      IN_A_WORLD(test_thousands_of_waits_end_with_their_own_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
