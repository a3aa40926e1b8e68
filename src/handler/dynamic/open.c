/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/log.h"
#include "base/text/options.h"
#include "base/wait/thread.h"
#include "handler/dynamic/dynamic.h"
#include "handler/dynamic/program_name.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static void stop_thread(struct dynamic *handler) {
  if (!handler->started) return;
  pthread_mutex_lock(&handler->lock);
  handler->stopping = true;
  pthread_cond_signal(&handler->asked);
  pthread_mutex_unlock(&handler->lock);
  handler->ops.cancel(handler->backend);
  pthread_join(handler->thread, NULL);
}

void dynamic_close(rdzv_handler *base) {
  struct dynamic *handler = (struct dynamic *)base;
  stop_thread(handler);
  dynamic_drop_joined(handler);
  change_clear(&handler->change);
  dynamic_forget_master(handler);
  engine_free(&handler->engine);
  state_free(&handler->view);
  rdzv_store_free(handler->store);
  if (handler->server && base->linger_ms > 0) rdzv_server_drain(handler->server, base->linger_ms);
  handler->ops.close(handler->backend);
  flag_close(&handler->done);
  flag_close(&handler->changed);
  flag_close(&handler->ended);
  flag_close(&handler->looked);
  pthread_mutex_destroy(&handler->call);
  pthread_mutex_destroy(&handler->look);
  pthread_mutex_destroy(&handler->lock);
  pthread_cond_destroy(&handler->asked);
  events_free(&handler->events);
  handler_deinit(base);
  free(handler);
}

/* What a thread of the parent's was at when it forked, its lock tells: then it is left as it is. */
void dynamic_abandon(rdzv_handler *base) {
  struct dynamic *handler = (struct dynamic *)base;
  if (pthread_mutex_trylock(&handler->lock) == 0) {
    dynamic_drop_joined(handler);
    change_clear(&handler->change);
    engine_free(&handler->engine);
    state_free(&handler->view);
  }
  if (pthread_mutex_trylock(&handler->call) == 0) dynamic_forget_master(handler);
  events_abandon(&handler->events);
  rdzv_store_free(handler->store);
  handler->ops.close(handler->backend);
  flag_close(&handler->done);
  flag_close(&handler->changed);
  flag_close(&handler->ended);
  flag_close(&handler->looked);
  handler_deinit(base);
  free(handler);
}

static int64_t next_local_id(void) {
  static atomic_int_fast64_t last = -1;
  return atomic_fetch_add(&last, 1) + 1;
}

static void trace(void *argument, const char *line) {
  log_line(&((struct dynamic *)argument)->base.log, RDZV_LOG_DEBUG, "%s", line);
}

enum { ETCD_SWAP_MS = 4 };

static void init_engine(struct dynamic *handler, const rdzv_params *params, unsigned options, const struct conf *conf) {
  struct engine_config config = {.node = handler->node,
                                 .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                 .trace = log_on(params->log, RDZV_LOG_DEBUG) ? trace : NULL,
                                 .argument = handler};
  if (options & CONF_ETCD) config.swap_ms = ETCD_SWAP_MS;
  config.settings.min_nodes = params->min_nodes;
  config.settings.max_nodes = params->max_nodes;
  config.settings.join_timeout = conf->join_timeout;
  config.settings.last_call_timeout = conf->last_call_timeout;
  config.settings.close_timeout = conf->close_timeout;
  config.settings.heartbeat_timeout = conf->heartbeat_timeout;
  config.settings.keep_alive_interval = conf->keep_alive_interval;
  config.settings.keep_alive_max_attempt = conf->keep_alive_max_attempt;
  config.settings.rank_order = (enum rank_order)conf->rank_order;
  handler->preferred = TORCH_NEWEST;
  if (conf->torch_version) torch_layout_parse(conf->torch_version, &handler->preferred, NULL);
  handler->layout = handler->preferred;
  config.settings.has_redundancy_list = torch_traits(handler->layout)->redundancy_list;
  if (getrandom(&config.seed, sizeof config.seed, GRND_NONBLOCK) < 0)
    config.seed = (uint64_t)clock_wall_us() ^ (uint64_t)getpid() << 32 ^ (uint64_t)handler->node.local_id;
  engine_init(&handler->engine, &config);
}

