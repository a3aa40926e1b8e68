/* SPDX-License-Identifier: BSD-3-Clause */
/* Each item of a queue is a key of its own, so that pushes never meet. The oldest is the one that was created first; it
 * is taken on the condition that it is still there. */
#include "base/error.h"
#include "store/etcd3/etcd3_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

enum { FIRST_PAUSE_MS = 1, LAST_PAUSE_MS = 50 };

int etcd3_store_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  uint64_t nonce[2];
  char item[40];
  if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
    return error_set(call->error, RDZV_E_IO, "cannot get random numbers");
  snprintf(item, sizeof item, "%016" PRIx64 "%016" PRIx64, nonce[0], nonce[1]);
  rdzv_value name = etcd3_name_item(etcd3_store_prefix(store), key, item);
  if (!name.data) return error_no_memory(call->error);
  struct etcd3_op put = {ETCD3_OP_PUT, {.put = {.key = rdzv_value_bytes(&name), .value = value}}};
  const int result = etcd3_store_commit(store, &(struct etcd3_commit){.then = &put, .count = 1}, &own, NULL, NULL);
  rdzv_value_free(&name);
  return result == 0 ? 0 : etcd3_store_fail(store, result, "push to", key, call);
}

/* A queue, as a range of keys. */
struct queue {
  rdzv_value name, end;
  struct etcd3_keys keys;
};

static int queue_open(rdzv_store *store, rdzv_bytes key, struct queue *queue, rdzv_error *error) {
  *queue = (struct queue){.name = etcd3_name_queue(etcd3_store_prefix(store), key)};
  if (!queue->name.data || !value_copy(&queue->end, queue->name.data, queue->name.len)) {
    rdzv_value_free(&queue->name);
    return error_no_memory(error);
  }
  queue->keys = etcd3_prefix(rdzv_value_bytes(&queue->name), queue->end.data);
  return 0;
}

static void queue_close(struct queue *queue) {
  rdzv_value_free(&queue->name);
  rdzv_value_free(&queue->end);
}

int etcd3_store_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call) {
  const struct etcd_call own = etcd3_store_quick_call(store, call);
  struct queue queue;
  struct etcd3_reply reply;
  int result = queue_open(store, key, &queue, call->error);
  if (result < 0) return result;
  const struct etcd3_range range = {.keys = queue.keys, .count_only = true};
  result = etcd3_range(etcd3_store_of(store)->etcd, &range, &own, &reply);
  queue_close(&queue);
  if (result != 0) return etcd3_store_fail(store, result, "look at the queue", key, call);
  *len = reply.results[0].count;
  etcd3_reply_free(&reply);
  return 0;
}

/* ---- taking --------------------------------------------------------------------------------------------------- */

/* 0: taken. 1: another was faster. RDZV_E_EMPTY: there is none, as of *revision. */
static int take_oldest(rdzv_store *store, const struct queue *queue, const struct etcd_call *call, rdzv_value *out,
                       int64_t *revision) {
  const struct etcd3_range range = {.keys = queue->keys, .order = ETCD3_ORDER_CREATE, .limit = 1};
  struct etcd3_reply reply;
  int result = etcd3_range(etcd3_store_of(store)->etcd, &range, call, &reply);
  if (result != 0) return result == 1 ? RDZV_E_STALE : result;
  *revision = reply.revision;
  if (reply.results[0].kv_count == 0) {
    etcd3_reply_free(&reply);
    return RDZV_E_EMPTY;
  }
  struct etcd3_kv *oldest = &reply.results[0].kvs[0];
  const struct etcd3_keys item = {rdzv_value_bytes(&oldest->key), {0}};
  const struct etcd3_compare there = {item, ETCD3_TARGET_MOD, ETCD3_EQUAL, oldest->mod_revision, {0}};
  struct etcd3_op remove = {ETCD3_OP_DELETE, {.remove = {.keys = item}}};
  result = etcd3_store_commit(store, &(struct etcd3_commit){&there, 1, &remove, 1, NULL}, call, NULL, NULL);
  if (result == 0) {
    *out = oldest->value;
    oldest->value = (rdzv_value){0};
  }
  etcd3_reply_free(&reply);
  return result;
}

/* Waits for a push after that revision. 0: look again. */
static int await_push(rdzv_store *store, const struct queue *queue, int64_t revision, const struct store_call *call) {
  const struct etcd_call slow = {call->until, call->cancel, call->error};
  const struct etcd3_watched watched = {queue->keys, revision + 1};
  struct etcd3_watch *watch;
  if (deadline_left(call->until) == 0) return RDZV_E_TIMEOUT;
  int result = etcd3_watch_open(etcd3_store_of(store)->etcd, &watched, 1, &watch, call->error);
  if (result < 0) return result;
  for (bool pushed = false; result == 0 && !pushed;) {
    struct etcd3_events events;
    result = etcd3_watch_next(watch, &slow, &events);
    for (size_t i = 0; result == 0 && i < events.count; i++) pushed = pushed || !events.list[i].deleted;
    if (result == 0) etcd3_events_free(&events);
  }
  etcd3_watch_close(watch);
  return result == ETCD3_COMPACTED ? 0 : result;
}

static int take(rdzv_store *store, const struct queue *queue, bool block, struct store_call *call, rdzv_value *out) {
  struct backoff pauses = {FIRST_PAUSE_MS, LAST_PAUSE_MS};
  for (;;) {
    const struct etcd_call own = block ? etcd3_store_waiting_call(store, call) : etcd3_store_quick_call(store, call);
    int64_t revision = 0;
    int result = take_oldest(store, queue, &own, out, &revision);
    if (result == 1 && flag_pause(call->cancel, backoff_next(&pauses)) < 0) return RDZV_E_CANCELED;
    if (result == 1) continue;
    if (result != RDZV_E_EMPTY || !block) return result;
    result = await_push(store, queue, revision, call);
    if (result != 0) return result;
  }
}

int etcd3_store_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call) {
  struct queue queue;
  rdzv_value value;
  int result = queue_open(store, key, &queue, call->error);
  if (result < 0) return result;
  result = take(store, &queue, block, call, &value);
  queue_close(&queue);
  if (result == 0) *out = value;
  if (result == 0) return 0;
  if (result == RDZV_E_EMPTY)
    return error_set(call->error, result, "pop '%s': the queue is empty", bytes_quote(key).text);
  if (result == RDZV_E_TIMEOUT || result == RDZV_E_CANCELED) return store_fail_wait(call, result, "pop", &key, 1);
  return etcd3_store_fail(store, result, "pop", key, call);
}
