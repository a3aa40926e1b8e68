/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buf.h"
#include "base/error.h"
#include "base/text/options.h"
#include "handler/dynamic/dynamic.h"
#include "handler/dynamic/native/native.h"
#include "handler/dynamic/swap/swap.h"
#include "store/run_keys.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { ETCD_SWAP_MS = 4 };

/* ---- closing -------------------------------------------------------------------------------------------------- */

static void close_flags(struct dynamic *handler) {
  flag_close(&handler->answered);
  flag_close(&handler->changed);
  flag_close(&handler->ended);
}

void dynamic_close(rdzv_handler *base) {
  struct dynamic *handler = (struct dynamic *)base;
  driver_stop(handler->driver);
  dynamic_drop_joined(handler);
  change_clear(&handler->change);
  dynamic_forget_master(handler);
  rdzv_store_free(handler->store);
  if (handler->server && base->linger_ms > 0) rdzv_server_drain(handler->server, base->linger_ms);
  driver_free(handler->driver);
  close_flags(handler);
  pthread_mutex_destroy(&handler->call);
  pthread_mutex_destroy(&handler->lock);
  events_free(&handler->events);
  handler_deinit(base);
  free(handler);
}

/* A lock that is held tells that a thread of the parent was changing what it guards when the parent forked: then that
 * is left as it is. */
