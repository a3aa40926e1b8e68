/* SPDX-License-Identifier: BSD-3-Clause */
/* What is read and written besides the fixtures: layouts, attributes that are not PyTorch's, batches, and refusals. */
#include "test_state.h"

#include <math.h>

static void assert_layouts(const struct attribute *other, size_t count, enum torch_layout oldest,
                           enum torch_layout newest) {
  struct torch_layouts layouts;
  struct rendezvous_state state = read_attributes(other, count, &layouts);
  assert_int_equal(layouts.oldest, oldest);
  assert_int_equal(layouts.newest, newest);
  state_free(&state);
}

/* ---- layouts -------------------------------------------------------------------------------------------------- */

static void test_each_trait_narrows_the_layouts_that_a_state_can_have(void **context) {
  (void)context;
  const struct attribute old = {"redundancy_list", {0}};
  const struct attribute addr = {"wait_list", BYTES("\x8f(" NODE("a") "\x90")};
  const struct attribute fqdn = {"wait_list", BYTES("\x8f(" NODE_("fqdn", "a") "\x90")};
  const struct attribute naive = {"deadline", BYTES(NAIVE("\1"))};
  const struct attribute aware = {"deadline", BYTES(AWARE("\1"))};
  assert_layouts(NULL, 0, TORCH_2_3, TORCH_2_6);
  assert_layouts(&addr, 1, TORCH_2_3, TORCH_2_6);
  assert_layouts(&naive, 1, TORCH_2_3, TORCH_2_3);
  assert_layouts(&aware, 1, TORCH_2_6, TORCH_2_6);
  assert_layouts(&old, 1, TORCH_1_13, TORCH_2_0);
  assert_layouts((struct attribute[]){old, naive}, 2, TORCH_1_13, TORCH_2_0);
  assert_layouts((struct attribute[]){old, addr}, 2, TORCH_2_0, TORCH_2_0);
  assert_layouts((struct attribute[]){old, fqdn}, 2, TORCH_1_13, TORCH_1_13);
  assert_layouts((struct attribute[]){old, fqdn, naive}, 3, TORCH_1_13, TORCH_1_13);
}

/* Rule: a PyTorch 1.13 that joins an empty state of 2.3 keeps the redundancy list, and puts nodes of its own in. */
static void test_a_redundancy_list_that_1_13_kept_does_not_hide_its_layout(void **context) {
  (void)context;
  const struct attribute fqdn = {"wait_list", BYTES("\x8f(" NODE_("fqdn", "a") "\x90")};
  assert_layouts(&fqdn, 1, TORCH_1_13, TORCH_1_13);
}

static void test_a_full_state_survives_each_layout_that_has_room_for_it(void **context) {
  (void)context;
  struct rendezvous_state state = sample_state();
  assert_survives(&state, TORCH_2_3);
  assert_survives(&state, TORCH_2_6);
  for (size_t i = 0; i < state.count; i++)
    state_set_kinds(&state, &state.nodes[i], state.nodes[i].kinds & ~(unsigned)NODE_SPARE);
  assert_survives(&state, TORCH_1_13);
  assert_survives(&state, TORCH_2_0);
  state_free(&state);
}

/* Rule: what is used again is remembered, and nothing else: the class, the names, hosts of several nodes, nodes that
 * are in several collections, UTC. */
static void test_the_bytes_of_a_small_state(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  state.closed = true;
  put_member(&state, "h", 256, 0, NODE_PARTICIPANT)->last_heartbeat = 0;
  put_member(&state, "h", 257, 1, NODE_WAITING);
  put_member(&state, "i", 1, 0, NODE_WAITING)->last_heartbeat = 1;
  struct buf pickle = write_state(&state, TORCH_2_6);
  static const char expected[] =
      "\x80\4\x95\x85\1\0\0\0\0\0\0" STR("\x37", TORCH_MODULE) "\x94" /* 0 */
      STR("\x10", "_RendezvousState") "\x93" NEW "}(" STR("\5", "round") "K\0" STR("\x08", "complete") "\x89"
      STR("\x08", "deadline") "N" STR("\6", "closed") "\x88" STR("\x0c", "participants") "}"
      "h\0" STR("\x09", "_NodeDesc") "\x93\x94" /* 1 */ NEW "\x94" /* 2: the node */
      "}(" STR("\4", "addr") "\x94" STR("\1", "h") "\x94" STR("\3", "pid") "\x94M\0\1" /* 3, 4, 5 */
      STR("\x08", "local_id") "\x94K\0ubK\0s" /* 6 */
      STR("\x09", "wait_list") "\x8f(h\1" NEW "}(h\3h\4h\5M\1\1h\6K\1ub"
      "h\1" NEW "\x94}(h\3" STR("\1", "i") "h\5K\1h\6K\0ub\x90" /* 7: the node */
      STR("\x0f", "redundancy_list") "\x8f" STR("\x0f", "last_heartbeats") "}(h\2"
      STR("\x08", "datetime") "\x94" STR("\x08", "datetime") "\x93\x94" /* 8, 9 */
      "C\x0a\x07\xb2\1\1\0\0\0\0\0\0h\x08" STR("\x08", "timezone") "\x93h\x08" STR("\x09", "timedelta") "\x93"
      "K\0K\0K\0\x87R\x85R\x94\x86R" /* 10: UTC */
      "h\7h\x09" "C\x0a\x07\xb2\1\1\0\0\0\0\0\1h\x0a\x86Ruub.";
  assert_int_equal(pickle.len, sizeof expected - 1);
  assert_memory_equal(pickle.data, expected, pickle.len);
  buf_free(&pickle);
  state_free(&state);
}

