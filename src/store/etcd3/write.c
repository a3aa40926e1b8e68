/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "store/etcd3/etcd3_store.h"
#include "store/keyspace/keyspace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  FIRST_PAUSE_MS = 2,
  LAST_PAUSE_MS = 100,
  AT_ONCE = 3, /* tries between two pauses */
};

static struct etcd3_op put_op(rdzv_bytes name, rdzv_bytes value) {
  return (struct etcd3_op){ETCD3_OP_PUT, {.put = {.key = name, .value = value}}};
}

static struct etcd3_op range_op(rdzv_bytes name) {
  return (struct etcd3_op){ETCD3_OP_RANGE, {.range = {.keys = {name, {0}}}}};
}

static struct etcd3_compare compare(rdzv_bytes name, enum etcd3_target target, enum etcd3_relation relation,
                                    int64_t number) {
  return (struct etcd3_compare){{name, {0}}, target, relation, number, {0}};
}

/* ---- set ------------------------------------------------------------------------------------------------------ */

static int by_key(const void *a, const void *b) {
  const struct etcd3_op *one = a, *two = b;
  const rdzv_bytes x = one->put.key, y = two->put.key;
  const int order = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
  if (order != 0) return order;
  if (x.len != y.len) return x.len < y.len ? -1 : 1;
  return (one->put.lease > two->put.lease) - (one->put.lease < two->put.lease); /* its place, until it is sent */
}

/* etcd takes a key once in a transaction: the last one counts. */
static size_t without_doubles(struct etcd3_op *ops, size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) ops[i].put.lease = (int64_t)i;
  qsort(ops, count, sizeof *ops, by_key);
  for (size_t i = 0; i < count; i++) {
    if (i + 1 < count && bytes_equal(ops[i].put.key, ops[i + 1].put.key)) continue;
    ops[kept] = ops[i];
    ops[kept++].put.lease = 0;
  }
  return kept;
}

static int commit_puts(rdzv_store *store, struct etcd3_op *ops, size_t count, const struct etcd_call *call) {
  int result = 0;
  count = without_doubles(ops, count);
  for (size_t from = 0; from < count && result == 0; from += ETCD3_COMMIT_OPS) {
    const size_t some = count - from < ETCD3_COMMIT_OPS ? count - from : ETCD3_COMMIT_OPS;
    const struct etcd3_commit commit = {.then = &ops[from], .count = some};
    result = etcd3_store_commit(store, &commit, call, NULL, NULL);
  }
  return result;
}

int etcd3_store_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                          struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  struct etcd3_op *ops = calloc(count + 1, sizeof *ops);
  rdzv_value *names = calloc(count + 1, sizeof *names);
  int result = ops && names ? 0 : error_no_memory(call->error);
  for (size_t i = 0; ops && names && i < count && result == 0; i++) {
    names[i] = etcd3_name_key(etcd3_store_prefix(store), keys[i]);
    ops[i] = put_op(rdzv_value_bytes(&names[i]), values[i]);
    if (!names[i].data) result = error_no_memory(call->error);
  }
  if (result == 0 && count > 0 && ops) {
    result = commit_puts(store, ops, count, &own);
    if (result != 0) result = etcd3_store_fail(store, result, "set", keys[0], call);
  }
  for (size_t i = 0; names && i < count; i++) rdzv_value_free(&names[i]);
  free(names);
  free(ops);
  return result;
}

int etcd3_store_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return etcd3_store_multi_set(store, &key, &value, 1, call);
}

/* ---- changes -------------------------------------------------------------------------------------------------- */

/* A key that is changed by what is there. */
struct change {
  const char *what; /* "append to" */
  /* Makes the new value of what is found. 1: nothing is to be written. */
  int (*make)(void *argument, const struct etcd3_kv *old, struct buf *new, rdzv_error *error);
  void *argument;
};

