/* SPDX-License-Identifier: BSD-3-Clause */
#include "keyspace_world.h"

static void assert_pop(struct world *world, const char *key, rdzv_bytes expected) {
  assert_true(ks_queue_len(world->ks, rdzv_str(key)) > 0);
  assert_bytes_(ks_queue_front(world->ks, rdzv_str(key)), expected, __FILE__, __LINE__);
  ks_queue_drop(world->ks, rdzv_str(key));
}

/* First in, first out; an item of no bytes is one. */
static void test_items_come_out_in_their_order(void **state) {
  struct world *world = *state;
  assert_int_equal(ks_queue_len(world->ks, BYTES("q")), 0);
  push(world, "q", "1");
  push(world, "q", "");
  push(world, "q", "3");
  assert_int_equal(ks_queue_len(world->ks, BYTES("q")), 3);
  assert_pop(world, "q", BYTES("1"));
  assert_pop(world, "q", BYTES(""));
  push(world, "q", "4");
  assert_pop(world, "q", BYTES("3"));
  assert_pop(world, "q", BYTES("4"));
  assert_int_equal(ks_queue_len(world->ks, BYTES("q")), 0);
  assert_int_equal(world->budget.used, 0);
}

/* Queues have names of their own: not counted, not gone through, not got, not deleted as keys. */
static void test_a_queue_is_no_key(void **state) {
  struct world *world = *state;
  push(world, "x", "item");
  set(world, "x", "value");
  assert_int_equal(ks_count(world->ks), 1);
  assert_value(world, "x", "value");
  assert_true(ks_delete(world->ks, BYTES("x")));
  assert_false(ks_delete(world->ks, BYTES("x")));
  assert_int_equal(ks_count(world->ks), 0);
  assert_int_equal(version_of(world, "x"), 0);
  assert_int_equal(ks_queue_len(world->ks, BYTES("x")), 1);
  assert_pop(world, "x", BYTES("item"));
}

/* A queue is there as long as it has an item. */
static void test_a_queue_is_present_while_it_has_items(void **state) {
  struct world *world = *state;
  assert_false(ks_present(world->ks, BYTES("q")));
  push(world, "q", "1");
  assert_true(ks_present(world->ks, BYTES("q")));
  assert_pop(world, "q", BYTES("1"));
  assert_false(ks_present(world->ks, BYTES("q")));
}

/* Each push wakes one, who has waited longest: nobody is passed over, and nobody is woken for nothing. */
static void test_each_push_wakes_the_one_who_waits_longest(void **state) {
  struct world *world = *state;
  struct someone all[10];
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    all[i] = (struct someone){.name = (char)('a' + i)};
    WAIT(world, &all[i], KS_WANT_QUEUE, BYTES("q"));
  }
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    push(world, "q", "item");
    const char expected[] = {(char)('a' + i), '\0'};
    assert_trace(world, expected);
  }
  push(world, "q", "more than are waited for");
  assert_trace(world, "");
}

/* Who wants an item goes before who only wants to know that there is one, though that one waits longer; a value is
 * nothing to either queue waiter. */
static void test_who_wants_an_item_goes_before_who_wants_to_know(void **state) {
  struct world *world = *state;
  struct someone know = {.name = 'K'}, item = {.name = 'I'}, value = {.name = 'V'};
  WAIT(world, &know, KS_WANT_PRESENT, BYTES("q"));
  WAIT(world, &value, KS_WANT_VALUE, BYTES("q"));
  WAIT(world, &item, KS_WANT_QUEUE, BYTES("q"));
  push(world, "q", "1");
  assert_trace(world, "I");
  push(world, "q", "2");
  assert_trace(world, "K");
  push(world, "q", "3");
  assert_trace(world, "");
  set(world, "q", "v");
  assert_trace(world, "V");
}

/* An item whose taker left before taking it is offered to the next. */
static void test_an_item_that_was_not_taken_is_passed_on(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'}, b = {.name = 'B'};
  WAIT(world, &a, KS_WANT_QUEUE, BYTES("q"));
  WAIT(world, &b, KS_WANT_QUEUE, BYTES("q"));
  push(world, "q", "1");
  assert_trace(world, "A");
  ks_queue_pass_on(world->ks, BYTES("q")); /* A has left */
  assert_trace(world, "B");
  ks_queue_pass_on(world->ks, BYTES("q"));
  assert_trace(world, "");
}

/* There is nothing to pass on of an empty queue, or of none. */
static void test_nothing_is_passed_on_of_an_empty_queue(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'};
  ks_queue_pass_on(world->ks, BYTES("q"));
  WAIT(world, &a, KS_WANT_QUEUE, BYTES("q"));
  ks_queue_pass_on(world->ks, BYTES("q"));
  assert_trace(world, "");
  ks_cancel(world->ks, &a.waiter);
}

/* Who gave up does not take the place of the next one. */
static void test_who_gave_up_is_not_offered_an_item(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'}, b = {.name = 'B'};
  WAIT(world, &a, KS_WANT_QUEUE, BYTES("q"));
  WAIT(world, &b, KS_WANT_QUEUE, BYTES("q"));
  ks_cancel(world->ks, &a.waiter);
  push(world, "q", "1");
  assert_trace(world, "B");
}

