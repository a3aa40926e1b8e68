/* SPDX-License-Identifier: BSD-3-Clause */
/* What a member of a complete round wants to hear of: who left it or died, who waits for the next one, that it is
 * closed, and that we are no member any more. PyTorch tells of those who wait only, so that survivors of a death sit in
 * their collectives until those time out. */
#include "state/engine/engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void engine_watch_end(struct engine *engine) {
  for (size_t i = 0; i < engine->fellow_count; i++) free((char *)engine->fellows[i].node.addr);
  free(engine->fellows);
  engine->fellows = NULL;
  engine->fellow_count = 0;
  engine->member = false;
}

bool engine_watch_begin(struct engine *engine) {
  const struct rendezvous_state *state = &engine->state;
  engine_watch_end(engine);
  engine->fellows = calloc(state->num_participants + 1, sizeof *engine->fellows);
  if (!engine->fellows) return false;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *member = &state->members[i];
    if (!(member->kinds & STATE_PARTICIPANT)) continue;
    char *addr = strdup(member->node.addr);
    if (!addr) {
      engine_watch_end(engine);
      return false;
    }
    engine->fellows[engine->fellow_count++] = (struct fellow){.node = {addr, member->node.pid, member->node.local_id}};
  }
  engine->member = true;
  engine->round = state->round;
  engine->waiting = 0;
  engine->told_closed = false;
  return true;
}

static bool is_participant(const struct rendezvous_state *state, const struct node_desc *node) {
  const struct state_node *member = state_find(state, node);
  return member && (member->kinds & STATE_PARTICIPANT);
}

/* Nobody says whether a node left or was evicted: who had been silent for most of the dead time was. */
static void miss(struct engine *engine, struct fellow *fellow, struct moment now, struct engine_update *update) {
  const struct rendezvous_settings *settings = &engine->config.settings;
  const int64_t age = liveness_age(&engine->liveness, settings, &fellow->node, now.mono_ms);
  const bool died = age > rendezvous_dead_time(settings) * 2 / 3;
  fellow->gone = true;
  if (died && !(update->happened & ENGINE_MEMBER_DIED)) update->dead = node_text(&fellow->node);
  if (!died && !(update->happened & ENGINE_MEMBER_LEFT)) update->left = node_text(&fellow->node);
  update->happened |= died ? ENGINE_MEMBER_DIED : ENGINE_MEMBER_LEFT;
  engine_trace(engine, "'%s' is gone, heard %" PRId64 " ms ago -> it %s", node_text(&fellow->node).text, age,
               died ? "died" : "left");
}

static void watch_round(struct engine *engine, struct moment now, struct engine_update *update) {
  const struct rendezvous_state *state = &engine->state;
  const size_t here = state->num_participants;
  for (size_t i = 0, gone = 0; i < engine->fellow_count && gone + here < engine->fellow_count; i++) {
    struct fellow *fellow = &engine->fellows[i];
    if (!fellow->gone && !is_participant(state, &fellow->node)) miss(engine, fellow, now, update);
    gone += fellow->gone;
  }
  const bool room = (int64_t)here < engine->config.settings.max_nodes;
  if (state->num_waiting > engine->waiting && room) {
    update->happened |= ENGINE_SOMEONE_WAITS;
    engine_trace(engine, "%zu wait for the next round -> say so", state->num_waiting);
  }
  engine->waiting = state->num_waiting;
}

void engine_watch(struct engine *engine, struct moment now, struct engine_update *update) {
  const struct rendezvous_state *state = &engine->state;
  if (!engine->member) return;
  if (state->closed && !engine->told_closed) {
    engine->told_closed = true;
    update->happened |= ENGINE_IS_CLOSED;
  }
  if (state->complete && state->round == engine->round && is_participant(state, &engine->config.node)) {
    watch_round(engine, now, update);
    return;
  }
  engine_trace(engine, "round %" PRId64 " goes on without us -> we were evicted", engine->round);
  update->happened |= ENGINE_EVICTED;
  engine_watch_end(engine);
}