/* One try, on the condition that the key is as in *old, in which it is left as it is if it is not. 1: it was not. */
static int try_change(rdzv_store *store, rdzv_bytes name, const struct change *change, const struct etcd_call *call,
                      struct etcd3_reply *old) {
  const struct etcd3_kv *found = old->count > 0 && old->results[0].kv_count > 0 ? &old->results[0].kvs[0] : NULL;
  const struct etcd3_compare same = compare(name, ETCD3_TARGET_MOD, ETCD3_EQUAL, found ? found->mod_revision : 0);
  const struct etcd3_op look = range_op(name);
  struct etcd3_reply now = {0};
  struct buf new = {0};
  int result = change->make(change->argument, found, &new, call->error);
  if (result != 0) {
    buf_free(&new);
    return result == 1 ? 2 : result;
  }
  struct etcd3_op put = put_op(name, (rdzv_bytes){new.data, new.len});
  const struct etcd3_commit commit = {&same, 1, &put, 1, &look};
  result = etcd3_store_commit(store, &commit, call, NULL, &now);
  buf_free(&new);
  if (result != 1) return result;
  etcd3_reply_free(old);
  *old = now;
  return 1;
}

/* A key that others change, too. */
struct contest {
  const struct store_call *call;
  deadline until;
  struct backoff pauses;
  int tries;
};

static struct contest contest_of(const struct store_call *call, const struct etcd_call *own) {
  return (struct contest){call, own->until, {FIRST_PAUSE_MS, LAST_PAUSE_MS}, 0};
}

/* Another one was faster. What it left is known, so the next try is made at once. Where many write, pauses make room
 * for them; but after a pause the first try only finds out what there is, so some tries are made before the next. 1:
 * try again. */
static int try_again(struct contest *contest) {
  const struct store_call *call = contest->call;
  if (deadline_left(contest->until) == 0)
    return error_set(call->error, RDZV_E_TIMEOUT, "others wrote it first each time");
  if (++contest->tries % AT_ONCE != 0 || flag_pause(call->cancel, backoff_next(&contest->pauses)) == 0) return 1;
  return error_set(call->error, RDZV_E_CANCELED, "canceled");
}

/* `looks`: it reads the key first. Else the first try takes it that there is no such key, and finds what there is. */
static int change_key(rdzv_store *store, rdzv_bytes key, const struct change *change, bool looks,
                      const struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  struct contest contest = contest_of(call, &own);
  rdzv_value name = etcd3_name_key(etcd3_store_prefix(store), key);
  struct etcd3_reply old = {0};
  int result = name.data ? 0 : error_no_memory(call->error);
  if (result == 0 && looks) result = etcd3_store_read(store, key, &own, &old);
  for (result = result == 0 ? 1 : result; result == 1;) {
    result = try_change(store, rdzv_value_bytes(&name), change, &own, &old);
    if (result == 1) result = try_again(&contest);
  }
  etcd3_reply_free(&old);
  rdzv_value_free(&name);
  return result == 0 || result == 2 ? 0 : etcd3_store_fail(store, result, change->what, key, call);
}

struct addition {
  int64_t delta, sum;
};

static int make_sum(void *argument, const struct etcd3_kv *old, struct buf *new, rdzv_error *error) {
  struct addition *addition = argument;
  int64_t number = 0;
  char sum[24];
  if (old && ks_parse_number(rdzv_value_bytes(&old->value), &number) < 0)
    return error_set(error, RDZV_E_NOT_A_NUMBER, "the value is not a number");
  addition->sum = (int64_t)((uint64_t)number + (uint64_t)addition->delta);
  if (old && addition->delta == 0) return 1;
  snprintf(sum, sizeof sum, "%" PRId64, addition->sum);
  return buf_append(new, sum, strlen(sum)) ? 0 : error_no_memory(error);
}

/* Adding 0 is how PyTorch's barriers look at a counter, again and again: it writes nothing to one that is there, so
 * that it does not keep others from adding to it. */
