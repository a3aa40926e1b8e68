/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of etcd's v3 API as its gateway takes them, and its answers: as real etcds say them, and what they do not.
 */
#include "base/buf.h"
#include "etcd/v3/read.h"
#include "etcd/v3/write.h"
#include "unit.h"

#define HEADER "\"header\":{\"cluster_id\":\"15118495548433857066\",\"member_id\":\"1\",\"revision\":\"9\"}"

static struct etcd3_keys key_of(const char *key) { return (struct etcd3_keys){rdzv_str(key), {0}}; }

static void assert_written(bool made, struct buf *out, const char *text) {
  assert_true(made);
  assert_string_equal((const char *)out->data, text);
  assert_int_equal(out->len, strlen(text));
  buf_free(out);
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static void test_writes_ranges(void **state) {
  (void)state;
  struct buf out = {0};
  const struct etcd3_range plain = {.keys = key_of("foo")};
  assert_written(etcd3_write_range(&plain, &out), &out, "{\"key\":\"Zm9v\"}");
  const struct etcd3_range full = {.keys = {rdzv_str("a"), rdzv_str("b")},
                                   .revision = 7,
                                   .limit = 2,
                                   .order = ETCD3_ORDER_CREATE,
                                   .newest_first = true,
                                   .keys_only = true,
                                   .count_only = true};
  assert_written(
      etcd3_write_range(&full, &out), &out,
      "{\"key\":\"YQ==\",\"range_end\":\"Yg==\",\"revision\":\"7\",\"limit\":\"2\",\"sort_order\":\"DESCEND\","
      "\"sort_target\":\"CREATE\",\"keys_only\":true,\"count_only\":true}");
  const struct etcd3_range all = {.keys = {{0}, BYTES("\0")}};
  assert_written(etcd3_write_range(&all, &out), &out, "{\"key\":\"AA==\",\"range_end\":\"AA==\"}");
}

static void test_writes_a_transaction(void **state) {
  (void)state;
  struct buf out = {0};
  const struct etcd3_compare compares[2] = {{key_of("k"), ETCD3_TARGET_CREATE, ETCD3_EQUAL, 0, {0}},
                                            {key_of("k"), ETCD3_TARGET_VALUE, ETCD3_NOT_EQUAL, 0, rdzv_str("v")}};
  const struct etcd3_op then[2] = {{ETCD3_OP_PUT, {.put = {rdzv_str("k"), {0}, 5, true}}},
                                   {ETCD3_OP_DELETE, {.remove = {key_of("d"), true}}}};
  const struct etcd3_op otherwise = {ETCD3_OP_RANGE, {.range = {.keys = key_of("k")}}};
  const struct etcd3_txn txn = {compares, 2, then, 2, &otherwise, 1, ETCD3_REPEAT_FENCED};
  assert_written(
      etcd3_write_txn(&txn, &out), &out,
      "{\"compare\":[{\"key\":\"aw==\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_revision\":\"0\"},"
      "{\"key\":\"aw==\",\"target\":\"VALUE\",\"result\":\"NOT_EQUAL\",\"value\":\"dg==\"}],"
      "\"success\":[{\"request_put\":{\"key\":\"aw==\",\"value\":\"\",\"lease\":\"5\",\"ignore_lease\":true}},"
      "{\"request_delete_range\":{\"key\":\"ZA==\",\"prev_kv\":true}}],"
      "\"failure\":[{\"request_range\":{\"key\":\"aw==\"}}]}");
}

static void test_writes_the_others(void **state) {
  (void)state;
  struct buf out = {0};
  const struct etcd3_keys keys = key_of("k");
  assert_written(etcd3_write_lease(77, 5, &out), &out, "{\"ID\":\"77\",\"TTL\":\"5\"}");
  assert_written(
      etcd3_write_watch(&keys, 3, 1, false, &out), &out,
      "{\"create_request\":{\"key\":\"aw==\",\"start_revision\":\"3\",\"watch_id\":\"1\",\"progress_notify\":"
      "true}}");
  assert_written(
      etcd3_write_watch(&keys, 3, 1, true, &out), &out,
      "{\"create_request\":{\"key\":\"aw==\",\"start_revision\":\"3\",\"watch_id\":\"1\",\"progress_notify\":"
      "true,\"filters\":[\"NOPUT\"],\"prev_kv\":true}}");
  assert_written(etcd3_write_login("a\"b", "\\\n", &out), &out,
                 "{\"name\":\"a\\u0022b\",\"password\":\"\\u005c\\u000a\"}");
}

static void test_prefixes(void **state) {
  (void)state;
  char end[8];
  assert_bytes(etcd3_prefix(BYTES("ab"), end).end, "ac");
  assert_bytes(etcd3_prefix(BYTES("a\xff\xff"), end).end, "b");
  assert_bytes(etcd3_prefix(BYTES("\xff"), end).end, "\0");
  assert_bytes(etcd3_prefix(BYTES(""), end).end, "\0");
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static void test_reads_keys(void **state) {
  (void)state;
  struct etcd3_reply reply;
  const char *text = "{" HEADER
                     ",\"kvs\":[{\"key\":\"Zm9v\",\"create_revision\":\"2\",\"mod_revision\":\"5\",\"version\":"
                     "\"3\",\"value\":\"YQBi\",\"lease\":\"77\"}],\"more\":true,\"count\":\"4\"}";
  assert_code(etcd3_read_result(rdzv_str(text), ETCD3_OP_RANGE, &reply, NULL), 0);
  const struct etcd3_kv *kv = &reply.results[0].kvs[0];
  assert_true(reply.revision == 9 && reply.succeeded && reply.results[0].more && reply.results[0].count == 4);
  assert_bytes(rdzv_value_bytes(&kv->key), "foo");
  assert_bytes(rdzv_value_bytes(&kv->value), "a\0b");
  assert_true(kv->create_revision == 2 && kv->mod_revision == 5 && kv->version == 3 && kv->lease == 77);
  etcd3_reply_free(&reply);
  etcd3_reply_free(&reply); /* it is empty now */
}

static void test_reads_a_transaction(void **state) {
  (void)state;
  struct etcd3_reply reply;
  const char *text = "{" HEADER
                     ",\"succeeded\":true,\"responses\":[{\"response_put\":{}},{\"response_delete_range\":{"
                     "\"deleted\":\"2\"}},{\"response_range\":{}}]}";
  assert_code(etcd3_read_txn(rdzv_str(text), &reply, NULL), 0);
  assert_int_equal(reply.count, 3);
  assert_int_equal(reply.results[1].count, 2);
  assert_int_equal(reply.results[2].kv_count, 0);
  etcd3_reply_free(&reply);
  assert_code(etcd3_read_txn(rdzv_str("{" HEADER "}"), &reply, NULL), 0);
  assert_true(!reply.succeeded && reply.count == 0);
  etcd3_reply_free(&reply);
}

static void test_reads_messages(void **state) {
  (void)state;
  struct etcd3_message message;
  const char *text =
      "{\"result\":{" HEADER
      ",\"watch_id\":\"2\",\"events\":[{\"kv\":{\"key\":\"aw==\",\"value\":\"dg==\","
      "\"mod_revision\":\"8\"}},{\"type\":\"DELETE\",\"kv\":{\"key\":\"aw==\",\"mod_revision\":\"9\"}}]}}";
  assert_code(etcd3_read_message(rdzv_str(text), &message, NULL), 0);
  assert_true(message.id == 2 && message.revision == 9 && message.events.count == 2);
  assert_true(!message.events.list[0].deleted && message.events.list[1].deleted);
  etcd3_message_free(&message);
  text = "{\"result\":{\"watch_id\":\"1\",\"canceled\":true,\"compact_revision\":\"3\",\"cancel_reason\":\"why\"}}";
  assert_code(etcd3_read_message(rdzv_str(text), &message, NULL), 0);
  assert_true(message.canceled && !message.created && message.compacted == 3);
  assert_string_equal(message.reason, "why");
  etcd3_message_free(&message);
}

static void test_reads_the_others(void **state) {
  (void)state;
  struct etcd3_lease lease;
  struct etcd3_status status;
  char token[ETCD3_TOKEN_SIZE], *list;
  assert_code(etcd3_read_lease(rdzv_str("{\"result\":{\"ID\":\"7\",\"TTL\":\"5\"}}\n"), &lease, NULL), 0);
  assert_true(lease.id == 7 && lease.ttl_s == 5);
  assert_code(etcd3_read_lease(rdzv_str("{\"ID\":\"7\",\"TTL\":\"-1\"}"), &lease, NULL), 0);
  assert_int_equal(lease.ttl_s, -1);
  const char *text = "{" HEADER
                     ",\"version\":\"3.5.16\",\"dbSize\":\"20\",\"leader\":\"13668033151171901709\",\"errors\":["
                     "\"memberID:1 alarm:NOSPACE \"]}";
  assert_code(etcd3_read_status(rdzv_str(text), &status, NULL), 0);
  assert_true(status.leader == 13668033151171901709u && status.no_space && !status.corrupt && status.revision == 9);
  text =
      "{\"members\":[{\"clientURLs\":[\"http://a:1\",\"http://b:2\"]},{\"name\":\"new\"},{\"clientURLs\":[\"http://"
      "c:3\"]}]}";
  assert_code(etcd3_read_members(rdzv_str(text), &list, NULL), 0);
  assert_string_equal(list, "http://a:1,http://b:2,http://c:3");
  free(list);
  assert_code(etcd3_read_token(rdzv_str("{\"token\":\"abc.1\"}"), token, NULL), 0);
  assert_string_equal(token, "abc.1");
  assert_true(etcd3_read_cluster(rdzv_str("{" HEADER "}")) == 15118495548433857066u);
  assert_true(etcd3_read_cluster(rdzv_str("{\"cluster_id\": \"12")) == 12);
  assert_true(etcd3_read_cluster(rdzv_str("{}")) == 0);
}

/* ---- hostile ones --------------------------------------------------------------------------------------------- */

static void test_refuses_what_etcd_does_not_say(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "[]",
                                    "{",
                                    "nothing",
                                    "{\"kvs\":7}",
                                    "{\"kvs\":[7]}",
                                    "{\"kvs\":[{\"key\":7}]}",
                                    "{\"kvs\":[{\"key\":\"%\"}]}",
                                    "{\"count\":\"-1\"}",
                                    "{\"count\":\"1x\"}",
                                    "{\"count\":\"\"}",
                                    "{\"count\":\"111111111111111111111\"}",
                                    "{\"count\":[]}",
                                    "{\"kvs\":[{\"key\":\"aw==\",\"mod_revision\":{}}]}"};
  struct etcd3_reply reply;
  rdzv_error error;
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    if (etcd3_read_result(rdzv_str(bad[i]), ETCD3_OP_RANGE, &reply, &error) != RDZV_E_PROTOCOL) fail_msg("%s", bad[i]);
    assert_null(reply.results);
  }
  assert_code(etcd3_read_txn(rdzv_str("{\"responses\":[{}]}"), &reply, &error), RDZV_E_PROTOCOL);
  assert_code(etcd3_read_txn(rdzv_str("{\"responses\":{}}"), &reply, &error), RDZV_E_PROTOCOL);
}

