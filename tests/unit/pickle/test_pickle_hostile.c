/* SPDX-License-Identifier: BSD-3-Clause */
/* Pickles that nobody's PyTorch wrote: each is refused by a sentence that says why, and soon. */
#include "test_state.h"

#define REFUSED(literal, part) assert_refused(BYTES(literal), part)
#define ATTRIBUTE_REFUSED(name, literal, part) assert_attribute_refused(name, BYTES(literal), part)

static void put(struct buf *out, const void *data, size_t len, size_t times) {
  while (times-- > 0) assert_true(buf_append(out, data, len));
}
#define PUT(out, literal, times) put(out, literal, sizeof(literal) - 1, times)

/* The attribute `x` is what the code pushes. Must be refused, and soon: what grows with the square of the length takes
 * longer than a test may. */
static void assert_bomb_refused(struct buf *code, const char *part) {
  struct buf pickle = state_pickle(&(struct attribute){"x", {code->data, code->len}}, 1);
  assert_refused((rdzv_bytes){pickle.data, pickle.len}, part);
  buf_free(&pickle);
  buf_free(code);
}

/* ---- globals -------------------------------------------------------------------------------------------------- */

static void test_every_other_global_is_refused_by_name(void **context) {
  (void)context;
  REFUSED("\x80\4cos\nsystem\nX\4\0\0\0true\x85R.", "'os.system'");
  REFUSED("\x80\4" STR("\2", "os") STR("\6", "system") "\x93" STR("\4", "true") "\x85R.", "'os.system'");
  REFUSED("\x80\4" STR("\10", "builtins") STR("\4", "eval") "\x93.", "'builtins.eval'");
  REFUSED("\x80\4" STR("\10", "datetime") STR("\4", "date") "\x93.", "'datetime.date'");
  REFUSED("\x80\4" STR("\7", "copyreg") STR("\16", "_reconstructor") "\x93.", "'copyreg._reconstructor'");
  REFUSED("\x80\2c" TORCH_MODULE "\n_RendezvousStateHolder\n.", "_RendezvousStateHolder");
  REFUSED("\x80\2c" TORCH_MODULE "\n_NodeDesc.__class__\n.", "_NodeDesc.__class__");
  REFUSED("\x80\2c\n\n.", "'.'");
  REFUSED("\x80\2cos.\xff\nsystem\n.", "os.\\xff.system");
}

static void test_a_global_that_is_known_can_only_do_what_pytorch_does_with_it(void **context) {
  (void)context;
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ndatetime\n", "is a class");
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ndatetime\n)R", "not made of 10 bytes");
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ndatetime\nC\x09\x07\xea\x0b\x0f\x0c\0\0\0\0\x85R", "not made of 10 bytes");
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ndatetime\nC\x0a\x07\xea\x0d\x0f\x0c\0\0\0\0\0\x85R", "are not a datetime");
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ndatetime\nC\x0a\x07\xea\x0b\x0f\x0c\0\0\0\0\0N\x86R",
                    "time zone of a datetime is None");
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ntimezone\n)R", "a time zone is not");
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ntimedelta\nK\0K\1K\0\x87R", "a timedelta is not 0");
  ATTRIBUTE_REFUSED("deadline", "cdatetime\ntimedelta\nK\0K\0\x86R", "a timedelta is not 0");
  ATTRIBUTE_REFUSED("deadline", UTC, "is a timezone, not a datetime");
  ATTRIBUTE_REFUSED("wait_list", "cbuiltins\nset\n)R", "a set is not made of one list");
  ATTRIBUTE_REFUSED("wait_list", "cbuiltins\nset\n\x8f\x85R", "a set is not made of one list");
  ATTRIBUTE_REFUSED("x", "cbuiltins\nbytes\nK\5\x85R", "the bytes constructor has arguments");
  ATTRIBUTE_REFUSED("x", "c_codecs\nencode\n" STR("\1", "a") STR("\4", "zlib") "\x86R", "not encoded as latin1");
  ATTRIBUTE_REFUSED("x", "c_codecs\nencode\n" STR("\3", "\xe2\x82\xac") STR("\6", "latin1") "\x86R",
                    "a character outside latin1");
  ATTRIBUTE_REFUSED("x", STATE_CLASS ")R", "is called");
  ATTRIBUTE_REFUSED("x", STR("\1", "a") ")R", "a str is called");
  ATTRIBUTE_REFUSED("x", "cbuiltins\nset\n]R", "is called with a list");
  ATTRIBUTE_REFUSED("x", "cbuiltins\nset\n" NEW, "no object can be made");
  ATTRIBUTE_REFUSED("x", NODE_CLASS "K\1\x85\x81", "no object can be made");
  ATTRIBUTE_REFUSED("x", "K\1" NEW, "no object can be made");
}

