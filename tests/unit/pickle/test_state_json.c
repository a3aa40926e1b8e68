/* SPDX-License-Identifier: BSD-3-Clause */
/* The state as JSON: what it looks like, what is kept, and what is refused. */
#include "state_json.h"
#include "test_state.h"

#include <math.h>

#define ALL_BUT_LISTS "\"round\":1,\"complete\":false,\"closed\":true,\"deadline\":null"
#define LISTS(participants, waiting) \
  "\"participants\":[" participants "],\"wait_list\":[" waiting "],\"redundancy_list\":[]"
#define NODE_A "\"node\":{\"addr\":\"a\",\"pid\":1,\"local_id\":2}"
#define NEVER ",\"last_heartbeat\":null"

static struct buf write_json(const struct rendezvous_state *state) {
  struct buf out = {0};
  rdzv_error error = {0};
  if (state_json_write(state, &out, &error) < 0) fail_msg("%s", error.message);
  return out;
}

/* Reads a copy that has not one byte more than it should. */
static int read_json(rdzv_bytes json, struct rendezvous_state *state, rdzv_error *error) {
  char *copy = malloc(json.len ? json.len : 1);
  assert_non_null(copy);
  bytes_copy(copy, json.data, json.len);
  const int result = state_json_read((rdzv_bytes){copy, json.len}, state, error);
  free(copy);
  return result;
}

static void assert_json_refused(rdzv_bytes json, const char *part) {
  struct rendezvous_state state;
  rdzv_error error = {0};
  const int result = read_json(json, &state, &error);
  if (result == 0) state_free(&state);
  assert_error(result, RDZV_E_CORRUPT, &error, part);
  assert_non_null(strstr(error.message, "cannot read the rendezvous state: "));
}
#define REFUSED(literal, part) assert_json_refused(BYTES(literal), part)
#define EXTRA_REFUSED(literal, part) REFUSED("{" ALL_BUT_LISTS "," LISTS("", "") ",\"x\":" literal "}", part)

static void assert_json_survives(const struct rendezvous_state *state) {
  struct buf json = write_json(state);
  struct rendezvous_state again;
  rdzv_error error = {0};
  if (read_json((rdzv_bytes){json.data, json.len}, &again, &error) < 0) fail_msg("%s", error.message);
  assert_true(state_equal(state, &again));
  assert_int_equal(again.num_participants, state->num_participants);
  state_free(&again);
  buf_free(&json);
}

static void test_the_form_is_the_documented_one(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  state.deadline = 1;
  put_member(&state, "h\u00e9\"", 1, 0, NODE_PARTICIPANT)->last_heartbeat = 0;
  put_member(&state, "w", 2, 1, NODE_WAITING);
  struct buf json = write_json(&state);
  assert_bytes(((rdzv_bytes){json.data, json.len}),
               "{\"round\":0,\"complete\":false,\"closed\":false,\"deadline\":\"1970-01-01T00:00:00.000001Z\","
               "\"participants\":[{\"node\":{\"addr\":\"h\u00e9\\\"\",\"pid\":1,\"local_id\":0},\"rank\":0,"
               "\"last_heartbeat\":\"1970-01-01T00:00:00.000000Z\"}],"
               "\"wait_list\":[{\"node\":{\"addr\":\"w\",\"pid\":2,\"local_id\":1},\"last_heartbeat\":null}],"
               "\"redundancy_list\":[]}");
  buf_free(&json);
  state_free(&state);
}

static void test_every_state_survives(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  assert_json_survives(&state);
  state = sample_state();
  assert_json_survives(&state);
  state_free(&state);
}

