/* SPDX-License-Identifier: BSD-3-Clause */
/* What etcd's v2 API answers, read: as a real etcd 3.4 says it, and everything that it does not say. */
#include "etcd/http/http.h"
#include "etcd/v2/read.h"
#include "unit.h"

static struct etcd_result must_read(const char *text) {
  struct etcd_result result;
  rdzv_error error = {0};
  if (etcd_v2_read(rdzv_str(text), &result, &error) < 0) fail_msg("%s", error.message);
  return result;
}

static void must_refuse_bytes(rdzv_bytes body, const char *part) {
  struct etcd_result result;
  rdzv_error error = {0};
  assert_error(etcd_v2_read(body, &result, &error), RDZV_E_PROTOCOL, &error, part);
  assert_null(result.node.key);
  assert_null(result.node.nodes);
  assert_code(etcd_v2_read(body, &result, NULL), RDZV_E_PROTOCOL);
}

static void must_refuse(const char *text, const char *part) { must_refuse_bytes(rdzv_str(text), part); }

static void test_reads_a_key(void **state) {
  (void)state;
  struct etcd_result result = must_read(
      "{\"action\":\"compareAndSwap\",\"node\":{\"key\":\"/a/b\",\"value\":\"dg==\",\"expiration\":"
      "\"2024-01-01T00:00:00.5Z\",\"ttl\":7200,\"modifiedIndex\":12,\"createdIndex\":7},\"prevNode\":{"
      "\"key\":\"/a/b\",\"value\":\"\",\"modifiedIndex\":7,\"createdIndex\":7}}\n");
  assert_string_equal(result.action, "compareAndSwap");
  assert_string_equal(result.node.key, "/a/b");
  assert_string_equal(result.node.value, "dg==");
  assert_int_equal(result.node.ttl, 7200);
  assert_int_equal(result.node.modified, 12);
  assert_int_equal(result.node.created, 7);
  assert_false(result.node.dir);
  assert_int_equal(result.node.count, 0);
  etcd_result_free(&result);
  etcd_result_free(&result); /* it is empty now */
}

static void test_reads_a_directory(void **state) {
  (void)state;
  struct etcd_result result = must_read(
      "{\"action\":\"get\",\"node\":{\"key\":\"/d\",\"dir\":true,\"nodes\":[{\"key\":\"/d/x\",\"value\":"
      "\"1\",\"modifiedIndex\":4,\"createdIndex\":4},{\"key\":\"/d/e\",\"dir\":true,\"nodes\":[]}]}}");
  assert_true(result.node.dir);
  assert_int_equal(result.node.ttl, -1);
  assert_int_equal(result.node.count, 2);
  assert_string_equal(result.node.nodes[0].key, "/d/x");
  assert_false(result.node.nodes[0].dir);
  assert_true(result.node.nodes[1].dir);
  assert_int_equal(result.node.nodes[1].count, 0);
  etcd_result_free(&result);
}

/* The root has no key; a key that is gone, and a directory, have no value. */
static void test_what_is_missing_is_empty(void **state) {
  (void)state;
  struct etcd_result result = must_read("{\"action\":\"expire\",\"node\":{}}");
  assert_string_equal(result.node.key, "");
  assert_string_equal(result.node.value, "");
  assert_int_equal(result.node.modified, 0);
  etcd_result_free(&result);
}

/* etcd removes what is expired twice a second, and not at all without a leader; until then the ttl goes below 0. */
static void test_ttl_that_is_over(void **state) {
  (void)state;
  struct etcd_result result = must_read("{\"action\":\"get\",\"node\":{\"key\":\"/k\",\"value\":\"v\",\"ttl\":-3}}");
  assert_int_equal(result.node.ttl, 0);
  etcd_result_free(&result);
}

static void test_a_long_action_is_cut(void **state) {
  (void)state;
  struct etcd_result result = must_read("{\"action\":\"abcdefghijklmnopqrstuvwxyz0123456789\",\"node\":{}}");
  assert_string_equal(result.action, "abcdefghijklmnopqrstuvw");
  etcd_result_free(&result);
}

static void test_refuses_what_is_no_answer(void **state) {
  (void)state;
  must_refuse_bytes((rdzv_bytes){NULL, 0}, "not JSON");
  must_refuse("<html>", "not JSON");
  must_refuse("{\"action\":\"get\"", "not JSON");
  must_refuse("{} x", "not JSON");
  must_refuse("[]", "not an object");
  must_refuse("{}", "no action");
  must_refuse("{\"action\":1,\"node\":{}}", "no action");
  must_refuse("{\"action\":\"get\"}", "a node is not an object");
  must_refuse("{\"action\":\"get\",\"node\":[]}", "a node is not an object");
  must_refuse("{\"action\":\"get\",\"node\":null}", "a node is not an object");
  must_refuse_bytes(BYTES("{\"action\":\"get\",\"node\":{\"key\":\"\xff\"}}"), "not JSON");
  must_refuse("{\"action\":\"get\",\"node\":{\"key\":\"a\\u0000b\"}}", "not JSON");
}

