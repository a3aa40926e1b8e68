/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/text/options.h"
#include "etcd/path.h"
#include "store/etcd3/etcd3_store.h"

#include <rdzv/etcd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 2000 }; /* for an answer, however little time there is for the key */

struct etcd_call etcd3_store_quick_call(rdzv_store *store, const struct store_call *call) {
  const int64_t time = store_request_time(store, etcd_read_timeout(etcd3_store_of(store)->shared->client));
  return (struct etcd_call){deadline_after(time), call->cancel, call->error};
}

struct etcd_call etcd3_store_waiting_call(rdzv_store *store, const struct store_call *call) {
  struct etcd_call own = etcd3_store_quick_call(store, call);
  const deadline least = deadline_after(ANSWER_MS), until = call->until > least ? call->until : least;
  if (until < own.until) own.until = until;
  return own;
}

int etcd3_store_fail(rdzv_store *store, int code, const char *what, rdzv_bytes key, const struct store_call *call) {
  const int result = code > 0 ? RDZV_E_STALE : code;
  if (call->error) call->error->code = result;
  return error_prefix(call->error, result, "%s '%s' in %s", what, bytes_quote(key).text,
                      etcd3_store_of(store)->shared->text);
}

/* ---- handles -------------------------------------------------------------------------------------------------- */

static void let_go(struct etcd3_store_shared *shared) {
  if (atomic_fetch_sub(&shared->handles, 1) > 1) return;
  etcd3_store_lease_close(shared->lease);
  etcd_close(shared->client);
  free(shared->prefix);
  free(shared);
}

static void etcd3_store_close(rdzv_store *base) {
  struct etcd3_store *store = etcd3_store_of(base);
  etcd3_writer_end(&store->writer, store->etcd, &base->cancel);
  etcd3_close(store->etcd);
  etcd3_writer_close(&store->writer);
  let_go(store->shared);
  store_deinit(base);
  free(store);
}

/* The client's connections stay as they are: closing one with TLS would send something. */
static void etcd3_store_abandon(rdzv_store *store) {
  store_deinit(store);
  free(store);
}

static unsigned etcd3_store_features(rdzv_store *store) {
  (void)store;
  return RDZV_FEATURE_APPEND | RDZV_FEATURE_QUEUES | RDZV_FEATURE_LIST_KEYS | RDZV_FEATURE_VERSIONS;
}

static const char *etcd3_store_describe(rdzv_store *store) { return etcd3_store_of(store)->shared->text; }
static int etcd3_store_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);

static const struct store_ops etcd3_ops = {.name = "etcd3",
                                           .makes_flag_fd = true,
                                           .close = etcd3_store_close,
                                           .abandon = etcd3_store_abandon,
                                           .clone = etcd3_store_clone,
                                           .features = etcd3_store_features,
                                           .describe = etcd3_store_describe,
                                           STORE_BASIC_OPS(STORE_OP_ROW, etcd3_store) STORE_QUEUE_OPS(
                                               STORE_OP_ROW, etcd3_store) STORE_VERSION_OPS(STORE_OP_ROW, etcd3_store)};

/* Takes over one hold on `shared`, also on failure. */
static int handle_new(struct etcd3_store_shared *shared, int64_t timeout_ms, int cancel_fd, const rdzv_log *log,
                      rdzv_store **out, rdzv_error *error) {
  rdzv_store *base = NULL;
  struct etcd3 *etcd = NULL;
  int result = etcd3_open(etcd_share(shared->client), &etcd, error);
  if (result == 0) result = store_new(sizeof(struct etcd3_store), &etcd3_ops, timeout_ms, cancel_fd, log, &base, error);
  if (result < 0) {
    etcd3_close(etcd);
    let_go(shared);
    return result;
  }
  struct etcd3_store *store = etcd3_store_of(base);
  store->shared = shared;
  store->etcd = etcd;
  etcd3_writer_open(&store->writer);
  *out = base;
  return 0;
}

static int etcd3_store_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  struct etcd3_store_shared *shared = etcd3_store_of(store)->shared;
  atomic_fetch_add(&shared->handles, 1);
  return handle_new(shared, 0, cancel_fd, &store->log, out, error);
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

int etcd3_store_open(struct etcd_client *client, const char *prefix, int64_t timeout_ms, int64_t lease_ms,
                     int cancel_fd, const rdzv_log *log, rdzv_store **out, rdzv_error *error) {
  struct etcd3_store_shared *shared = calloc(1, sizeof *shared);
  char *path = etcd_path_clean(prefix ? prefix : "");
  const bool root = path && !*path;
  if (!shared || !path || root || lease_ms < 0) {
    free(shared);
    free(path);
    etcd_close(client);
    if (root) return error_set(error, RDZV_E_INVALID, "an etcd store needs a prefix, such as /job/17");
    return lease_ms < 0 ? error_timeout(error, lease_ms) : error_no_memory(error);
  }
  atomic_init(&shared->handles, 1);
  shared->client = client;
  shared->prefix = path;
  snprintf(shared->text, sizeof shared->text, "etcd3 %s%s", etcd_describe(client), path);
  const int result = lease_ms > 0 ? etcd3_store_lease_open(shared, lease_ms, &shared->lease, error) : 0;
  if (result == 0) return handle_new(shared, timeout_ms, cancel_fd, log, out, error);
  let_go(shared);
  return result;
}

int rdzv_store_open_etcd3(const char *prefix, const rdzv_etcd3_store_options *given, rdzv_store **out,
                          rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_etcd3_store_options options = {0};
  struct etcd_client *client;
  rdzv_etcd_options etcd = {0};
  int result = options_take(&options, sizeof options, given, "rdzv_etcd3_store_options", error);
  if (result == 0) result = options_take(&etcd, sizeof etcd, options.etcd, "rdzv_etcd_options", error);
  if (result < 0) return result;
  if (!etcd.log) etcd.log = options.log;
  result = etcd_open(&etcd, &client, error);
  if (result < 0) return result;
  return etcd3_store_open(client, prefix, options.timeout_ms, options.lease_ms, options.cancel_fd, options.log, out,
                          error);
}
