/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/result.h"

#include "base/error.h"

#include "store/store.h"

#include <stdlib.h>
#include <string.h>

struct round_result *result_new(const char *run_id, const char *backend, const char *node) {
  struct round_result *result = calloc(1, sizeof *result);
  if (!result) return NULL;
  result->run_id = strdup(run_id);
  result->backend = strdup(backend);
  result->node = strdup(node);
  result->base.run_id = result->run_id;
  result->base.backend = result->backend;
  result->base.node = result->node;
  if (result->run_id && result->backend && result->node && result_set_master(result, "", 0)) return result;
  rdzv_result_free(&result->base);
  return NULL;
}

bool result_set_master(struct round_result *result, const char *addr, int port) {
  char *copy = strdup(addr);
  if (!copy) return false;
  free(result->master_addr);
  result->base.master_addr = result->master_addr = copy;
  result->base.master_port = port;
  return true;
}

static bool add_participant(struct round_result *result, const struct state_node *from) {
  char *node = strdup(node_text(&from->desc).text), *addr = strdup(from->desc.addr);
  if (!node || !addr) {
    free(node);
    free(addr);
    return false;
  }
  result->participants[result->participant_count++] =
      (rdzv_participant){node, addr, from->desc.pid, from->desc.local_id, from->rank};
  return true;
}

static int by_rank(const void *a, const void *b) {
  const rdzv_participant *one = a, *other = b;
  return (one->rank > other->rank) - (one->rank < other->rank);
}

bool result_add_participants(struct round_result *result, const struct rendezvous_state *state) {
  result->participants = calloc(state->num_participants + 1, sizeof *result->participants);
  if (!result->participants) return false;
  result->all_ours = true;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    if (!(node->kinds & NODE_PARTICIPANT)) continue;
    if (!add_participant(result, node)) return false;
    result->all_ours &= node->ours;
    if (node->rank == 0) result->master_is_ours = node->ours;
  }
  qsort(result->participants, result->participant_count, sizeof *result->participants, by_rank);
  return true;
}

int result_open_store(struct round_result *result, rdzv_store *store, const char *prefix, const struct flag *cancel,
                      rdzv_error *error) {
  const int cloned = store_clone_with(store, cancel->fd, &result->store, error);
  if (cloned < 0) return cloned;
  return rdzv_store_open_prefix(result->store, rdzv_str(prefix), &result->base.store, error);
}

void result_forget_cancel(struct round_result *result) {
  store_forget_cancel_fd(result->store);
  store_forget_cancel_fd(result->base.store);
}

void rdzv_result_free(rdzv_result *base) {
  struct round_result *result = (struct round_result *)base;
  if (!result) return;
  rdzv_store_free(result->base.store);
  rdzv_store_free(result->store);
  for (size_t i = 0; i < result->participant_count; i++) {
    free((char *)result->participants[i].node);
    free((char *)result->participants[i].addr);
  }
  free(result->participants);
  free(result->run_id);
  free(result->backend);
  free(result->node);
  free(result->master_addr);
  free(result);
}

const rdzv_participant *rdzv_result_participant(const rdzv_result *base, int64_t rank) {
  const struct round_result *result = (const struct round_result *)base;
  return rank >= 0 && (uint64_t)rank < result->participant_count ? &result->participants[rank] : NULL;
}
