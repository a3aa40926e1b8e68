/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings that must be the same on all nodes: what the state has of them, who is warned, and who fails. */
#include "rules_world.h"
#include "state/differences.h"

static struct rendezvous_settings of(int64_t min_nodes, int64_t max_nodes) {
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = min_nodes;
  settings.max_nodes = max_nodes;
  return settings;
}

static void enter(struct rendezvous_state *state, const char *name, int64_t min_nodes, int64_t max_nodes) {
  const struct node_desc node = node_of(name);
  const struct rendezvous_settings settings = of(min_nodes, max_nodes);
  differences_enter(state, &node, &settings);
}

/* The next warning of a node with these settings; "": none. */
static struct summary warning(struct differences *told, const struct rendezvous_state *state, int64_t min_nodes,
                              int64_t max_nodes) {
  const struct rendezvous_settings settings = of(min_nodes, max_nodes);
  struct summary summary = {""};
  if (!differences_next(told, state, &settings, NULL, &summary)) summary.text[0] = '\0';
  return summary;
}

static void test_nodes_that_agree_have_one_entry(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:abc");
  struct differences told = {0};
  int64_t min_nodes, max_nodes;
  assert_false(differences_nnodes(&state, &min_nodes, &max_nodes));
  enter(&state, "a", 2, 3);
  enter(&state, "b", 2, 3);
  assert_int_equal(differences_count(&state), 1);
  assert_true(differences_is_last(&state, &(struct node_desc){"a", 1, 0}));
  assert_string_equal(warning(&told, &state, 2, 3).text, "");
  assert_true(differences_nnodes(&state, &min_nodes, &max_nodes));
  assert_true(min_nodes == 2 && max_nodes == 3);
  state_free(&state);
}

static void test_every_difference_is_told_once(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:abc");
  struct differences told = {0};
  enter(&state, "a", 2, 3);
  enter(&state, "b", 2, 4);
  enter(&state, "c", 1, 9);
  assert_string_equal(warning(&told, &state, 2, 3).text,
                      "'b_1_0' has nnodes=2:4, this node 2:3 (use the same values on all nodes)");
  assert_string_equal(warning(&told, &state, 2, 3).text,
                      "'c_1_0' has nnodes=1:9, this node 2:3 (use the same values on all nodes)");
  assert_string_equal(warning(&told, &state, 2, 3).text, "");
  state_free(&state);
}

static void test_every_setting_is_named(void **unused) {
  (void)unused;
  struct rendezvous_settings own = of(2, 3), other = of(2, 3);
  other.last_call_timeout = 500; /* which may differ: the node that makes the number sufficient decides */
  other.keep_alive_interval = 1000;
  other.keep_alive_max_attempt = 9;
  other.rank_order = RANK_ORDER_STABLE;
  const struct differences_settings a = differences_settings(&own), b = differences_settings(&other);
  assert_string_equal(differences_describe(a.text, b.text, "b_1_0").text,
                      "'b_1_0' has keep_alive_interval=1, this node 5; keep_alive_max_attempt=9, this node 3; "
                      "rank_order=stable, this node torch (use the same values on all nodes)");
}

/* The entry of a node that is gone goes; another node with the same settings enters its own. */
static void test_an_entry_goes_with_its_node(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:abc");
  enter(&state, "a", 2, 3);
  enter(&state, "b", 2, 4);
  state_remove(&state, state_find(&state, &(struct node_desc){"a", 1, 0}));
  enter(&state, "c", 2, 3);
  assert_int_equal(differences_count(&state), 2);
  state_remove(&state, state_find(&state, &(struct node_desc){"c", 1, 0}));
  differences_clean(&state);
  assert_int_equal(differences_count(&state), 1);
  assert_true(differences_is_last(&state, &(struct node_desc){"b", 1, 0}));
  state_remove(&state, state_find(&state, &(struct node_desc){"b", 1, 0}));
  differences_clean(&state);
  assert_int_equal(state.extra.count, 0);
  state_free(&state);
}

static bool lives(const void *argument, const struct node_desc *node) {
  return strchr(argument, node->addr[0]) != NULL;
}

static enum rendezvous_clash clash(const struct rendezvous_state *state, int64_t min_nodes, int64_t max_nodes,
                                   const char *alive) {
  const struct rendezvous_settings settings = of(min_nodes, max_nodes);
  struct summary summary;
  return differences_clash(state, &settings, lives, alive, &summary);
}

