/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A write that is stuck in a member that does not answer, and is done at another then, would be done again when that
 * member comes to itself, over what was written since. So each has a condition that does not hold twice: the key is as
 * it was read, by its index, or there is no such key. A key that is deleted meanwhile is new again, so a write of a new
 * key that was not answered is not repeated.
 */
#include "base/error.h"
#include "base/text/base64.h"
#include "etcd/v2/modify.h"
#include "store/etcd/etcd_store.h"
#include "store/keyspace/keyspace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- read, change, write -------------------------------------------------------------------------------------- */

/* Makes the new value of the old one, behind which stands a zero byte. `version` 0: there is no such key. 1: nothing is
 * to be written. */
typedef int change_value(void *argument, uint64_t version, rdzv_bytes old, struct buf *new, rdzv_error *error);

struct edit {
  const char *what; /* "append to" */
  change_value *change;
  void *argument;
  bool blind; /* the new value does not depend on the old one */
};

static int encode(rdzv_bytes value, char **out, rdzv_error *error) {
  struct buf text = {0};
  if (!base64_encode(value, &text)) return error_no_memory(error);
  *out = (char *)text.data;
  return 0;
}

static int change_node(void *argument, const struct etcd_node *old, char **value, rdzv_error *error) {
  const struct edit *edit = argument;
  rdzv_value bytes = {0};
  struct buf new = {0};
  int outcome = old && !edit->blind ? etcd_store_decode(old, &bytes, error) : 0;
  if (outcome == 0)
    outcome = edit->change(edit->argument, old ? old->modified : 0, rdzv_value_bytes(&bytes), &new, error);
  if (outcome == 0) outcome = encode((rdzv_bytes){new.data, new.len}, value, error);
  rdzv_value_free(&bytes);
  buf_free(&new);
  return outcome;
}

/* 0: written. 1: not, as the change wanted it. */
static int modify(rdzv_store *store, rdzv_bytes key, struct edit edit, const struct store_call *call,
                  uint64_t *version) {
  struct etcd_client *client = shared_of(store)->client;
  const int64_t longest = etcd_read_timeout(client);
  const struct etcd_call race = {deadline_after(longest), call->cancel, call->error};
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  const struct etcd_modification what = {.key = path,
                                         .get = edit.blind ? 0 : ETCD_GET_QUORUM,
                                         .put = {.by_anybody = edit.blind, .resolved = edit.blind},
                                         .request_ms = store_request_time(store, longest),
                                         .change = change_node,
                                         .argument = &edit};
  outcome = etcd_modify(client, &what, &race, version);
  free(path);
  return outcome == 0 || outcome == 1 ? outcome : etcd_store_fail(store, outcome, edit.what, key, call);
}

/* ---- set ------------------------------------------------------------------------------------------------------ */

static int change_to(void *argument, uint64_t version, rdzv_bytes old, struct buf *new, rdzv_error *error) {
  const rdzv_bytes *value = argument;
  (void)version, (void)old;
  return buf_append(new, value->data, value->len) ? 0 : error_no_memory(error);
}

/* Has the key that value? Then a write of it that was not answered was done, or it does not matter. */
static bool is_there(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, const struct store_call *call) {
  rdzv_error unused;
  struct store_call reading = *call;
  rdzv_value now;
  uint64_t version = 0;
  reading.error = &unused;
  if (etcd_store_get_version(store, key, &now, &version, &reading) < 0) return false;
  const bool there = version != 0 && bytes_equal(rdzv_value_bytes(&now), value);
  rdzv_value_free(&now);
  return there;
}

int etcd_store_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  const int outcome = modify(store, key, (struct edit){"set", change_to, &value, .blind = true}, call, NULL);
  return outcome == RDZV_E_OUTCOME_UNKNOWN && is_there(store, key, value, call) ? 0 : outcome;
}

int etcd_store_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                         struct store_call *call) {
  int outcome = 0;
  for (size_t i = 0; i < count && outcome == 0; i++) outcome = etcd_store_set(store, keys[i], values[i], call);
  return outcome;
}

/* ---- add, append ---------------------------------------------------------------------------------------------- */

struct addition {
  int64_t delta, sum;
};

static int change_by_sum(void *argument, uint64_t version, rdzv_bytes old, struct buf *new, rdzv_error *error) {
  struct addition *addition = argument;
  int64_t number = 0;
  char sum[24];
  if (version != 0 && ks_parse_number(old, &number) < 0)
    return error_set(error, RDZV_E_NOT_A_NUMBER, "the value is not a number");
  addition->sum = (int64_t)((uint64_t)number + (uint64_t)addition->delta);
  snprintf(sum, sizeof sum, "%" PRId64, addition->sum);
  return buf_append(new, sum, strlen(sum)) ? 0 : error_no_memory(error);
}

