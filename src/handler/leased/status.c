/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking at a rendezvous: all its keys are read, in the caller's thread. */
#include "handler/status.h"

#include "base/error.h"
#include "handler/leased/leased_handler.h"
#include "handler/leased/look.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* `look` is to be freed in any case. */
static int read_now(struct leased_handler *handler, const struct flag *cancel, struct look *look, rdzv_error *error) {
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), cancel, error};
  char end[1024];
  struct etcd3_reply reply;
  const struct etcd3_range range = {.keys = etcd3_prefix(rdzv_str(handler->root), end)};
  *look = LOOK_NONE;
  int result = etcd3_range(handler->look, &range, &call, &reply);
  if (result == RDZV_E_DATA_LOST) result = etcd3_range(handler->look, &range, &call, &reply);
  if (result != 0) return result;
  look->revision = reply.revision;
  result = look_take(look, handler->root, &reply.results[0], error);
  etcd3_reply_free(&reply);
  return result;
}

/* ---- what it means -------------------------------------------------------------------------------------------- */

static int64_t rank_of(const struct look *look, const struct seat *seat) {
  if (look->world_mod == 0 || seat->round != look->world.round) return -1;
  return leased_world_rank(&look->world, seat->lease);
}

static size_t members_left(const struct look *look) {
  size_t count = 0;
  for (size_t i = 0; i < look->count; i++) count += rank_of(look, &look->seats[i]) >= 0;
  return count;
}

/* Is the world's round still going on? Else the next one gathers. */
static bool is_complete(const struct look *look) { return members_left(look) > 0; }

/* The others wait, or are spares where the round is full. */
static rdzv_node_kind kind_of(const struct look *look, const struct seat *seat) {
  if (!is_complete(look) || rank_of(look, seat) >= 0) return RDZV_NODE_KIND_PARTICIPANT;
  const bool full = (int64_t)members_left(look) >= seat->node.max_nodes;
  return full ? RDZV_NODE_KIND_SPARE : RDZV_NODE_KIND_WAITING;
}

int leased_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error) {
  struct look look;
  const int result = read_now(leased_of(base), NULL, &look, error);
  if (result == 0) *closed = look.closed;
  look_free(&look);
  return result;
}

int leased_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error) {
  struct look look;
  const int result = read_now(leased_of(base), NULL, &look, error);
  int64_t waiting = 0;
  for (size_t i = 0; result == 0 && i < look.count; i++)
    waiting += kind_of(&look, &look.seats[i]) == RDZV_NODE_KIND_WAITING;
  if (result == 0) *count = waiting;
  look_free(&look);
  return result;
}

/* ---- the status ----------------------------------------------------------------------------------------------- */

static int by_place(const void *left, const void *right) {
  const rdzv_node_status *a = left, *b = right;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  return strcmp(a->node, b->node);
}

static bool add_nodes(const struct look *look, struct status *status) {
  size_t *const counts[] = {&status->base.participants, &status->base.waiting, &status->base.spares};
  status->nodes = calloc(look->count + 1, sizeof *status->nodes);
  for (size_t i = 0; status->nodes && i < look->count; i++) {
    const struct seat *seat = &look->seats[i];
    const rdzv_node_kind kind = kind_of(look, seat);
    char *name = strdup(node_text(&seat->node.desc).text);
    if (!name) return false;
    status->nodes[i] = (rdzv_node_status){
        .node = name, .kind = kind, .rank = rank_of(look, seat), .heartbeat_age_ms = -1, .trip_us = -1};
    ++*counts[kind];
  }
  if (status->nodes) qsort(status->nodes, look->count, sizeof *status->nodes, by_place);
  return status->nodes != NULL;
}

static enum rendezvous_phase phase_of(const struct look *look) {
  if (look->closed) return PHASE_CLOSED;
  if (is_complete(look)) return PHASE_COMPLETE;
  if (look->count == 0 && look->world_mod != 0) return PHASE_ENDED;
  const bool enough = look->count > 0 && (int64_t)look->count >= look->seats[0].node.min_nodes;
  return enough ? PHASE_LAST_CALL : PHASE_GATHERING;
}