static void test_the_later_of_two_that_never_fit_fails(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:ab");
  enter(&state, "a", 2, 3);
  assert_int_equal(clash(&state, 3, 4, "a"), CLASH_NONE);
  assert_int_equal(clash(&state, 1, 2, "a"), CLASH_NONE);
  assert_int_equal(clash(&state, 4, 9, "a"), CLASH_SURE);
  assert_int_equal(clash(&state, 1, 1, "a"), CLASH_SURE);
  assert_int_equal(clash(&state, 4, 9, ""), CLASH_DOUBTFUL);
  enter(&state, "b", 4, 9);
  assert_int_equal(clash(&state, 4, 9, "ab"), CLASH_SURE);
  assert_int_equal(clash(&state, 2, 3, "ab"), CLASH_NONE); /* it was the first */
  state_remove(&state, state_find(&state, &(struct node_desc){"a", 1, 0}));
  assert_int_equal(clash(&state, 4, 9, "ab"), CLASH_NONE);
  state_free(&state);
}

/* What others have written is not trusted. */
static void test_a_malformed_attribute_counts_as_missing(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:a");
  struct differences told = {0};
  struct pyvalue value;
  assert_true(pyvalue_make_items(&value, PYVALUE_DICT, 4));
  value.items[0] = (struct pyvalue){.kind = PYVALUE_INT, .number = 1};
  assert_true(pyvalue_make_bytes(&value.items[2], PYVALUE_STR, rdzv_str("nnodes=9:x")));
  assert_true(pyvalue_make_bytes(&value.items[3], PYVALUE_STR, rdzv_str("nobody")));
  assert_true(pynames_set(&state.extra, DIFFERENCES_ATTRIBUTE, &value));
  int64_t min_nodes, max_nodes;
  assert_false(differences_nnodes(&state, &min_nodes, &max_nodes));
  assert_int_equal(clash(&state, 1, 1, "a"), CLASH_NONE);
  assert_true(warning(&told, &state, 1, 1).text[0]);
  enter(&state, "a", 1, 1);
  assert_int_equal(differences_count(&state), 1);
  state_free(&state);
}

static void test_more_settings_than_there_is_room_for(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:abcdefghij");
  for (int i = 0; i < 10; i++) enter(&state, (char[]){(char)('a' + i), '\0'}, 1, i + 1);
  assert_int_equal(differences_count(&state), DIFFERENCES_MOST);
  state_free(&state);
}

/* What one node does not tell is no difference. */
static void test_agents(void **unused) {
  (void)unused;
  struct rendezvous_settings agent = of(2, 3), other = of(2, 3), none = of(2, 3), unknown = of(2, 3);
  agent.launcher = other.launcher = LAUNCHER_AGENT;
  agent.max_restarts = 1;
  other.max_restarts = 3;
  none.launcher = LAUNCHER_NONE;
  const struct rendezvous_settings *const all[] = {&agent, &other, &none, &unknown};
  static const struct {
    size_t own, others;
    bool differs, clashes;
    const char *text;
  } cases[] = {{0, 1, true, false, "'b_1_0' has max_restarts=3, this node 1 (use the same values on all nodes)"},
               {0, 2, true, true, "'b_1_0' has agent=no, this node yes (use the same values on all nodes)"},
               {2, 0, true, true, "'b_1_0' has agent=yes, this node no (use the same values on all nodes)"},
               {0, 3, false, false, ""},
               {3, 0, false, false, ""},
               {2, 3, false, false, ""}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    const struct differences_settings own = differences_settings(all[cases[i].own]);
    const struct differences_settings others = differences_settings(all[cases[i].others]);
    struct differences told = {0};
    struct summary summary = {""};
    assert_int_equal(differences_tell(&told, own.text, others.text, "b_1_0", &summary), cases[i].differs);
    assert_string_equal(summary.text, cases[i].text);
    assert_int_equal(differences_clashes(all[cases[i].own], others.text), cases[i].clashes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_agents),
      cmocka_unit_test(test_nodes_that_agree_have_one_entry),
      cmocka_unit_test(test_every_difference_is_told_once),
      cmocka_unit_test(test_every_setting_is_named),
      cmocka_unit_test(test_an_entry_goes_with_its_node),
      cmocka_unit_test(test_the_later_of_two_that_never_fit_fails),
      cmocka_unit_test(test_a_malformed_attribute_counts_as_missing),
      cmocka_unit_test(test_more_settings_than_there_is_room_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
