/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "store/etcd/etcd_store.h"

#include <stdlib.h>

static int visit_all(rdzv_store *store, etcd_visit_key *visitor, void *argument, struct store_call *call) {
  const struct etcd_call own = etcd_store_quick_call(store, call);
  struct etcd_store_shared *shared = shared_of(store);
  struct etcd_result result;
  int outcome = etcd_v2_get(shared->client, shared->prefix, ETCD_GET_RECURSIVE | ETCD_GET_QUORUM, &own, &result);
  if (outcome == ETCD_V2_NOT_FOUND) return 0;
  if (outcome != 0) return etcd_store_fail(store, outcome, "list", rdzv_str(shared->prefix), call);
  outcome = etcd_visit_keys(shared->prefix, &result.node, visitor, argument, call->error);
  etcd_result_free(&result);
  return outcome;
}

int etcd_store_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  int64_t number = 0;
  const int outcome = visit_all(store, etcd_count_key, &number, call);
  if (outcome == 0) *count = number;
  return outcome;
}

int etcd_store_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  struct etcd_key_list list = {calloc(16, sizeof *list.keys), 0, 16};
  if (!list.keys) return error_no_memory(call->error);
  const int outcome = visit_all(store, etcd_list_key, &list, call);
  if (outcome < 0) {
    rdzv_values_free(list.keys, list.count);
    return outcome;
  }
  *out = list.keys;
  *count = list.count;
  return 0;
}

/* One trip: for one key that key, for more the list of all. */
int etcd_store_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  if (count == 1) return etcd_store_check_one(store, keys[0], all, call);
  struct etcd_key_check check;
  if (!etcd_key_check_open(&check, keys, count)) return error_no_memory(call->error);
  const int outcome = count > 0 ? visit_all(store, etcd_check_key, &check, call) : 0;
  if (outcome == 0) *all = check.missing == 0;
  etcd_key_check_close(&check);
  return outcome;
}
