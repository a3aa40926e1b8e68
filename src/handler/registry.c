/* SPDX-License-Identifier: BSD-3-Clause */
/* Which name stands for which kind of rendezvous. */
#include "base/error.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "base/text/options.h"
#include "base/text/utf8.h"
#include "handler/handler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 64, MAX_RUN_ID = 512, MAX_ADDR = 255, MAX_NODES = 1 << 16 };

struct registry_entry {
  const char *name;
  rdzv_creator *creator;
  void *user;
};

static const struct registry_entry own[] = {{"c10d", c10d_create, NULL},      {"etcd", gen1_create, NULL},
                                            {"etcd-v1", gen1_create, NULL},   {"etcd-v2", etcd_v2_create, NULL},
                                            {"etcd-v3", leased_create, NULL}, {"static", static_create, NULL}};
enum { OWN = sizeof own / sizeof own[0] };

struct rdzv_registry {
  struct registry_entry entries[MAX_NAMES];
  size_t count;
};

static const struct registry_entry *find(const rdzv_registry *registry, const char *name) {
  for (size_t i = 0; i < OWN; i++)
    if (strcmp(own[i].name, name) == 0) return &own[i];
  for (size_t i = 0; registry && i < registry->count; i++)
    if (strcmp(registry->entries[i].name, name) == 0) return &registry->entries[i];
  return NULL;
}

int rdzv_registry_open(rdzv_registry **out, rdzv_error *error) {
  if (!out) return error_null(error, "rdzv_registry_open", "out");
  rdzv_registry *registry = calloc(1, sizeof *registry);
  if (!registry) return error_no_memory(error);
  *out = registry;
  return 0;
}

int rdzv_registry_add(rdzv_registry *registry, const char *name, rdzv_creator *creator, void *user, rdzv_error *error) {
  if (!name || !*name || !creator) return error_set(error, RDZV_E_INVALID, "a backend needs a name and a creator");
  if (find(registry, name)) return error_set(error, RDZV_E_INVALID, "backend '%s' is registered already", name);
  if (registry->count == MAX_NAMES)
    return error_set(error, RDZV_E_LIMIT, "%d backends are registered, which is the limit", MAX_NAMES);
  char *copy = strdup(name);
  if (!copy) return error_no_memory(error);
  registry->entries[registry->count++] = (struct registry_entry){copy, creator, user};
  return 0;
}

void rdzv_registry_free(rdzv_registry *registry) {
  for (size_t i = 0; registry && i < registry->count; i++) free((char *)registry->entries[i].name);
  free(registry);
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static int unknown(const rdzv_params *params, rdzv_error *error) {
  const char *names[OWN + MAX_NAMES];
  size_t count = 0;
  for (size_t i = 0; i < OWN; i++) names[count++] = own[i].name;
  for (size_t i = 0; params->registry && i < params->registry->count; i++)
    names[count++] = params->registry->entries[i].name;
  const char *near = nearest_name(params->backend, names, count);
  if (near) return error_set(error, RDZV_E_INVALID, "unknown backend '%s' (did you mean '%s'?)", params->backend, near);
  return error_set(error, RDZV_E_INVALID, "unknown backend '%s' (known: c10d, etcd, etcd-v2, etcd-v3, static)",
                   params->backend);
}

int params_check_nodes(int64_t min, int64_t max, rdzv_error *error) {
  if (min < 1) return error_set(error, RDZV_E_INVALID, "min_nodes is %" PRId64 ": it must be at least 1", min);
  if (max < min)
    return error_set(error, RDZV_E_INVALID, "max_nodes is %" PRId64 ": it must be at least min_nodes, %" PRId64, max,
                     min);
  if (max > MAX_NODES)
    return error_set(error, RDZV_E_INVALID, "max_nodes is %" PRId64 ": at most %d nodes can be in a rendezvous", max,
                     MAX_NODES);
  return 0;
}

const rdzv_log *params_lenient(const rdzv_params *params) { return params->ignore_unknown ? params->log : NULL; }

int params_check(const rdzv_params *from, rdzv_params *to, rdzv_log *log, rdzv_error *error) {
  int result = options_take(to, sizeof *to, from, "rdzv_params", error);
  if (result == 0) result = log_take(&to->log, log, error);
  if (result < 0) return result;
  if (!to->backend || !*to->backend) to->backend = "c10d";
  if (!to->endpoint) to->endpoint = "";
  if (to->min_nodes == 0) to->min_nodes = 1;
  if (to->max_nodes == 0) to->max_nodes = to->min_nodes;
  if (to->local_addr && !*to->local_addr) to->local_addr = NULL;
  if (!to->run_id || !*to->run_id) return error_set(error, RDZV_E_INVALID, "the run id is missing");
  if (strlen(to->run_id) > MAX_RUN_ID)
    return error_set(error, RDZV_E_INVALID, "the run id has %zu bytes: the limit is %d", strlen(to->run_id),
                     MAX_RUN_ID);
  if (to->local_addr && strlen(to->local_addr) > MAX_ADDR)
    return error_set(error, RDZV_E_INVALID, "local_addr has %zu bytes: the limit is %d", strlen(to->local_addr),
                     MAX_ADDR);
  if (to->launcher > RDZV_LAUNCHER_NONE || to->max_restarts < 0)
    return error_set(error, RDZV_E_INVALID, "invalid launcher or max_restarts: %d, %" PRId64, (int)to->launcher,
                     to->max_restarts);
  if (!utf8_is_valid(rdzv_str(to->run_id)) || (to->local_addr && !utf8_is_valid(rdzv_str(to->local_addr))))
    return error_set(error, RDZV_E_INVALID, "the run id or local_addr is not UTF-8");
  return params_check_nodes(to->min_nodes, to->max_nodes, error);
}

/* A creator is code of the user: one that fails may not have filled the error, and one that succeeds must have made
 * a handler. */
static int create(const struct registry_entry *entry, const rdzv_params *params, rdzv_handler **out,
                  rdzv_error *error) {
  rdzv_handler *made = NULL;
  const int result = entry->creator(entry->user, params, &made, error);
  if (result < 0) return result;
  if (result > 0)
    return error_set(error, RDZV_E_INVALID, "backend '%s' returned %d, which is not an error code", entry->name,
                     result);
  if (!made) return error_set(error, RDZV_E_INVALID, "backend '%s' made no handler", entry->name);
  *out = made;
  return 0;
}

static int open_handler(const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  rdzv_params own_params;
  rdzv_log log;
  int result = params_check(params, &own_params, &log, error);
  if (result < 0) return error_prefix(error, result, "cannot open a rendezvous");
  const struct registry_entry *entry = find(own_params.registry, own_params.backend);
  if (!entry) return unknown(&own_params, error);
  result = create(entry, &own_params, out, error);
  return result < 0 ? error_prefix(error, result, "cannot open rendezvous '%s'", own_params.run_id) : 0;
}

int rdzv_handler_open(const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  if (!params || !out) return error_null(error, "rdzv_handler_open", params ? "out" : "params");
  rdzv_error found = {0}; /* what failed on the way to success is not the caller's to read */
  const int result = open_handler(params, out, &found);
  if (result < 0 && error) *error = found;
  return result;
}
