/* SPDX-License-Identifier: BSD-3-Clause */
/* A view of another store, in which each key k is "prefix/k". Calls use the timeout of the view. */
#include "base/buf.h"
#include "base/error.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

struct prefix_store {
  rdzv_store base;
  rdzv_store *under;
  bool owns_under; /* the view is a clone, and has cloned the store below, too */
  size_t prefix_len;
  char prefix[]; /* with the slash */
};

static struct prefix_store *self(rdzv_store *store) { return (struct prefix_store *)store; }
static rdzv_store *under(rdzv_store *store) { return self(store)->under; }

/* The keys with the prefix: an array, and behind it in the same block their bytes. NULL: no memory. */
static rdzv_bytes *join(rdzv_store *store, const rdzv_bytes *keys, size_t count) {
  const struct prefix_store *prefix = self(store);
  size_t bytes = (count + 1) * sizeof(rdzv_bytes);
  for (size_t i = 0; i < count; i++) bytes += prefix->prefix_len + keys[i].len;
  rdzv_bytes *joined = malloc(bytes);
  if (!joined) return NULL;
  char *at = (char *)(joined + count);
  for (size_t i = 0; i < count; i++) {
    joined[i] = (rdzv_bytes){at, prefix->prefix_len + keys[i].len};
    memcpy(at, prefix->prefix, prefix->prefix_len);
    bytes_copy(at + prefix->prefix_len, keys[i].data, keys[i].len);
    at += joined[i].len;
  }
  return joined;
}

/* Returns the result of `code`, which finds the keys with the prefix in `at`. */
#define WITH_KEYS(list, count, code)            \
  rdzv_bytes *at = join(store, list, count);    \
  if (!at) return error_no_memory(call->error); \
  const int result = (code);                    \
  free(at);                                     \
  return result

#define UNDER(op) under(store)->ops->op

/* For an operation that the store below may lack. */
#define NEED(op) \
  if (!UNDER(op)) return store_fail_unsupported(under(store), #op, call->error)

static int prefix_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  WITH_KEYS(&key, 1, UNDER(set)(under(store), at[0], value, call));
}

static int prefix_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  WITH_KEYS(&key, 1, UNDER(get)(under(store), at[0], out, call));
}

static int prefix_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  WITH_KEYS(&key, 1, UNDER(add)(under(store), at[0], delta, sum, call));
}

static int prefix_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired,
                              rdzv_value *out, struct store_call *call) {
  WITH_KEYS(&key, 1, UNDER(compare_set)(under(store), at[0], expected, desired, out, call));
}

static int prefix_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  WITH_KEYS(keys, count, UNDER(check)(under(store), at, count, all, call));
}

static int prefix_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  WITH_KEYS(keys, count, UNDER(wait)(under(store), at, count, call));
}

static int prefix_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  WITH_KEYS(&key, 1, UNDER(delete_key)(under(store), at[0], deleted, call));
}

static int prefix_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  return UNDER(num_keys)(under(store), count, call);
}

static int prefix_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  NEED(append);
  WITH_KEYS(&key, 1, UNDER(append)(under(store), at[0], value, call));
}

static int prefix_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                            struct store_call *call) {
  WITH_KEYS(keys, count, UNDER(multi_get)(under(store), at, count, out, call));
}

static int prefix_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                            struct store_call *call) {
  WITH_KEYS(keys, count, UNDER(multi_set)(under(store), at, values, count, call));
}

static int prefix_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  NEED(queue_push);
  WITH_KEYS(&key, 1, UNDER(queue_push)(under(store), at[0], value, call));
}

static int prefix_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call) {
  NEED(queue_pop);
  WITH_KEYS(&key, 1, UNDER(queue_pop)(under(store), at[0], block, out, call));
}

static int prefix_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call) {
  NEED(queue_len);
  WITH_KEYS(&key, 1, UNDER(queue_len)(under(store), at[0], len, call));
}

static int prefix_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                              struct store_call *call) {
  NEED(get_version);
  WITH_KEYS(&key, 1, UNDER(get_version)(under(store), at[0], out, version, call));
}