/* ---- the machine ---------------------------------------------------------------------------------------------- */

static void test_what_is_no_pickle_of_protocol_2_to_5_is_refused(void **context) {
  (void)context;
  REFUSED("", "cut short");
  REFUSED("\x80", "cut short");
  REFUSED("(dp0\n.", "not a pickle of protocol 2 to 5");
  REFUSED("\x80\1N.", "not a pickle of protocol 2 to 5");
  REFUSED("\x80\6N.", "not a pickle of protocol 2 to 5");
  REFUSED("\x80\4\x80\4N.", "opcode 0x80");
  REFUSED("\x80\4i", "at byte 2: unexpected opcode 0x69");
  REFUSED("\x80\4", "cut short");
  REFUSED("\x80\4N", "cut short");
  REFUSED("\x80\4.", "leaves 0 values");
  REFUSED("\x80\4NN.", "leaves 2 values");
  REFUSED("\x80\4(N.", "leaves 1 values");
  REFUSED("\x80\4N.N", "1 bytes come after its end");
  REFUSED("\x80\4N.", "it is None, not a _RendezvousState");
  REFUSED("\x80\4" STATE_CLASS NEW ".", "not a _RendezvousState");
}

static void test_opcodes_that_find_too_little_on_the_stack_are_refused(void **context) {
  (void)context;
  static const char *const short_of[] = {"0",    "\x85",     "N\x86", "NN\x87", "a",    "]a",    "s",    "}s", "}Ns",
                                         "q\1",  "\x94",     "R",     "NR",     "\x81", "N\x81", "b",    "Nb", "\x93",
                                         "](Na", "(N)(\x86", "}(NNs", "N(0",    "(u",   "(e",    "(\x90"};
  for (size_t i = 0; i < COUNT_OF(short_of); i++) {
    char pickle[16];
    const int len = snprintf(pickle, sizeof pickle, "\x80\4%s.", short_of[i]);
    assert_refused((rdzv_bytes){pickle, (size_t)len}, "fewer values than the opcode needs");
  }
  static const char *const no_mark[] = {"t", "e", "u", "\x90", "1", "]e"};
  for (size_t i = 0; i < COUNT_OF(no_mark); i++) {
    char pickle[16];
    const int len = snprintf(pickle, sizeof pickle, "\x80\4%s.", no_mark[i]);
    assert_refused((rdzv_bytes){pickle, (size_t)len}, "there is no mark");
  }
}

static void test_items_for_what_is_no_such_container_are_refused(void **context) {
  (void)context;
  REFUSED("\x80\4}Na.", "a dict is to be a list");
  REFUSED("\x80\4](NNu.", "a list is to be a dict");
  REFUSED("\x80\4N(N\x90.", "None is to be a set");
  REFUSED("\x80\4}(NNNu.", "a key has no value");
  REFUSED("\x80\4}]Ns.", "a list cannot be in a set or a key");
  REFUSED("\x80\4\x8f(}\x90.", "a dict cannot be in a set or a key");
  REFUSED("\x80\4\x8f(" STATE_CLASS NEW "\x90.", "a _RendezvousState cannot be");
  REFUSED("\x80\4\x8f(" NODE_CLASS NEW "\x90.", "a _NodeDesc cannot be");
  REFUSED("\x80\4KbKb\x93.", "the name of a class is not a str");
}

