/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of rdzv/store.h on a handle, as a row of a table: for tests that hold of all of them. */
#ifndef RDZV_TESTS_STORE_CALLS_H
#define RDZV_TESTS_STORE_CALLS_H

#include "asleep.h"
#include "live.h"

struct store_row {
  const char *name;
  int (*make)(rdzv_store *store, rdzv_error *error); /* waits for keys that nobody sets */
  unsigned needs;                                    /* RDZV_FEATURE_* */
  enum { READS, WRITES, BLOCKS, CLONES } kind;       /* BLOCKS: until the timeout of the handle */
};

#define CALL_KEYS \
  (rdzv_bytes[]) { BYTES("never"), BYTES("nor this") }
#define CALL_VALUES \
  (rdzv_bytes[]) { BYTES("1"), BYTES("2") }

static inline int call_set(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_set(store, BYTES("k"), BYTES("v"), error);
}

static inline int call_get(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  const int code = rdzv_store_get(store, BYTES("never"), &value, error);
  if (code == 0) rdzv_value_free(&value);
  return code;
}

static inline int call_add(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_add(store, BYTES("n"), 1, NULL, error);
}

static inline int call_compare_set(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  const int code = rdzv_store_compare_set(store, BYTES("c"), BYTES(""), BYTES("v"), &value, error);
  if (code == 0) rdzv_value_free(&value);
  return code;
}

static inline int call_check(rdzv_store *store, rdzv_error *error) {
  bool all;
  return rdzv_store_check(store, CALL_KEYS, 2, &all, error);
}

static inline int call_wait(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_wait(store, CALL_KEYS, 2, RDZV_TIMEOUT_STORE, error);
}

static inline int call_delete_key(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_delete_key(store, BYTES("never"), NULL, error);
}

static inline int call_num_keys(rdzv_store *store, rdzv_error *error) {
  int64_t count;
  return rdzv_store_num_keys(store, &count, error);
}

static inline int call_append(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_append(store, BYTES("a"), BYTES("v"), error);
}

static inline int call_multi_get(rdzv_store *store, rdzv_error *error) {
  rdzv_value *values;
  const int code = rdzv_store_multi_get(store, CALL_KEYS, 2, &values, error);
  if (code == 0) rdzv_values_free(values, 2);
  return code;
}

static inline int call_multi_set(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_multi_set(store, (rdzv_bytes[]){BYTES("m1"), BYTES("m2")}, CALL_VALUES, 2, error);
}

static inline int call_publish(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_publish(store, (rdzv_bytes[]){BYTES("p1"), BYTES("p2")}, CALL_VALUES, 2, error);
}

static inline int call_list_keys(rdzv_store *store, rdzv_error *error) {
  rdzv_value *keys;
  size_t count;
  const int code = rdzv_store_list_keys(store, &keys, &count, error);
  if (code == 0) rdzv_values_free(keys, count);
  return code;
}

static inline int call_queue_push(rdzv_store *store, rdzv_error *error) {
  return rdzv_store_queue_push(store, BYTES("q"), BYTES("v"), error);
}

static inline int call_queue_pop(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  const int code = rdzv_store_queue_pop(store, BYTES("never"), true, &value, error);
  if (code == 0) rdzv_value_free(&value);
  return code;
}

static inline int call_queue_len(rdzv_store *store, rdzv_error *error) {
  int64_t len;
  return rdzv_store_queue_len(store, BYTES("q"), &len, error);
}

static inline int call_get_version(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  uint64_t version;
  const int code = rdzv_store_get_version(store, BYTES("k"), &value, &version, error);
  if (code == 0) rdzv_value_free(&value);
  return code;
}

static inline int call_compare_set_version(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  uint64_t version;
  bool swapped;
  const int code = rdzv_store_compare_set_version(store, BYTES("v"), 0, BYTES("v"), &swapped, &value, &version, error);
  if (code == 0) rdzv_value_free(&value);
  return code;
}

static inline int call_wait_changed(rdzv_store *store, rdzv_error *error) {
  rdzv_value value;
  uint64_t version;
  const int code = rdzv_store_wait_changed(store, BYTES("never"), 0, RDZV_TIMEOUT_STORE, &value, &version, error);
  if (code == 0) rdzv_value_free(&value);
  return code;
}

static inline int call_clone(rdzv_store *store, rdzv_error *error) {
  rdzv_store *clone;
  const int code = rdzv_store_clone(store, &clone, error);
  if (code == 0) rdzv_store_free(clone);
  return code;
}

static const struct store_row store_rows[] = {
    {"set", call_set, 0, WRITES},
    {"get", call_get, 0, BLOCKS},
    {"add", call_add, 0, WRITES},
    {"compare_set", call_compare_set, 0, WRITES},
    {"check", call_check, 0, READS},
    {"wait", call_wait, 0, BLOCKS},
    {"delete_key", call_delete_key, 0, WRITES},
    {"num_keys", call_num_keys, 0, READS},
    {"append", call_append, RDZV_FEATURE_APPEND, WRITES},
    {"multi_get", call_multi_get, 0, BLOCKS},
    {"multi_set", call_multi_set, 0, WRITES},
    {"publish", call_publish, 0, WRITES},
    {"list_keys", call_list_keys, RDZV_FEATURE_LIST_KEYS, READS},
    {"queue_push", call_queue_push, RDZV_FEATURE_QUEUES, WRITES},
    {"queue_pop", call_queue_pop, RDZV_FEATURE_QUEUES, BLOCKS},
    {"queue_len", call_queue_len, RDZV_FEATURE_QUEUES, READS},
    {"get_version", call_get_version, RDZV_FEATURE_VERSIONS, READS},
    {"compare_set_version", call_compare_set_version, RDZV_FEATURE_VERSIONS, WRITES},
    {"wait_changed", call_wait_changed, RDZV_FEATURE_VERSIONS, BLOCKS},
    {"clone", call_clone, 0, CLONES},
};

static inline bool can_call(rdzv_store *store, const struct store_row *row) {
  return (rdzv_store_features(store) & row->needs) == row->needs;
}

/* ---- a call in a thread of its own ---------------------------------------------------------------------------- */

enum { AT_ONCE_MS = 20000 }; /* generous for a loaded machine, and far below the timeouts */

struct caller {
  pthread_t thread;
  atomic_int id; /* of the thread */
  rdzv_store *store;
  const struct store_row *row;
  int code;
  rdzv_error error;
};

static inline void *caller_run(void *argument) {
  struct caller *caller = argument;
  atomic_store(&caller->id, gettid());
  caller->code = caller->row->make(caller->store, &caller->error);
  return NULL;
}

static inline void caller_begin(struct caller *caller, rdzv_store *store, const struct store_row *row) {
  *caller = (struct caller){.store = store, .row = row};
  assert_int_equal(pthread_create(&caller->thread, NULL, caller_run, caller), 0);
}

/* It must end soon, canceled. */
static inline void caller_end_canceled(struct caller *caller, const char *phase) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += AT_ONCE_MS / 1000;
  if (pthread_timedjoin_np(caller->thread, NULL, &until) != 0)
    fail_msg("%s: %s is not canceled", phase, caller->row->name);
  if (caller->code != RDZV_E_CANCELED || caller->error.code != RDZV_E_CANCELED || !caller->error.message[0])
    fail_msg("%s: %s gives %s: %s", phase, caller->row->name, rdzv_error_name(caller->code), caller->error.message);
}

#endif
