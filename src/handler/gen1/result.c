/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/gen1/gen1.h"

#include "base/error.h"
#include "base/log.h"
#include "handler/master.h"
#include "store/etcd/etcd_store.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MASTER_MS = 5000 };

static int open_store(struct gen1 *handler, int64_t timeout_ms, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  char path[GEN1_PATH];
  gen1_path(handler, path, "/rdzv/v_%s/kv", handler->place.round);
  return etcd_store_open(etcd_share(handler->client), path, timeout_ms, cancel_fd, &handler->base.log, out, error);
}

static int publish_master(struct gen1 *handler, struct round_result *result, rdzv_error *error) {
  char addr[HOST_NAME_SIZE];
  const int outcome = host_renew_port(&handler->port_fd, &handler->port, error); /* workers of before do not know it */
  if (outcome < 0) return outcome;
  master_own_address(&handler->base, RDZV_ETCD_PORT, addr);
  return master_publish(result, NULL, addr, handler->port, error);
}

/* PyTorch before 2.4 publishes it elsewhere, if at all. The user's cancel flag ends the wait. */
static int find_master(struct gen1 *handler, struct round_result *result, rdzv_error *error) {
  rdzv_error own;
  rdzv_store *store;
  if (handler->place.rank == 0) return publish_master(handler, result, error);
  int outcome = open_store(handler, MASTER_MS, flag_fd(&handler->base.cancel), &store, &own);
  if (outcome == 0) {
    outcome = master_take(result, store, NULL, &own);
    rdzv_store_free(store);
  }
  if (outcome == RDZV_E_TIMEOUT) {
    log_line(&handler->base.log, RDZV_LOG_WARNING, "rank 0 has not published its address");
    return 0;
  }
  if (outcome < 0 && error) *error = own;
  return outcome;
}

/* The participants are not named in the state: they are known by their ranks. */
static bool add_participants(struct round_result *result, const struct gen1 *handler) {
  const size_t count = (size_t)result->base.world_size;
  result->participants = calloc(count + 1, sizeof *result->participants);
  for (size_t i = 0; result->participants && i < count; i++) {
    char name[32];
    snprintf(name, sizeof name, "rank_%zu", i);
    char *node = strdup((int64_t)i == handler->place.rank ? handler->base.node : name), *addr = strdup("");
    result->participants[result->participant_count++] = (rdzv_participant){node, addr, 0, 0, (int64_t)i};
    if (!node || !addr) return false;
  }
  return result->participants != NULL;
}

int gen1_result(struct gen1 *handler, int64_t world_size, rdzv_result **out, rdzv_error *error) {
  struct round_result *result = result_new(handler->base.run_id, handler->backend, handler->base.node);
  if (!result) return error_no_memory(error);
  result->base.round = strtoll(handler->place.round, NULL, 10);
  result->base.rank = handler->place.rank;
  result->base.world_size = world_size;
  int outcome = add_participants(result, handler)
                    ? open_store(handler, 0, flag_fd(&handler->base.cancel), &result->base.store, error)
                    : error_no_memory(error);
  const bool later = handler->base.master_later && handler->place.rank != 0;
  if (outcome == 0 && !later) outcome = find_master(handler, result, error);
  if (outcome < 0) {
    rdzv_result_free(&result->base);
    return outcome;
  }
  store_forget_cancel_fd(result->base.store); /* the round's store outlives the user's flag */
  *out = &result->base;
  return 0;
}

int gen1_find_master(rdzv_handler *base, rdzv_result *result, rdzv_error *error) {
  return result->rank == 0 ? 0 : find_master((struct gen1 *)base, (struct round_result *)result, error);
}