static void test_refuses_wrong_types(void **state) {
  (void)state;
  static const char *const members[] = {"\"key\":1",
                                        "\"value\":1",
                                        "\"value\":null",
                                        "\"key\":[\"x\"]",
                                        "\"modifiedIndex\":\"7\"",
                                        "\"modifiedIndex\":-1",
                                        "\"createdIndex\":1.5",
                                        "\"modifiedIndex\":null",
                                        "\"ttl\":\"7\"",
                                        "\"nodes\":{}",
                                        "\"nodes\":[1]",
                                        "\"nodes\":[{\"key\":\"/ok\",\"nodes\":[{\"value\":7}]}]",
                                        "\"modifiedIndex\":99999999999999999999999"};
  for (size_t i = 0; i < COUNT_OF(members); i++) {
    char text[256];
    snprintf(text, sizeof text, "{\"action\":\"get\",\"node\":{%s}}", members[i]);
    must_refuse(text, "etcd's answer");
  }
}

static void test_refuses_directories_without_end(void **state) {
  (void)state;
  enum { DEPTH = ETCD_MAX_DEPTH + 8 };
  static const char open[] = "{\"nodes\":[";
  char text[DEPTH * (sizeof open + 2) + 64] = "{\"action\":\"get\",\"node\":";
  for (int i = 0; i < DEPTH; i++) strcat(text, open);
  for (int i = 0; i < DEPTH; i++) strcat(text, "]}");
  strcat(text, "}");
  must_refuse(text, "nested too deeply");
}

static void test_reads_an_error(void **state) {
  (void)state;
  int code = 0;
  uint64_t index = 0;
  rdzv_error error = {0};
  const rdzv_bytes body =
      BYTES("{\"errorCode\":101,\"message\":\"Compare failed\",\"cause\":\"[1 != 2]\",\"index\":14}\n");
  assert_int_equal(etcd_v2_read_error(body, &code, &index, &error), 0);
  assert_int_equal(code, 101);
  assert_int_equal(index, 14);
  assert_string_equal(error.message, "etcd says: Compare failed ([1 != 2]), error 101");
  assert_int_equal(etcd_v2_read_error(BYTES("{\"errorCode\":100}"), &code, &index, NULL), 0);
  assert_int_equal(code, 100);
}

static void test_refuses_what_is_no_error(void **state) {
  (void)state;
  static const char *const bodies[] = {"",
                                       "404 page not found\n",
                                       "[]",
                                       "{}",
                                       "{\"errorCode\":0}",
                                       "{\"errorCode\":-1}",
                                       "{\"errorCode\":1000}",
                                       "{\"errorCode\":\"100\"}",
                                       "{\"errorCode\":100,\"index\":\"x\"}",
                                       "{\"message\":\"Internal Server Error\"}"};
  for (size_t i = 0; i < COUNT_OF(bodies); i++) {
    int code = 0;
    uint64_t index = 0;
    rdzv_error error = {0};
    assert_error(etcd_v2_read_error(rdzv_str(bodies[i]), &code, &index, &error), RDZV_E_PROTOCOL, &error, "answer");
  }
}

static void test_escapes(void **state) {
  (void)state;
  char *text = http_escape(BYTES("/a-b_c.d~Z09+=& ?%\x00\xff"));
  assert_string_equal(text, "/a-b_c.d~Z09%2B%3D%26%20%3F%25%00%FF");
  free(text);
  text = http_escape((rdzv_bytes){NULL, 0});
  assert_string_equal(text, "");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads_a_key),
      cmocka_unit_test(test_reads_a_directory),
      cmocka_unit_test(test_what_is_missing_is_empty),
      cmocka_unit_test(test_ttl_that_is_over),
      cmocka_unit_test(test_a_long_action_is_cut),
      cmocka_unit_test(test_refuses_what_is_no_answer),
      cmocka_unit_test(test_refuses_wrong_types),
      cmocka_unit_test(test_refuses_directories_without_end),
      cmocka_unit_test(test_reads_an_error),
      cmocka_unit_test(test_refuses_what_is_no_error),
      cmocka_unit_test(test_escapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
