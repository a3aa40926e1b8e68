/* SPDX-License-Identifier: BSD-3-Clause */
/* A wait looks once, and watches from the revision of that look, so that it misses nothing. Where the history is gone
 * it looks again. */
#include "base/error.h"
#include "store/etcd3/etcd3_store.h"

#include <stdlib.h>
#include <string.h>

static int fail_wait(rdzv_store *store, int code, const char *what, const rdzv_bytes *keys, size_t count,
                     struct store_call *call) {
  if (code == RDZV_E_TIMEOUT || code == RDZV_E_CANCELED) return store_fail_wait(call, code, what, keys, count);
  return etcd3_store_fail(store, code, what, keys[0], call);
}

/* ---- one key -------------------------------------------------------------------------------------------------- */

/* The next change of the key that is wanted: any, or one that leaves it there. */
static int next_change(struct etcd3_watch *watch, bool any, const struct etcd_call *call, struct etcd3_kv *out) {
  for (;;) {
    struct etcd3_events events;
    const int result = etcd3_watch_next(watch, call, &events);
    if (result != 0) return result;
    bool found = false;
    for (size_t i = events.count; i > 0 && !found; i--) { /* the newest */
      struct etcd3_event *event = &events.list[i - 1];
      found = any || !event->deleted;
      if (!found) continue;
      *out = event->kv;
      if (event->deleted) out->mod_revision = 0;
      event->kv = (struct etcd3_kv){0};
    }
    etcd3_events_free(&events);
    if (found) return 0;
  }
}

static int watch_key(rdzv_store *store, rdzv_bytes key, bool any, int64_t from, const struct store_call *call,
                     struct etcd3_kv *out) {
  const struct etcd_call slow = {call->until, call->cancel, call->error};
  rdzv_value name = etcd3_name_key(etcd3_store_prefix(store), key);
  struct etcd3_watch *watch;
  if (!name.data) return error_no_memory(call->error);
  const struct etcd3_watched watched = {{rdzv_value_bytes(&name), {0}}, from};
  int result = etcd3_watch_open(etcd3_store_of(store)->etcd, &watched, 1, &watch, call->error);
  rdzv_value_free(&name);
  if (result < 0) return result;
  result = next_change(watch, any, &slow, out);
  etcd3_watch_close(watch);
  return result;
}

/* Waits until the key's version is another than `known`; UINT64_MAX: until it exists. */
static int await_key(rdzv_store *store, rdzv_bytes key, uint64_t known, struct store_call *call, rdzv_value *out,
                     uint64_t *version) {
  for (;;) {
    const struct etcd_call own = etcd3_store_waiting_call(store, call);
    struct etcd3_reply reply;
    struct etcd3_kv changed = {0};
    int result = etcd3_store_read(store, key, &own, &reply);
    if (result != 0) return result;
    const struct etcd3_result *found = &reply.results[0];
    const uint64_t now = found->kv_count > 0 ? (uint64_t)found->kvs[0].mod_revision : 0;
    const int64_t from = reply.revision + 1;
    const bool done = known == UINT64_MAX ? now != 0 : now != known;
    if (done) result = etcd3_store_give(&reply.results[0], out, version, call->error);
    etcd3_reply_free(&reply);
    if (done) return result;
    if (deadline_left(call->until) == 0) return RDZV_E_TIMEOUT;
    result = watch_key(store, key, known != UINT64_MAX, from, call, &changed);
    if (result == ETCD3_COMPACTED) continue;
    if (result != 0) return result;
    rdzv_value_free(&changed.key);
    *version = (uint64_t)changed.mod_revision;
    *out = changed.value;
    return 0;
  }
}

int etcd3_store_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  rdzv_value value;
  uint64_t version;
  const int result = await_key(store, key, UINT64_MAX, call, &value, &version);
  if (result != 0) return fail_wait(store, result, "get", &key, 1, call);
  *out = value;
  return 0;
}

int etcd3_store_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                             struct store_call *call) {
  rdzv_value value;
  uint64_t found;
  const int result = await_key(store, key, known, call, &value, &found);
  if (result != 0) return fail_wait(store, result, "wait for", &key, 1, call);
  *out = value;
  *version = found;
  return 0;
}

/* ---- several keys --------------------------------------------------------------------------------------------- */

/* Watches, from a revision on, until the key is there, or the queue of that name is not empty. */
static int watch_name(rdzv_store *store, rdzv_bytes key, int64_t from, const struct store_call *call) {
  const struct etcd_call slow = {call->until, call->cancel, call->error};
  rdzv_value name = etcd3_name_key(etcd3_store_prefix(store), key);
  rdzv_value queue = etcd3_name_queue(etcd3_store_prefix(store), key), end = {0};
  struct etcd3_watch *watch = NULL;
  int result = name.data && queue.data && value_copy(&end, queue.data, queue.len) ? 0 : error_no_memory(call->error);
  if (result == 0) {
    const struct etcd3_watched watched[2] = {{{rdzv_value_bytes(&name), {0}}, from},
                                             {etcd3_prefix(rdzv_value_bytes(&queue), end.data), from}};
    result = etcd3_watch_open(etcd3_store_of(store)->etcd, watched, 2, &watch, call->error);
  }
  struct etcd3_kv there = {0};
  if (result == 0) result = next_change(watch, false, &slow, &there);
  etcd3_watch_close(watch);
  rdzv_value_free(&there.key);
  rdzv_value_free(&there.value);
  rdzv_value_free(&name);
  rdzv_value_free(&queue);
  rdzv_value_free(&end);
  return result;
}