static void test_redundant_nodes_are_not_written_for_a_pytorch_that_has_none(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  put_member(&state, "a", 1, 0, NODE_SPARE);
  struct buf out = {0};
  rdzv_error error = {0};
  assert_error(pickle_write(&state, TORCH_2_0, &out, &error), RDZV_E_UNSUPPORTED, &error, "for PyTorch 2.0: 1 nodes");
  assert_int_equal(out.len, 0);
  state_free(&state);
}

static void test_a_time_that_python_cannot_say_is_not_written_and_leaves_the_buffer_alone(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  struct buf out = {0};
  rdzv_error error = {0};
  assert_true(buf_append(&out, "before", 6));
  state.deadline = DATETIME_MAX + 1;
  assert_error(pickle_write(&state, TORCH_2_6, &out, &error), RDZV_E_INVALID, &error, "after 9999");
  state.deadline = DATETIME_NONE;
  put_member(&state, "a", 1, 0, 0)->last_heartbeat = DATETIME_MIN - 1;
  assert_error(pickle_write(&state, TORCH_2_6, &out, &error), RDZV_E_INVALID, &error, "before the year 1");
  assert_bytes(((rdzv_bytes){out.data, out.len}), "before");
  buf_free(&out);
  state_free(&state);
}

static void test_a_member_that_is_in_no_collection_is_not_written(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  put_member(&state, "a", 1, 0, 0);
  struct buf pickle = write_state(&state, TORCH_2_6);
  struct torch_layouts layouts;
  struct rendezvous_state again = read_state((rdzv_bytes){pickle.data, pickle.len}, &layouts);
  assert_int_equal(again.count, 0);
  state_free(&again);
  state_free(&state);
  buf_free(&pickle);
}

/* Rule: what we write can be read. */
static void test_a_state_that_is_too_large_to_be_read_is_not_written(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  char addr[STATE_MAX_ADDR + 1];
  memset(addr, 'a', sizeof addr);
  addr[STATE_MAX_ADDR] = '\0';
  for (int i = 0; i < PICKLE_MAX_BYTES / STATE_MAX_ADDR; i++) {
    snprintf(addr, 6, "%05d", i);
    addr[5] = 'a';
    put_member(&state, addr, 0, 0, NODE_PARTICIPANT);
  }
  struct buf out = {0};
  rdzv_error error = {0};
  assert_error(pickle_write(&state, TORCH_2_6, &out, &error), RDZV_E_LIMIT, &error, "over the limit of 33554432");
  assert_int_equal(out.len, 0);
  buf_free(&out);
  state_free(&state);
}

/* Rule: containers are filled by 1000, one item alone goes without a mark. */
static void test_any_number_of_members_around_a_batch_survives(void **context) {
  (void)context;
  static const int64_t sizes[] = {0, 1, 2, 255, 256, 257, 999, 1000, 1001, 1002, 2000, 2001};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    struct rendezvous_state state = STATE_EMPTY;
    for (int64_t n = 0; n < sizes[i]; n++) {
      char addr[16];
      snprintf(addr, sizeof addr, "host%d", (int)(n / 3)); /* three on each */
      put_member(&state, addr, n, 0, NODE_PARTICIPANT)->rank = sizes[i] - n;
      struct state_node *member = put_member(&state, addr, n, 1, NODE_WAITING | NODE_SPARE);
      member->last_heartbeat = n % 2 ? n : DATETIME_NONE;
    }
    assert_survives(&state, TORCH_2_3);
    assert_survives(&state, TORCH_2_6);
    state_free(&state);
  }
}

