/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/store.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 50, MOST_REPEATS = 3 };

/* ---- for the implementations ------------------------------------------------------------------------------- */

int store_new(size_t size, const struct store_ops *ops, int64_t timeout_ms, int cancel_fd, const rdzv_log *log,
              rdzv_store **out, rdzv_error *error) {
  if (timeout_ms < 0) return error_timeout(error, timeout_ms);
  rdzv_store *store = calloc(1, size);
  if (!store) return error_no_memory(error);
  store->ops = ops;
  store->born = fork_mark_here();
  store->cancel_fd = cancel_fd;
  atomic_init(&store->timeout_ms, timeout_ms ? timeout_ms : RDZV_STORE_TIMEOUT_MS);
  int result = log_take(&log, &store->log, error);
  if (result == 0) result = flag_open_in(&store->cancel, NULL, cancel_fd, error);
  if (result == 0 && !ops->makes_flag_fd) result = flag_need_fd(&store->cancel, error);
  if (result < 0) {
    flag_close(&store->cancel);
    free(store);
  } else {
    *out = store;
  }
  return result;
}

struct store_text {
  struct store_text *next;
  char text[];
};

void store_deinit(rdzv_store *store) {
  flag_close(&store->cancel);
  for (struct store_text *at = atomic_load(&store->texts), *next; at; at = next) {
    next = at->next;
    free(at);
  }
}

/* Texts are added at the front and never removed, so readers need no lock. */
const char *store_text(rdzv_store *store, const char *text) {
  for (const struct store_text *at = atomic_load(&store->texts); at; at = at->next)
    if (strcmp(at->text, text) == 0) return at->text;
  const size_t size = strlen(text) + 1;
  struct store_text *kept = malloc(sizeof *kept + size);
  if (!kept) return store->ops->name;
  memcpy(kept->text, text, size);
  kept->next = atomic_load(&store->texts);
  while (!atomic_compare_exchange_weak(&store->texts, &kept->next, kept)) {
  }
  return kept->text;
}

void store_forget_cancel_fd(rdzv_store *store) {
  flag_forget(&store->cancel, store->cancel_fd);
  store->cancel_fd = 0;
}

int store_fail_unsupported(const rdzv_store *store, const char *op, rdzv_error *error) {
  return error_set(error, RDZV_E_UNSUPPORTED, "a %s store has no %s", store->ops->name, op);
}

struct key_list_text store_key_list(const rdzv_bytes *keys, size_t count) {
  struct key_list_text list = {""};
  const size_t shown = count < 3 ? count : 3;
  size_t at = 0;
  for (size_t i = 0; i < shown && at < sizeof list.text; i++)
    at += (size_t)snprintf(list.text + at, sizeof list.text - at, "%s'%s'", i ? ", " : "", bytes_quote(keys[i]).text);
  if (count > shown && at < sizeof list.text)
    snprintf(list.text + at, sizeof list.text - at, " and %zu more", count - shown);
  return list;
}

int store_fail_wait(struct store_call *call, int code, const char *what, const rdzv_bytes *keys, size_t count) {
  const struct key_list_text list = store_key_list(keys, count);
  if (code != RDZV_E_TIMEOUT) return error_set(call->error, code, "%s %s: %s", what, list.text, rdzv_error_text(code));
  return error_set(call->error, code, "%s %s: timed out after %lld ms", what, list.text, (long long)call->timeout_ms);
}

/* ---- for the callers --------------------------------------------------------------------------------------- */

/* Of the calls of this thread; -1: none. */
static _Thread_local int64_t limit_ms = -1;

void rdzv_store_limit_calls(int64_t timeout_ms) { limit_ms = timeout_ms; }

void rdzv_thread_cancel_fd(int fd) { flag_set_thread_fd(fd); }

int64_t store_call_limit(void) { return limit_ms; }

static struct store_call begin(rdzv_store *store, int64_t timeout_ms, rdzv_error *error) {
  if (timeout_ms < 0) timeout_ms = limit_ms >= 0 ? limit_ms : atomic_load(&store->timeout_ms);
  return (struct store_call){timeout_ms, deadline_after(timeout_ms), &store->cancel, error};
}

/* What a call that waits for keys says in the log. Its level is info, because the caller often means to wait. */
struct key_wait {
  const rdzv_bytes *keys;
  size_t count;
  struct waiting waiting;
  struct flag telling;
};

static void tell_of_keys(struct waiting *waiting, void *user) {
  const struct key_wait *wait = user;
  waiting_about(waiting, "waiting for %s %s", wait->count == 1 ? "the key" : "the keys",
                store_key_list(wait->keys, wait->count).text);
}

static struct store_call begin_wait(rdzv_store *store, int64_t timeout_ms, const rdzv_bytes *keys, size_t count,
                                    struct key_wait *wait, rdzv_error *error) {
  struct store_call call = begin(store, timeout_ms, error);
  wait->keys = keys;
  wait->count = count;
  waiting_begin(&wait->waiting, &store->log, call.until);
  wait->waiting.level = RDZV_LOG_INFO;
  wait->waiting.refresh = tell_of_keys;
  wait->waiting.user = wait;
  wait->telling = flag_with(call.cancel, &wait->waiting);
  call.cancel = &wait->telling;
  return call;
}