static void test_members_may_come_in_any_order_and_in_several_lists(void **context) {
  (void)context;
  static const char json[] = "{" ALL_BUT_LISTS "," LISTS(
      "{\"node\":{\"addr\":\"b\",\"pid\":1,\"local_id\":2},\"rank\":4" NEVER "},{" NODE_A ",\"rank\":5" NEVER "}",
      "{" NODE_A ",\"last_heartbeat\":\"1970-01-01T00:00:01.000000Z\"}") "}";
  struct rendezvous_state state;
  assert_code(read_json(BYTES(json), &state, NULL), 0);
  assert_int_equal(state.count, 2);
  assert_int_equal(state.nodes[0].kinds, NODE_PARTICIPANT | NODE_WAITING);
  assert_int_equal(state.nodes[0].rank, 5);
  assert_int_equal(state.nodes[0].last_heartbeat, 1000000);
  assert_int_equal(state.nodes[1].rank, 4);
  assert_true(state.closed);
  state_free(&state);
}

/* Rule: what JSON has no form for is an object of one member that begins with '$'. */
static void test_python_values_that_json_has_not_survive(void **context) {
  (void)context;
  const struct attribute other[] = {
      {"none", BYTES("N")},
      {"yes", BYTES("\x88")},
      {"no", BYTES("\x89")},
      {"long", BYTES("\x8a\x09\1\2\3\4\5\6\7\x08\x09")},
      {"float", BYTES("G\x3f\xb9\x99\x99\x99\x99\x99\x9a")},
      {"whole", BYTES("G\x40\0\0\0\0\0\0\0")},
      {"nan", BYTES("G\x7f\xf8\0\0\0\0\0\0")},
      {"inf", BYTES("G\x7f\xf0\0\0\0\0\0\0")},
      {"minus_inf", BYTES("G\xff\xf0\0\0\0\0\0\0")},
      {"text", BYTES("X\4\0\0\0\0\xc3\xa9z")},
      {"bytes", BYTES("C\4\0\1\xff\x80")},
      {"no_bytes", BYTES("C\0")},
      {"list", BYTES("](K\1" STR("\1", "a") "]e")},
      {"tuple", BYTES("(N)N\x85t")},
      {"set", BYTES("\x8f(K\1K\2\x90")},
      {"dict", BYTES("}(" STR("\1", "a") "K\2" STR("\0", "") "}u")},
      {"pairs", BYTES("}(K\1K\2" STR("\1", "k") "}N\x85]u")},
      {"dollar", BYTES("}" STR("\6", "$tuple") "]s")},
      {"zero", BYTES("}" STR("\2", "a\0") "Ns")},
  };
  struct torch_layouts layouts;
  struct rendezvous_state state = read_attributes(other, COUNT_OF(other), &layouts);
  assert_int_equal(state.extra.count, COUNT_OF(other));
  assert_json_survives(&state);
  struct buf json = write_json(&state);
  static const char *const parts[] = {"\"bytes\":{\"$bytes\":\"0001ff80\"}",
                                      "\"dict\":{\"a\":2,\"\":{}}",
                                      "\"dollar\":{\"$dict\":[[\"$tuple\",[]]]}",
                                      "\"float\":0.1",
                                      "\"minus_inf\":{\"$float\":\"-inf\"}",
                                      "\"set\":{\"$set\":[1,2]}",
                                      "\"tuple\":{\"$tuple\":[null,{\"$tuple\":[]},{\"$tuple\":[null]}]}"};
  for (size_t i = 0; i < COUNT_OF(parts); i++)
    if (!memmem(json.data, json.len, parts[i], strlen(parts[i])))
      fail_msg("'%s' is not in '%.*s'", parts[i], (int)json.len, (char *)json.data);
  buf_free(&json);
  state_free(&state);
}

static void test_what_is_no_json_object_is_refused(void **context) {
  (void)context;
  REFUSED("", "it is no JSON: ");
  REFUSED("{", "it is no JSON: ");
  REFUSED("[]", "it is no JSON object");
  REFUSED("{}x", "it is no JSON: ");
  REFUSED("{\"round\":1,\"round\":2}", "it is no JSON: duplicate");
  REFUSED("{\"round\":\"\xff\"}", "it is no JSON: ");
  REFUSED("{\"round\":9223372036854775808}", "it is no JSON: ");
}

