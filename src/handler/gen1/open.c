/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/net/host.h"
#include "etcd/path.h"
#include "handler/conf.h"
#include "handler/gen1/gen1.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { KEY_ROOM = 128 };

#define DEFAULT_PREFIX "/torchelastic/p2p"

bool gen1_path(const struct gen1 *handler, char out[GEN1_PATH], const char *format, ...) {
  const int root = snprintf(out, GEN1_PATH, "%s", handler->root);
  va_list args;
  va_start(args, format);
  const int rest = vsnprintf(out + root, (size_t)(GEN1_PATH - root), format, args);
  va_end(args);
  return rest >= 0 && root + rest < GEN1_PATH;
}

static void keep_alive_key(void *argument, const char *round, int64_t rank, char out[512]) {
  char path[GEN1_PATH];
  gen1_path(argument, path, "/rdzv/v_%s/rank_%" PRId64, round, rank);
  snprintf(out, 512, "%.511s", path);
}

struct etcd_lease gen1_run_lease(const struct gen1 *handler) {
  return (struct etcd_lease){.key = handler->root, .ttl_s = GEN1_TTL_RUN, .dir = true};
}

void gen1_free(rdzv_handler *base) {
  struct gen1 *handler = (struct gen1 *)base;
  gen1_listen_stop(handler);
  etcd_leases_close(handler->leases);
  gen1_node_free(&handler->machine);
  etcd_close(handler->client);
  if (handler->port_fd >= 0) close(handler->port_fd);
  pthread_mutex_destroy(&handler->look.lock);
  gen1_place_close(&handler->place);
  fair_lock_close(&handler->lock);
  events_free(&handler->events);
  handler_deinit(base);
  free(handler->look.text);
  free(handler->root);
  free(handler);
}

/* In a child of the process. Leases, client and machine belong to threads that do not exist there. */
void gen1_abandon(rdzv_handler *base) {
  struct gen1 *handler = (struct gen1 *)base;
  if (handler->port_fd >= 0) close(handler->port_fd);
  flag_close(&handler->lock.wanted);
  events_abandon(&handler->events);
  handler_deinit(base);
  free(handler->root);
  free(handler);
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static int init_machine(struct gen1 *handler, const rdzv_params *params, const struct conf *conf, rdzv_error *error) {
  const struct gen1_settings settings = {.min_nodes = conf->min_workers ? conf->min_workers : params->min_nodes,
                                         .max_nodes = conf->max_workers   ? conf->max_workers
                                                      : conf->min_workers ? conf->min_workers
                                                                          : params->max_nodes,
                                         .join_timeout = conf->timeout,
                                         .last_call_timeout = conf->last_call_timeout,
                                         .close_timeout = conf->close_timeout,
                                         .launcher = (enum launcher)params->launcher,
                                         .max_restarts = params->max_restarts,
                                         .name = handler->base.node};
  uint64_t seed = (uint64_t)clock_wall_us() ^ (uint64_t)getpid() << 32;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) < 0) seed++;
  snprintf(handler->mark, sizeof handler->mark, "%s %.300s %016" PRIx64, GEN1_MARK,
           handler->base.node ? handler->base.node : "", seed);
  gen1_node_init(&handler->machine, &settings, seed, keep_alive_key, handler);
  return params_check_nodes(settings.min_nodes, settings.max_nodes, error);
}

char *gen1_folder(const char *prefix) { return etcd_path_clean(prefix ? prefix : DEFAULT_PREFIX); }

static int make_root_path(struct gen1 *handler, const rdzv_params *params, const struct conf *conf, rdzv_error *error) {
  char *folder = gen1_folder(conf->etcd_prefix);
  if (!folder || asprintf(&handler->root, "%s/run_%s", folder, params->run_id) < 0) handler->root = NULL;
  free(folder);
  if (!handler->root) return error_no_memory(error);
  if (strlen(handler->root) > 512 - KEY_ROOM) /* a keep-alive's key is of 512 */
    return error_set(error, RDZV_E_LIMIT, "the path of the rendezvous in etcd is too long");
  return 0;
}

/* Does etcd answer, and grant access? Nothing is created: a handler that only looks leaves nothing behind. */
static int reach(struct gen1 *handler, rdzv_error *error) {
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), &handler->base.cancel, error};
  char path[GEN1_PATH];
  struct etcd_result result;
  gen1_path(handler, path, "/rdzv/active_version");
  const int code = etcd_v2_get(handler->client, path, 0, &call, &result);
  if (code == 0) etcd_result_free(&result);
  return code == ETCD_V2_NOT_FOUND ? 0 : etcd_v2_unexpected(code);
}

static int open_parts(struct gen1 *handler, const rdzv_params *params, const struct conf *conf, rdzv_error *error) {
  const rdzv_etcd_options etcd = conf_etcd_options(params, conf);
  int result = make_root_path(handler, params, conf, error);
  if (result == 0) result = fair_lock_open(&handler->lock, error);
  if (result == 0) result = gen1_place_open(&handler->place, error);
  if (result == 0) result = etcd_open(&etcd, &handler->client, error);
  if (result < 0) return result;
  snprintf(handler->text, sizeof handler->text, "etcd %s%.300s", etcd_describe(handler->client), handler->root);
  const struct etcd_lease_owner owner = {handler, gen1_lease_told, gen1_lease_said};
  const deadline until = deadline_after(conf->reach_timeout);
  result = reach(handler, error);
  if (result < 0) return conf_fail_reach(conf, until, result, error);
  result = etcd_leases_open(handler->client, &owner, &handler->leases, error);
  return result == 0 ? gen1_listen_start(handler, error) : result;
}

/* What gen1_free needs to be there. */
static struct gen1 *new_handler(const rdzv_params *params) {
  struct gen1 *handler = calloc(1, sizeof *handler);
  if (!handler) return NULL;
  handler->port_fd = -1;
  handler->lock = FAIR_LOCK_NONE;
  handler->place = GEN1_PLACE_NONE;
  snprintf(handler->backend, sizeof handler->backend, "%s", params->backend);
  pthread_mutex_init(&handler->look.lock, NULL);
  return handler;
}

static int init(struct gen1 *handler, const rdzv_params *params, const struct conf *conf, rdzv_error *error) {
  char host[HOST_NAME_SIZE], node[HOST_NAME_SIZE + 32];
  host_name(host);
  snprintf(node, sizeof node, "%s_%ld", params->local_addr ? params->local_addr : host, (long)getpid());
  int result = handler_init(&handler->base, &gen1_ops, params, node, error);
  rdzv_params own = *params;
  own.run_id = handler->base.run_id;
  events_init(&handler->events, &own, handler->base.node ? handler->base.node : "", 0);
  if (result == 0) result = init_machine(handler, params, conf, error);
  return result == 0 ? open_parts(handler, params, conf, error) : result;
}

int gen1_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user;
  struct conf conf;
  int result = conf_parse(params->conf, CONF_ETCD | CONF_GEN1, params_lenient(params), &conf, error);
  if (result < 0) return result;
  struct gen1 *handler = new_handler(params);
  result = handler ? init(handler, params, &conf, error) : error_no_memory(error);
  conf_free(&conf);
  if (result == 0)
    *out = &handler->base;
  else if (handler)
    gen1_free(&handler->base);
  return result;
}
