/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/status.h"

#include "base/error.h"
#include "handler/gen1/gen1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 1000 };

static struct gen1 *self(rdzv_handler *handler) { return (struct gen1 *)handler; }

/* The state as it was read. */
struct gen1_reading {
  struct gen1_state state;
  bool there;
  uint64_t index;            /* of etcd */
  struct etcd_result listed; /* the directory of a final round: the keep-alives that are there */
};

static void active_path(const struct gen1 *handler, char path[GEN1_PATH]) {
  gen1_path(handler, path, "/rdzv/active_version");
}

static void reading_free(struct gen1_reading *look) {
  gen1_state_free(&look->state);
  etcd_result_free(&look->listed);
}

/* *out is to be freed with gen1_state_free(&out->state) after success. `cancel` may be NULL. */
static int read_active(struct gen1 *handler, const struct flag *cancel, struct gen1_reading *out, rdzv_error *error) {
  rdzv_error own = {0};
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), cancel, &own};
  char path[GEN1_PATH];
  struct etcd_result result;
  active_path(handler, path);
  *out = (struct gen1_reading){0};
  int outcome = etcd_v2_get(handler->client, path, ETCD_GET_QUORUM, &call, &result);
  if (outcome >= 0) out->index = result.index;
  if (outcome == ETCD_V2_NOT_FOUND) return 0;
  if (outcome == 0) {
    out->there = true;
    outcome = gen1_state_read(result.node.value, &out->state, &own);
    etcd_result_free(&result);
  }
  if (outcome != 0 && error) *error = own;
  return etcd_v2_unexpected(outcome);
}

int gen1_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error) {
  struct gen1_reading look;
  const int result = read_active(self(base), NULL, &look, error);
  if (result < 0) return result;
  *closed = look.there && look.state.status == GEN1_STATUS_CLOSED;
  gen1_state_free(&look.state);
  return 0;
}

int gen1_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error) {
  struct gen1_reading look;
  const int result = read_active(self(base), NULL, &look, error);
  if (result < 0) return result;
  *count = look.there && look.state.status == GEN1_STATUS_FINAL ? look.state.waiting : 0;
  gen1_state_free(&look.state);
  return 0;
}

/* ---- who is left ---------------------------------------------------------------------------------------------- */

/* The state of a final round stays when its participants go. Their keep-alives do not. */
static int list_participants(struct gen1 *handler, struct gen1_reading *look, rdzv_error *error) {
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), &handler->base.cancel, error};
  char path[GEN1_PATH];
  if (!look->there || look->state.status != GEN1_STATUS_FINAL) return 0;
  gen1_path(handler, path, "/rdzv/v_%s", look->state.round);
  const int code = etcd_v2_get(handler->client, path, ETCD_GET_QUORUM, &call, &look->listed);
  return code == ETCD_V2_NOT_FOUND ? 0 : etcd_v2_unexpected(code);
}

static bool is_listed(const struct gen1_reading *look, size_t rank) {
  char name[32];
  snprintf(name, sizeof name, "/rank_%zu", rank);
  for (size_t i = 0; i < look->listed.node.count; i++) {
    const char *end = strrchr(look->listed.node.nodes[i].key, '/');
    if (end && strcmp(end, name) == 0) return true;
  }
  return false;
}

static size_t count_left(const struct gen1_reading *look) {
  size_t left = 0;
  for (size_t i = 0; i < look->state.participants; i++) left += is_listed(look, i);
  return left;
}

static enum rendezvous_phase phase_of(const struct gen1_reading *look, int64_t min) {
  const bool final = look->there && look->state.status == GEN1_STATUS_FINAL;
  return final && count_left(look) == 0 ? PHASE_ENDED : gen1_state_phase(&look->state, min);
}

/* ---- the status ----------------------------------------------------------------------------------------------- */

static bool add_node(struct status *status, const char *prefix, size_t number, rdzv_node_kind kind, int64_t rank) {
  char name[32];
  snprintf(name, sizeof name, "%s_%zu", prefix, number);
  rdzv_node_status *node = &status->nodes[status->base.participants + status->base.waiting];
  *node = (rdzv_node_status){.node = strdup(name), .kind = kind, .rank = rank, .heartbeat_age_ms = -1, .trip_us = -1};
  status_count(&status->base, kind);
  return node->node != NULL;
}

