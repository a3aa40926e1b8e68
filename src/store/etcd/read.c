/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/text/base64.h"
#include "store/etcd/etcd_store.h"

#include <stdlib.h>

enum { ANSWER_MS = 2000 }; /* for an answer, however little time there is for the key */

int etcd_store_decode(const struct etcd_node *node, rdzv_value *out, rdzv_error *error) {
  bool valid;
  if (!base64_decode_value(rdzv_str(node->value), out, &valid)) return error_no_memory(error);
  return valid ? 0 : error_set(error, RDZV_E_CORRUPT, "the value at '%s' in etcd is not base64", node->key);
}

/* ---- one look ------------------------------------------------------------------------------------------------- */

/* Reads the node at that path. ETCD_V2_NOT_FOUND: there is none; also where another key's path leads through it. */
static int read_node(rdzv_store *store, const char *path, const struct etcd_call *call, struct etcd_result *result) {
  const int outcome = etcd_v2_get(shared_of(store)->client, path, ETCD_GET_QUORUM, call, result);
  const bool in_the_way = outcome == ETCD_V2_NOT_A_DIR || (outcome == 0 && result->node.dir);
  if (!in_the_way) return outcome;
  const uint64_t index = result->index;
  if (outcome == 0) etcd_result_free(result);
  result->index = index;
  return ETCD_V2_NOT_FOUND;
}

static int read_key(rdzv_store *store, const char *what, rdzv_bytes key, const struct store_call *call,
                    struct etcd_result *result) {
  const struct etcd_call own = etcd_store_quick_call(store, call);
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  outcome = read_node(store, path, &own, result);
  free(path);
  return outcome == 0 || outcome == ETCD_V2_NOT_FOUND ? outcome : etcd_store_fail(store, outcome, what, key, call);
}

int etcd_store_check_one(rdzv_store *store, rdzv_bytes key, bool *there, struct store_call *call) {
  struct etcd_result result;
  const int outcome = read_key(store, "check", key, call, &result);
  if (outcome < 0) return outcome;
  if (outcome == 0) etcd_result_free(&result);
  *there = outcome == 0;
  return 0;
}

int etcd_store_give_absent(rdzv_value *out, uint64_t *version, rdzv_error *error) {
  if (!value_copy(out, NULL, 0)) return error_no_memory(error);
  *version = 0;
  return 0;
}

/* After a read with that outcome; frees the result. */
static int give_version(int outcome, struct etcd_result *result, rdzv_value *out, uint64_t *version,
                        rdzv_error *error) {
  if (outcome < 0) return outcome;
  if (outcome == ETCD_V2_NOT_FOUND) return etcd_store_give_absent(out, version, error);
  outcome = etcd_store_decode(&result->node, out, error);
  if (outcome == 0) *version = result->node.modified;
  etcd_result_free(result);
  return outcome;
}

int etcd_store_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                           struct store_call *call) {
  struct etcd_result result;
  return give_version(read_key(store, "get", key, call, &result), &result, out, version, call->error);
}

/* ---- waits ---------------------------------------------------------------------------------------------------- */

/* For the reads of a call that waits: its own deadline counts. */
static struct etcd_call waiting_call(rdzv_store *store, const struct store_call *call) {
  struct etcd_call own = etcd_store_quick_call(store, call);
  const deadline least = deadline_after(ANSWER_MS), until = call->until > least ? call->until : least;
  if (until < own.until) own.until = until;
  return own;
}

/* Waits until the node's version is another than `known`; UINT64_MAX: until it exists. */
static int await_node(rdzv_store *store, const char *path, uint64_t known, const struct store_call *call,
                      struct etcd_result *result) {
  const struct etcd_call slow = {call->until, call->cancel, call->error};
  for (;;) {
    const struct etcd_call own = waiting_call(store, call);
    int outcome = read_node(store, path, &own, result);
    const uint64_t version = outcome == 0 ? result->node.modified : 0, index = outcome >= 0 ? result->index : 0;
    if (outcome != 0 && outcome != ETCD_V2_NOT_FOUND) return outcome;
    if (known == UINT64_MAX ? outcome == 0 : version != known) return outcome;
    if (outcome == 0) etcd_result_free(result);
    outcome = deadline_left(call->until) > 0 ? etcd_v2_await(shared_of(store)->client, path, false, index + 1, &slow)
                                             : RDZV_E_TIMEOUT;
    if (outcome != 0) return outcome;
  }
}

static int await_key(rdzv_store *store, const char *what, rdzv_bytes key, uint64_t known, struct store_call *call,
                     struct etcd_result *result) {
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  outcome = await_node(store, path, known, call, result);
  free(path);
  if (outcome == RDZV_E_TIMEOUT || outcome == RDZV_E_CANCELED) return store_fail_wait(call, outcome, what, &key, 1);
  return outcome == 0 || outcome == ETCD_V2_NOT_FOUND ? outcome : etcd_store_fail(store, outcome, what, key, call);
}

int etcd_store_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  struct etcd_result result;
  int outcome = await_key(store, "get", key, UINT64_MAX, call, &result);
  if (outcome < 0) return outcome;
  outcome = etcd_store_decode(&result.node, out, call->error);
  etcd_result_free(&result);
  return outcome;
}

int etcd_store_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                            struct store_call *call) {
  struct etcd_result result;
  return give_version(await_key(store, "wait for", key, known, call, &result), &result, out, version, call->error);
}

int etcd_store_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  for (size_t i = 0; i < count; i++) {
    struct etcd_result result;
    const int outcome = await_key(store, "wait for", keys[i], UINT64_MAX, call, &result);
    if (outcome < 0) return outcome;
    etcd_result_free(&result);
  }
  return 0;
}

int etcd_store_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                         struct store_call *call) {
  for (size_t i = 0; i < count; i++) {
    const int outcome = etcd_store_get(store, keys[i], &out[i], call);
    if (outcome == 0) continue;
    while (i > 0) rdzv_value_free(&out[--i]);
    return outcome;
  }
  return 0;
}
