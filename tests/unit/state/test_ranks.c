/* SPDX-License-Identifier: BSD-3-Clause */
#include "rules_world.h"

/* One after the other: "node2", "node10". */
static void add_nodes(struct rendezvous_state *state, const char *const *names) {
  for (; *names; names++) put(state, *names, NODE_PARTICIPANT, 0);
}

static int64_t rank_of(const struct rendezvous_state *state, const char *name) {
  const struct node_desc node = node_of(name);
  const struct state_node *member = state_find(state, &node);
  return member ? member->rank : -1;
}

static void leave(struct rendezvous_state *state, const char *name) {
  const struct node_desc node = node_of(name);
  state_remove(state, state_find(state, &node));
}

/* PyTorch's order is that of the text, then of the pid as a number. */
static void test_torch_order_is_by_node(void **unused) {
  (void)unused;
  struct rendezvous_state state = STATE_EMPTY;
  add_nodes(&state, (const char *const[]){"node2", "node10", "Node3", NULL});
  put(&state, "waits", NODE_WAITING, 0);
  struct state_node *member;
  assert_code(state_insert(&state, &(struct node_desc){"node2", 0, 5}, &member, NULL), 0);
  state_set_kinds(&state, member, NODE_PARTICIPANT);
  assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_TORCH, NULL), 0);
  assert_int_equal(rank_of(&state, "Node3"), 0);
  assert_int_equal(rank_of(&state, "node10"), 1);
  assert_int_equal(rank_of(&state, "node2"), 3);
  assert_int_equal(rank_of(&state, "waits"), 0);
  assert_int_equal(state.extra.count, 0);
  state_free(&state);
}

/* Natural order has numbers as numbers, and is total where only leading zeros differ. */
static void test_natural_order_has_node2_before_node10(void **unused) {
  (void)unused;
  struct rendezvous_state state = STATE_EMPTY;
  add_nodes(&state, (const char *const[]){"node10", "node2", "node02", "rack1-node20", "rack1-node3", NULL});
  assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_NATURAL, NULL), 0);
  assert_int_equal(rank_of(&state, "node02"), 0);
  assert_int_equal(rank_of(&state, "node2"), 1);
  assert_int_equal(rank_of(&state, "node10"), 2);
  assert_int_equal(rank_of(&state, "rack1-node3"), 3);
  assert_int_equal(rank_of(&state, "rack1-node20"), 4);
  state_free(&state);
}

static void test_natural_compare_edges(void **unused) {
  (void)unused;
  static const struct {
    const char *a, *b;
    int sign;
  } cases[] = {{"", "", 0},           {"", "a", -1},
               {"a1", "a1", 0},       {"a1", "a01", 0},
               {"a9", "a10", -1},     {"a9b", "a9", 1},
               {"a00", "a0b", -1},    {"1", "a", -1},
               {"a1b2", "a1b10", -1}, {"99999999999999999999", "100000000000000000000", -1}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    const int order = natural_compare(cases[i].a, cases[i].b), back = natural_compare(cases[i].b, cases[i].a);
    assert_int_equal((order > 0) - (order < 0), cases[i].sign);
    assert_int_equal((back > 0) - (back < 0), -cases[i].sign);
  }
}

/* Who stays keeps its rank, who comes fills the gaps in node order; also if all have left in between. */
static void test_stable_order_keeps_ranks(void **unused) {
  (void)unused;
  struct rendezvous_state state = STATE_EMPTY;
  add_nodes(&state, (const char *const[]){"b", "d", "f", "h", NULL});
  assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_STABLE, NULL), 0);
  assert_int_equal(rank_of(&state, "h"), 3);
  for (const char *name = "bdfh"; *name; name++) leave(&state, (char[]){*name, '\0'});
  add_nodes(&state, (const char *const[]){"a", "b", "c", "f", "h", NULL}); /* without d */
  assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_STABLE, NULL), 0);
  assert_int_equal(rank_of(&state, "b"), 0);
  assert_int_equal(rank_of(&state, "a"), 1);
  assert_int_equal(rank_of(&state, "f"), 2);
  assert_int_equal(rank_of(&state, "h"), 3);
  assert_int_equal(rank_of(&state, "c"), 4);
  state_free(&state);
}

/* A rank beyond the end of a smaller world is given up. */
static void test_stable_order_has_no_gaps_in_a_smaller_world(void **unused) {
  (void)unused;
  struct rendezvous_state state = STATE_EMPTY;
  add_nodes(&state, (const char *const[]){"a", "b", "c", "d", NULL});
  assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_STABLE, NULL), 0);
  leave(&state, "a");
  leave(&state, "c");
  assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_STABLE, NULL), 0);
  assert_int_equal(rank_of(&state, "b"), 1);
  assert_int_equal(rank_of(&state, "d"), 0);
  state_free(&state);
}

static void set_kept(struct rendezvous_state *state, const char *node, enum pyvalue_kind kind, int64_t number) {
  struct pyvalue value;
  assert_true(pyvalue_make_items(&value, PYVALUE_DICT, 2));
  assert_true(pyvalue_make_bytes(&value.items[0], PYVALUE_STR, rdzv_str(node)));
  value.items[1] = (struct pyvalue){.kind = kind};
  if (kind == PYVALUE_INT) value.items[1].number = number;
  assert_true(pynames_set(&state->extra, RANKS_ATTRIBUTE, &value));
}

/* The attribute is whatever somebody wrote there. */
static void test_stable_order_takes_any_attribute(void **unused) {
  (void)unused;
  static const int64_t numbers[] = {INT64_MIN, -1, 0, 1, 2, INT64_MAX};
  for (size_t i = 0; i <= COUNT_OF(numbers); i++) {
    struct rendezvous_state state = STATE_EMPTY;
    add_nodes(&state, (const char *const[]){"a", "b", NULL});
    if (i < COUNT_OF(numbers))
      set_kept(&state, "b_1_0", PYVALUE_INT, numbers[i]);
    else
      set_kept(&state, "b_1_0", PYVALUE_NONE, 0);
    assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_STABLE, NULL), 0);
    assert_int_equal(rank_of(&state, "b"), i < COUNT_OF(numbers) && numbers[i] == 0 ? 0 : 1);
    assert_int_equal(rank_of(&state, "a") + rank_of(&state, "b"), 1);
    state_free(&state);
  }
}

/* The attribute has no more than RANKS_MAX_KEPT nodes. */
static void test_kept_ranks_are_bounded(void **unused) {
  (void)unused;
  struct rendezvous_state state = STATE_EMPTY;
  char name[16];
  for (int i = 0; i <= RANKS_MAX_KEPT; i++) {
    if (i == RANKS_MAX_KEPT) {
      assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_STABLE, NULL), 0);
      assert_int_equal(pynames_find(&state.extra, RANKS_ATTRIBUTE)->count, 2 * RANKS_MAX_KEPT);
    }
    snprintf(name, sizeof name, "n%05d", i);
    put(&state, name, NODE_PARTICIPANT, 0);
  }
  assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_STABLE, NULL), 0);
  assert_null(pynames_find(&state.extra, RANKS_ATTRIBUTE));
  state_free(&state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_torch_order_is_by_node),
      cmocka_unit_test(test_natural_order_has_node2_before_node10),
      cmocka_unit_test(test_natural_compare_edges),
      cmocka_unit_test(test_stable_order_keeps_ranks),
      cmocka_unit_test(test_stable_order_has_no_gaps_in_a_smaller_world),
      cmocka_unit_test(test_stable_order_takes_any_attribute),
      cmocka_unit_test(test_kept_ranks_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