/* A woken waiter is no more listed under the queue: a later push must not end its wait for quite another key (as it
 * does with PyTorch's server). */
static void test_a_later_push_does_not_end_a_wait_for_another_key(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'};
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("q"));
  push(world, "q", "1");
  assert_trace(world, "A");
  WAIT(world, &a, KS_WANT_PRESENT, BYTES("k"));
  push(world, "q", "2");
  assert_trace(world, "");
  set(world, "k", "v");
  assert_trace(world, "A");
}

/* A barrier counts up to its size; who comes last wakes the others, in their order. */
static void test_the_last_at_a_barrier_wakes_the_others(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'}, b = {.name = 'B'};
  bool full;
  assert_code(ks_barrier(world->ks, BYTES("b"), 3, &full), 0);
  assert_false(full);
  assert_code(ks_wait_barrier(world->ks, &a.waiter, BYTES("b")), 0);
  assert_code(ks_barrier(world->ks, BYTES("b"), 3, &full), 0);
  assert_false(full);
  assert_code(ks_wait_barrier(world->ks, &b.waiter, BYTES("b")), 0);
  assert_trace(world, "");
  assert_code(ks_barrier(world->ks, BYTES("b"), 3, &full), 0);
  assert_true(full);
  assert_trace(world, "AB");
  assert_value(world, "b", "3");
}

/* A barrier that is not full has a value all the same: who wants that is woken, who wants the key to be there waits on
 * with the others at the barrier. */
static void test_a_barrier_that_is_not_full_has_a_value(void **state) {
  struct world *world = *state;
  struct someone present = {.name = 'P'}, value = {.name = 'V'};
  bool full;
  WAIT(world, &present, KS_WANT_PRESENT, BYTES("b"));
  WAIT(world, &value, KS_WANT_VALUE, BYTES("b"));
  assert_code(ks_barrier(world->ks, BYTES("b"), 2, &full), 0);
  assert_trace(world, "V");
  assert_value(world, "b", "1");
  assert_code(ks_barrier(world->ks, BYTES("b"), 2, &full), 0);
  assert_trace(world, "P");
}

/* The key stays, so whoever comes later passes at once. */
static void test_a_barrier_that_was_full_stays_open(void **state) {
  struct world *world = *state;
  bool full;
  set(world, "b", "3");
  assert_code(ks_barrier(world->ks, BYTES("b"), 3, &full), 0);
  assert_true(full);
  assert_value(world, "b", "4");
}

/* Sizes that no barrier has are full at once, and the sum wraps like any other. */
static void test_a_barrier_of_no_size_is_full_at_once(void **state) {
  struct world *world = *state;
  const int64_t sizes[] = {0, 1, -1, INT64_MIN};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    bool full = false;
    assert_code(ks_barrier(world->ks, BYTES("b"), sizes[i], &full), 0);
    assert_true(full);
  }
  bool full = true;
  set(world, "b", "9223372036854775807");
  assert_code(ks_barrier(world->ks, BYTES("b"), 1, &full), 0);
  assert_false(full);
  assert_value(world, "b", "-9223372036854775808");
}

/* A text that is no number is refused and stays. */
static void test_a_barrier_on_a_text_is_refused(void **state) {
  struct world *world = *state;
  bool full;
  set(world, "b", "text");
  assert_code(ks_barrier(world->ks, BYTES("b"), 1, &full), RDZV_E_NOT_A_NUMBER);
  assert_value(world, "b", "text");
}

/* Any write of the key opens the barrier, as in PyTorch. */
static void test_a_write_opens_the_barrier(void **state) {
  struct world *world = *state;
  struct someone a = {.name = 'A'};
  bool full;
  assert_code(ks_barrier(world->ks, BYTES("b"), 3, &full), 0);
  assert_code(ks_wait_barrier(world->ks, &a.waiter, BYTES("b")), 0);
  set(world, "b", "1");
  assert_trace(world, "A");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_WORLD(test_items_come_out_in_their_order),
      IN_A_WORLD(test_a_queue_is_no_key),
      IN_A_WORLD(test_a_queue_is_present_while_it_has_items),
      IN_A_WORLD(test_each_push_wakes_the_one_who_waits_longest),
      IN_A_WORLD(test_who_wants_an_item_goes_before_who_wants_to_know),
      IN_A_WORLD(test_an_item_that_was_not_taken_is_passed_on),
      IN_A_WORLD(test_nothing_is_passed_on_of_an_empty_queue),
      IN_A_WORLD(test_who_gave_up_is_not_offered_an_item),
      IN_A_WORLD(test_a_later_push_does_not_end_a_wait_for_another_key),
      IN_A_WORLD(test_the_last_at_a_barrier_wakes_the_others),
      IN_A_WORLD(test_a_barrier_that_is_not_full_has_a_value),
      IN_A_WORLD(test_a_barrier_that_was_full_stays_open),
      IN_A_WORLD(test_a_barrier_of_no_size_is_full_at_once),
      IN_A_WORLD(test_a_barrier_on_a_text_is_refused),
      IN_A_WORLD(test_a_write_opens_the_barrier),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