static void test_every_size_of_int_survives(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  for (unsigned bit = 0; bit < 63; bit++)
    for (int64_t off = -1; off <= 1; off++) {
      const int64_t number = (INT64_C(1) << bit) + off;
      put_member(&state, "a", number, -number, NODE_PARTICIPANT)->rank = number;
      state.round = -number - 1;
      assert_survives(&state, TORCH_2_0);
    }
  put_member(&state, "a", INT64_MIN, INT64_MAX, NODE_PARTICIPANT)->rank = INT64_MIN;
  assert_survives(&state, TORCH_2_0);
  state_free(&state);
}

/* ---- pickles that are odd and right --------------------------------------------------------------------------- */

static void test_frames_may_stand_anywhere_between_opcodes(void **context) {
  (void)context;
#define FRAME "\x95\1\0\0\0\0\0\0\0"
  const struct attribute round = {"round", BYTES(FRAME "K\7" FRAME)};
  struct torch_layouts layouts;
  struct rendezvous_state state = read_attributes(&round, 1, &layouts);
  assert_int_equal(state.round, 7);
  state_free(&state);
}

/* Rule: one object or two equal ones, in one collection or in all, are one member. */
static void test_a_node_is_one_member_however_often_it_is_pickled(void **context) {
  (void)context;
  const struct attribute other[] = {
      {"participants", BYTES("}(" NODE("b") "q\0K\1" NODE("a") "q\1K\0h\0K\2u")},
      {"wait_list", BYTES("\x8f(h\1" NODE("a") "\x90")},
      {"redundancy_list", BYTES("c__builtin__\nset\n](" NODE("c") "h\0e\x85R")},
      {"last_heartbeats", BYTES("}(h\0" NAIVE("\1") NODE("a") NAIVE("\2") "h\0" NAIVE("\3") "u")},
  };
  struct torch_layouts layouts;
  struct rendezvous_state state = read_attributes(other, COUNT_OF(other), &layouts);
  assert_int_equal(state.count, 3);
  const struct state_node *a = &state.nodes[0], *b = &state.nodes[1], *c = &state.nodes[2];
  assert_int_equal(a->kinds, NODE_PARTICIPANT | NODE_WAITING);
  assert_int_equal(b->kinds, NODE_PARTICIPANT | NODE_SPARE);
  assert_int_equal(c->kinds, NODE_SPARE);
  assert_int_equal(b->rank, 2); /* what a dict is given last holds */
  assert_int_equal(b->last_heartbeat - a->last_heartbeat, 1000000);
  assert_true(c->last_heartbeat == DATETIME_NONE);
  assert_int_equal(state.num_participants, 2);
  assert_int_equal(state.num_waiting, 1);
  assert_int_equal(state.num_spares, 2);
  state_free(&state);
}

/* Rule: the last value holds, also where the collections are first in one order and then in another. */
static void test_the_last_heartbeat_of_a_node_holds_in_any_order(void **context) {
  (void)context;
  const struct attribute other[] = {
      {"participants", BYTES("}(" NODE("b") "q\0K\0" NODE("a") "q\1K\1u")},
      {"last_heartbeats", BYTES("}(h\1" NAIVE("\1") "h\0" NAIVE("\1") "h\1" NAIVE("\2") "u")},
  };
  struct torch_layouts layouts;
  struct rendezvous_state state = read_attributes(other, COUNT_OF(other), &layouts);
  assert_int_equal(state.count, 2);
  assert_int_equal(state.nodes[0].last_heartbeat - state.nodes[1].last_heartbeat, 1000000);
  state_free(&state);
}

/* Rule: BUILD copies, as Python's __dict__.update does; a dict that changes later changes no node. */
static void test_a_dict_that_changes_after_it_made_a_node_does_not_change_it(void **context) {
  (void)context;
  const struct attribute other = {
      "wait_list", BYTES("}(" STR("\4", "addr") STR("\1", "a") STR("\3", "pid") "K\1" STR(
                       "\x08", "local_id") "K\0uq\0\x30\x8f(" NODE_CLASS NEW "h\0bh\0" STR("\3", "pid") "K\2s0"
                                                                                                        "\x90")};
  struct torch_layouts layouts;
  struct rendezvous_state state = read_attributes(&other, 1, &layouts);
  assert_int_equal(state.count, 1);
  assert_int_equal(state.nodes[0].desc.pid, 1);
  state_free(&state);
}

