/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "etcd/path.h"
#include "store/etcd3/etcd3_store.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 }; /* keys of a listing at a time */

/* ---- one key -------------------------------------------------------------------------------------------------- */

int etcd3_store_read(rdzv_store *store, rdzv_bytes key, const struct etcd_call *call, struct etcd3_reply *reply) {
  rdzv_value name = etcd3_name_key(etcd3_store_prefix(store), key);
  if (!name.data) return error_no_memory(call->error);
  const struct etcd3_range range = {.keys = {rdzv_value_bytes(&name), {0}}};
  const int result = etcd3_range(etcd3_store_of(store)->etcd, &range, call, reply);
  rdzv_value_free(&name);
  return result;
}

int etcd3_store_give(struct etcd3_result *found, rdzv_value *out, uint64_t *version, rdzv_error *error) {
  *version = 0;
  if (found->kv_count == 0) return value_copy(out, NULL, 0) ? 0 : error_no_memory(error);
  *out = found->kvs[0].value;
  found->kvs[0].value = (rdzv_value){0};
  *version = (uint64_t)found->kvs[0].mod_revision;
  return 0;
}

int etcd3_store_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                            struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  struct etcd3_reply reply = {0};
  uint64_t found;
  int result = etcd3_store_read(store, key, &own, &reply);
  if (result != 0 || !reply.results) return etcd3_store_fail(store, result, "get", key, call);
  result = etcd3_store_give(&reply.results[0], out, &found, call->error);
  if (result == 0) *version = found;
  etcd3_reply_free(&reply);
  return result;
}

/* ---- several keys --------------------------------------------------------------------------------------------- */

/* The names that are looked at for keys: of each the key, and the queue of that name. */
struct looked {
  rdzv_value names[2 * ETCD3_STORE_LOOKED], ends[ETCD3_STORE_LOOKED];
  struct etcd3_op ops[2 * ETCD3_STORE_LOOKED];
};

static bool fill(struct looked *looked, const char *prefix, const rdzv_bytes *keys, size_t count) {
  for (size_t i = 0; i < count; i++) {
    rdzv_value *key = &looked->names[2 * i], *queue = &looked->names[2 * i + 1], *end = &looked->ends[i];
    *key = etcd3_name_key(prefix, keys[i]);
    *queue = etcd3_name_queue(prefix, keys[i]);
    if (!key->data || !queue->data || !value_copy(end, queue->data, queue->len)) return false;
    const struct etcd3_range one = {.keys = {rdzv_value_bytes(key), {0}}, .count_only = true};
    const struct etcd3_range all = {.keys = etcd3_prefix(rdzv_value_bytes(queue), end->data), .count_only = true};
    looked->ops[2 * i] = (struct etcd3_op){ETCD3_OP_RANGE, {.range = one}};
    looked->ops[2 * i + 1] = (struct etcd3_op){ETCD3_OP_RANGE, {.range = all}};
  }
  return true;
}

static void free_looked(struct looked *looked) {
  if (!looked) return;
  for (size_t i = 0; i < ETCD3_STORE_LOOKED; i++) {
    rdzv_value_free(&looked->names[2 * i]);
    rdzv_value_free(&looked->names[2 * i + 1]);
    rdzv_value_free(&looked->ends[i]);
  }
  free(looked);
}

int etcd3_store_look(rdzv_store *store, const rdzv_bytes *keys, size_t count, const struct etcd_call *call, bool *there,
                     int64_t *revision) {
  struct looked *looked = calloc(1, sizeof *looked);
  struct etcd3_reply reply = {0};
  int result = looked && fill(looked, etcd3_store_prefix(store), keys, count) ? 0 : error_no_memory(call->error);
  if (result == 0) {
    const struct etcd3_txn txn = {.then = looked->ops, .then_count = 2 * count};
    result = etcd3_txn(etcd3_store_of(store)->etcd, &txn, call, &reply);
  }
  free_looked(looked);
  if (result != 0) return result;
  if (reply.count != 2 * count) {
    etcd3_reply_free(&reply);
    return error_set(call->error, RDZV_E_PROTOCOL, "etcd answers a transaction with too few results");
  }
  for (size_t i = 0; i < count; i++) there[i] = reply.results[2 * i].count > 0 || reply.results[2 * i + 1].count > 0;
  *revision = reply.revision;
  etcd3_reply_free(&reply);
  return 0;
}

