/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/fate.h"
#include "unit.h"

static enum etcd_answer answer_of(long status, const char *body) {
  const struct http_response response = {.status = status, .body = {.data = (uint8_t *)body, .len = strlen(body)}};
  return etcd_answer_of(&response);
}

/* An error of etcd's is an answer. A member without a leader is passed over, and so is one that got half of a form. */
static void test_answers(void **state) {
  (void)state;
  assert_int_equal(answer_of(200, "{\"action\":\"get\"}"), ETCD_ANSWER_VALID);
  assert_int_equal(answer_of(404, "{\"errorCode\":100}"), ETCD_ANSWER_VALID);
  assert_int_equal(answer_of(400, "{\"errorCode\":209}"), ETCD_ANSWER_VALID);
  assert_int_equal(answer_of(500, "{\"errorCode\":400}"), ETCD_ANSWER_VALID);
  assert_int_equal(answer_of(500, "{\"errorCode\":300}"), ETCD_ANSWER_NO_LEADER);
  assert_int_equal(answer_of(500, "etcdserver: request timed out"), ETCD_ANSWER_NO_LEADER);
  assert_int_equal(answer_of(503, ""), ETCD_ANSWER_NO_LEADER);
  assert_int_equal(answer_of(400, "{\"errorCode\":210}"), ETCD_ANSWER_CUT_FORM);
  assert_int_equal(answer_of(404, "{\"errorCode\":300}"), ETCD_ANSWER_VALID);
  assert_int_equal(answer_of(400, "{\"code\":3, \"message\":\"unexpected EOF\"}"), ETCD_ANSWER_CUT_FORM);
  assert_int_equal(answer_of(400, "{\"code\":3, \"message\":\"etcdserver: key is not provided\"}"), ETCD_ANSWER_VALID);
  assert_int_equal(answer_of(500, "{\"code\":2, \"message\":\"unexpected EOF\"}"), ETCD_ANSWER_NO_LEADER);
  assert_int_equal(answer_of(499, ""), ETCD_ANSWER_NO_LEADER);
  assert_int_equal(answer_of(408, "{\"code\":1, \"message\":\"context canceled\"}"), ETCD_ANSWER_NO_LEADER);
  assert_int_equal(answer_of(500, "{\"code\":2, \"message\":\"context canceled\"}"), ETCD_ANSWER_NO_LEADER);
  assert_int_equal(etcd_answer_of(&(struct http_response){.status = 500}), ETCD_ANSWER_VALID);
}

/* A request that may be done twice is sent again; one that must not is unknown once it may have arrived. */
static void test_requests_that_do_not_block(void **state) {
  (void)state;
  const struct etcd_request read = {.method = "GET"}, write = {.method = "PUT", .once = true};
  for (int late = 0; late < 2; late++) {
    assert_int_equal(etcd_fate_of(&read, RDZV_E_TIMEOUT, true, late), ETCD_FATE_AGAIN);
    assert_int_equal(etcd_fate_of(&write, RDZV_E_CONNECTION, false, late), ETCD_FATE_AGAIN);
    assert_int_equal(etcd_fate_of(&write, RDZV_E_CONNECTION, true, late), ETCD_FATE_UNKNOWN);
    assert_int_equal(etcd_fate_of(&write, RDZV_E_TIMEOUT, true, late), ETCD_FATE_UNKNOWN);
  }
}

/* A watch that was sent ends with its member. */
static void test_requests_that_block(void **state) {
  (void)state;
  const struct etcd_request watch = {.method = "GET", .blocks = true};
  assert_int_equal(etcd_fate_of(&watch, RDZV_E_TIMEOUT, true, true), ETCD_FATE_OVER);
  assert_int_equal(etcd_fate_of(&watch, RDZV_E_TIMEOUT, false, true), ETCD_FATE_OVER);
  assert_int_equal(etcd_fate_of(&watch, RDZV_E_TIMEOUT, true, false), ETCD_FATE_CUT_OFF);
  assert_int_equal(etcd_fate_of(&watch, RDZV_E_CONNECTION, true, true), ETCD_FATE_CUT_OFF);
  assert_int_equal(etcd_fate_of(&watch, RDZV_E_CONNECTION, false, false), ETCD_FATE_AGAIN);
}

/* What another member, or time, may mend is not final. */
static void test_final_failures(void **state) {
  (void)state;
  assert_true(etcd_is_final(RDZV_E_PROTOCOL) && etcd_is_final(RDZV_E_UNSUPPORTED) && etcd_is_final(RDZV_E_INVALID));
  assert_false(etcd_is_final(RDZV_E_CONNECTION) || etcd_is_final(RDZV_E_TIMEOUT) || etcd_is_final(RDZV_E_CANCELED));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_answers),
      cmocka_unit_test(test_requests_that_do_not_block),
      cmocka_unit_test(test_requests_that_block),
      cmocka_unit_test(test_final_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
