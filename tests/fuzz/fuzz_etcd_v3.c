/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers of etcd's v3 API by way of its gateway: whatever comes is read or refused with a sentence. */
#include "etcd/v3/read.h"
#include "fuzz.h"

static void check_code(int outcome, const rdzv_error *error) {
  CHECK(outcome == 0 || (outcome == RDZV_E_PROTOCOL && error->code == outcome && error->message[0] != '\0'));
}

static void check_kv(const struct etcd3_kv *kv) {
  CHECK(kv->key.data && kv->value.data);
  CHECK(kv->key.data[kv->key.len] == '\0' && kv->value.data[kv->value.len] == '\0');
}

static void check_reply(int outcome, struct etcd3_reply *reply, const rdzv_error *error) {
  check_code(outcome, error);
  if (outcome < 0) CHECK(!reply->results && reply->count == 0);
  CHECK(reply->count <= ETCD3_MAX_OPS);
  for (size_t i = 0; i < reply->count; i++) {
    CHECK(reply->results[i].count >= 0);
    for (size_t k = 0; k < reply->results[i].kv_count; k++) check_kv(&reply->results[i].kvs[k]);
  }
  etcd3_reply_free(reply);
}

static void check_keys(rdzv_bytes body) {
  struct etcd3_reply reply;
  rdzv_error error = {0};
  for (int kind = ETCD3_OP_RANGE; kind <= ETCD3_OP_DELETE; kind++)
    check_reply(etcd3_read_result(body, (enum etcd3_op_kind)kind, &reply, &error), &reply, &error);
  check_reply(etcd3_read_txn(body, &reply, &error), &reply, &error);
}

static void check_message(rdzv_bytes body) {
  struct etcd3_message message;
  rdzv_error error = {0};
  const int outcome = etcd3_read_message(body, &message, &error);
  check_code(outcome, &error);
  if (outcome < 0) CHECK(!message.events.list && message.events.count == 0);
  CHECK(memchr(message.reason, '\0', sizeof message.reason));
  for (size_t i = 0; i < message.events.count; i++) check_kv(&message.events.list[i].kv);
  etcd3_message_free(&message);
}

static void check_cluster(rdzv_bytes body) {
  struct etcd3_status status;
  struct etcd3_lease lease;
  struct etcd3_error refused;
  rdzv_error error = {0};
  char token[ETCD3_TOKEN_SIZE] = "", *list = NULL;
  check_code(etcd3_read_status(body, &status, &error), &error);
  CHECK(memchr(status.version, '\0', sizeof status.version));
  const int leased = etcd3_read_lease(body, &lease, &error);
  check_code(leased, &error);
  CHECK((leased == 0) == (lease.id != 0));
  check_code(etcd3_read_members(body, &list, &error), &error);
  free(list);
  check_code(etcd3_read_token(body, token, &error), &error);
  CHECK(memchr(token, '\0', sizeof token) && !strchr(token, '\n'));
  etcd3_read_cluster(body);
  etcd3_read_error(body, &refused);
  CHECK(memchr(refused.text, '\0', sizeof refused.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  uint8_t *copy = fuzz_copy(data, len);
  const rdzv_bytes body = {copy, len};
  check_keys(body);
  check_message(body);
  check_cluster(body);
  free(copy);
  return 0;
}