static void test_an_attribute_that_is_there_twice_has_its_last_value(void **context) {
  (void)context;
  static const char pickle[] =
      "\x80\4" STATE_CLASS NEW "}(" STR("\5", "round") "K\1" STR("\1", "x") "K\1" STR("\x08", "complete") "\x88"
      STR("\x08", "deadline") "N" STR("\6", "closed") "\x89" STR("\x0c", "participants") "}" STR("\x09", "wait_list")
      "\x8f" STR("\x0f", "last_heartbeats") "}" STR("\5", "round") "K\2" STR("\1", "x") "K\2ub.";
  struct torch_layouts layouts;
  struct rendezvous_state state = read_state(BYTES(pickle), &layouts);
  assert_int_equal(state.round, 2);
  assert_int_equal(state.extra.count, 1);
  assert_int_equal(pynames_find(&state.extra, "x")->number, 2);
  state_free(&state);
}

/* ---- attributes that are not PyTorch's ------------------------------------------------------------------------ */

static void test_unknown_attributes_survive_being_written(void **context) {
  (void)context;
  const struct attribute other[] = {
      {"none", BYTES("N")},
      {"yes", BYTES("\x88")},
      {"int", BYTES("J\xff\xff\xff\x80")},
      {"long", BYTES("\x8a\x09\1\2\3\4\5\6\7\x08\x09")},
      {"negative", BYTES("\x8b\x0a\0\0\0\0\0\0\0\0\0\0\0\0\xff")},
      {"float", BYTES("G\x3f\xf8\0\0\0\0\0\0")},
      {"text", BYTES("X\4\0\0\0\0\xc3\xa9z")},
      {"bytes", BYTES("C\4\0\1\xff\x80")},
      {"empty_bytes", BYTES("c__builtin__\nbytes\n)R")},
      {"latin1", BYTES("c_codecs\nencode\n" STR("\3",
                                                "\xc3\xbf"
                                                "a") STR("\6", "latin1") "\x86R")},
      {"list", BYTES("](K\1" STR("\1", "a") "]e")},
      {"one", BYTES("]Na")},
      {"tuples", BYTES("(N)N\x85NN\x86NNN\x87(NNNNtt")},
      {"set", BYTES("\x8f(K\1K\2\x90")},
      {"dict", BYTES("}(K\1K\2" STR("\1", "k") "}N\x85]u")},
      {"rdzv", BYTES("}" STR("\1", "k") "Ns")},
  };
  struct torch_layouts layouts;
  struct buf pickle = state_pickle(other, COUNT_OF(other));
  struct rendezvous_state state = read_state((rdzv_bytes){pickle.data, pickle.len}, &layouts);
  assert_int_equal(state.extra.count, COUNT_OF(other));
  assert_int_equal(pynames_find(&state.extra, "int")->number, (int32_t)0x80ffffff);
  assert_int_equal(pynames_find(&state.extra, "long")->kind, PYVALUE_LONG);
  assert_true(pynames_find(&state.extra, "float")->real == 1.5);
  const struct pyvalue *latin1 = pynames_find(&state.extra, "latin1");
  assert_bytes(((rdzv_bytes){latin1->bytes, latin1->count}),
               "\xff"
               "a");
  assert_int_equal(pynames_find(&state.extra, "tuples")->items[5].count, 4);
  assert_int_equal(pynames_find(&state.extra, "dict")->count, 6);
  for (enum torch_layout layout = TORCH_1_13; layout <= TORCH_NEWEST; layout++) {
    struct buf written = write_state(&state, layout);
    struct rendezvous_state again = read_state((rdzv_bytes){written.data, written.len}, &layouts);
    assert_true(state_equal(&state, &again));
    state_free(&again);
    buf_free(&written);
  }
  state_free(&state);
  buf_free(&pickle);
}

