/* SPDX-License-Identifier: BSD-3-Clause */
/* The state: PyTorch's order of nodes, the counts, and copies that share nothing. */
#include "test_state.h"

static const struct state_node *find(const struct rendezvous_state *state, const char *addr, int64_t pid,
                                     int64_t local_id) {
  return state_find(state, &(struct node_desc){addr, pid, local_id});
}

/* Rule: by address, then pid, then local_id, the numbers as numbers. */
static void test_nodes_stand_in_the_order_of_the_node_triple(void **context) {
  (void)context;
  static const struct node_desc sorted[] = {{"", 5, 5},   {"a", -1, 0}, {"a", 2, 0}, {"a", 10, -3},    {"a", 10, 0},
                                            {"a", 10, 9}, {"aa", 0, 0}, {"b", 0, 0}, {"node10", 0, 0}, {"node9", 0, 0}};
  static const size_t order[] = {5, 0, 9, 3, 8, 1, 7, 2, 6, 4};
  struct rendezvous_state state = STATE_EMPTY;
  for (size_t i = 0; i < COUNT_OF(order); i++) {
    const struct node_desc *node = &sorted[order[i]];
    put_member(&state, node->addr, node->pid, node->local_id, 0);
  }
  assert_int_equal(state.count, COUNT_OF(sorted));
  for (size_t i = 0; i < COUNT_OF(sorted); i++) {
    assert_int_equal(node_compare(&state.nodes[i].desc, &sorted[i]), 0);
    assert_ptr_equal(state_find(&state, &sorted[i]), &state.nodes[i]);
  }
  state_free(&state);
}

/* Rule: Python compares str by code point; UTF-16's order would put the last but one last. */
static void test_addresses_are_compared_by_code_point(void **context) {
  (void)context;
  static const char *const sorted[] = {"Z", "a", "\u00e9", "\u0153", "\ud7ff", "\uff5e", "\U0001f600"};
  for (size_t i = 0; i + 1 < COUNT_OF(sorted); i++) {
    assert_true(node_compare(&(struct node_desc){sorted[i], 9, 9}, &(struct node_desc){sorted[i + 1], 0, 0}) < 0);
    assert_true(node_compare(&(struct node_desc){sorted[i + 1], 0, 0}, &(struct node_desc){sorted[i], 9, 9}) > 0);
  }
}

static void test_a_node_is_printed_as_pytorch_prints_it(void **context) {
  (void)context;
  const struct node_desc node = {"host", 123, 4};
  assert_string_equal(node_text(&node).text, "host_123_4");
  const struct node_desc low = {"", INT64_MIN, INT64_MIN};
  assert_string_equal(node_text(&low).text, "_-9223372036854775808_-9223372036854775808");
}

static void test_inserting_a_member_twice_gives_the_one_that_is_there(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  put_member(&state, "a", 1, 0, NODE_PARTICIPANT)->rank = 7;
  struct state_node *member;
  assert_code(state_insert(&state, &(struct node_desc){"a", 1, 0}, &member, NULL), 0);
  assert_int_equal(member->rank, 7);
  assert_int_equal(state.count, 1);
  assert_null(find(&state, "a", 1, 1));
  assert_null(find(&state, "", 1, 0));
  state_free(&state);
}

static void test_counts_follow_every_change_of_kinds(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  struct state_node *member = put_member(&state, "a", 1, 0, NODE_PARTICIPANT | NODE_SPARE);
  assert_int_equal(state.num_participants, 1);
  assert_int_equal(state.num_spares, 1);
  member->rank = 3;
  state_set_kinds(&state, member, NODE_PARTICIPANT);
  assert_int_equal(member->rank, 3);
  state_set_kinds(&state, member, NODE_WAITING);
  assert_int_equal(member->rank, 0);
  assert_int_equal(state.num_participants + state.num_spares, 0);
  assert_int_equal(state.num_waiting, 1);
  state_remove(&state, member);
  assert_int_equal(state.num_waiting + state.count, 0);
  state_free(&state);
}

/* Inserts and removes by a fixed sequence of numbers, beside a plain table of who is in. */
static void test_many_inserts_and_removes_keep_order_and_counts(void **context) {
  (void)context;
  enum { NODES = 300 };
  bool in[NODES] = {false};
  struct rendezvous_state state = STATE_EMPTY;
  uint32_t seed = 1;
  for (int round = 0; round < 5000; round++) {
    seed = seed * 1664525u + 1013904223u;
    const size_t i = (seed >> 8) % NODES;
    char addr[8];
    snprintf(addr, sizeof addr, "n%zu", i / 3);
    if (in[i])
      state_remove(&state, state_find(&state, &(struct node_desc){addr, (int64_t)(i % 3), 0}));
    else
      put_member(&state, addr, (int64_t)(i % 3), 0, NODE_PARTICIPANT);
    in[i] = !in[i];
    if (round % 1000 != 999) continue;
    struct rendezvous_state copy; /* goes on with addresses that are in one piece */
    assert_true(state_copy(&copy, &state));
    assert_true(state_equal(&copy, &state));
    state_free(&state);
    state = copy;
  }
  size_t expected = 0;
  for (size_t i = 0; i < NODES; i++) expected += in[i];
  assert_int_equal(state.count, expected);
  assert_int_equal(state.num_participants, expected);
  for (size_t i = 1; i < state.count; i++)
    assert_true(node_compare(&state.nodes[i - 1].desc, &state.nodes[i].desc) < 0);
  state_free(&state);
}

