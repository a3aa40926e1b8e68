/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads all records in pages. No other process writes meanwhile: only the active server may, and that is this one. */
#include "base/error.h"
#include "keep/etcd/place.h"

#include <string.h>

enum {
  FIRST_PAGE = 32, /* records: as many of the longest fit into one answer of etcd */
  MOST_PAGE = 4096,
  PAGE_BYTES = 4 << 20, /* about what a page is to have */
};

struct loading {
  struct place *place;
  keep_take *take;
  void *user;
  rdzv_value at; /* the first key to read; empty: the next one is the begin */
  struct etcd3_keys all;
  int64_t revision, page;
};

static int take_one(struct loading *loading, const struct etcd3_kv *kv, rdzv_error *error) {
  uint8_t name[KEEP_MAX_NAME];
  size_t len;
  if (!place_read_record(loading->place->prefix, rdzv_value_bytes(&kv->key), name, &len))
    return error_set(error, RDZV_E_CORRUPT, "'%s' in etcd is not the name of a record",
                     bytes_quote(rdzv_value_bytes(&kv->key)).text);
  if (kv->value.len == 0 || kv->value.len > KEEP_MAX_VALUE)
    return error_set(error, RDZV_E_CORRUPT, "the record '%s' in etcd has %zu bytes",
                     bytes_quote(rdzv_value_bytes(&kv->key)).text, kv->value.len);
  return loading->take(loading->user, (rdzv_bytes){name, len}, rdzv_value_bytes(&kv->value), error);
}

/* The next page is as long as this one suggests. */
static int64_t next_page(const struct etcd3_result *found) {
  size_t bytes = 1;
  for (size_t i = 0; i < found->kv_count; i++) bytes += found->kvs[i].key.len + found->kvs[i].value.len;
  const int64_t page = (int64_t)(found->kv_count * (size_t)PAGE_BYTES / bytes);
  return page < FIRST_PAGE ? FIRST_PAGE : page > MOST_PAGE ? MOST_PAGE : page;
}

static int take_page(struct loading *loading, const struct etcd3_result *found, rdzv_error *error) {
  int result = 0;
  for (size_t i = 0; result >= 0 && i < found->kv_count; i++) result = take_one(loading, &found->kvs[i], error);
  if (result < 0 || found->kv_count == 0) return result;
  const struct etcd3_kv *last = &found->kvs[found->kv_count - 1];
  rdzv_value_free(&loading->at);
  loading->page = next_page(found);
  /* A key has a byte 0 behind it: with that, it is the next one. */
  return value_copy(&loading->at, last->key.data, last->key.len + 1) ? 0 : error_no_memory(error);
}

/* 1: there is more. */
static int load_page(struct loading *loading, rdzv_error *error) {
  struct place *place = loading->place;
  const rdzv_bytes from = loading->at.data ? rdzv_value_bytes(&loading->at) : loading->all.key;
  const struct etcd3_range range = {
      .keys = {from, loading->all.end}, .revision = loading->revision, .limit = loading->page};
  const struct etcd_call call = place_call(place, error);
  struct etcd3_reply reply;
  int result = etcd3_range(place->etcd, &range, &call, &reply);
  if (result == RDZV_E_LIMIT && loading->page > 1) { /* of the answer */
    loading->page /= 2;
    return 1;
  }
  if (result == ETCD3_COMPACTED) {
    loading->revision = 0;
    return 1;
  }
  if (result != 0) return result;
  const bool more = reply.results[0].more;
  if (loading->revision == 0) loading->revision = reply.revision;
  result = take_page(loading, &reply.results[0], error);
  etcd3_reply_free(&reply);
  return result < 0 ? result : more;
}

int place_load(struct keep *keep, keep_take *take, void *user, rdzv_error *error) {
  struct place *place = place_of(keep);
  const struct place_name all = place_key(place->prefix, "/records/");
  char end[sizeof all.text];
  struct loading loading = {
      .place = place, .take = take, .user = user, .all = etcd3_prefix(rdzv_str(all.text), end), .page = FIRST_PAGE};
  rdzv_error own = {0};
  int result;
  do result = load_page(&loading, &own);
  while (result == 1);
  rdzv_value_free(&loading.at);
  result = place_conclude(place, result, "load", &own);
  if (result < 0 && error) *error = own;
  return result;
}