static int prefix_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                      bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call) {
  NEED(compare_set_version);
  WITH_KEYS(&key, 1, UNDER(compare_set_version)(under(store), at[0], expected, value, swapped, out, version, call));
}

static int prefix_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                               struct store_call *call) {
  NEED(wait_changed);
  WITH_KEYS(&key, 1, UNDER(wait_changed)(under(store), at[0], known, out, version, call));
}

static bool strip(const struct prefix_store *prefix, rdzv_value *key) {
  if (key->len < prefix->prefix_len || memcmp(key->data, prefix->prefix, prefix->prefix_len) != 0) return false;
  key->len -= prefix->prefix_len;
  memmove(key->data, key->data + prefix->prefix_len, key->len + 1);
  return true;
}

static int prefix_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  NEED(list_keys);
  rdzv_value *keys;
  size_t total, kept = 0;
  const int result = UNDER(list_keys)(under(store), &keys, &total, call);
  if (result < 0) return result;
  for (size_t i = 0; i < total; i++) {
    if (strip(self(store), &keys[i]))
      keys[kept++] = keys[i];
    else
      rdzv_value_free(&keys[i]);
  }
  *out = keys;
  *count = kept;
  return 0;
}

static void prefix_close(rdzv_store *store) {
  struct prefix_store *prefix = self(store);
  if (prefix->owns_under) rdzv_store_free(prefix->under);
  store_deinit(store);
  free(prefix);
}

static unsigned prefix_features(rdzv_store *store) { return rdzv_store_features(under(store)); }

static const char *prefix_describe(rdzv_store *store) {
  const struct prefix_store *prefix = self(store);
  const rdzv_bytes bytes = {prefix->prefix, prefix->prefix_len - 1};
  char *text;
  if (asprintf(&text, "%s under '%s'", rdzv_store_describe(prefix->under), bytes_quote(bytes).text) < 0)
    return "prefix";
  const char *kept = store_text(store, text);
  free(text);
  return kept;
}

static int prefix_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  const struct prefix_store *prefix = self(store);
  rdzv_store *copy;
  int result = store_clone_with(prefix->under, cancel_fd, &copy, error);
  if (result < 0) return result;
  result = rdzv_store_open_prefix(copy, (rdzv_bytes){prefix->prefix, prefix->prefix_len - 1}, out, error);
  if (result < 0)
    rdzv_store_free(copy);
  else
    self(*out)->owns_under = true;
  return result;
}

static const struct store_ops prefix_ops = {.name = "prefix",
                                            .close = prefix_close,
                                            .abandon = prefix_close, /* rdzv_store_free abandons the store below */
                                            .clone = prefix_clone,
                                            .features = prefix_features,
                                            .describe = prefix_describe,
                                            .under = under,
                                            STORE_BASIC_OPS(STORE_OP_ROW, prefix) STORE_QUEUE_OPS(STORE_OP_ROW, prefix)
                                                STORE_VERSION_OPS(STORE_OP_ROW, prefix)};

int rdzv_store_open_prefix(rdzv_store *base, rdzv_bytes prefix, rdzv_store **out, rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  if (fork_crossed(base->born)) return fork_fail("the store", error);
  struct prefix_store *view = calloc(1, sizeof *view + prefix.len + 1);
  if (!view) return error_no_memory(error);
  view->base.ops = &prefix_ops;
  view->base.born = fork_mark_here();
  view->base.log = base->log;
  view->base.cancel_fd = base->cancel_fd;
  atomic_init(&view->base.timeout_ms, rdzv_store_get_timeout(base));
  const int result = flag_share(&view->base.cancel, &base->cancel, error);
  if (result < 0) {
    free(view);
    return result;
  }
  view->under = base;
  bytes_copy(view->prefix, prefix.data, prefix.len);
  view->prefix[prefix.len] = '/';
  view->prefix_len = prefix.len + 1;
  *out = &view->base;
  return 0;
}
