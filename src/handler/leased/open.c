/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "etcd/path.h"
#include "handler/leased/leased_handler.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { MAX_ROOT = 700, LEAST_LEASE_MS = 2000 };

#define DEFAULT_PREFIX "/rdzv"

static atomic_int handlers; /* of this process, so far */

void leased_close(rdzv_handler *base) {
  struct leased_handler *handler = leased_of(base);
  leased_stop(handler);
  etcd3_watch_close(handler->watch);
  leased_free(&handler->machine);
  etcd3_close(handler->look);
  etcd3_close(handler->etcd);
  if (handler->client) etcd_close(handler->client);
  if (handler->port_fd >= 0) close(handler->port_fd);
  if (handler->joined) rdzv_result_free(&handler->joined->base);
  change_clear(&handler->change);
  flag_close(&handler->wake);
  flag_close(&handler->halt);
  flag_close(&handler->answered);
  flag_close(&handler->changed);
  flag_close(&handler->ended);
  events_free(&handler->events);
  handler_deinit(base);
  pthread_mutex_destroy(&handler->call);
  pthread_mutex_destroy(&handler->lock);
  rdzv_value_free(&handler->seen);
  free(handler->reason);
  free(handler->root);
  free(handler->stores);
  free(handler);
}

/* In a child of the process: the rest belongs to a thread that does not exist there. */
void leased_abandon(rdzv_handler *base) {
  struct leased_handler *handler = leased_of(base);
  if (handler->port_fd >= 0) close(handler->port_fd);
  flag_close(&handler->wake);
  flag_close(&handler->halt);
  flag_close(&handler->answered);
  flag_close(&handler->changed);
  flag_close(&handler->ended);
  events_abandon(&handler->events);
  handler_deinit(base);
  free(handler->root);
  free(handler->stores);
  free(handler);
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

char *leased_folder(const char *prefix) { return etcd_path_clean(prefix ? prefix : DEFAULT_PREFIX); }

char *leased_run_name(const char *run_id) {
  char *name = malloc(3 * strlen(run_id) + 1), *to = name;
  for (; name && *run_id; run_id++) {
    if (*run_id == '/' || *run_id == '%')
      to += sprintf(to, "%%%02X", (unsigned char)*run_id); /* NOLINT: there is room */
    else
      *to++ = *run_id;
  }
  if (name) *to = '\0';
  return name;
}

static int make_root(struct leased_handler *handler, const rdzv_params *params, const struct conf *conf,
                     rdzv_error *error) {
  char *folder = leased_folder(conf->etcd_prefix), *run = leased_run_name(params->run_id);
  if (!folder || !run || asprintf(&handler->root, "%s/%s/", folder, run) < 0) handler->root = NULL;
  if (folder && run && asprintf(&handler->stores, "%s" LEASED_STORES "/%s/", folder, run) < 0) handler->stores = NULL;
  free(folder);
  free(run);
  if (!handler->root || !handler->stores) return error_no_memory(error);
  if (strlen(handler->root) > MAX_ROOT)
    return error_set(error, RDZV_E_LIMIT, "the path of the rendezvous in etcd is too long");
  return 0;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static int init_machine(struct leased_handler *handler, const rdzv_params *params, const struct conf *conf,
                        int64_t local_id, rdzv_error *error) {
  struct leased_config config = {.node = {handler->addr, getpid(), local_id},
                                 .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                 .lease_ms = conf->lease_time};
  config.settings.min_nodes = params->min_nodes;
  config.settings.max_nodes = params->max_nodes;
  config.settings.join_timeout = conf->join_timeout;
  config.settings.last_call_timeout = conf->last_call_timeout;
  config.settings.close_timeout = conf->close_timeout;
  config.settings.rank_order = (enum rank_order)conf->rank_order;
  config.settings.launcher = (enum launcher)params->launcher;
  config.settings.max_restarts = params->max_restarts;
  config.seed = (uint64_t)clock_wall_us() ^ (uint64_t)getpid() << 32;
  if (getrandom(&config.seed, sizeof config.seed, GRND_NONBLOCK) < 0) config.seed++;
  leased_init(&handler->machine, &config);
  if (conf->lease_time < LEAST_LEASE_MS)
    return error_set(error, RDZV_E_INVALID,
                     "invalid value for option 'lease_time': expected at least 2 s, the shortest lease of etcd");
  return 0;
}

/* Does etcd answer, and grant access? Nothing is created: a handler that only looks leaves nothing behind. */
static int reach(struct leased_handler *handler, const rdzv_params *params, rdzv_error *error) {
  struct flag cancel; /* the handler is not shared yet: its own flag gets no descriptor for this */
  int code = flag_open_with(&cancel, params->cancel_fd, error);
  if (code < 0) return code;
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), &cancel, error};
  struct etcd3_reply reply;
  const struct etcd3_range range = {.keys = {.key = rdzv_str(handler->root)}};
  code = etcd3_range(handler->look, &range, &call, &reply);
  if (code == 0) etcd3_reply_free(&reply);
  flag_close(&cancel);
  return code;
}