int etcd3_store_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  bool every = true;
  for (size_t from = 0; from < count && every; from += ETCD3_STORE_LOOKED) {
    const size_t some = count - from < ETCD3_STORE_LOOKED ? count - from : ETCD3_STORE_LOOKED;
    bool there[ETCD3_STORE_LOOKED] = {0};
    int64_t revision;
    const int result = etcd3_store_look(store, &keys[from], some, &own, there, &revision);
    if (result != 0) return etcd3_store_fail(store, result, "check", keys[from], call);
    for (size_t i = 0; i < some; i++) every = every && there[i];
  }
  *all = every;
  return 0;
}

/* ---- all keys ------------------------------------------------------------------------------------------------- */

struct listing {
  rdzv_value *keys;
  size_t count, cap;
};

static bool list_key(struct listing *listing, rdzv_bytes key) {
  if (listing->count == listing->cap) {
    const size_t cap = listing->cap ? 2 * listing->cap : 16;
    rdzv_value *keys = realloc(listing->keys, cap * sizeof *keys);
    if (!keys) return false;
    listing->keys = keys;
    listing->cap = cap;
  }
  if (!value_copy(&listing->keys[listing->count], key.data, key.len)) return false;
  listing->count++;
  return true;
}

/* The keys of one page, which begins at *from; that is the next page's then. */
static int list_page(rdzv_store *store, struct etcd3_range *range, const char *folder, rdzv_value *from,
                     const struct etcd_call *call, struct listing *listing, bool *more) {
  struct etcd3_reply reply;
  rdzv_bytes key;
  range->keys.key = rdzv_value_bytes(from);
  int result = etcd3_range(etcd3_store_of(store)->etcd, range, call, &reply);
  if (result != 0) return result;
  const struct etcd3_result *page = &reply.results[0];
  for (size_t i = 0; i < page->kv_count && result == 0; i++)
    if (etcd_path_below(rdzv_value_bytes(&page->kvs[i].key), folder, &key) && !list_key(listing, key))
      result = error_no_memory(call->error);
  *more = page->more && page->kv_count > 0;
  if (result == 0 && *more) {
    const rdzv_value *last = &page->kvs[page->kv_count - 1].key;
    rdzv_value next;
    if (value_copy(&next, last->data, last->len + 1)) { /* with the byte 0 behind it: the key that follows */
      rdzv_value_free(from);
      *from = next;
    } else {
      result = error_no_memory(call->error);
    }
  }
  if (range->revision == 0) range->revision = reply.revision; /* all pages are of one moment */
  etcd3_reply_free(&reply);
  return result;
}

static int list_all(rdzv_store *store, rdzv_value *from, const struct etcd_call *call, struct listing *listing) {
  rdzv_value end, folder;
  bool more = true;
  if (!value_copy(&end, from->data, from->len)) return error_no_memory(call->error);
  if (!value_copy(&folder, from->data, from->len)) {
    rdzv_value_free(&end);
    return error_no_memory(call->error);
  }
  struct etcd3_range range = {.keys = etcd3_prefix(rdzv_value_bytes(from), end.data), .limit = PAGE, .keys_only = true};
  int result = 0;
  while (result == 0 && more) result = list_page(store, &range, folder.data, from, call, listing, &more);
  rdzv_value_free(&end);
  rdzv_value_free(&folder);
  return result;
}

int etcd3_store_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  struct listing listing = {calloc(16, sizeof *listing.keys), 0, 16};
  rdzv_value from = etcd3_name_key(etcd3_store_prefix(store), (rdzv_bytes){0});
  int result = listing.keys && from.data ? list_all(store, &from, &own, &listing) : error_no_memory(call->error);
  rdzv_value_free(&from);
  if (result == 0) {
    *out = listing.keys;
    *count = listing.count;
    return 0;
  }
  rdzv_values_free(listing.keys, listing.count);
  return etcd3_store_fail(store, result, "list", rdzv_str(etcd3_store_prefix(store)), call);
}

int etcd3_store_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  rdzv_value from = etcd3_name_key(etcd3_store_prefix(store), (rdzv_bytes){0}), end = {0};
  struct etcd3_reply reply;
  int result = from.data && value_copy(&end, from.data, from.len) ? 0 : error_no_memory(call->error);
  if (result == 0) {
    const struct etcd3_range range = {.keys = etcd3_prefix(rdzv_value_bytes(&from), end.data), .count_only = true};
    result = etcd3_range(etcd3_store_of(store)->etcd, &range, &own, &reply);
  }
  rdzv_value_free(&from);
  rdzv_value_free(&end);
  if (result != 0) return etcd3_store_fail(store, result, "count", rdzv_str(etcd3_store_prefix(store)), call);
  *count = reply.results[0].count;
  etcd3_reply_free(&reply);
  return 0;
}