int etcd3_store_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  struct addition addition = {delta, 0};
  const int result = change_key(store, key, &(struct change){"add to", make_sum, &addition}, delta == 0, call);
  if (result == 0) *sum = addition.sum;
  return result;
}

static int make_longer(void *argument, const struct etcd3_kv *old, struct buf *new, rdzv_error *error) {
  const rdzv_bytes *more = argument;
  const bool made =
      (!old || buf_append(new, old->value.data, old->value.len)) && buf_append(new, more->data, more->len);
  return made ? 0 : error_no_memory(error);
}

int etcd3_store_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return change_key(store, key, &(struct change){"append to", make_longer, &value}, false, call);
}

/* `now` is the value that holds then. */
struct swap {
  rdzv_bytes expected, desired;
  rdzv_value now;
};

static int make_swap(void *argument, const struct etcd3_kv *old, struct buf *new, rdzv_error *error) {
  struct swap *swap = argument;
  const rdzv_bytes found = old ? rdzv_value_bytes(&old->value) : (rdzv_bytes){0};
  const bool equal = bytes_equal(found, swap->expected);
  /* of no key: PyTorch's stores give what was expected */
  const rdzv_bytes now = equal ? swap->desired : old ? found : swap->expected;
  rdzv_value_free(&swap->now);
  if (!value_copy(&swap->now, now.data, now.len)) return error_no_memory(error);
  if (!equal) return 1;
  return buf_append(new, swap->desired.data, swap->desired.len) ? 0 : error_no_memory(error);
}

/* It looks first, since a first try without would create a key whose absence is expected only by an empty value. */
int etcd3_store_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                            struct store_call *call) {
  struct swap swap = {.expected = expected, .desired = desired};
  const int result = change_key(store, key, &(struct change){"compare_set", make_swap, &swap}, true, call);
  return store_give(result, &swap.now, out);
}

/* ---- one condition -------------------------------------------------------------------------------------------- */

int etcd3_store_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                    bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  rdzv_value name = etcd3_name_key(etcd3_store_prefix(store), key), now = {0};
  if (!name.data) return error_no_memory(call->error);
  const rdzv_bytes at = rdzv_value_bytes(&name);
  const struct etcd3_compare same = compare(at, ETCD3_TARGET_MOD, ETCD3_EQUAL, (int64_t)expected);
  const struct etcd3_op look = range_op(at);
  struct etcd3_op put = put_op(at, value);
  struct etcd3_reply found = {0};
  int64_t revision = 0;
  uint64_t held = 0;
  const int done = etcd3_store_commit(store, &(struct etcd3_commit){&same, 1, &put, 1, &look}, &own, &revision, &found);
  rdzv_value_free(&name);
  if (done != 0 && done != 1) return etcd3_store_fail(store, done, "compare_set", key, call);
  struct etcd3_result none = {0};
  const int result = etcd3_store_give(done == 1 ? &found.results[0] : &none, &now, &held, call->error);
  etcd3_reply_free(&found);
  if (result < 0) return result;
  *out = now;
  *version = done == 0 ? (uint64_t)revision : held;
  *swapped = done == 0;
  return 0;
}

int etcd3_store_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  rdzv_value name = etcd3_name_key(etcd3_store_prefix(store), key);
  if (!name.data) return error_no_memory(call->error);
  const rdzv_bytes at = rdzv_value_bytes(&name);
  const struct etcd3_compare there = compare(at, ETCD3_TARGET_VERSION, ETCD3_GREATER, 0);
  struct etcd3_op remove = {ETCD3_OP_DELETE, {.remove = {.keys = {at, {0}}}}};
  const int done = etcd3_store_commit(store, &(struct etcd3_commit){&there, 1, &remove, 1, NULL}, &own, NULL, NULL);
  rdzv_value_free(&name);
  if (done != 0 && done != 1) return etcd3_store_fail(store, done, "delete", key, call);
  *deleted = done == 0;
  return 0;
}