static int open_parts(struct leased_handler *handler, const rdzv_params *params, const struct conf *conf,
                      rdzv_error *error) {
  const rdzv_etcd_options etcd = conf_etcd_options(params, conf);
  struct flag *const own[] = {&handler->wake, &handler->halt};
  struct flag *const flags[] = {&handler->answered, &handler->changed, &handler->ended};
  int result = make_root(handler, params, conf, error);
  for (size_t i = 0; result == 0 && i < sizeof own / sizeof own[0]; i++) result = flag_open(own[i], error);
  for (size_t i = 0; result == 0 && i < sizeof flags / sizeof flags[0]; i++)
    result = flag_open_in(flags[i], &handler->base.flags, 0, error);
  if (result == 0) result = etcd_open(&etcd, &handler->client, error);
  if (result < 0) return result;
  snprintf(handler->text, sizeof handler->text, "etcd v3 %s %.300s", etcd_describe(handler->client), handler->root);
  result = etcd3_open(etcd_share(handler->client), &handler->look, error);
  if (result < 0) return result;
  const deadline until = deadline_after(conf->reach_timeout);
  result = reach(handler, params, error);
  return result < 0 ? conf_fail_reach(conf, until, result, error) : 0;
}

/* What leased_close needs to be there. */
static struct leased_handler *new_handler(void) {
  struct leased_handler *handler = calloc(1, sizeof *handler);
  if (!handler) return NULL;
  handler->port_fd = -1;
  handler->wake = handler->halt = handler->answered = handler->changed = handler->ended = FLAG_NONE;
  pthread_mutex_init(&handler->call, NULL);
  pthread_mutex_init(&handler->lock, NULL);
  leased_init(&handler->machine, &(struct leased_config){0});
  return handler;
}

static int init(struct leased_handler *handler, const rdzv_params *params, const struct conf *conf, rdzv_error *error) {
  const int64_t local_id = atomic_fetch_add(&handlers, 1);
  char host[HOST_NAME_SIZE];
  host_name(host);
  snprintf(handler->addr, sizeof handler->addr, "%s", params->local_addr ? params->local_addr : host);
  const struct node_desc desc = {handler->addr, getpid(), local_id};
  int result = handler_init(&handler->base, &leased_ops, params, node_text(&desc).text, error);
  rdzv_params own = *params;
  own.run_id = handler->base.run_id;
  events_init(&handler->events, &own, handler->base.node ? handler->base.node : "", local_id);
  if (result == 0) result = init_machine(handler, params, conf, local_id, error);
  return result == 0 ? open_parts(handler, params, conf, error) : result;
}

int leased_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user;
  struct conf conf;
  int result = conf_parse(params->conf, CONF_ETCD | CONF_LEASED, params_lenient(params), &conf, error);
  if (result < 0) return result;
  struct leased_handler *handler = new_handler();
  result = handler ? init(handler, params, &conf, error) : error_no_memory(error);
  conf_free(&conf);
  if (result == 0)
    *out = &handler->base;
  else if (handler)
    leased_close(&handler->base);
  return result;
}