/* Of waiting nodes only the number is known. */
static bool add_nodes(struct status *status, const struct gen1_reading *look) {
  const struct gen1_state *state = &look->state;
  const bool final = state->status == GEN1_STATUS_FINAL;
  const size_t waiting = !final ? 0 : state->waiting < MOST_SHOWN ? (size_t)state->waiting : MOST_SHOWN;
  status->nodes = calloc(state->participants + waiting + 1, sizeof *status->nodes);
  if (!status->nodes) return false;
  for (size_t i = 0; i < state->participants; i++) {
    if (final && !is_listed(look, i)) continue;
    if (!add_node(status, "rank", i, RDZV_NODE_KIND_PARTICIPANT, final ? (int64_t)i : -1)) return false;
  }
  for (size_t i = 0; i < waiting; i++)
    if (!add_node(status, "waiting", i, RDZV_NODE_KIND_WAITING, -1)) return false;
  return true;
}

static int status_of(const struct gen1_reading *look, rdzv_status **out, rdzv_error *error) {
  const struct gen1_state *state = &look->state;
  int64_t min_nodes = 0, max_nodes = 0;
  gen1_state_nnodes(state, &min_nodes, &max_nodes);
  struct status *status = calloc(1, sizeof *status);
  if (!status) return error_no_memory(error);
  status->base = (rdzv_status){.exists = look->there,
                               .round = look->there ? strtoll(state->round, NULL, 10) : 0,
                               .phase = rendezvous_phase_name(phase_of(look, min_nodes)),
                               .complete = phase_of(look, min_nodes) == PHASE_COMPLETE,
                               .closed = state->status == GEN1_STATUS_CLOSED,
                               .deadline_left_ms = -1,
                               .min_nodes = min_nodes,
                               .max_nodes = max_nodes,
                               .layout = "etcd",
                               .reason = "",
                               .ended_by = ""};
  const char *reason = state->status == GEN1_STATUS_CLOSED ? gen1_state_reason(state) : NULL;
  if (reason && *reason) status_set_reason(&status->base, strdup(reason));
  if (add_nodes(status, look)) {
    *out = &status->base;
    return 0;
  }
  rdzv_status_free(&status->base);
  return error_no_memory(error);
}

/* Is it another than the user was shown last? */
static bool is_news(struct gen1 *handler, const struct gen1_reading *look) {
  struct gen1_look *last = &handler->look;
  pthread_mutex_lock(&last->lock);
  const char *before = last->text ? last->text : "", *now = look->there ? look->state.text : "";
  const bool news = !last->looked || strcmp(before, now) != 0;
  pthread_mutex_unlock(&last->lock);
  return news;
}

/* Takes over the text. */
static void note_shown(struct gen1 *handler, struct gen1_reading *look) {
  struct gen1_look *last = &handler->look;
  pthread_mutex_lock(&last->lock);
  free(last->text);
  last->text = look->state.text;
  last->looked = true;
  look->state.text = NULL;
  pthread_mutex_unlock(&last->lock);
}

/* Looks until it is another than before, or the time is over. */
static int look_for_news(struct gen1 *handler, int64_t wait_ms, struct gen1_reading *look, rdzv_error *error) {
  const deadline until = deadline_after(wait_ms);
  const struct etcd_call call = {until, &handler->base.cancel, error};
  char path[GEN1_PATH];
  active_path(handler, path);
  for (;;) {
    int result = read_active(handler, &handler->base.cancel, look, error);
    if (result < 0 || deadline_left(until) == 0 || is_news(handler, look)) return result;
    gen1_state_free(&look->state);
    result = etcd_v2_await(handler->client, path, false, look->index + 1, &call);
    if (result != 0 && result != RDZV_E_TIMEOUT) return etcd_v2_unexpected(result);
  }
}

int gen1_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  struct gen1 *handler = self(base);
  struct gen1_reading look = {0};
  rdzv_error own = {0};
  int result = flag_raised(&base->cancel) ? error_set(&own, RDZV_E_CANCELED, "canceled")
                                          : look_for_news(handler, wait_ms, &look, &own);
  if (result == 0) result = list_participants(handler, &look, &own);
  if (result == 0) result = status_of(&look, out, &own);
  if (result == 0) note_shown(handler, &look);
  reading_free(&look);
  if (result == 0) return 0;
  if (error) *error = own;
  return error_prefix(error, result, "cannot read the state of the rendezvous");
}
