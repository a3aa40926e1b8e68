/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store in this process: a keyspace and a mutex, shared by a handle and its clones.
 *
 * A call that must wait registers with the keyspace, unlocks the mutex, and polls a flag of its own together with the
 * cancel flag of the handle. The write that ends the wait raises the flag.
 */
#include "base/buf.h"
#include "base/error.h"
#include "base/text/options.h"
#include "store/keyspace/keyspace.h"
#include "store/store.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>

struct shared {
  pthread_mutex_t lock;
  atomic_int handles;
  struct budget budget;
  struct keyspace *ks;
};

struct hash_store {
  rdzv_store base;
  struct shared *shared;
};

struct sleeper {
  struct ks_waiter waiter;
  struct flag woken;
};

static void wake(void *user, struct ks_waiter *waiter) {
  (void)user;
  struct sleeper *sleeper = (struct sleeper *)((char *)waiter - offsetof(struct sleeper, waiter));
  flag_raise(&sleeper->woken);
}

static struct keyspace *lock(rdzv_store *store) {
  struct shared *shared = ((struct hash_store *)store)->shared;
  pthread_mutex_lock(&shared->lock);
  return shared->ks;
}

static void unlock(rdzv_store *store) { pthread_mutex_unlock(&((struct hash_store *)store)->shared->lock); }

/* Unlocks, and fills the error if the keyspace has failed. */
static int finish(rdzv_store *store, int result, const char *what, rdzv_bytes key, struct store_call *call) {
  unlock(store);
  if (result < 0) error_set(call->error, result, "%s '%s': %s", what, bytes_quote(key).text, rdzv_error_text(result));
  return result;
}

/* What a call waits for: an enum ks_want, or this for any change of a key. */
enum { WANT_CHANGE = -1 };

/* Waits until the keys may be as wanted. Is called, and returns, with the lock held. */
static int sleep_locked(rdzv_store *store, int want, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  struct keyspace *ks = ((struct hash_store *)store)->shared->ks;
  struct sleeper sleeper = {0};
  int result = flag_open(&sleeper.woken, call->error);
  if (result < 0) return result;
  result = want == WANT_CHANGE ? ks_wait_change(ks, &sleeper.waiter, keys[0])
                               : ks_wait(ks, &sleeper.waiter, (enum ks_want)want, keys, count);
  if (result == 0 && sleeper.waiter.missing > 0) {
    struct pollfd fds[2] = {{.fd = flag_fd(&sleeper.woken), .events = POLLIN}};
    unlock(store);
    result = flag_poll(call->cancel, fds, 1, call->until);
    lock(store);
    ks_cancel(ks, &sleeper.waiter);
  }
  flag_close(&sleeper.woken);
  return result;
}

static int hash_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return finish(store, ks_set(lock(store), key, value), "set", key, call);
}

static int copy_out(rdzv_value *out, rdzv_bytes value) {
  return value_copy(out, value.data, value.len) ? 0 : RDZV_E_NO_MEMORY;
}

static int hash_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                          struct store_call *call) {
  struct keyspace *ks = lock(store);
  int result = 0;
  for (size_t i = 0; i < count && result == 0;) {
    rdzv_bytes value;
    if (ks_get(ks, keys[i], &value) != 0) {
      rdzv_value_free(&out[i]);
      result = copy_out(&out[i++], value);
    } else {
      result = sleep_locked(store, KS_WANT_VALUE, keys, count, call);
      i = 0; /* all values are read under one lock */
    }
  }
  unlock(store);
  return result < 0 ? store_fail_wait(call, result, "get", keys, count) : 0;
}

static int hash_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  rdzv_value value = {0};
  return store_give(hash_multi_get(store, &key, 1, &value, call), &value, out);
}

static int hash_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  return finish(store, ks_add(lock(store), key, delta, sum), "add to", key, call);
}

static int hash_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                            struct store_call *call) {
  rdzv_bytes now;
  int result = ks_compare_set(lock(store), key, expected, desired, &now);
  if (result == 0) result = copy_out(out, now);
  return finish(store, result, "compare and set", key, call);
}

static int hash_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  (void)call;
  struct keyspace *ks = lock(store);
  size_t i = 0;
  while (i < count && ks_present(ks, keys[i])) i++;
  *all = i == count;
  unlock(store);
  return 0;
}

static int hash_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  lock(store);
  const int result = sleep_locked(store, KS_WANT_PRESENT, keys, count, call);
  unlock(store);
  return result < 0 ? store_fail_wait(call, result, "wait for", keys, count) : 0;
}

static int hash_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  (void)call;
  *deleted = ks_delete(lock(store), key);
  unlock(store);
  return 0;
}

static int hash_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  (void)call;
  *count = (int64_t)ks_count(lock(store));
  unlock(store);
  return 0;
}

static int hash_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return finish(store, ks_append(lock(store), key, value), "append to", key, call);
}

static int hash_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                          struct store_call *call) {
  const int result = ks_multi_set(lock(store), keys, values, count);
  return finish(store, result, "set", count ? keys[0] : (rdzv_bytes){0}, call);
}

static int hash_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  const int result = ks_copy_keys(lock(store), out, count);
  unlock(store);
  return result < 0 ? error_no_memory(call->error) : 0;
}

static int hash_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return finish(store, ks_queue_push(lock(store), key, value), "push to", key, call);
}