/* Fails for a store of the process that this one was forked from. */
#define OF_THIS_PROCESS() \
  if (fork_crossed(store->born)) return fork_fail("the store", error)

/* Fails for a missing place for a result, or a missing array. */
#define NOT_NULL(call, pointer) \
  if (!(pointer)) return error_null(error, #call, #pointer)

#define NOT_NULL_ARRAY(call, array, count) \
  if (!(array) && (count) > 0) return error_null(error, #call, #array)

/* Each operation calls that of the implementation through one of these; WAIT_CALL is for those that wait for keys. */
#define CALL(timeout, op, ...)                                             \
  do {                                                                     \
    OF_THIS_PROCESS();                                                     \
    if (!store->ops->op) return store_fail_unsupported(store, #op, error); \
    struct store_call call = begin(store, timeout, error);                 \
    CALL_WITH(op, __VA_ARGS__);                                            \
  } while (0)

#define WAIT_CALL(timeout, waited_for, number, op, ...)                                    \
  do {                                                                                     \
    struct key_wait wait;                                                                  \
    OF_THIS_PROCESS();                                                                     \
    if (!store->ops->op) return store_fail_unsupported(store, #op, error);                 \
    struct store_call call = begin_wait(store, timeout, waited_for, number, &wait, error); \
    CALL_WITH(op, __VA_ARGS__);                                                            \
  } while (0)

#define CALL_WITH(op, ...)                                                                                  \
  do {                                                                                                      \
    if (flag_raised(call.cancel)) return error_set(error, RDZV_E_CANCELED, #op ": the store was canceled"); \
    return store->ops->op(store, __VA_ARGS__, &call);                                                       \
  } while (0)

void rdzv_store_free(rdzv_store *store) {
  if (store) (fork_crossed(store->born) ? store->ops->abandon : store->ops->close)(store);
}

void rdzv_store_cancel(rdzv_store *store) {
  if (!fork_crossed(store->born)) flag_raise(&store->cancel);
}

int store_clone_with(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  OF_THIS_PROCESS();
  if (flag_raised(&store->cancel)) return error_set(error, RDZV_E_CANCELED, "clone: the store was canceled");
  const int result = store->ops->clone(store, cancel_fd, out, error);
  if (result == 0) atomic_store(&(*out)->timeout_ms, atomic_load(&store->timeout_ms));
  return result;
}

int rdzv_store_clone(rdzv_store *store, rdzv_store **out, rdzv_error *error) {
  NOT_NULL(clone, out);
  return store_clone_with(store, store->cancel_fd, out, error);
}

int rdzv_store_clone_with(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  NOT_NULL(clone, out);
  return store_clone_with(store, cancel_fd, out, error);
}

bool store_try_again(rdzv_store *store, int result, deadline until) {
  if (result != RDZV_E_OUTCOME_UNKNOWN && result != RDZV_E_DATA_LOST) return false;
  const deadline next = deadline_after(jitter(AGAIN_MS));
  return next < until && flag_pause(&store->cancel, next) == 0;
}

int64_t store_request_time(rdzv_store *store, int64_t opened_with_ms) {
  if (limit_ms >= 0) return limit_ms;
  const int64_t limit = atomic_load(&store->request_ms);
  return limit > 0 && limit < opened_with_ms ? limit : opened_with_ms;
}

int rdzv_store_set_timeout(rdzv_store *store, int64_t timeout_ms, rdzv_error *error) {
  if (timeout_ms < 0) return error_timeout(error, timeout_ms);
  atomic_store(&store->timeout_ms, timeout_ms);
  return 0;
}

int rdzv_store_set_request_timeout(rdzv_store *store, int64_t timeout_ms, rdzv_error *error) {
  OF_THIS_PROCESS();
  if (timeout_ms < 0) return error_timeout(error, timeout_ms);
  while (store->ops->under) store = store->ops->under(store);
  atomic_store(&store->request_ms, timeout_ms);
  return 0;
}

int64_t rdzv_store_get_timeout(const rdzv_store *store) { return atomic_load(&store->timeout_ms); }

unsigned rdzv_store_features(rdzv_store *store) { return fork_crossed(store->born) ? 0 : store->ops->features(store); }

const char *rdzv_store_describe(rdzv_store *store) {
  return fork_crossed(store->born) ? store->ops->name : store->ops->describe(store);
}

int rdzv_store_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error) {
  CALL(RDZV_TIMEOUT_STORE, set, key, value);
}

int rdzv_store_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, rdzv_error *error) {
  NOT_NULL(get, out);
  WAIT_CALL(RDZV_TIMEOUT_STORE, &key, 1, get, key, out);
}

int rdzv_store_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, rdzv_error *error) {
  int64_t unused;
  CALL(RDZV_TIMEOUT_STORE, add, key, delta, sum ? sum : &unused);
}

int rdzv_store_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                           rdzv_error *error) {
  NOT_NULL(compare_set, out);
  CALL(RDZV_TIMEOUT_STORE, compare_set, key, expected, desired, out);
}

int rdzv_store_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, rdzv_error *error) {
  NOT_NULL_ARRAY(check, keys, count);
  NOT_NULL(check, all);
  CALL(RDZV_TIMEOUT_STORE, check, keys, count, all);
}

