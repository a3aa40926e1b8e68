/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/etcd/etcd_store.h"

#include "base/error.h"
#include "base/text/options.h"
#include "etcd/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct etcd_call etcd_store_quick_call(rdzv_store *store, const struct store_call *call) {
  const int64_t time = store_request_time(store, etcd_read_timeout(shared_of(store)->client));
  return (struct etcd_call){deadline_after(time), call->cancel, call->error};
}

int etcd_store_fail(rdzv_store *store, int code, const char *what, rdzv_bytes key, const struct store_call *call) {
  const bool in_the_way =
      code == ETCD_V2_NOT_A_FILE || code == ETCD_V2_NOT_A_DIR; /* another key's path leads through */
  const int result = in_the_way ? RDZV_E_UNSUPPORTED : etcd_v2_unexpected(code);
  if (call->error) call->error->code = result;
  return error_prefix(call->error, result, "%s '%s' in %s", what, bytes_quote(key).text, shared_of(store)->text);
}

static void let_go(struct etcd_store_shared *shared) {
  if (atomic_fetch_sub(&shared->handles, 1) > 1) return;
  etcd_close(shared->client);
  free(shared->prefix);
  free(shared);
}

static void etcd_store_close(rdzv_store *store) {
  let_go(shared_of(store));
  store_deinit(store);
  free(store);
}

/* The client's connections stay as they are: closing one with TLS would send something. */
static void etcd_store_abandon(rdzv_store *store) {
  store_deinit(store);
  free(store);
}

static unsigned etcd_store_features(rdzv_store *store) {
  (void)store;
  return RDZV_FEATURE_APPEND | RDZV_FEATURE_LIST_KEYS | RDZV_FEATURE_VERSIONS;
}

static const char *etcd_store_describe(rdzv_store *store) { return shared_of(store)->text; }
static int etcd_store_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);

static const struct store_ops etcd_ops = {.name = "etcd",
                                          .close = etcd_store_close,
                                          .abandon = etcd_store_abandon,
                                          .clone = etcd_store_clone,
                                          .features = etcd_store_features,
                                          .describe = etcd_store_describe,
                                          STORE_BASIC_OPS(STORE_OP_ROW, etcd_store)
                                              STORE_VERSION_OPS(STORE_OP_ROW, etcd_store)};

/* Takes over one hold on `shared`, also on failure. */
static int handle_new(struct etcd_store_shared *shared, int64_t timeout_ms, int cancel_fd, const rdzv_log *log,
                      rdzv_store **out, rdzv_error *error) {
  const int result = store_new(sizeof(struct etcd_store), &etcd_ops, timeout_ms, cancel_fd, log, out, error);
  if (result < 0)
    let_go(shared);
  else
    ((struct etcd_store *)*out)->shared = shared;
  return result;
}

static int etcd_store_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  atomic_fetch_add(&shared_of(store)->handles, 1);
  return handle_new(shared_of(store), 0, cancel_fd, &store->log, out, error);
}

int etcd_store_open(struct etcd_client *client, const char *prefix, int64_t timeout_ms, int cancel_fd,
                    const rdzv_log *log, rdzv_store **out, rdzv_error *error) {
  struct etcd_store_shared *shared = calloc(1, sizeof *shared);
  char *path = etcd_path_clean(prefix);
  if (!shared || !path || !*path) {
    const bool root = path && !*path;
    free(shared);
    free(path);
    etcd_close(client);
    return root ? error_set(error, RDZV_E_INVALID, "an etcd store needs a prefix, such as /job/17")
                : error_no_memory(error);
  }
  atomic_init(&shared->handles, 1);
  shared->client = client;
  shared->prefix = path;
  snprintf(shared->text, sizeof shared->text, "etcd %s%s", etcd_describe(client), path);
  return handle_new(shared, timeout_ms, cancel_fd, log, out, error);
}

int rdzv_store_open_etcd(const char *prefix, const rdzv_etcd_store_options *given, rdzv_store **out,
                         rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_etcd_store_options options = {0};
  struct etcd_client *client;
  rdzv_etcd_options etcd = {0};
  int result = options_take(&options, sizeof options, given, "rdzv_etcd_store_options", error);
  if (result == 0) result = options_take(&etcd, sizeof etcd, options.etcd, "rdzv_etcd_options", error);
  if (result < 0) return result;
  if (!etcd.log) etcd.log = options.log;
  result = etcd_open(&etcd, &client, error);
  if (result < 0) return result;
  return etcd_store_open(client, prefix, options.timeout_ms, options.cancel_fd, options.log, out, error);
}