static void test_lengths_beyond_the_end_or_a_limit_are_refused_before_they_are_used(void **context) {
  (void)context;
  REFUSED("\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "cut short");
  REFUSED("\x80\4\x95\3\0\0\0\0\0\0\0N.", "cut short");
  REFUSED("\x80\4X\xff\xff\0\0abc.", "cut short");
  REFUSED("\x80\4X\1\0\1\0abc.", "a length of 65537, over the limit");
  REFUSED("\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xffN.", "a length of 18446744073709551615, over the limit");
  REFUSED("\x80\4\x8e\0\0\0\0\1\0\0\0N.", "over the limit");
  REFUSED("\x80\4\x8b\xff\xff\xff\xffN.", "over the limit");
  REFUSED("\x80\4ctorch", "the name of a class does not end");
  REFUSED("\x80\4" STR("\2", "\xc3."), "is not UTF-8");
  REFUSED("\x80\4" STR("\3", "\xed\xa0\x80") ".", "is not UTF-8");
}

static void test_a_pickle_over_the_limit_is_refused_unread(void **context) {
  (void)context;
  char *data = calloc(1, PICKLE_MAX_BYTES + 1u);
  assert_non_null(data);
  assert_refused((rdzv_bytes){data, PICKLE_MAX_BYTES + 1u}, "33554433 bytes, over the limit");
  free(data);
}

static void test_the_memo_gives_only_what_was_put_there_and_has_an_end(void **context) {
  (void)context;
  REFUSED("\x80\4h\0.", "the memo has no value 0");
  REFUSED("\x80\4Nq\5h\4.", "the memo has no value 4");
  REFUSED("\x80\4Nq\5j\xff\xff\xff\xff.", "the memo has no value 4294967295");
  REFUSED("\x80\4Nr\xff\xff\xff\xff.", "values in the memo");
  REFUSED("\x80\4Nr\0\0\x10\0.", "over 1048576 values in the memo");
  REFUSED(
      "\x80\4Nr\xff\xff\x0f\0"
      "0j\xff\xff\x0f\0.",
      "it is None");
  REFUSED("\x80\4Nq\7\x94\x30h\1.", "it is None"); /* MEMOIZE goes by the number of values, as in CPython */
}

/* ---- bombs ---------------------------------------------------------------------------------------------------- */

static void test_a_stack_without_end_is_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "N", PICKLE_MAX_STACK + 1);
  assert_bomb_refused(&code, "values on the stack");
}

static void test_depth_without_end_is_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "(", 1000000);
  assert_bomb_refused(&code, "nested more than 128 levels");
  PUT(&code, ")", 1);
  PUT(&code, "\x85", 1000000);
  assert_bomb_refused(&code, "'x' cannot be kept: it has over");
}

static void test_objects_without_end_are_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "]0", 5000000);
  assert_bomb_refused(&code, "its objects need over 67108864 bytes");
}

/* Each of 25 lists has the one before eight times: 2^75 values. */
static void test_a_value_that_unfolds_without_end_is_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "]q\0", 1);
  for (uint8_t i = 0; i < 25; i++) {
    const uint8_t get[] = {'h', i}, next[] = {'e', 'q', (uint8_t)(i + 1)};
    PUT(&code, "0](", 1);
    put(&code, get, sizeof get, 8);
    put(&code, next, sizeof next, 1);
  }
  assert_bomb_refused(&code, "'x' cannot be kept: it has over");
}

/* One long string, thousands of times. */
static void test_a_string_that_is_used_without_end_is_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "](X\0\0\1\0", 1);
  PUT(&code, "a", 1 << 16);
  PUT(&code, "q\0", 1);
  PUT(&code, "h\0", 30000);
  PUT(&code, "e", 1);
  assert_bomb_refused(&code, "'x' cannot be kept: it has over");
}