static void init_plain(struct dynamic *handler, const rdzv_params *params, const rdzv_backend_ops *ops,
                       rdzv_backend *backend, rdzv_store *store) {
  thread_cond_init(&handler->asked);
  pthread_mutex_init(&handler->call, NULL);
  pthread_mutex_init(&handler->look, NULL);
  pthread_mutex_init(&handler->lock, NULL);
  handler->base.cancel = handler->done = handler->changed = handler->ended = handler->looked = FLAG_NONE;
  handler->ops = *ops;
  handler->backend = backend;
  handler->store = store;
  handler->view = STATE_EMPTY;
  handler->master.port_fd = -1;
  handler->answered_ms = clock_now_ms();
  silence_end(&handler->silence, handler->answered_ms);
  if (params->local_addr)
    snprintf(handler->addr, sizeof handler->addr, "%s", params->local_addr);
  else
    host_name(handler->addr);
  handler->node = (struct node_desc){handler->addr, getpid(), next_local_id()};
}

static int start_thread(struct dynamic *handler, rdzv_error *error) {
  const int errnum = thread_start(&handler->thread, dynamic_run, handler);
  if (errnum) return error_errno(error, RDZV_E_IO, errnum, "cannot start the thread of the rendezvous");
  handler->started = true;
  return 0;
}

static int open_parts(struct dynamic *handler, const rdzv_params *params, rdzv_error *error) {
  int result = handler_init(&handler->base, &dynamic_ops, params, node_text(&handler->node).text, error);
  rdzv_params own = *params;
  own.run_id = handler->base.run_id;
  events_init(&handler->events, &own, handler->base.node ? handler->base.node : "", handler->node.local_id);
  if (result == 0) result = flag_open(&handler->done, error);
  if (result == 0) result = flag_open(&handler->changed, error);
  if (result == 0) result = flag_open(&handler->ended, error);
  if (result == 0) result = flag_open(&handler->looked, error);
  return result == 0 ? start_thread(handler, error) : result;
}

static void close_both(const rdzv_backend_ops *ops, rdzv_backend *backend, rdzv_store *store) {
  rdzv_store_free(store);
  ops->close(backend);
}

/* A backend is somebody else's code, too, and may be compiled for another version of its header. */
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

static const rdzv_log nowhere = {.size = sizeof nowhere};

static int open_checked(const rdzv_params *given, unsigned options, const rdzv_backend_ops *ops, rdzv_backend *backend,
                        rdzv_store *store, rdzv_handler **out, rdzv_error *error) {
  rdzv_params params = {0};
  rdzv_log log;
  struct conf conf = {0};
  int result = params_check(given, &params, &log, error);
  rdzv_params again = params; /* options that are ignored have been named by whoever made the backend */
  if (options != CONF_DYNAMIC) again.log = &nowhere;
  if (result == 0) result = conf_parse(params.conf, options, params_lenient(&again), &conf, error);
  if (result == 0 && store) {
    result = program_name_check(store, &params, error);
    if (result < 0) conf_free(&conf);
  }
  if (result < 0) {
    close_both(ops, backend, store);
    return result;
  }
  struct dynamic *handler = calloc(1, sizeof *handler);
  if (!handler) {
    conf_free(&conf);
    close_both(ops, backend, store);
    return error_no_memory(error);
  }
  init_plain(handler, &params, ops, backend, store);
  init_engine(handler, &params, options, &conf);
  conf_free(&conf);
  result = open_parts(handler, &params, error);
  if (result < 0) {
    dynamic_close(&handler->base);
    return result;
  }
  events_note(&handler->events, RDZV_NODE_STATE_INIT, -1, -1, "opened rendezvous '%s' at %s", params.run_id,
              ops->describe(backend));
  events_flush(&handler->events);
  *out = &handler->base;
  return 0;
}

int dynamic_open(const rdzv_params *params, unsigned options, rdzv_backend *backend, rdzv_store *store,
                 rdzv_handler **out, rdzv_error *error) {
  rdzv_backend_ops ops;
  const int result = take_ops(backend, &ops, error);
  if (result == 0 && out) return open_checked(params, options, &ops, backend, store, out, error);
  rdzv_store_free(store);
  if (result < 0) return result;
  ops.close(backend);
  return error_null(error, "rdzv_handler_open_dynamic", "out");
}

int rdzv_handler_open_dynamic(const rdzv_params *params, rdzv_backend *backend, rdzv_store *store, rdzv_handler **out,
                              rdzv_error *error) {
  return dynamic_open(params, CONF_DYNAMIC, backend, store, out, error);
}
