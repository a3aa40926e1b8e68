/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/status.h"
#include "handler/dynamic/swap/swap.h"
#include "state/differences.h"
#include "state/ending.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t age_of(struct swap *swap, const struct state_node *node) {
  const struct engine *engine = &swap->engine;
  if (node->last_heartbeat == DATETIME_NONE) return -1;
  const int64_t by_clock = (clock_wall_us() - node->last_heartbeat) / 1000;
  const int64_t seen = liveness_age(&engine->liveness, &engine->config.settings, &node->desc, clock_now_ms());
  if (liveness_saw_change(&engine->liveness, &node->desc)) return seen;
  return by_clock > seen ? by_clock : seen < 0 ? 0 : seen;
}

static int in_order(const void *a, const void *b) {
  const rdzv_node_status *one = a, *other = b;
  if (one->kind != other->kind) return one->kind < other->kind ? -1 : 1;
  if (one->rank != other->rank) return one->rank < other->rank ? -1 : 1;
  return strcmp(one->node, other->node);
}

void status_sort(struct status *status) {
  qsort(status->nodes, rdzv_status_node_count(&status->base), sizeof *status->nodes, in_order);
}

void status_count(rdzv_status *status, rdzv_node_kind kind) {
  status->participants += kind == RDZV_NODE_KIND_PARTICIPANT;
  status->waiting += kind == RDZV_NODE_KIND_WAITING;
  status->spares += kind == RDZV_NODE_KIND_SPARE;
}

rdzv_node_kind status_kind(unsigned kinds) {
  if (kinds & NODE_PARTICIPANT) return RDZV_NODE_KIND_PARTICIPANT;
  return kinds & NODE_WAITING ? RDZV_NODE_KIND_WAITING : RDZV_NODE_KIND_SPARE;
}

static bool add_nodes(struct swap *swap, struct status *status) {
  const struct rendezvous_state *state = &swap->view.state;
  size_t count = 0;
  status->nodes = calloc(state->count + 1, sizeof *status->nodes);
  for (size_t i = 0; status->nodes && i < state->count; i++) {
    const struct state_node *from = &state->nodes[i];
    if (from->kinds == 0) continue;
    rdzv_node_status *node = &status->nodes[count];
    node->node = strdup(node_text(&from->desc).text);
    if (!node->node) return false;
    node->kind = status_kind(from->kinds);
    node->rank = state->complete && node->kind == RDZV_NODE_KIND_PARTICIPANT ? from->rank : -1;
    node->heartbeat_age_ms = age_of(swap, from);
    node->way = from->ours ? RDZV_NODE_WAY_SWAP : RDZV_NODE_WAY_TORCH;
    node->trip_us = -1;
    status_count(&status->base, node->kind);
    count++;
  }
  if (count > 1) status_sort(status);
  return status->nodes != NULL;
}

static int64_t deadline_left_ms(const struct rendezvous_state *state) {
  if (rendezvous_phase(state) != PHASE_LAST_CALL) return -1;
  const int64_t left = (state->deadline - clock_wall_us()) / 1000;
  return left > 0 ? left : 0;
}

static int64_t age_seen(const void *swap, const struct state_node *node) { return age_of((struct swap *)swap, node); }

static void set_end(struct swap *swap, rdzv_status *status) {
  const struct rendezvous_state *state = &swap->view.state;
  struct ending ending;
  struct ending_silence silence;
  if (ending_is_silence(state, age_seen, swap, clock_wall_us(), &silence)) {
    status_set_silent(status, &swap->view.still, silence.node.text, silence.at_us);
  } else if ((state->closed || state->count == 0) && ending_read(state, &ending)) {
    status_set_end(status, ending.node, ending.at_us);
    status->died = ending.died;
  }
}

rdzv_status *view_status(struct swap *swap) {
  const struct rendezvous_state *state = &swap->view.state;
  struct status *status = calloc(1, sizeof *status);
  if (!status) return NULL;
  status->base = (rdzv_status){.exists = swap->view.exists,
                               .round = state->round,
                               .phase = rendezvous_phase_name(rendezvous_phase(state)),
                               .complete = state->complete,
                               .closed = state->closed,
                               .deadline_left_ms = deadline_left_ms(state),
                               .layout = torch_traits(swap->layout)->version,
                               .reason = "",
                               .ended_by = ""};
  differences_nnodes(state, &status->base.min_nodes, &status->base.max_nodes);
  set_end(swap, &status->base);
  if (add_nodes(swap, status)) return &status->base;
  rdzv_status_free(&status->base);
  return NULL;
}

size_t rdzv_status_node_count(const rdzv_status *status) {
  return status->participants + status->waiting + status->spares;
}

const rdzv_node_status *rdzv_status_node(const rdzv_status *base, size_t index) {
  return index < rdzv_status_node_count(base) ? &((const struct status *)base)->nodes[index] : NULL;
}

void rdzv_status_free(rdzv_status *base) {
  struct status *status = (struct status *)base;
  if (!status) return;
  for (size_t i = 0; status->nodes && i < rdzv_status_node_count(base); i++) free((char *)status->nodes[i].node);
  free(status->nodes);
  free(status->reason);
  free(status);
}

void status_set_end(rdzv_status *base, const char *node, int64_t at_us) {
  struct status *status = (struct status *)base;
  snprintf(status->ended_by.text, sizeof status->ended_by.text, "%s", node);
  base->ended_by = status->ended_by.text;
  base->ended_us = at_us;
}

void status_look(struct status_still *still, uint64_t token) {
  if (still->since_ms == 0 || still->token != token) *still = (struct status_still){token, clock_now_ms()};
}

void status_set_silent(rdzv_status *status, const struct status_still *still, const char *node, int64_t at_us) {
  status->died = true;
  if (clock_now_ms() - still->since_ms < STATUS_STILL_MS) return;
  status->phase = rendezvous_phase_name(PHASE_ENDED);
  status_set_end(status, node, at_us);
}

void status_set_reason(rdzv_status *base, char *reason) {
  struct status *status = (struct status *)base;
  free(status->reason);
  status->reason = reason;
  base->reason = reason ? reason : "";
}