static void test_copies_of_a_list_without_end_are_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code,
      "cbuiltins\nset\nq\0"
      "0](",
      1);
  PUT(&code, "N", 50000);
  PUT(&code, "e\x85q\1", 1);
  PUT(&code, "h\0h\1R0", 1000000);
  assert_bomb_refused(&code, "its objects need over");
  PUT(&code,
      "c_codecs\nencode\nq\0"
      "0X\0\0\1\0",
      1);
  PUT(&code, "a", 1 << 16);
  PUT(&code, STR("\6", "latin1") "\x86q\1", 1);
  PUT(&code, "h\0h\1R0", 1000000);
  assert_bomb_refused(&code, "its objects need over");
}

/* A list, a dict and a tuple that hold themselves. */
static void test_cycles_are_refused(void **context) {
  (void)context;
  ATTRIBUTE_REFUSED("x", "]q\0h\0a", "'x' cannot be kept: it has over");
  ATTRIBUTE_REFUSED("x", "}q\0K\1h\0s", "'x' cannot be kept: it has over");
  ATTRIBUTE_REFUSED("x",
                    "]q\0h\0\x85q\1a"
                    "0h\1",
                    "'x' cannot be kept: it has over");
  ATTRIBUTE_REFUSED("participants", "}q\0K\1h\0s", "in attribute 'participants' is an int, not a _NodeDesc");
  ATTRIBUTE_REFUSED("round", STATE_CLASS NEW "q\0}b", "'round' is a _RendezvousState");
}

static void test_an_object_with_attributes_without_end_is_refused(void **context) {
  (void)context;
  struct buf pickle = {0};
  PUT(&pickle, "\x80\4" STATE_CLASS NEW "}(", 1);
  PUT(&pickle, STR("\5", "round") "K\0", PICKLE_MAX_ATTRIBUTES + 1);
  PUT(&pickle, "ub.", 1);
  assert_refused((rdzv_bytes){pickle.data, pickle.len}, "over 64 attributes");
  buf_free(&pickle);
}

/* 100000 nodes, each by the same dict of attributes. */
static void test_nodes_over_the_limit_are_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "\x8f", 1);
  for (uint32_t i = 0; i < 100000; i++) {
    if (i % 1000 == 0) PUT(&code, "(", 1);
    PUT(&code, NODE_CLASS NEW "}(" STR("\4", "addr") STR("\1", "a") STR("\3", "pid") "J", 1);
    put(&code, &i, sizeof i, 1);
    PUT(&code, STR("\x08", "local_id") "K\0ub", 1);
    if (i % 1000 == 999) PUT(&code, "\x90", 1);
  }
  struct buf pickle = state_pickle(&(struct attribute){"wait_list", {code.data, code.len}}, 1);
  assert_refused((rdzv_bytes){pickle.data, pickle.len}, "100000 nodes, over the limit of 65536");
  buf_free(&pickle);
  buf_free(&code);
}

/* One node as a key a million times: the last rank holds, and it takes no time. */
static void test_a_key_again_and_again_is_one_member(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "}" NODE("a") "q\0" "0", 1);
  for (int i = 0; i < 200; i++) {
    PUT(&code, "(", 1);
    PUT(&code, "h\0K\3", 1000);
    PUT(&code, "h\0K\5u", 1);
  }
  struct torch_layouts layouts;
  struct rendezvous_state state =
      read_attributes(&(struct attribute){"participants", {code.data, code.len}}, 1, &layouts);
  assert_int_equal(state.count, 1);
  assert_int_equal(state.nodes[0].rank, 5);
  state_free(&state);
  buf_free(&code);
}

/* ---- wrong attributes ----------------------------------------------------------------------------------------- */

static void test_an_attribute_that_is_missing_is_named(void **context) {
  (void)context;
  static const char *const names[] = {"round",        "complete",  "deadline",       "closed",
                                      "participants", "wait_list", "last_heartbeats"};
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    char part[64];
    snprintf(part, sizeof part, "attribute '%s' is missing", names[i]);
    assert_attribute_refused(names[i], (rdzv_bytes){0}, part);
  }
}