void dynamic_abandon(rdzv_handler *base) {
  struct dynamic *handler = (struct dynamic *)base;
  if (pthread_mutex_trylock(&handler->lock) == 0) {
    dynamic_drop_joined(handler);
    change_clear(&handler->change);
  }
  if (pthread_mutex_trylock(&handler->call) == 0) dynamic_forget_master(handler);
  events_abandon(&handler->events);
  rdzv_store_free(handler->store);
  driver_abandon(handler->driver);
  close_flags(handler);
  handler_deinit(base);
  free(handler);
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

int dynamic_check_program(rdzv_store *store, const rdzv_params *params, rdzv_error *error) {
  rdzv_value found;
  if (!params->program || !*params->program || strcmp(params->run_id, UNNAMED_RUN) != 0) return 0;
  const rdzv_bytes own = rdzv_str(params->program);
  const deadline until = deadline_after(rdzv_store_get_timeout(store));
  char *key = run_key(UNNAMED_RUN, RUN_PART_PROGRAM);
  if (!key) return error_no_memory(error);
  int result;
  do {
    result = rdzv_store_compare_set(store, rdzv_str(key), rdzv_str(""), own, &found, error);
  } while (store_try_again(store, result, until));
  free(key);
  if (result < 0) return error_prefix(error, result, "cannot read the name of the program of the rendezvous");
  const bool same = bytes_equal(rdzv_value_bytes(&found), own);
  if (!same)
    error_set(error, RDZV_E_INVALID,
              "program '%s' uses this rendezvous, but this node runs '%s' (give each job at a shared endpoint its own "
              "--rdzv-id)",
              bytes_quote(rdzv_value_bytes(&found)).text, params->program);
  rdzv_value_free(&found);
  return same ? 0 : RDZV_E_INVALID;
}

static struct engine_config engine_config(const rdzv_params *params, unsigned options, const struct conf *conf) {
  struct engine_config config = {.settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                 .swap_ms = options & CONF_ETCD ? ETCD_SWAP_MS : 0};
  config.settings.min_nodes = params->min_nodes;
  config.settings.max_nodes = params->max_nodes;
  config.settings.join_timeout = conf->join_timeout;
  config.settings.last_call_timeout = conf->last_call_timeout;
  config.settings.close_timeout = conf->close_timeout;
  config.settings.heartbeat_timeout = conf->heartbeat_timeout;
  config.settings.keep_alive_interval = conf->keep_alive_interval;
  config.settings.keep_alive_max_attempt = conf->keep_alive_max_attempt;
  config.settings.rank_order = (enum rank_order)conf->rank_order;
  config.settings.launcher = (enum launcher)params->launcher;
  config.settings.max_restarts = params->max_restarts;
  if (getrandom(&config.seed, sizeof config.seed, GRND_NONBLOCK) < 0)
    config.seed = (uint64_t)clock_wall_us() ^ (uint64_t)getpid() << 32;
  return config;
}

/* What may fail. The driver is there. */
static int open_parts(struct dynamic *handler, const rdzv_params *params, rdzv_error *error) {
  const struct node_desc *node = &handler->driver->node;
  int result = handler_init(&handler->base, &dynamic_ops, params, node_text(node).text, error);
  rdzv_params own = *params;
  own.run_id = handler->base.run_id;
  events_init(&handler->events, &own, handler->base.node ? handler->base.node : "", node->local_id);
  if (result == 0) result = flag_open_in(&handler->answered, &handler->base.flags, 0, error);
  if (result == 0) result = flag_open_in(&handler->changed, &handler->base.flags, 0, error);
  if (result == 0) result = flag_open_in(&handler->ended, &handler->base.flags, 0, error);
  return result == 0 ? driver_start(handler->driver, error) : result;
}

static struct dynamic *make(const rdzv_params *params) {
  struct dynamic *handler = calloc(1, sizeof *handler);
  if (!handler) return NULL;
  pthread_mutex_init(&handler->call, NULL);
  pthread_mutex_init(&handler->lock, NULL);
  handler->base.cancel = handler->answered = handler->changed = handler->ended = FLAG_NONE;
  handler->base.log = *params->log;
  handler->master.port_fd = -1;
  handler->master.past_round = -1;
  return handler;
}

/* Opens the driver of the parts, which it takes over. */
static int open_driver(struct dynamic *handler, const rdzv_params *params, const struct driver_options *options,
                       const struct dynamic_parts *parts, rdzv_error *error) {
  struct driver_options own = *options;
  own.run_id = params->run_id;
  own.local_addr = params->local_addr;
  own.log = &handler->base.log;
  own.events = &handler->events;
  own.tell = dynamic_told;
  own.user = handler;
  if (!parts->backend) return native_open(&own, parts->store, parts->server, &handler->driver, error);
  return swap_open(&own, &parts->ops, parts->backend, &handler->driver, error);
}

static const rdzv_log nowhere = {.size = sizeof nowhere};

/* Takes the options that the engine goes by. Those that are ignored have been named by the creator of the backend. */
static int take_conf(const rdzv_params *params, unsigned options, struct driver_options *out, rdzv_error *error) {
  struct conf conf = {0};
  rdzv_params own = *params;
  if (options != CONF_DYNAMIC) own.log = &nowhere;
  const int result = conf_parse(params->conf, options, params_lenient(&own), &conf, error);
  if (result < 0) return result;
  out->engine = engine_config(params, options, &conf);
  out->layout = TORCH_NEWEST;
  if (conf.torch_version) torch_layout_parse(conf.torch_version, &out->layout, NULL);
  out->times = (struct native_times){.keep_alive_ms = conf.session_keep_alive, .grace_ms = conf.session_grace};
  conf_free(&conf);
  return 0;
}

static void settle_store(const struct dynamic_parts *parts) {
  if (parts->read_timeout_ms == 0) return;
  store_forget_cancel_fd(parts->store);
  rdzv_store_set_timeout(parts->store, parts->read_timeout_ms, NULL);
  rdzv_store_set_request_timeout(parts->store, parts->request_timeout_ms, NULL);
}

/* On failure the parts are still the caller's. */
static int open_checked(const rdzv_params *given, unsigned options, const struct dynamic_parts *parts,
                        struct dynamic **out, rdzv_error *error) {
  struct driver_options driver = {0};
  rdzv_params params = {0};
  rdzv_log log;
  int result = params_check(given, &params, &log, error);
  if (result == 0) result = take_conf(&params, options, &driver, error);
  if (result == 0 && parts->store) result = dynamic_check_program(parts->store, &params, error);
  if (result < 0) return result;
  settle_store(parts);
  struct dynamic *handler = make(&params);
  if (!handler) return error_no_memory(error);
  result = open_driver(handler, &params, &driver, parts, error);
  if (result < 0) {
    free(handler);
    return result;
  }
  handler->store = parts->store;
  handler->server = parts->server;
  *out = handler;
  return open_parts(handler, &params, error);
}

static void tell_opened(struct dynamic *handler) {
  events_note(&handler->events, RDZV_NODE_STATE_INIT, -1, -1, "opened rendezvous '%s' at %s", handler->base.run_id,
              driver_describe(handler->driver));
  events_flush(&handler->events);
}

/* A backend may be compiled for another version of its header. */
static int take_ops(const rdzv_backend *backend, rdzv_backend_ops *ops, rdzv_error *error) {
  if (!backend || !backend->ops) return error_null(error, "rdzv_handler_open_dynamic", backend ? "ops" : "backend");
  const int result = options_take(ops, sizeof *ops, backend->ops, "rdzv_backend_ops", error);
  if (result < 0) return result;
  const bool whole =
      ops->name && ops->describe && ops->get && ops->set && ops->await_change && ops->wake && ops->cancel && ops->close;
  if (!whole || !ops->take_permit != !ops->give_permit)
    return error_set(error, RDZV_E_INVALID,
                     "backend '%s' lacks a call: only take_permit and give_permit may be NULL, both",
                     ops->name ? ops->name : "");
  return 0;
}

void dynamic_parts_free(const struct dynamic_parts *parts) {
  rdzv_store_free(parts->store);
  if (parts->backend) {
    if (parts->ops.close) parts->ops.close(parts->backend);
  } else {
    rdzv_server_free(parts->server);
  }
}

int dynamic_open(const rdzv_params *params, unsigned options, const struct dynamic_parts *given, rdzv_handler **out,
                 rdzv_error *error) {
  struct dynamic_parts parts = *given;
  struct dynamic *handler = NULL;
  int result = parts.native ? 0 : take_ops(parts.backend, &parts.ops, error);
  if (result < 0) parts.backend = NULL; /* it has no call that could be trusted */
  if (result == 0 && !out) result = error_null(error, "rdzv_handler_open_dynamic", "out");
  if (result == 0) result = open_checked(params, options, &parts, &handler, error);
  if (result == 0 && out && handler) {
    tell_opened(handler);
    *out = &handler->base;
  } else if (handler) {
    dynamic_close(&handler->base);
  } else {
    dynamic_parts_free(&parts);
  }
  return result;
}

int rdzv_handler_open_dynamic(const rdzv_params *params, rdzv_backend *backend, rdzv_store *store, rdzv_handler **out,
                              rdzv_error *error) {
  const struct dynamic_parts parts = {.backend = backend, .store = store};
  return dynamic_open(params, CONF_DYNAMIC, &parts, out, error);
}