static void test_refuses_too_many_responses(void **state) {
  (void)state;
  struct buf text = {0};
  struct etcd3_reply reply;
  rdzv_error error;
  assert_true(buf_append(&text, "{\"responses\":[{\"response_put\":{}}", 33));
  for (int i = 0; i < ETCD3_MAX_OPS; i++) assert_true(buf_append(&text, ",{\"response_put\":{}}", 20));
  assert_true(buf_append(&text, "]}", 2));
  assert_error(etcd3_read_txn((rdzv_bytes){text.data, text.len}, &reply, &error), RDZV_E_PROTOCOL, &error, "too many");
  buf_free(&text);
}

static void test_refuses_other_answers(void **state) {
  (void)state;
  struct etcd3_message message;
  struct etcd3_lease lease;
  struct etcd3_status status;
  char token[ETCD3_TOKEN_SIZE], *list, *text;
  rdzv_error error;
  assert_code(etcd3_read_message(rdzv_str("{}"), &message, &error), RDZV_E_PROTOCOL);
  assert_code(etcd3_read_message(rdzv_str("{\"result\":{\"events\":[{}]}}"), &message, &error), RDZV_E_PROTOCOL);
  assert_null(message.events.list);
  assert_code(etcd3_read_lease(rdzv_str("{\"TTL\":\"5\"}"), &lease, &error), RDZV_E_PROTOCOL);
  assert_code(etcd3_read_status(rdzv_str("{}"), &status, &error), RDZV_E_PROTOCOL);
  assert_code(etcd3_read_members(rdzv_str("{}"), &list, &error), RDZV_E_PROTOCOL);
  assert_code(etcd3_read_token(rdzv_str("{\"token\":\"a\\r\\nHost: b\"}"), token, &error), RDZV_E_PROTOCOL);
  assert_true(asprintf(&text, "{\"token\":\"%0*d\"}", ETCD3_TOKEN_SIZE, 0) > 0);
  assert_code(etcd3_read_token(rdzv_str(text), token, &error), RDZV_E_PROTOCOL);
  free(text);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

static void test_reads_errors(void **state) {
  (void)state;
  static const struct {
    const char *text;
    enum etcd3_refusal refusal;
  } errors[] = {
      {"{\"error\":\"x\",\"message\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}",
       ETCD3_REFUSAL_NO_SPACE},
      {"{\"code\":5,\"message\":\"etcdserver: requested lease not found\",\"details\":[]}", ETCD3_REFUSAL_LEASE_GONE},
      {"{\"error\":\"etcdserver: mvcc: required revision has been compacted\"}", ETCD3_REFUSAL_COMPACTED},
      {"{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no leader\"}}", ETCD3_REFUSAL_OTHER},
      {"{\"message\":\"etcdserver: permission denied\"}", ETCD3_REFUSAL_NO_PERMISSION},
      {"{\"message\":\"etcdserver: invalid auth token\"}", ETCD3_REFUSAL_TOKEN},
      {"{\"message\":\"etcdserver: user name is empty\"}", ETCD3_REFUSAL_NO_USER},
      {"{\"message\":\"etcdserver: request is too large\"}", ETCD3_REFUSAL_TOO_LARGE},
  };
  struct etcd3_error error;
  for (size_t i = 0; i < COUNT_OF(errors); i++) {
    assert_true(etcd3_read_error(rdzv_str(errors[i].text), &error));
    assert_int_equal(error.refusal, errors[i].refusal);
  }
  assert_false(etcd3_read_error(rdzv_str("Not Found"), &error));
  assert_false(etcd3_read_error(rdzv_str("{\"result\":{}}"), &error));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_writes_ranges),
      cmocka_unit_test(test_writes_a_transaction),
      cmocka_unit_test(test_writes_the_others),
      cmocka_unit_test(test_prefixes),
      cmocka_unit_test(test_reads_keys),
      cmocka_unit_test(test_reads_a_transaction),
      cmocka_unit_test(test_reads_messages),
      cmocka_unit_test(test_reads_the_others),
      cmocka_unit_test(test_refuses_what_etcd_does_not_say),
      cmocka_unit_test(test_refuses_too_many_responses),
      cmocka_unit_test(test_refuses_other_answers),
      cmocka_unit_test(test_reads_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