static void test_an_attribute_of_another_type_is_named(void **context) {
  (void)context;
  ATTRIBUTE_REFUSED("round", "N", "attribute 'round' is None, not an int");
  ATTRIBUTE_REFUSED("round", "\x88", "attribute 'round' is a bool, not an int");
  ATTRIBUTE_REFUSED("round", "\x8a\x09\0\0\0\0\0\0\0\0\1", "attribute 'round' is a large int, not an int");
  ATTRIBUTE_REFUSED("complete", "K\1", "attribute 'complete' is an int, not a bool");
  ATTRIBUTE_REFUSED("closed", "N", "attribute 'closed' is None, not a bool");
  ATTRIBUTE_REFUSED("deadline", "K\1", "attribute 'deadline' is an int, not a datetime");
  ATTRIBUTE_REFUSED("participants", "]", "attribute 'participants' is a list, not a dict");
  ATTRIBUTE_REFUSED("participants", "}K\1K\1s", "in attribute 'participants' is an int, not a _NodeDesc");
  ATTRIBUTE_REFUSED("participants", "}" NODE("a") "Ns", "in attribute 'participants' is None, not an int");
  ATTRIBUTE_REFUSED("wait_list", "}", "attribute 'wait_list' is a dict, not a set");
  ATTRIBUTE_REFUSED("wait_list", "\x8f(N\x90", "in attribute 'wait_list' is None");
  ATTRIBUTE_REFUSED("wait_list", "cbuiltins\nset\n]" NODE_CLASS NEW "a\x85R", "not a _NodeDesc");
  ATTRIBUTE_REFUSED("redundancy_list", "N", "attribute 'redundancy_list' is None, not a set");
  ATTRIBUTE_REFUSED("last_heartbeats", "}" NODE("a") "K\0s", "'last_heartbeats' is an int, not a datetime");
}

static void test_attributes_that_are_not_a_dict_of_names_are_refused(void **context) {
  (void)context;
  REFUSED("\x80\4" STATE_CLASS NEW "Nb.", "the attributes of an object are None");
  REFUSED("\x80\4" STATE_CLASS NEW "}K\1Nsb.", "the name of an attribute is an int");
  REFUSED("\x80\4N}b.", "None gets attributes");
  REFUSED("\x80\4" STATE_CLASS NEW "}b}b.", "gets attributes"); /* twice */
  ATTRIBUTE_REFUSED("x", NODE("a") "}b", "gets attributes");
}

static void test_a_node_with_other_attributes_than_its_own_is_refused(void **context) {
  (void)context;
#define BROKEN_NODE(attributes) "\x8f(" NODE_CLASS NEW "}(" attributes "ub\x90"
#define PID STR("\3", "pid") "K\1"
#define LOCAL_ID STR("\x08", "local_id") "K\0"
#define ADDR STR("\4", "addr") STR("\1", "a")
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(""), "unexpected attributes of a node");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(PID LOCAL_ID), "unexpected attributes of a node");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(ADDR PID), "unexpected attributes of a node");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(ADDR STR("\4", "fqdn") STR("\1", "a") PID LOCAL_ID),
                    "unexpected attributes of a node");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(ADDR PID LOCAL_ID STR("\3", "new") "N"), "the attribute 'new'");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(ADDR PID LOCAL_ID "NN"), "the attribute ''");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(STR("\4", "addr") "N" PID LOCAL_ID), "'addr' of a node is None");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(ADDR STR("\3", "pid") "\x88" LOCAL_ID), "'pid' of a node is a bool");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(ADDR STR("\3", "pid") "\x8a\x09\0\0\0\0\0\0\0\0\1" LOCAL_ID),
                    "'pid' of a node is a large int");
  ATTRIBUTE_REFUSED("wait_list", BROKEN_NODE(STR("\4", "addr") STR("\3", "a\0b") PID LOCAL_ID), "has a zero in it");
}