static int status_of(struct look *look, rdzv_status **out, rdzv_error *error) {
  const struct leased_node *first = look->count > 0 ? &look->seats[0].node : &(struct leased_node){0};
  struct status *status = calloc(1, sizeof *status);
  if (!status) return error_no_memory(error);
  const bool complete = is_complete(look);
  status->base = (rdzv_status){.exists = look->exists,
                               .round = look->world.round + (complete || look->world_mod == 0 ? 0 : 1),
                               .phase = rendezvous_phase_name(phase_of(look)),
                               .complete = complete,
                               .closed = look->closed,
                               .deadline_left_ms = -1,
                               .min_nodes = first->min_nodes,
                               .max_nodes = first->max_nodes,
                               .layout = "etcd-v3",
                               .reason = "",
                               .ended_by = ""};
  if (look->world_mod == 0) status->base.round = 0;
  if (look->reason && *look->reason) {
    status_set_reason(&status->base, look->reason);
    look->reason = NULL;
  }
  if (add_nodes(look, status)) {
    *out = &status->base;
    return 0;
  }
  rdzv_status_free(&status->base);
  return error_no_memory(error);
}

/* Waits for a change after that revision. */
static int await(struct leased_handler *handler, int64_t revision, const struct etcd_call *call) {
  char end[1024];
  const struct etcd3_watched watched = {.keys = etcd3_prefix(rdzv_str(handler->root), end), .from = revision + 1};
  struct etcd3_watch *watch;
  struct etcd3_events events = {0};
  int result = etcd3_watch_open(handler->look, &watched, 1, &watch, call->error);
  if (result < 0) return result;
  result = etcd3_watch_next(watch, call, &events);
  etcd3_events_free(&events);
  etcd3_watch_close(watch);
  const bool again = result == RDZV_E_TIMEOUT || result == ETCD3_COMPACTED || result == RDZV_E_DATA_LOST;
  return again ? 0 : result;
}

static bool is_news(struct leased_handler *handler, const struct look *look) {
  const rdzv_bytes now = {look->text.data, look->text.len};
  pthread_mutex_lock(&handler->lock);
  const bool news = !handler->seen.data || !bytes_equal(now, rdzv_value_bytes(&handler->seen));
  pthread_mutex_unlock(&handler->lock);
  return news;
}

static void note_shown(struct leased_handler *handler, const struct look *look) {
  rdzv_value seen = {0};
  if (!value_copy(&seen, look->text.data, look->text.len)) return;
  pthread_mutex_lock(&handler->lock);
  rdzv_value before = handler->seen;
  handler->seen = seen;
  pthread_mutex_unlock(&handler->lock);
  rdzv_value_free(&before);
}

static int look_for_news(struct leased_handler *handler, int64_t wait_ms, struct look *look, rdzv_error *error) {
  const deadline until = deadline_after(wait_ms);
  const struct etcd_call call = {until, &handler->base.cancel, error};
  for (;;) {
    int result = read_now(handler, &handler->base.cancel, look, error);
    if (result < 0 || deadline_left(until) == 0 || is_news(handler, look)) return result;
    const int64_t revision = look->revision;
    look_free(look);
    *look = LOOK_NONE;
    result = await(handler, revision, &call);
    if (result < 0) return result;
  }
}

int leased_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  struct leased_handler *handler = leased_of(base);
  struct look look = LOOK_NONE;
  rdzv_error own = {0};
  int result = flag_raised(&base->cancel) ? error_set(&own, RDZV_E_CANCELED, "canceled")
                                          : look_for_news(handler, wait_ms, &look, &own);
  if (result == 0) result = status_of(&look, out, &own);
  if (result == 0) note_shown(handler, &look);
  look_free(&look);
  if (result == 0) return 0;
  if (error) *error = own;
  return error_prefix(error, result, "cannot read the state of the rendezvous");
}