static void test_what_is_missing_or_of_another_type_is_named(void **context) {
  (void)context;
  REFUSED("{}", "'round' is missing");
  REFUSED("{\"round\":1.0}", "'round' is of another type");
  REFUSED("{\"round\":1,\"complete\":0}", "'complete' is of another type");
  REFUSED("{\"round\":1,\"complete\":true}", "'closed' is missing");
  REFUSED("{\"round\":1,\"complete\":true,\"closed\":true}", "'deadline' is neither null nor a time");
  REFUSED("{\"round\":1,\"complete\":true,\"closed\":true,\"deadline\":\"now\"}", "'deadline' is neither null");
  REFUSED("{" ALL_BUT_LISTS "}", "'participants' is missing");
  REFUSED("{" ALL_BUT_LISTS ",\"participants\":[],\"wait_list\":{}}", "'wait_list' is of another type");
  REFUSED("{" ALL_BUT_LISTS ",\"participants\":[],\"wait_list\":[]}", "'redundancy_list' is missing");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("1", "") "}", "'participants', entry 0: a member is no object");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("{}", "") "}", "'participants', entry 0: 'node' is missing");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("{" NODE_A "}", "") "}", "'last_heartbeat' is neither");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("{" NODE_A NEVER "}", "") "}", "'rank' is missing");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("", "{\"node\":{}" NEVER "}") "}", "'wait_list', entry 0: 'addr' is missing");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("", "{\"node\":{\"addr\":\"a\",\"pid\":null}" NEVER "}") "}", "'pid' is of");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("", "") ",\"last_heartbeats\":1}", "'last_heartbeats' is of another type");
}

static void test_what_a_member_has_no_place_for_is_refused_and_not_lost(void **context) {
  (void)context;
  REFUSED("{" ALL_BUT_LISTS "," LISTS("", "{" NODE_A NEVER ",\"x\":1}") "}", "a member has more than");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("", "{" NODE_A NEVER ",\"rank\":1}") "}", "a member has more than");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("", "{\"node\":{\"addr\":\"a\",\"pid\":1,\"local_id\":0,\"x\":1}" NEVER "}") "}",
          "a node has more than");
  REFUSED("{" ALL_BUT_LISTS "," LISTS("", "{\"node\":{\"addr\":\"\\u0000\",\"pid\":1,\"local_id\":0}" NEVER "}") "}",
          "has a zero in it");
}

static void test_unknown_members_that_cannot_be_kept_are_named(void **context) {
  (void)context;
  EXTRA_REFUSED("{\"$what\":1}", "'x' cannot be kept: a name begins with '$'");
  EXTRA_REFUSED("{\"$tuple\":1}", "'x' cannot be kept: a list is none");
  EXTRA_REFUSED("{\"$tuple\":[],\"$set\":[]}", "a name begins with '$'");
  EXTRA_REFUSED("{\"$set\":[[]]}", "a set has a list");
  EXTRA_REFUSED("{\"$dict\":[[[],1]]}", "a key of a dict has a list");
  EXTRA_REFUSED("{\"$dict\":[[1]]}", "a pair of a dict is none");
  EXTRA_REFUSED("{\"$dict\":{}}", "the pairs of a dict are no list");
  EXTRA_REFUSED("{\"$bytes\":\"0\"}", "not pairs of hexadecimal digits");
  EXTRA_REFUSED("{\"$bytes\":\"0G\"}", "not pairs of hexadecimal digits");
  EXTRA_REFUSED("{\"$bytes\":1}", "not pairs of hexadecimal digits");
  EXTRA_REFUSED("{\"$float\":\"1\"}", "neither 'nan' nor");
}

static void test_a_long_that_is_short_is_an_int(void **context) {
  (void)context;
  struct rendezvous_state state;
  assert_code(read_json(BYTES("{" ALL_BUT_LISTS "," LISTS("", "") ",\"x\":{\"$long\":\"feffffffffffffffffffff\"}}"),
                        &state, NULL),
              0);
  assert_int_equal(state.extra.items[0].value.kind, PYVALUE_INT);
  assert_int_equal(state.extra.items[0].value.number, -2);
  state_free(&state);
}