static void test_long_lists_strings_and_dicts_survive(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  static const enum pyvalue_kind kinds[] = {PYVALUE_LIST, PYVALUE_TUPLE, PYVALUE_SET, PYVALUE_DICT};
  for (size_t i = 0; i < COUNT_OF(kinds); i++) {
    struct pyvalue value;
    const char name[] = {(char)('a' + (char)i), '\0'};
    assert_true(pyvalue_make_items(&value, kinds[i], 4002));
    for (size_t n = 0; n < value.count; n++)
      value.items[n] = (struct pyvalue){.kind = PYVALUE_INT, .number = (int64_t)n};
    assert_true(pynames_set(&state.extra, name, &value));
  }
  char text[300];
  memset(text, 'x', sizeof text);
  struct pyvalue value;
  assert_true(pyvalue_make_bytes(&value, PYVALUE_STR, (rdzv_bytes){text, sizeof text}));
  assert_true(pynames_set(&state.extra, "text", &value));
  assert_true(pyvalue_make_bytes(&value, PYVALUE_BYTES, (rdzv_bytes){text, sizeof text}));
  assert_true(pynames_set(&state.extra, "bytes", &value));
  assert_true(pyvalue_make_bytes(&value, PYVALUE_LONG, (rdzv_bytes){text, sizeof text}));
  assert_true(pynames_set(&state.extra, "long", &value));
  value = (struct pyvalue){.kind = PYVALUE_FLOAT, .real = -INFINITY};
  assert_true(pynames_set(&state.extra, "float", &value));
  assert_survives(&state, TORCH_2_6);
  state_free(&state);
}

static void test_what_is_not_plain_cannot_be_kept_and_is_named(void **context) {
  (void)context;
#define NOT_KEPT(code, part) assert_attribute_refused("x", BYTES(code), "attribute 'x' cannot be kept: " part)
  NOT_KEPT(NODE("a"), "a _NodeDesc is not a plain value");
  NOT_KEPT("]" NODE("a") "a", "a _NodeDesc is not a plain value");
  NOT_KEPT(NAIVE("\1"), "a datetime is not a plain value");
  NOT_KEPT("cdatetime\ndatetime\n", "a class is not a plain value");
  NOT_KEPT(STATE_CLASS NEW, "a _RendezvousState is not a plain value");
  NOT_KEPT("}]\x85Ns", "a set or a key of a dict has a list");
  NOT_KEPT("\x8f(]\x85\x90", "a set or a key of a dict has a list");
  assert_attribute_refused("a\xc3\xa9", BYTES(NODE("a")), "attribute 'a\\xc3\\xa9' cannot be kept");
}

static void test_a_name_that_is_too_long_or_has_a_zero_is_refused(void **context) {
  (void)context;
  struct buf pickle = state_pickle(NULL, 0);
  pickle.len -= 3; /* "ub." */
  const size_t before = pickle.len;
  assert_true(buf_append(&pickle, STR("\3", "a\0b") "Nub.", 9));
  assert_refused((rdzv_bytes){pickle.data, pickle.len}, "'a\\x00b' is not the name of an attribute");
  pickle.len = before;
  char name[300];
  memset(name, 'x', sizeof name);
  assert_true(buf_append(&pickle, "X\x2c\1\0\0", 5) && buf_append(&pickle, name, 300) &&
              buf_append(&pickle, "Nub.", 4));
  assert_refused((rdzv_bytes){pickle.data, pickle.len}, "is not the name of an attribute");
  buf_free(&pickle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_trait_narrows_the_layouts_that_a_state_can_have),
      cmocka_unit_test(test_a_redundancy_list_that_1_13_kept_does_not_hide_its_layout),
      cmocka_unit_test(test_a_full_state_survives_each_layout_that_has_room_for_it),
      cmocka_unit_test(test_the_bytes_of_a_small_state),
      cmocka_unit_test(test_redundant_nodes_are_not_written_for_a_pytorch_that_has_none),
      cmocka_unit_test(test_a_time_that_python_cannot_say_is_not_written_and_leaves_the_buffer_alone),
      cmocka_unit_test(test_a_member_that_is_in_no_collection_is_not_written),
      cmocka_unit_test(test_a_state_that_is_too_large_to_be_read_is_not_written),
      cmocka_unit_test(test_any_number_of_members_around_a_batch_survives),
      cmocka_unit_test(test_every_size_of_int_survives),
      cmocka_unit_test(test_frames_may_stand_anywhere_between_opcodes),
      cmocka_unit_test(test_a_node_is_one_member_however_often_it_is_pickled),
      cmocka_unit_test(test_the_last_heartbeat_of_a_node_holds_in_any_order),
      cmocka_unit_test(test_a_dict_that_changes_after_it_made_a_node_does_not_change_it),
      cmocka_unit_test(test_an_attribute_that_is_there_twice_has_its_last_value),
      cmocka_unit_test(test_unknown_attributes_survive_being_written),
      cmocka_unit_test(test_long_lists_strings_and_dicts_survive),
      cmocka_unit_test(test_what_is_not_plain_cannot_be_kept_and_is_named),
      cmocka_unit_test(test_a_name_that_is_too_long_or_has_a_zero_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
