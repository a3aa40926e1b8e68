/* SPDX-License-Identifier: BSD-3-Clause */
/* An answer of etcd's v2 API, and an error of it: whatever comes is read or refused with a sentence. */
#include "etcd/v2/read.h"
#include "fuzz.h"

static void check_node(const struct etcd_node *node, int depth) {
  CHECK(depth <= ETCD_MAX_DEPTH && node->key && node->value && node->ttl >= -1);
  for (size_t i = 0; i < node->count; i++) check_node(&node->nodes[i], depth + 1);
}

static void check_answer(rdzv_bytes body) {
  struct etcd_result result;
  rdzv_error error = {0};
  const int outcome = etcd_v2_read(body, &result, &error);
  if (outcome < 0) {
    CHECK(outcome == RDZV_E_PROTOCOL && error.code == outcome && error.message[0] != '\0');
    CHECK(!result.node.key && !result.node.value && !result.node.nodes && result.node.count == 0);
    return;
  }
  CHECK(memchr(result.action, '\0', sizeof result.action));
  check_node(&result.node, 0);
  etcd_result_free(&result);
}

static void check_error(rdzv_bytes body) {
  int code = 0;
  uint64_t index = 0;
  rdzv_error error = {0};
  const int outcome = etcd_v2_read_error(body, &code, &index, &error);
  CHECK(error.code == RDZV_E_PROTOCOL && error.message[0] != '\0');
  CHECK(outcome == 0 ? code > 0 && code < 1000 : outcome == RDZV_E_PROTOCOL && code == 0 && index == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  check_answer((rdzv_bytes){data, len});
  check_error((rdzv_bytes){data, len});
  return 0;
}
