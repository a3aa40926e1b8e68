/* SPDX-License-Identifier: BSD-3-Clause */
/* The blob: how it is made, and how the run follows what other nodes have written. */
#include "base/error.h"
#include "state/native/run.h"
#include "state/pickle/write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing -------------------------------------------------------------------------------------------------- */

static bool beats_are_due(const struct coordinator_run *run, struct moment now) {
  return !run->beats || now.mono_ms - run->beat_ms >= run->settings.keep_alive_interval / 2;
}

bool coordinator_blob_is_fresh(const struct coordinator_run *run, struct moment now) {
  return !run->stale && !beats_are_due(run, now);
}

static void renew_heartbeats(struct coordinator_run *run, struct moment now) {
  for (size_t i = 0; i < run->state.count; i++) {
    struct state_node *node = &run->state.nodes[i];
    if (node->kinds && native_find(run, &node->desc)) node->last_heartbeat = now.wall_us;
  }
  run->beat_ms = now.mono_ms;
  run->beats = true;
}

int coordinator_write_blob(struct coordinator_run *run, struct moment now, struct buf *out, rdzv_error *error) {
  if (beats_are_due(run, now)) {
    renew_heartbeats(run, now);
    run->stale = true;
  }
  const int result = pickle_write(&run->state, run->layout, out, error);
  if (result == 0) run->stale = false;
  return result;
}

/* ---- nodes that are not native -------------------------------------------------------------------------------- */

/* No node has an empty address, so this matches no node. */
static const struct node_desc nobody = {"", 0, 0};

/* A view of the state with the other nodes only; its nodes are to be freed. */
static bool view_foreign(struct coordinator_run *run, struct rendezvous_state *view) {
  *view = STATE_EMPTY;
  view->nodes = malloc((run->state.count + 1) * sizeof *view->nodes);
  if (!view->nodes) return false;
  for (size_t i = 0; i < run->state.count; i++)
    if (!native_find(run, &run->state.nodes[i].desc)) view->nodes[view->count++] = run->state.nodes[i];
  run->has_torch = differences_find_torch(view) != NULL;
  return true;
}

/* False: no memory. It is looked again later. */
static bool observe(struct coordinator_run *run, struct moment now) {
  struct rendezvous_state view;
  run->look_ms = now.mono_ms + LOOK_MS;
  if (!view_foreign(run, &view)) return false;
  const bool done = liveness_observe(&run->liveness, &run->settings, &nobody, &view, now, NULL) == 0;
  free(view.nodes);
  if (done) run->look_ms = liveness_wake(&run->liveness, &run->settings, &nobody);
  return done;
}

/* Participants that are missing in the state. */
static void find_gone(struct coordinator_run *run, const struct rendezvous_state *state, struct moment now) {
  const struct native_world *world = &run->world;
  if (!state->complete || state->round != world->round) return;
  for (size_t i = 0; i < world->state.count; i++) {
    const struct node_desc *desc = &world->state.nodes[i].desc;
    const struct state_node *node = state_find(state, desc);
    if (node && (node->kinds & NODE_PARTICIPANT)) continue;
    const bool died = liveness_was_silent(&run->liveness, &run->settings, desc, now.mono_ms);
    world_lose(run, desc, died ? NATIVE_DIED : NATIVE_LEFT_IT);
  }
}

/* The dead of those that are not native, as in the engine. */
static void drop_dead(struct coordinator_run *run, struct moment now) {
  struct rendezvous_state *state = &run->state;
  const struct rendezvous_state before = *state;
  const size_t dead = liveness_sanitize(&run->liveness, &run->settings, &nobody, state, now.mono_ms);
  if (dead == 0) return;
  coordinator_trace(run->coordinator, run, "%zu silent for over their dead time -> dead, drop them", dead);
  find_gone(run, state, now);
  last_call_observe(&run->last_call, state, &run->settings, now, true, 0);
  run_note_change(run, &before);
}

void run_look(struct coordinator_run *run, struct moment now) {
  if (!observe(run, now)) return;
  drop_dead(run, now);
  warn_nodes(run);
}

/* ---- adopting ------------------------------------------------------------------------------------------------- */

static bool takes_part(const struct coordinator_run *run, const struct native_node *node) {
  const struct state_node *self = state_find(&run->state, &node->node);
  return run->state.complete && run->state.round == node->joined && self && (self->kinds & NODE_PARTICIPANT);
}

static void set_layout(struct coordinator_run *run, enum torch_layout layout) {
  const bool list = torch_traits(layout)->redundancy_list;
  run->layout = layout;
  run->settings.has_redundancy_list = list;
  for (struct native_node *node = run->nodes; node; node = node->by_node.next)
    node->settings.has_redundancy_list = list;
}

/* A participant that has no connection hears of it when it comes back: its session is over. */
static void evict(struct coordinator_run *run) {
  struct native_node *node, *next;
  HASH_ITER(by_node, run->nodes, node, next) {
    if (!node->in_round || takes_part(run, node)) continue;
    if (node->link)
      tell_evicted(node);
    else
      native_end(node);
  }
}

/* A server that lost the state begins at 0, and its nodes know the round that they were in. */
bool run_may_reach(const struct coordinator_run *run, int64_t round) {
  const int64_t most_leap = INT64_C(1) << 32; /* a round every second makes a hundred years */
  int64_t from = run ? run->state.round : 0;
  if (run && run->first_round > from) from = run->first_round;
  return round >= 0 && round <= STATE_MOST_ROUND && round - from <= most_leap;
}

int coordinator_check_swap(const struct coordinator_run *run, const struct rendezvous_state *state, rdzv_error *error) {
  if (run_may_reach(run, state->round)) return 0;
  return error_set(error, RDZV_E_CORRUPT, "round %" PRId64 " cannot follow round %" PRId64, state->round,
                   run->state.round);
}

void run_adopt(struct coordinator_run *run, struct rendezvous_state *state, enum torch_layout layout,
               struct moment now) {
  const bool closed = run->state.closed;
  find_gone(run, state, now);
  state_free(&run->state);
  run->state = *state;
  *state = STATE_EMPTY;
  if (run->layout != layout) set_layout(run, layout);
  run->stale = false;
  run->pass = true;
  run_touch(run);
  if (run->state.closed && !closed) run->tell = true;
  if (run->state.complete && run->state.round >= run->first_round) run->first_round = run->state.round + 1;
  last_call_observe(&run->last_call, &run->state, &run->settings, now, false, 0);
  evict(run);
  run_look(run, now);
}