int etcd_store_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  struct addition addition = {delta, 0};
  const int outcome = modify(store, key, (struct edit){"add to", change_by_sum, &addition, false}, call, NULL);
  if (outcome == 0) *sum = addition.sum;
  return outcome;
}

static int change_by_append(void *argument, uint64_t version, rdzv_bytes old, struct buf *new, rdzv_error *error) {
  const rdzv_bytes *more = argument;
  (void)version;
  return buf_append(new, old.data, old.len) && buf_append(new, more->data, more->len) ? 0 : error_no_memory(error);
}

int etcd_store_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return modify(store, key, (struct edit){"append to", change_by_append, &value, false}, call, NULL);
}

/* ---- compare and set ------------------------------------------------------------------------------------------ */

/* A swap. `now` is the value found, where it is not the expected one. */
struct swap {
  rdzv_bytes expected, desired;
  uint64_t expected_version, version;
  rdzv_value now;
};

static int keep_now(struct swap *swap, uint64_t version, rdzv_bytes old, rdzv_error *error) {
  if (!value_copy(&swap->now, old.data, old.len)) return error_no_memory(error);
  swap->version = version;
  return 1;
}

static int change_if_equal(void *argument, uint64_t version, rdzv_bytes old, struct buf *new, rdzv_error *error) {
  struct swap *swap = argument;
  const bool equal = version == 0 ? swap->expected.len == 0 : bytes_equal(old, swap->expected);
  return equal ? change_to(&swap->desired, version, old, new, error) : keep_now(swap, version, old, error);
}

int etcd_store_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                           struct store_call *call) {
  struct swap swap = {.expected = expected, .desired = desired};
  const int outcome = modify(store, key, (struct edit){"compare_set", change_if_equal, &swap, false}, call, NULL);
  if (outcome < 0) return outcome;
  if (outcome == 1 && swap.version != 0) {
    *out = swap.now;
    return 0;
  }
  if (outcome == 1) rdzv_value_free(&swap.now); /* of no key: PyTorch's stores give what was expected */
  const rdzv_bytes given = outcome == 1 ? expected : desired;
  return value_copy(out, given.data, given.len) ? 0 : error_no_memory(call->error);
}

static int change_if_version(void *argument, uint64_t version, rdzv_bytes old, struct buf *new, rdzv_error *error) {
  struct swap *swap = argument;
  if (version != swap->expected_version) return keep_now(swap, version, old, error);
  return change_to(&swap->desired, version, old, new, error);
}

/* Without a look before: 1: another writer was faster. */
static int swap_version(rdzv_store *store, rdzv_bytes key, const struct swap *swap, const struct store_call *call,
                        uint64_t *version) {
  const struct etcd_call own = etcd_store_quick_call(store, call);
  struct etcd_put put = {0};
  struct etcd_result result;
  char *path = NULL, *text = NULL;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome == 0) outcome = encode(swap->desired, &text, call->error);
  put.value = text;
  etcd_put_over(&put, swap->expected_version);
  if (outcome == 0) outcome = etcd_v2_put(shared_of(store)->client, path, &put, &own, &result);
  free(text);
  free(path);
  if (etcd_v2_is_lost_race(outcome)) return 1;
  if (outcome != 0) return etcd_store_fail(store, outcome, "compare_set", key, call);
  *version = result.node.modified;
  etcd_result_free(&result);
  return 0;
}

int etcd_store_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                   bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call) {
  struct swap swap = {.desired = value, .expected_version = expected};
  uint64_t held = 0, absent;
  int outcome = swap_version(store, key, &swap, call, &held);
  if (outcome == 1) /* find out what is there */
    outcome = modify(store, key, (struct edit){"compare_set", change_if_version, &swap, false}, call, &held);
  if (outcome < 0) return outcome;
  if (outcome == 0 && etcd_store_give_absent(out, &absent, call->error) < 0) return RDZV_E_NO_MEMORY;
  if (outcome == 1) *out = swap.now;
  *version = outcome == 0 ? held : swap.version;
  *swapped = outcome == 0;
  return 0;
}

/* ---- delete --------------------------------------------------------------------------------------------------- */

int etcd_store_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  const struct etcd_call own = etcd_store_quick_call(store, call);
  struct etcd_result result;
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  outcome = etcd_v2_delete(shared_of(store)->client, path, &(struct etcd_delete){0}, &own, &result);
  free(path);
  const bool absent = outcome == ETCD_V2_NOT_FOUND || outcome == ETCD_V2_NOT_A_FILE || outcome == ETCD_V2_NOT_A_DIR;
  if (outcome != 0 && !absent) return etcd_store_fail(store, outcome, "delete", key, call);
  if (outcome == 0) etcd_result_free(&result);
  *deleted = outcome == 0;
  return 0;
}