static void test_a_copy_shares_nothing_with_its_original(void **context) {
  (void)context;
  struct rendezvous_state state = sample_state(), copy;
  struct pyvalue text;
  assert_true(pyvalue_make_bytes(&text, PYVALUE_STR, BYTES("kept")));
  assert_true(pynames_set(&state.extra, "note", &text));
  assert_true(state_copy(&copy, &state));
  assert_true(state_equal(&copy, &state));
  assert_int_equal(copy.num_participants, state.num_participants);
  state_free(&state);
  assert_non_null(find(&copy, "b", 300, 1));
  assert_bytes(((rdzv_bytes){pynames_find(&copy.extra, "note")->bytes, 4}), "kept");
  put_member(&copy, "c", 0, 0, NODE_WAITING);
  state_remove(&copy, state_find(&copy, &(struct node_desc){"b", 300, 0}));
  state_free(&copy);
  assert_int_equal(copy.count, 0);
  assert_true(copy.deadline == DATETIME_NONE);
}

static void test_states_differ_by_each_thing_they_hold(void **context) {
  (void)context;
  struct rendezvous_state state = sample_state(), other;
  assert_true(state_copy(&other, &state));
  struct state_node *member = &other.nodes[2];
  struct pyvalue none = {0};
#define ASSERT_MATTERS(change, undo)           \
  do {                                         \
    change;                                    \
    assert_false(state_equal(&state, &other)); \
    undo;                                      \
    assert_true(state_equal(&state, &other));  \
  } while (0)
  ASSERT_MATTERS(other.round++, other.round--);
  ASSERT_MATTERS(other.complete = false, other.complete = true);
  ASSERT_MATTERS(other.closed = true, other.closed = false);
  ASSERT_MATTERS(other.deadline++, other.deadline--);
  ASSERT_MATTERS(member->rank++, member->rank--);
  ASSERT_MATTERS(member->last_heartbeat++, member->last_heartbeat--);
  ASSERT_MATTERS(member->desc.pid++, member->desc.pid--);
  const unsigned kinds = member->kinds;
  ASSERT_MATTERS(state_set_kinds(&other, member, kinds ^ NODE_WAITING), state_set_kinds(&other, member, kinds));
  ASSERT_MATTERS(pynames_set(&other.extra, "x", &none), pynames_remove(&other.extra, "x"));
  ASSERT_MATTERS(put_member(&other, "z", 0, 0, 0), state_remove(&other, &other.nodes[other.count - 1]));
  state_free(&state);
  state_free(&other);
}

static void test_an_address_over_the_limit_or_not_utf8_is_no_member(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  struct state_node *member;
  rdzv_error error = {0};
  char addr[STATE_MAX_ADDR + 2];
  memset(addr, 'a', sizeof addr);
  addr[STATE_MAX_ADDR + 1] = '\0';
  const struct node_desc node = {addr, 0, 0};
  assert_error(state_insert(&state, &node, &member, &error), RDZV_E_LIMIT, &error, "1025 bytes");
  addr[STATE_MAX_ADDR] = '\0';
  assert_code(state_insert(&state, &node, &member, &error), 0);
  assert_int_equal(strlen(node_text(&node).text), STATE_MAX_ADDR + 4);
  static const char *const broken[] = {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"};
  for (size_t i = 0; i < COUNT_OF(broken); i++)
    assert_error(state_insert(&state, &(struct node_desc){broken[i], 0, 0}, &member, &error), RDZV_E_INVALID, &error,
                 "is not UTF-8");
  assert_int_equal(state.count, 1);
  state_free(&state);
}

static void test_nodes_are_limited(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  struct state_node *member;
  for (int64_t pid = 0; pid < STATE_MAX_NODES; pid++) put_member(&state, "a", pid, 0, 0);
  rdzv_error error = {0};
  assert_error(state_insert(&state, &(struct node_desc){"a", -1, 0}, &member, &error), RDZV_E_LIMIT, &error,
               "65536 nodes");
  assert_code(state_insert(&state, &(struct node_desc){"a", 5, 0}, &member, &error), 0);
  state_free(&state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nodes_stand_in_the_order_of_the_node_triple),
      cmocka_unit_test(test_addresses_are_compared_by_code_point),
      cmocka_unit_test(test_a_node_is_printed_as_pytorch_prints_it),
      cmocka_unit_test(test_inserting_a_member_twice_gives_the_one_that_is_there),
      cmocka_unit_test(test_counts_follow_every_change_of_kinds),
      cmocka_unit_test(test_many_inserts_and_removes_keep_order_and_counts),
      cmocka_unit_test(test_a_copy_shares_nothing_with_its_original),
      cmocka_unit_test(test_states_differ_by_each_thing_they_hold),
      cmocka_unit_test(test_an_address_over_the_limit_or_not_utf8_is_no_member),
      cmocka_unit_test(test_nodes_are_limited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
