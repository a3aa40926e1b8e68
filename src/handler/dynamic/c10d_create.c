/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend named c10d: the dynamic rendezvous at a store. Where its server forms rounds (our own), this node is a
 * native one, unless option mode says otherwise; else a swap node, over one key of the store. */
#include "backend/c10d/cell.h"
#include "base/error.h"
#include "handler/conf.h"
#include "handler/dynamic/dynamic.h"
#include "handler/handler.h"
#include "store/store.h"

/* A dialect of PyTorch's, and a file, have no server that could form rounds. */
static bool may_be_native(const struct conf *conf) {
  return conf->mode != CONF_MODE_SWAP && conf->store_type == C10D_STORE_TCP &&
         (conf->dialect == RDZV_DIALECT_AUTO || conf->dialect == RDZV_DIALECT_RDZV);
}

static struct c10d_options store_options(const rdzv_params *params, bool may_serve, const struct conf *conf) {
  return (struct c10d_options){.store_type = (enum c10d_store_type)conf->store_type,
                               .is_host = may_serve ? (enum c10d_is_host)conf->is_host : C10D_HOST_NO,
                               .read_timeout_ms = conf->reach_timeout,
                               .dialect = (rdzv_dialect)conf->dialect,
                               .cancel_fd = params->cancel_fd,
                               .log = params->log,
                               .run_id = may_serve ? params->run_id : NULL,
                               .asks_native = may_serve && may_be_native(conf),
                               .protection = {conf_tls_names(conf), conf->bind}};
}

int c10d_use_store(const rdzv_params *params, c10d_store_user *use, void *argument, rdzv_error *error) {
  struct conf conf;
  rdzv_store *store;
  rdzv_server *none;
  int result = conf_parse(params->conf, CONF_DYNAMIC | CONF_C10D, params_lenient(params), &conf, error);
  if (result < 0) return result;
  const struct c10d_options options = store_options(params, false, &conf);
  const deadline until = deadline_after(conf.reach_timeout);
  result = c10d_store_open(params->endpoint, &options, &store, &none, error);
  if (result == 0) {
    result = use(store, argument, error);
    rdzv_store_free(store);
  }
  if (result < 0) result = conf_fail_reach(&conf, until, result, error);
  conf_free(&conf);
  return result;
}

static int fail_mode(rdzv_store *store, rdzv_error *error) {
  return error_set(
      error, RDZV_E_UNSUPPORTED,
      "option mode=native: %s does not support native rounds (use an 'rdzv serve' of this version, or mode=auto)",
      rdzv_store_describe(store));
}

static void limit_calls(rdzv_store *store, deadline until) {
  const int64_t left = deadline_left(until);
  rdzv_store_set_timeout(store, left > 0 ? left : 1, NULL);
  rdzv_store_set_request_timeout(store, left > 0 ? left : 1, NULL);
}

/* Opens the store, and the cell of a swap node in it. On failure there are no parts. */
static int open_parts(const rdzv_params *params, const struct conf *conf, deadline until, struct dynamic_parts *parts,
                      rdzv_error *error) {
  const struct c10d_options options = store_options(params, true, conf);
  int result = c10d_store_open(params->endpoint, &options, &parts->store, &parts->server, error);
  if (result < 0) return result;
  parts->native = store_is_native(parts->store);
  if (!parts->native && conf->mode == CONF_MODE_NATIVE) {
    result = fail_mode(parts->store, error);
    dynamic_parts_free(parts);
    return result;
  }
  if (parts->native) return 0;
  limit_calls(parts->store, until);
  result = c10d_open(parts->store, parts->server, params->run_id, params->log, &parts->backend, error);
  if (result < 0) rdzv_store_free(parts->store);
  return result;
}

int c10d_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user;
  struct conf conf;
  struct dynamic_parts parts = {0};
  int result = conf_parse(params->conf, CONF_DYNAMIC | CONF_C10D, params_lenient(params), &conf, error);
  if (result < 0) return result;
  const deadline until = deadline_after(conf.reach_timeout);
  parts.read_timeout_ms = conf.read_timeout;
  parts.request_timeout_ms = conf.reach_timeout;
  result = open_parts(params, &conf, until, &parts, error);
  if (result == 0) result = dynamic_open(params, CONF_DYNAMIC | CONF_C10D, &parts, out, error);
  if (result < 0) result = conf_fail_reach(&conf, until, result, error);
  conf_free(&conf);
  return result;
}