/* Puts `count` times `text` between a head and a tail. */
static void assert_bomb_refused(const char *head, const char *text, size_t count, const char *tail, const char *part) {
  struct buf json = {0};
  assert_true(buf_append(&json, head, strlen(head)));
  for (size_t i = 0; i < count; i++) assert_true(buf_append(&json, text, strlen(text)));
  assert_true(buf_append(&json, tail, strlen(tail)));
  assert_json_refused((rdzv_bytes){json.data, json.len}, part);
  buf_free(&json);
}

static void test_depth_and_size_without_end_are_refused(void **context) {
  (void)context;
#define HEAD "{" ALL_BUT_LISTS "," LISTS("", "") ",\"x\":"
  assert_bomb_refused(HEAD, "[", 100000, "", "it is no JSON: ");
  assert_bomb_refused(HEAD "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "", 0, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
                      "cannot be kept");
  assert_bomb_refused(HEAD "[", "1,", PYVALUE_MAX_COUNT, "1]}", "cannot be kept: it has over");
  assert_bomb_refused(HEAD "\"", "abcdefgh", PYVALUE_MAX_BYTES / 8 + 1, "\"}", "cannot be kept: it has over");
  assert_bomb_refused("", "          ", STATE_JSON_MAX_BYTES / 10 + 1, "", "over the limit");
  assert_bomb_refused(HEAD "1,\"", "xxxxxxxx", PYVALUE_MAX_NAME / 8 + 1, "\":1}", "one's name has over 255 bytes");
}

static void test_unknown_members_are_limited(void **context) {
  (void)context;
  struct buf json = {0};
  assert_true(buf_append(&json, "{" ALL_BUT_LISTS "," LISTS("", ""), strlen("{" ALL_BUT_LISTS "," LISTS("", ""))));
  for (int i = 0; i <= PYVALUE_MAX_NAMES; i++) {
    char member[32];
    const int len = snprintf(member, sizeof member, ",\"x%d\":null", i);
    assert_true(buf_append(&json, member, (size_t)len));
  }
  assert_true(buf_append(&json, "}", 1));
  assert_json_refused((rdzv_bytes){json.data, json.len}, "over 64 unknown members");
  buf_free(&json);
}

static void test_json_that_is_cut_at_any_byte_is_refused(void **context) {
  (void)context;
  struct rendezvous_state state = sample_state();
  struct buf json = write_json(&state);
  for (size_t len = 0; len < json.len; len++) assert_json_refused((rdzv_bytes){json.data, len}, "it is no JSON: ");
  buf_free(&json);
  state_free(&state);
}

static void test_a_time_that_cannot_be_said_is_not_written(void **context) {
  (void)context;
  struct rendezvous_state state = STATE_EMPTY;
  struct buf out = {0};
  rdzv_error error = {0};
  put_member(&state, "a", 1, 0, NODE_WAITING)->last_heartbeat = INT64_MAX;
  assert_error(state_json_write(&state, &out, &error), RDZV_E_INVALID, &error, "a time is before");
  assert_int_equal(out.len, 0);
  state_free(&state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_form_is_the_documented_one),
      cmocka_unit_test(test_every_state_survives),
      cmocka_unit_test(test_members_may_come_in_any_order_and_in_several_lists),
      cmocka_unit_test(test_python_values_that_json_has_not_survive),
      cmocka_unit_test(test_what_is_no_json_object_is_refused),
      cmocka_unit_test(test_what_is_missing_or_of_another_type_is_named),
      cmocka_unit_test(test_what_a_member_has_no_place_for_is_refused_and_not_lost),
      cmocka_unit_test(test_unknown_members_that_cannot_be_kept_are_named),
      cmocka_unit_test(test_a_long_that_is_short_is_an_int),
      cmocka_unit_test(test_depth_and_size_without_end_are_refused),
      cmocka_unit_test(test_unknown_members_are_limited),
      cmocka_unit_test(test_json_that_is_cut_at_any_byte_is_refused),
      cmocka_unit_test(test_a_time_that_cannot_be_said_is_not_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