static void test_an_address_over_the_limit_is_refused(void **context) {
  (void)context;
  struct buf code = {0};
  PUT(&code, "\x8f(" NODE_CLASS NEW "}(" STR("\4", "addr") "X\1\4\0\0", 1);
  PUT(&code, "a", STATE_MAX_ADDR + 1);
  PUT(&code, PID LOCAL_ID "ub\x90", 1);
  assert_attribute_refused("wait_list", (rdzv_bytes){code.data, code.len}, "has 1025 bytes, over the limit");
  buf_free(&code);
}

static void test_traits_of_different_layouts_are_not_mixed(void **context) {
  (void)context;
  ATTRIBUTE_REFUSED("wait_list", "\x8f(" NODE("a") NODE_("fqdn", "b") "\x90", "some nodes have 'addr', some 'fqdn'");
  ATTRIBUTE_REFUSED("redundancy_list", "\x8f(" NODE_("fqdn", "b") "\x90", "of PyTorch 1.13, the rest is not");
  ATTRIBUTE_REFUSED("last_heartbeats", "}(" NODE("a") NAIVE("\1") NODE("b") AWARE("\1") "u",
                    "some datetimes have a time zone");
  ATTRIBUTE_REFUSED("last_heartbeats", "}(" NODE_("fqdn", "b") AWARE("\1") "u", "of PyTorch 1.13, the rest is not");
}

static void test_an_error_need_not_be_asked_for(void **context) {
  (void)context;
  struct rendezvous_state state;
  struct torch_layouts layouts;
  assert_code(pickle_read(BYTES("\x80\4cos\nsystem\n"), &state, &layouts, NULL), RDZV_E_CORRUPT);
  assert_code(pickle_read((rdzv_bytes){0}, &state, &layouts, NULL), RDZV_E_CORRUPT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_other_global_is_refused_by_name),
      cmocka_unit_test(test_a_global_that_is_known_can_only_do_what_pytorch_does_with_it),
      cmocka_unit_test(test_what_is_no_pickle_of_protocol_2_to_5_is_refused),
      cmocka_unit_test(test_opcodes_that_find_too_little_on_the_stack_are_refused),
      cmocka_unit_test(test_items_for_what_is_no_such_container_are_refused),
      cmocka_unit_test(test_lengths_beyond_the_end_or_a_limit_are_refused_before_they_are_used),
      cmocka_unit_test(test_a_pickle_over_the_limit_is_refused_unread),
      cmocka_unit_test(test_the_memo_gives_only_what_was_put_there_and_has_an_end),
      cmocka_unit_test(test_a_stack_without_end_is_refused),
      cmocka_unit_test(test_depth_without_end_is_refused),
      cmocka_unit_test(test_objects_without_end_are_refused),
      cmocka_unit_test(test_a_value_that_unfolds_without_end_is_refused),
      cmocka_unit_test(test_a_string_that_is_used_without_end_is_refused),
      cmocka_unit_test(test_copies_of_a_list_without_end_are_refused),
      cmocka_unit_test(test_cycles_are_refused),
      cmocka_unit_test(test_an_object_with_attributes_without_end_is_refused),
      cmocka_unit_test(test_nodes_over_the_limit_are_refused),
      cmocka_unit_test(test_a_key_again_and_again_is_one_member),
      cmocka_unit_test(test_an_attribute_that_is_missing_is_named),
      cmocka_unit_test(test_an_attribute_of_another_type_is_named),
      cmocka_unit_test(test_attributes_that_are_not_a_dict_of_names_are_refused),
      cmocka_unit_test(test_a_node_with_other_attributes_than_its_own_is_refused),
      cmocka_unit_test(test_an_address_over_the_limit_is_refused),
      cmocka_unit_test(test_traits_of_different_layouts_are_not_mixed),
      cmocka_unit_test(test_an_error_need_not_be_asked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