/* At most ETCD3_STORE_LOOKED keys. Those that are missing are watched one after the other, each from the same moment.
 */
static int await_some(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  bool there[ETCD3_STORE_LOOKED];
  int result;
  do {
    const struct etcd_call own = etcd3_store_waiting_call(store, call);
    int64_t revision;
    result = etcd3_store_look(store, keys, count, &own, there, &revision);
    for (size_t i = 0; i < count && result == 0; i++) {
      if (there[i]) continue;
      result = deadline_left(call->until) > 0 ? watch_name(store, keys[i], revision + 1, call) : RDZV_E_TIMEOUT;
    }
  } while (result == ETCD3_COMPACTED);
  return result;
}

int etcd3_store_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  for (size_t from = 0; from < count; from += ETCD3_STORE_LOOKED) {
    const size_t some = count - from < ETCD3_STORE_LOOKED ? count - from : ETCD3_STORE_LOOKED;
    const int result = await_some(store, &keys[from], some, call);
    if (result != 0) return fail_wait(store, result, "wait for", &keys[from], some, call);
  }
  return 0;
}

/* ---- values of several keys ----------------------------------------------------------------------------------- */

/* The values of at most ETCD3_MAX_OPS keys at *revision; 0: now, which it is then. *absent: the first that is not
 * there, or count. */
static int read_some(rdzv_store *store, const rdzv_bytes *keys, size_t count, const struct etcd_call *call,
                     int64_t *revision, rdzv_value *out, size_t *absent) {
  struct etcd3_op *ops = calloc(count, sizeof *ops);
  rdzv_value *names = calloc(count, sizeof *names);
  struct etcd3_reply reply = {0};
  int result = ops && names ? 0 : error_no_memory(call->error);
  for (size_t i = 0; ops && names && i < count && result == 0; i++) {
    names[i] = etcd3_name_key(etcd3_store_prefix(store), keys[i]);
    if (!names[i].data) result = error_no_memory(call->error);
    const struct etcd3_range range = {.keys = {rdzv_value_bytes(&names[i]), {0}}, .revision = *revision};
    ops[i] = (struct etcd3_op){ETCD3_OP_RANGE, {.range = range}};
  }
  const struct etcd3_txn txn = {.then = ops, .then_count = count};
  if (result == 0) result = etcd3_txn(etcd3_store_of(store)->etcd, &txn, call, &reply);
  if (result == 0 && reply.count != count)
    result = error_set(call->error, RDZV_E_PROTOCOL, "etcd answers a transaction with too few results");
  for (*absent = 0; result == 0 && *absent < count && reply.results[*absent].kv_count > 0; ++*absent) {
    out[*absent] = reply.results[*absent].kvs[0].value;
    reply.results[*absent].kvs[0].value = (rdzv_value){0};
  }
  if (result == 0 && *revision == 0) *revision = reply.revision;
  etcd3_reply_free(&reply);
  for (size_t i = 0; names && i < count; i++) rdzv_value_free(&names[i]);
  free(names);
  free(ops);
  return result;
}

/* All values of one moment. *absent as above; the values before it are there. */
static int read_all(rdzv_store *store, const rdzv_bytes *keys, size_t count, const struct etcd_call *call,
                    rdzv_value *out, size_t *absent) {
  int64_t revision = 0;
  *absent = 0;
  while (*absent < count) {
    const size_t some = count - *absent < ETCD3_MAX_OPS ? count - *absent : ETCD3_MAX_OPS;
    size_t found = 0;
    const int result = read_some(store, &keys[*absent], some, call, &revision, &out[*absent], &found);
    *absent += found;
    if (result != 0 || found < some) return result;
  }
  return 0;
}

int etcd3_store_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                          struct store_call *call) {
  for (;;) {
    const struct etcd_call own = etcd3_store_waiting_call(store, call);
    size_t found;
    int result = read_all(store, keys, count, &own, out, &found);
    if (result == 0 && found == count) return 0;
    for (size_t i = 0; i < found; i++) rdzv_value_free(&out[i]);
    if (result != 0 && result != ETCD3_COMPACTED) return fail_wait(store, result, "get", keys, count, call);
    if (result == ETCD3_COMPACTED) continue;
    rdzv_value value; /* the first that is missing; then there may be others */
    uint64_t version;
    result = await_key(store, keys[found], UINT64_MAX, call, &value, &version);
    if (result != 0) return fail_wait(store, result, "get", keys, count, call);
    rdzv_value_free(&value);
  }
}
