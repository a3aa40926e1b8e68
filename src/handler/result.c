/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/result.h"

#include "base/error.h"

#include "store/store.h"

#include <stdlib.h>
#include <string.h>

struct round_result *result_new(const char *run_id, const char *backend, const char *node) {
  struct round_result *result = calloc(1, sizeof *result);
  if (!result) return NULL;
  pthread_mutex_init(&result->loading, NULL);
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

/* The name of a node is addr_pid_localid. */
static bool set_rank0(struct round_result *result, const char *node) {
  free(result->rank0);
  free(result->rank0_addr);
  result->rank0 = strdup(node);
  result->rank0_addr = strdup(node);
  if (!result->rank0 || !result->rank0_addr) return false;
  for (int i = 0; i < 2; i++) {
    char *end = strrchr(result->rank0_addr, '_');
    if (end) *end = '\0';
  }
  return true;
}

bool result_set_native(struct round_result *result, const struct native_joined *joined) {
  result->all_ours = joined->all_ours;
  result->all_native = joined->all_native;
  result->master_is_ours = joined->master_is_ours;
  result->has_ranks = joined->has_ranks;
  result->ranks = (rdzv_worker_ranks){.base = joined->ranks.base,
                                      .world_size = joined->ranks.world_size,
                                      .role_base = joined->ranks.role_base,
                                      .role_world_size = joined->ranks.role_world_size,
                                      .restarts = joined->ranks.restart_count};
  if (!set_rank0(result, joined->master_node)) return false;
  return !joined->all_native || result_set_master(result, joined->master_addr, joined->master_port);
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

static bool add_all(struct round_result *result, const struct rendezvous_state *state) {
  for (size_t i = 0; i < state->count; i++)
    if ((state->nodes[i].kinds & NODE_PARTICIPANT) && !add_participant(result, &state->nodes[i])) return false;
  qsort(result->participants, result->participant_count, sizeof *result->participants, by_rank);
  return true;
}

static void drop_participants(struct round_result *result) {
  for (size_t i = 0; result->participants && i < result->participant_count; i++) {
    free((char *)result->participants[i].node);
    free((char *)result->participants[i].addr);
  }
  free(result->participants);
  result->participants = NULL;
  result->participant_count = 0;
}

bool result_add_participants(struct round_result *result, const struct rendezvous_state *state) {
  result->participants = calloc(state->num_participants + 1, sizeof *result->participants);
  if (!result->participants || !add_all(result, state)) {
    drop_participants(result);
    return false;
  }
  return result->participant_count == 0 || set_rank0(result, result->participants[0].node);
}

void result_note_ours(struct round_result *result, const struct rendezvous_state *state) {
  result->all_ours = true;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    if (!(node->kinds & NODE_PARTICIPANT)) continue;
    result->all_ours &= node->ours;
    if (node->rank == 0) result->master_is_ours = node->ours;
  }
}

int result_open_store(struct round_result *result, rdzv_store *store, const char *prefix, const struct flag *cancel,
                      rdzv_error *error) {
  rdzv_store *copy;
  const int cloned = store_clone_with(store, flag_fd(cancel), &copy, error);
  return cloned < 0 ? cloned : result_take_store(result, copy, prefix, error);
}

int result_take_store(struct round_result *result, rdzv_store *store, const char *prefix, rdzv_error *error) {
  result->store = store;
  return rdzv_store_open_prefix(store, rdzv_str(prefix), &result->base.store, error);
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
  drop_participants(result);
  pthread_mutex_destroy(&result->loading);
  free(result->rank0);
  free(result->rank0_addr);
  free(result->run_id);
  free(result->backend);
  free(result->node);
  free(result->master_addr);
  free(result);
}

/* ---- the participants ----------------------------------------------------------------------------------------- */

/* One thread loads them; the result is const for the others, which find them loaded. */
static int load(struct round_result *result, rdzv_error *error) {
  if (!result->load) return 0;
  if (fork_crossed(result->store->born)) return result->participants ? 0 : fork_fail("the store", error);
  pthread_mutex_lock(&result->loading);
  const int outcome = result->participants ? 0 : result->load(result, error);
  pthread_mutex_unlock(&result->loading);
  return outcome;
}

int rdzv_result_load_participants(rdzv_result *base, rdzv_error *error) {
  if (!base) return error_null(error, "rdzv_result_load_participants", "result");
  return load((struct round_result *)base, error);
}

const rdzv_participant *rdzv_result_participant(const rdzv_result *base, int64_t rank) {
  struct round_result *result = (struct round_result *)base; /* what is loaded is no change that a caller sees */
  if (rank < 0 || rank >= base->world_size || load(result, NULL) < 0) return NULL;
  return (uint64_t)rank < result->participant_count ? &result->participants[rank] : NULL;
}

const rdzv_worker_ranks *rdzv_result_worker_ranks(const rdzv_result *base) {
  const struct round_result *result = (const struct round_result *)base;
  return result->has_ranks ? &result->ranks : NULL;
}