static int hash_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call) {
  struct keyspace *ks = lock(store);
  int result = 0;
  while (result == 0 && ks_queue_len(ks, key) == 0)
    result = block ? sleep_locked(store, KS_WANT_QUEUE, &key, 1, call) : RDZV_E_EMPTY;
  if (result == 0) result = copy_out(out, ks_queue_front(ks, key));
  if (result == 0)
    ks_queue_drop(ks, key);
  else
    ks_queue_pass_on(ks, key);
  unlock(store);
  return result < 0 ? store_fail_wait(call, result, "pop from", &key, 1) : 0;
}

static int hash_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call) {
  (void)call;
  *len = (int64_t)ks_queue_len(lock(store), key);
  unlock(store);
  return 0;
}

static int hash_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                            struct store_call *call) {
  rdzv_bytes value;
  const uint64_t found = ks_get(lock(store), key, &value);
  const int result = copy_out(out, value);
  if (result == 0) *version = found;
  return finish(store, result, "get", key, call);
}

static int hash_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                    bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call) {
  struct keyspace *ks = lock(store);
  rdzv_bytes now;
  bool done;
  rdzv_value copy = {0};
  int result = copy_out(&copy, ks_get(ks, key, &now) == expected ? (rdzv_bytes){0} : now);
  if (result == 0) result = ks_compare_set_version(ks, key, expected, value, &done);
  if (result == 0) {
    *swapped = done;
    *version = ks_get(ks, key, &now);
    *out = copy;
  } else {
    rdzv_value_free(&copy);
  }
  return finish(store, result, "compare and set", key, call);
}

static int hash_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                             struct store_call *call) {
  struct keyspace *ks = lock(store);
  rdzv_bytes value;
  uint64_t found = 0;
  int result = 0;
  while (result == 0 && (found = ks_get(ks, key, &value)) == known)
    result = sleep_locked(store, WANT_CHANGE, &key, 1, call);
  if (result == 0) result = copy_out(out, value);
  unlock(store);
  if (result < 0) return store_fail_wait(call, result, "wait for a change of", &key, 1);
  *version = found;
  return 0;
}

static void shared_release(struct shared *shared) {
  if (atomic_fetch_sub(&shared->handles, 1) > 1) return;
  ks_free(shared->ks);
  pthread_mutex_destroy(&shared->lock);
  free(shared);
}

static void hash_close(rdzv_store *store) {
  shared_release(((struct hash_store *)store)->shared);
  store_deinit(store);
  free(store);
}

/* If another thread was in the middle of a call, the keys are left as they are. */
static void hash_abandon(rdzv_store *store) {
  struct shared *shared = ((struct hash_store *)store)->shared;
  const bool quiet = pthread_mutex_trylock(&shared->lock) == 0;
  if (quiet) pthread_mutex_unlock(&shared->lock);
  if (quiet) shared_release(shared);
  store_deinit(store);
  free(store);
}

static unsigned hash_features(rdzv_store *store) {
  (void)store;
  return RDZV_FEATURE_APPEND | RDZV_FEATURE_QUEUES | RDZV_FEATURE_LIST_KEYS | RDZV_FEATURE_VERSIONS;
}

static const char *hash_describe(rdzv_store *store) {
  (void)store;
  return "hash";
}

static int hash_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);

static const struct store_ops hash_ops = {.name = "hash",
                                          .close = hash_close,
                                          .abandon = hash_abandon,
                                          .clone = hash_clone,
                                          .features = hash_features,
                                          .describe = hash_describe,
                                          STORE_BASIC_OPS(STORE_OP_ROW, hash) STORE_QUEUE_OPS(STORE_OP_ROW, hash)
                                              STORE_VERSION_OPS(STORE_OP_ROW, hash)};

/* The new handle takes over one count of `handles`. On failure the caller keeps it. */
static int handle_new(struct shared *shared, int64_t timeout_ms, int cancel_fd, const rdzv_log *log, rdzv_store **out,
                      rdzv_error *error) {
  const int result = store_new(sizeof(struct hash_store), &hash_ops, timeout_ms, cancel_fd, log, out, error);
  if (result == 0) ((struct hash_store *)*out)->shared = shared;
  return result;
}

static int hash_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  struct shared *shared = ((struct hash_store *)store)->shared;
  atomic_fetch_add(&shared->handles, 1);
  const int result = handle_new(shared, 0, cancel_fd, &store->log, out, error);
  if (result < 0) shared_release(shared);
  return result;
}

static struct shared *shared_new(void) {
  static const struct ks_events events = {.wake = wake}; /* ks_watch is not used here */
  struct shared *shared = calloc(1, sizeof *shared);
  if (!shared) return NULL;
  shared->budget.max = SIZE_MAX;
  shared->ks = ks_new(&shared->budget, &events, NULL);
  struct siphash_seed seed;
  if (!shared->ks || getrandom(&seed, sizeof seed, 0) < 0) {
    ks_free(shared->ks);
    free(shared);
    return NULL;
  }
  ks_seed(shared->ks, seed);
  pthread_mutex_init(&shared->lock, NULL);
  atomic_init(&shared->handles, 1);
  return shared;
}

int rdzv_store_open_hash(const rdzv_hash_options *options, rdzv_store **out, rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_hash_options own;
  int result = options_take(&own, sizeof own, options, "rdzv_hash_options", error);
  if (result < 0) return result;
  struct shared *shared = shared_new();
  if (!shared) return error_no_memory(error);
  result = handle_new(shared, own.timeout_ms, own.cancel_fd, own.log, out, error);
  if (result < 0) shared_release(shared);
  return result;
}
