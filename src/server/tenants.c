/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits for a server with many runs: how many there are, how much memory the keys of one may take, and after which
 * time without use it goes. The keys of a run are those of store/run_keys.h. Other keys belong to no run.
 *
 * A run is used when a client names one of its keys, and while it has native nodes. Without limits there is no list of
 * runs, and no request pays for it.
 */
#define HASH_NONFATAL_OOM 1 /* hh.tbl is NULL where there was no memory */
#include "base/log.h"
#include "server/native/native.h"
#include "server/server.h"
#include "store/run_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

struct tenant {
  struct ks_owner owner; /* first, so that the owner is the tenant */
  UT_hash_handle hh;
  int64_t used_ms;
  size_t removed; /* keys, of one that is being removed */
  size_t id_len;
  char id[];
};

struct tenants {
  struct tenant *table;
  bool enforced; /* what was kept by a server with other limits is loaded whatever they are */
  uv_timer_t timer;
};

/* The run id in a key; empty: it is not of a run. The server's keys begin with a slash. */
static rdzv_bytes run_of(rdzv_bytes key) {
  const bool slash = key.len > 1 && *(const char *)key.data == '/';
  return slash ? run_key_id((rdzv_bytes){(const char *)key.data + 1, key.len - 1}) : (rdzv_bytes){0};
}

static struct tenant *find(const struct tenants *tenants, rdzv_bytes id) {
  struct tenant *tenant;
  HASH_FIND(hh, tenants->table, id.data, id.len, tenant);
  return tenant;
}

static bool has_nodes(const struct rdzv_server *server, const struct tenant *tenant) {
  return coordinator_find(server->natives->coordinator, tenant->id, tenant->id_len) != NULL;
}

static int64_t now_ms(const struct rdzv_server *server) { return (int64_t)uv_now(&server->loop); }

/* Forgets runs that are empty. */
static void sweep(struct rdzv_server *server) {
  struct tenant *tenant, *next;
  HASH_ITER(hh, server->tenants->table, tenant, next) {
    if (tenant->owner.first || tenant->owner.budget.used > 0 || has_nodes(server, tenant)) continue;
    HASH_DEL(server->tenants->table, tenant); /* NOLINT: the one before is out of the table */
    free(tenant);
  }
}

static bool is_room(struct rdzv_server *server) {
  const size_t most = server->options.max_runs;
  if (most == 0 || !server->tenants->enforced || HASH_COUNT(server->tenants->table) < most) return true;
  sweep(server);
  if (HASH_COUNT(server->tenants->table) < most) return true;
  snprintf(server->limit_text, sizeof server->limit_text, "the limit of %zu runs is reached", most);
  return false;
}

static size_t memory_limit(const struct rdzv_server *server) {
  const size_t most = server->options.max_run_memory;
  return most > 0 && server->tenants->enforced ? most : SIZE_MAX;
}

/* NULL: the limit of runs is reached, or there is no memory. */
static struct tenant *admit(struct rdzv_server *server, rdzv_bytes id) {
  struct tenant *tenant = find(server->tenants, id);
  if (tenant || !is_room(server)) return tenant;
  tenant = calloc(1, sizeof *tenant + id.len);
  if (!tenant) return NULL;
  tenant->owner.budget = (struct budget){.max = memory_limit(server), .parent = &server->budget};
  tenant->used_ms = now_ms(server);
  tenant->id_len = id.len;
  bytes_copy(tenant->id, id.data, id.len);
  HASH_ADD_KEYPTR(hh, server->tenants->table, tenant->id, id.len, tenant);
  if (tenant->hh.tbl) return tenant;
  free(tenant);
  return NULL;
}

bool tenants_owner(void *user, rdzv_bytes key, struct ks_owner **owner) {
  struct rdzv_server *server = user;
  const rdzv_bytes id = server->tenants ? run_of(key) : (rdzv_bytes){0};
  if (id.len == 0) return true;
  struct tenant *tenant = admit(server, id);
  *owner = tenant ? &tenant->owner : NULL;
  return tenant != NULL;
}

bool tenants_admit(struct rdzv_server *server, const char *run_id) {
  return !server->tenants || admit(server, rdzv_str(run_id));
}

void tenants_use_key(struct rdzv_server *server, rdzv_bytes key) {
  const rdzv_bytes id = run_of(key);
  struct tenant *tenant = id.len > 0 ? find(server->tenants, id) : NULL;
  if (tenant) tenant->used_ms = now_ms(server);
}

/* ---- unused runs ---------------------------------------------------------------------------------------------- */

static void remove_some(struct rdzv_server *server, struct tenant *tenant) {
  const size_t removed = ks_delete_owned(server->ks, &tenant->owner, SLICE_KEYS);
  tenant->removed += removed;
  if (ks_is_busy(server->ks)) schedule_work(server);
  if (removed == SLICE_KEYS) return; /* the rest with the next tick */
  if (tenant->removed > 0)
    log_line(&server->log, RDZV_LOG_WARNING, "run '%.*s' was not used for %lld s: %zu %s removed",
             (int)(tenant->id_len < 256 ? tenant->id_len : 256), tenant->id,
             (long long)server->options.run_ttl_ms / 1000, tenant->removed,
             tenant->removed == 1 ? "key is" : "keys are");
  tenant->removed = 0;
}

static void on_timer(uv_timer_t *timer) {
  struct rdzv_server *server = timer->data;
  const int64_t then = now_ms(server) - server->options.run_ttl_ms;
  struct tenant *tenant, *next;
  HASH_ITER(hh, server->tenants->table, tenant, next) {
    if (has_nodes(server, tenant)) tenant->used_ms = now_ms(server);
    if (tenant->used_ms <= then && tenant->owner.first) remove_some(server, tenant);
  }
  sweep(server);
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

int tenants_init(struct rdzv_server *server) {
  enum { SHORTEST = 10, LONGEST = 1000, SHARE = 8 };
  const rdzv_server_options *options = &server->options;
  if (options->max_runs == 0 && options->max_run_memory == 0 && options->run_ttl_ms == 0) return 0;
  struct tenants *tenants = server->tenants = calloc(1, sizeof *tenants);
  if (!tenants) return UV_ENOMEM;
  const int result = uv_timer_init(&server->loop, &tenants->timer);
  tenants->timer.data = server;
  if (result < 0 || options->run_ttl_ms == 0) return result;
  int64_t period = options->run_ttl_ms / SHARE;
  period = period < SHORTEST ? SHORTEST : period > LONGEST ? LONGEST : period;
  return uv_timer_start(&tenants->timer, on_timer, (uint64_t)period, (uint64_t)period);
}

void tenants_enforce(struct rdzv_server *server) {
  if (!server->tenants) return;
  server->tenants->enforced = true;
  for (struct tenant *tenant = server->tenants->table; tenant; tenant = tenant->hh.next)
    tenant->owner.budget.max = memory_limit(server);
}

void tenants_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle)) {
  if (server->tenants) close_handle(&server->tenants->timer);
}

void tenants_free(struct rdzv_server *server) {
  struct tenant *tenant, *next;
  if (!server->tenants) return;
  HASH_ITER(hh, server->tenants->table, tenant, next) {
    HASH_DEL(server->tenants->table, tenant); /* NOLINT: the one before is out of the table */
    free(tenant);
  }
  free(server->tenants);
  server->tenants = NULL;
}
