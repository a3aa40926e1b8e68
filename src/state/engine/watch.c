/* SPDX-License-Identifier: BSD-3-Clause */
/* News for a participant of a complete round: which participants left or died, that nodes wait for the next round,
 * that the rendezvous is closed, and that it is a participant no longer. PyTorch tells only of waiting nodes, so the
 * survivors of a death sit in their collectives until those time out. */
#include "state/engine/engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void engine_watch_end(struct engine *engine) {
  for (size_t i = 0; i < engine->peer_count; i++) free((char *)engine->peers[i].desc.addr);
  free(engine->peers);
  engine->peers = NULL;
  engine->peer_count = 0;
  engine->in_round = false;
}

bool engine_watch_begin(struct engine *engine) {
  const struct rendezvous_state *state = &engine->state;
  engine_watch_end(engine);
  engine->peers = calloc(state->num_participants + 1, sizeof *engine->peers);
  if (!engine->peers) return false;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    if (!(node->kinds & NODE_PARTICIPANT)) continue;
    char *addr = strdup(node->desc.addr);
    if (!addr) {
      engine_watch_end(engine);
      return false;
    }
    engine->peers[engine->peer_count++] = (struct engine_peer){.desc = {addr, node->desc.pid, node->desc.local_id}};
  }
  engine->in_round = true;
  engine->round = state->round;
  engine->waiting = 0;
  engine->told_closed = false;
  return true;
}

static bool is_participant(const struct rendezvous_state *state, const struct node_desc *desc) {
  const struct state_node *node = state_find(state, desc);
  return node && (node->kinds & NODE_PARTICIPANT);
}

/* The state does not say whether a node left or was evicted: how long it had been silent tells. */
static void miss(struct engine *engine, struct engine_peer *peer, struct moment now, struct engine_update *update) {
  const struct rendezvous_settings *settings = &engine->config.settings;
  const int64_t age = liveness_age(&engine->liveness, settings, &peer->desc, now.mono_ms);
  const bool died = liveness_was_silent(&engine->liveness, settings, &peer->desc, now.mono_ms);
  peer->gone = engine->steps;
  if (died && !(update->news & ENGINE_NEWS_PARTICIPANT_DIED)) update->dead = node_text(&peer->desc);
  if (!died && !(update->news & ENGINE_NEWS_PARTICIPANT_LEFT)) update->left = node_text(&peer->desc);
  update->news |= died ? ENGINE_NEWS_PARTICIPANT_DIED : ENGINE_NEWS_PARTICIPANT_LEFT;
  engine_trace(engine, "'%s' is gone, heard %" PRId64 " ms ago -> it %s", node_text(&peer->desc).text, age,
               died ? "died" : "left");
}

static void watch_round(struct engine *engine, struct moment now, struct engine_update *update) {
  const struct rendezvous_state *state = &engine->state;
  const size_t here = state->num_participants;
  for (size_t i = 0, gone = 0; i < engine->peer_count && gone + here < engine->peer_count; i++) {
    struct engine_peer *peer = &engine->peers[i];
    if (!peer->gone && !is_participant(state, &peer->desc)) miss(engine, peer, now, update);
    gone += peer->gone > 0;
  }
  const bool room = (int64_t)here < engine->config.settings.max_nodes;
  if (state->num_waiting > engine->waiting && room) {
    update->news |= ENGINE_NEWS_SOMEONE_WAITS;
    engine_trace(engine, "%zu wait for the next round -> say so", state->num_waiting);
  }
  engine->waiting = state->num_waiting;
}

const struct engine_peer *engine_gone(const struct engine *engine, const struct engine_update *update,
                                      const struct engine_peer *after) {
  if (!(update->news & (ENGINE_NEWS_PARTICIPANT_LEFT | ENGINE_NEWS_PARTICIPANT_DIED))) return NULL;
  for (const struct engine_peer *peer = after ? after + 1 : engine->peers; peer < engine->peers + engine->peer_count;
       peer++)
    if (peer->gone == engine->steps) return peer;
  return NULL;
}

void engine_watch(struct engine *engine, struct moment now, struct engine_update *update) {
  const struct rendezvous_state *state = &engine->state;
  if (!engine->in_round) return;
  update->round = engine->round;
  if (state->closed && !engine->told_closed) {
    engine->told_closed = true;
    update->news |= ENGINE_NEWS_IS_CLOSED;
  }
  if (state->complete && state->round == engine->round && is_participant(state, &engine->config.node)) {
    watch_round(engine, now, update);
    return;
  }
  engine_trace(engine, "round %" PRId64 " continues without this node -> evicted", engine->round);
  update->news |= ENGINE_NEWS_EVICTED;
  engine_watch_end(engine);
}