static int check_timeout(int64_t timeout_ms, rdzv_error *error) {
  return timeout_ms >= 0 || timeout_ms == RDZV_TIMEOUT_STORE ? 0 : error_timeout(error, timeout_ms);
}

int rdzv_store_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, int64_t timeout_ms, rdzv_error *error) {
  if (check_timeout(timeout_ms, error) < 0) return RDZV_E_INVALID;
  NOT_NULL_ARRAY(wait, keys, count);
  WAIT_CALL(timeout_ms, keys, count, wait, keys, count);
}

int rdzv_store_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, rdzv_error *error) {
  bool unused;
  CALL(RDZV_TIMEOUT_STORE, delete_key, key, deleted ? deleted : &unused);
}

int rdzv_store_num_keys(rdzv_store *store, int64_t *count, rdzv_error *error) {
  NOT_NULL(num_keys, count);
  CALL(RDZV_TIMEOUT_STORE, num_keys, count);
}

int rdzv_store_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error) {
  CALL(RDZV_TIMEOUT_STORE, append, key, value);
}

/* The array is allocated here, so that a failing implementation cannot leave it half filled to the caller. */
int rdzv_store_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value **out, rdzv_error *error) {
  NOT_NULL_ARRAY(multi_get, keys, count);
  NOT_NULL(multi_get, out);
  OF_THIS_PROCESS();
  struct key_wait wait;
  struct store_call call = begin_wait(store, RDZV_TIMEOUT_STORE, keys, count, &wait, error);
  if (flag_raised(call.cancel)) return error_set(error, RDZV_E_CANCELED, "multi_get: the store was canceled");
  rdzv_value *values = calloc(count ? count : 1, sizeof *values);
  if (!values) return error_no_memory(error);
  const int result = store->ops->multi_get(store, keys, count, values, &call);
  if (result < 0)
    rdzv_values_free(values, count);
  else
    *out = values;
  return result;
}

int rdzv_store_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                         rdzv_error *error) {
  NOT_NULL_ARRAY(multi_set, keys, count);
  NOT_NULL_ARRAY(multi_set, values, count);
  CALL(RDZV_TIMEOUT_STORE, multi_set, keys, values, count);
}

int rdzv_store_publish(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                       rdzv_error *error) {
  int result = RDZV_E_OUTCOME_UNKNOWN;
  for (int i = 0; i <= MOST_REPEATS && result == RDZV_E_OUTCOME_UNKNOWN; i++)
    result = rdzv_store_multi_set(store, keys, values, count, error);
  return result;
}

int rdzv_store_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, rdzv_error *error) {
  NOT_NULL(list_keys, out);
  NOT_NULL(list_keys, count);
  CALL(RDZV_TIMEOUT_STORE, list_keys, out, count);
}

int rdzv_store_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error) {
  CALL(RDZV_TIMEOUT_STORE, queue_push, key, value);
}

int rdzv_store_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, rdzv_error *error) {
  NOT_NULL(queue_pop, out);
  if (!block) CALL(RDZV_TIMEOUT_STORE, queue_pop, key, block, out);
  WAIT_CALL(RDZV_TIMEOUT_STORE, &key, 1, queue_pop, key, block, out);
}

int rdzv_store_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, rdzv_error *error) {
  NOT_NULL(queue_len, len);
  CALL(RDZV_TIMEOUT_STORE, queue_len, key, len);
}

int rdzv_store_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version, rdzv_error *error) {
  NOT_NULL(get_version, out);
  NOT_NULL(get_version, version);
  CALL(RDZV_TIMEOUT_STORE, get_version, key, out, version);
}

int rdzv_store_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                   bool *swapped, rdzv_value *out, uint64_t *version, rdzv_error *error) {
  NOT_NULL(compare_set_version, swapped);
  NOT_NULL(compare_set_version, out);
  NOT_NULL(compare_set_version, version);
  CALL(RDZV_TIMEOUT_STORE, compare_set_version, key, expected, value, swapped, out, version);
}

int rdzv_store_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, int64_t timeout_ms, rdzv_value *out,
                            uint64_t *version, rdzv_error *error) {
  if (check_timeout(timeout_ms, error) < 0) return RDZV_E_INVALID;
  NOT_NULL(wait_changed, out);
  NOT_NULL(wait_changed, version);
  CALL(timeout_ms, wait_changed, key, known, out, version);
}
