/* SPDX-License-Identifier: BSD-3-Clause */
/* A request, done to a keyspace as the server does it, without the answers. */
#ifndef RDZV_FUZZ_EXECUTE_H
#define RDZV_FUZZ_EXECUTE_H

#include "fuzz.h"
#include "store/keyspace/keyspace.h"
#include "wire/request.h"

enum { WAITS = 3, MAX_KEYS = 8 };

/* One client's waits. links NULL: free. */
struct waits {
  struct ks_waiter all[WAITS];
};

static inline void cancel_waits(struct keyspace *ks, struct waits *waits) {
  for (int i = 0; i < WAITS; i++) ks_cancel(ks, &waits->all[i]);
}

static inline int begin_wait(struct keyspace *ks, struct waits *waits, const struct wire_request *request) {
  int i = 0;
  while (i < WAITS && waits->all[i].links) i++;
  if (i == WAITS) return 0;
  struct ks_waiter *waiter = &waits->all[i];
  rdzv_bytes keys[MAX_KEYS] = {request->key}, list = request->list;
  for (size_t n = 0; n < request->count; n++) keys[n] = wire_list_next(&list);
  switch (request->op) {
    case WIRE_OP_WAIT: return ks_wait(ks, waiter, KS_WANT_PRESENT, keys, request->count);
    case WIRE_OP_GET_WAIT: return ks_wait(ks, waiter, KS_WANT_VALUE, keys, request->count);
    case WIRE_OP_QUEUE_POP_WAIT: return ks_wait(ks, waiter, KS_WANT_QUEUE, keys, 1);
    case WIRE_OP_WAIT_CHANGED: return ks_wait_change(ks, waiter, keys[0]);
    case WIRE_OP_WATCH_KEY: return ks_watch(ks, waiter, keys[0]);
    case WIRE_OP_BARRIER: return ks_wait_barrier(ks, waiter, keys[0]);
    default: return 0; /* reads nothing that a check does not read */
  }
}

static inline int delete_key(struct keyspace *ks, rdzv_bytes key) {
  rdzv_bytes value;
  const bool there = ks_get(ks, key, &value) != 0;
  CHECK(ks_delete(ks, key) == there && ks_get(ks, key, &value) == 0);
  return 0;
}

static inline int pop(struct keyspace *ks, rdzv_bytes key) {
  const size_t len = ks_queue_len(ks, key);
  if (len == 0) return 0;
  CHECK(ks_present(ks, key) && ks_queue_front(ks, key).data);
  ks_queue_drop(ks, key);
  CHECK(ks_queue_len(ks, key) == len - 1);
  ks_queue_pass_on(ks, key);
  return 0;
}

static inline int multi_set(struct keyspace *ks, const struct wire_request *request) {
  rdzv_bytes list = request->list;
  int result = 0;
  for (size_t i = 0; i < request->count && result == 0; i++) {
    const rdzv_bytes key = wire_list_next(&list);
    result = ks_set(ks, key, wire_list_next(&list));
  }
  return result;
}

static inline int barrier(struct keyspace *ks, struct waits *waits, const struct wire_request *request) {
  bool full;
  const int result = ks_barrier(ks, request->key, (int64_t)request->number, &full);
  return result < 0 || full ? result : begin_wait(ks, waits, request);
}

static inline int execute(struct keyspace *ks, struct waits *waits, const struct wire_request *request) {
  const rdzv_bytes key = request->key, value = request->value;
  rdzv_bytes now;
  int64_t sum;
  bool swapped;
  switch (request->op) {
    case WIRE_OP_SET: return ks_set(ks, key, value);
    case WIRE_OP_APPEND: return ks_append(ks, key, value);
    case WIRE_OP_ADD: return ks_add(ks, key, (int64_t)request->number, &sum);
    case WIRE_OP_COMPARE_SET: return ks_compare_set(ks, key, value, request->desired, &now);
    case WIRE_OP_COMPARE_SET_VERSION: return ks_compare_set_version(ks, key, request->number, value, &swapped);
    case WIRE_OP_DELETE_KEY: return delete_key(ks, key);
    case WIRE_OP_MULTI_SET: return multi_set(ks, request);
    case WIRE_OP_QUEUE_PUSH: return ks_queue_push(ks, key, value);
    case WIRE_OP_QUEUE_POP: return pop(ks, key);
    case WIRE_OP_CANCEL_WAIT: return cancel_waits(ks, waits), 0;
    case WIRE_OP_BARRIER: return barrier(ks, waits, request);
    default: return begin_wait(ks, waits, request);
  }
}

#endif
