/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that can make a difference later goes in; times count from now on, versions from the last one. */
#include "world.h"

#include "state/native/run.h"

#include <string.h>

enum { LONG_AGO_MS = 30000, FAR_MS = 100000 }; /* what is further away makes no difference */

struct digest {
  uint64_t bits;
};

static void add(struct digest *digest, uint64_t bits) {
  digest->bits = (digest->bits ^ bits) * UINT64_C(0x9fb21c651e98df25);
  digest->bits ^= digest->bits >> 29;
}

static void add_flags(struct digest *digest, unsigned count, const bool flags[]) {
  uint64_t bits = 1;
  for (unsigned i = 0; i < count; i++) bits = bits << 1 | flags[i];
  add(digest, bits);
}
#define ADD_FLAGS(digest, ...) add_flags((digest), sizeof((const bool[]){__VA_ARGS__}), (const bool[]){__VA_ARGS__})

static void add_time(struct digest *digest, int64_t at, int64_t now) {
  const int64_t left = at - now;
  add(digest, (uint64_t)(left < -LONG_AGO_MS ? -LONG_AGO_MS : left > FAR_MS ? FAR_MS : left));
}

static void add_datetime(struct digest *digest, int64_t at, int64_t now) {
  if (at == DATETIME_NONE || at == WORLD_LEFT)
    add(digest, at == WORLD_LEFT ? 1 : 2);
  else
    add_time(digest, at / 1000, now / 1000);
}

static void add_state(struct digest *digest, const struct rendezvous_state *state, int64_t now_us) {
  add(digest, (uint64_t)state->round);
  ADD_FLAGS(digest, state->complete, state->closed);
  add_datetime(digest, state->deadline, now_us);
  add(digest, state->count);
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    add(digest, (uint64_t)node->desc.pid << 32 | (uint64_t)node->rank << 8 | node->kinds << 1 | node->ours);
    add_datetime(digest, node->last_heartbeat, now_us);
  }
}

/* 0 stays: there is none. */
static void add_token(struct digest *digest, uint64_t token, const struct sim *sim) {
  add(digest, token == 0 ? 0 : 1 + sim->versions - token);
}

/* ---- our own engine ------------------------------------------------------------------------------------------- */

static void add_liveness(struct digest *digest, const struct liveness *liveness, struct moment now) {
  add(digest, liveness->started ? liveness->count : SIZE_MAX);
  if (!liveness->started) return;
  add_time(digest, liveness->last.mono_ms, now.mono_ms);
  for (size_t i = 0; i < liveness->count; i++) {
    const struct observed_node *node = &liveness->nodes[i];
    add(digest, (uint64_t)node->desc.pid);
    add_datetime(digest, node->heartbeat, now.wall_us);
    add_time(digest, node->changed, liveness->looked);
    ADD_FLAGS(digest, node->at_first, node->long_silent);
  }
}

static void add_rounds(struct digest *digest, const struct rounds *rounds, const struct sim *sim) {
  add(digest, (uint64_t)rounds->first);
  add(digest, (uint64_t)rounds->joined);
  add(digest, (uint64_t)rounds->entered);
  add(digest, (uint64_t)rounds->entering);
  ADD_FLAGS(digest, rounds->doubtful);
  add_token(digest, rounds->token, sim);
}

static void add_watch(struct digest *digest, const struct engine *engine) {
  ADD_FLAGS(digest, engine->in_round, engine->told_closed);
  if (!engine->in_round) return;
  add(digest, (uint64_t)engine->round);
  add(digest, engine->waiting);
  for (size_t i = 0; i < engine->peer_count; i++)
    add(digest, (uint64_t)engine->peers[i].desc.pid << 1 | (engine->peers[i].gone > 0));
}

static void add_engine(struct digest *digest, const struct engine *engine, const struct sim *sim, struct moment now) {
  ADD_FLAGS(digest, engine->too_late.text[0] != '\0', engine->closing, engine->under_way, engine->known,
            engine->came_back, engine->fresh, engine->dropped, engine->permit_ms > 0, engine->evict_ms > 0);
  add(digest, engine->wish);
  if (engine->wish != WISH_NOTHING) add_time(digest, engine->wish_deadline, now.mono_ms);
  if (engine->closing) add_time(digest, engine->close_deadline, now.mono_ms);
  add_state(digest, &engine->state, now.wall_us);
  add_token(digest, engine->token, sim);
  add_time(digest, engine->read_ms, now.mono_ms);
  add_time(digest, engine->beat_ms, now.mono_ms);
  add_datetime(digest, engine->tried_us, now.wall_us);
  add_time(digest, engine->tried_ms, now.mono_ms);
  if (engine->evict_ms > 0) add_time(digest, engine->evict_ms, now.mono_ms);
  add(digest, engine->back_off_ms > now.mono_ms ? (uint64_t)(engine->back_off_ms - now.mono_ms) : 0);
  add(digest, (uint64_t)engine->store_error.code);
  add(digest, (uint64_t)engine->pace.losses << 32 | engine->pace.errors);
  add_datetime(digest, engine->last_call.deadline, now.wall_us);
  if (engine->last_call.deadline != DATETIME_NONE) add_time(digest, engine->last_call.ends_ms, now.mono_ms);
  add_liveness(digest, &engine->liveness, now);
  add_rounds(digest, &engine->rounds, sim);
  add_watch(digest, engine);
}

static void add_torch(struct digest *digest, const struct torch_node *torch, const struct sim *sim, struct moment now) {
  add(digest, torch->doing);
  add_state(digest, &torch->state, now.wall_us);
  add_token(digest, torch->token, sim);
  add_time(digest, torch->deadline_ms, now.mono_ms);
  add_time(digest, torch->next_beat_ms, now.mono_ms);
}

/* ---- native nodes and their server ---------------------------------------------------------------------------- */

static void add_bytes(struct digest *digest, const uint8_t token[NATIVE_TOKEN_BYTES]) {
  uint64_t bits;
  memcpy(&bits, token, sizeof bits);
  add(digest, bits);
}

/* What is due at once is due. */
static void add_due(struct digest *digest, int64_t at, int64_t now) { add_time(digest, at > now ? at : now, now); }

static void add_member(struct digest *digest, const struct member *member, int64_t now) {
  ADD_FLAGS(digest, member->closing, member->in_session, member->attached, member->resuming, member->sent_join,
            member->sent_leave, member->sent_close, member->in_round);
  add(digest, (uint64_t)member->wish << 8 | member->link);
  if (member->wish != WISH_NOTHING) add_time(digest, member->wish_deadline, now);
  if (member->closing) add_time(digest, member->close_deadline, now);
  add_due(digest, member->again_ms, now);
  add_due(digest, member->close_again_ms, now);
  if (member->link == MEMBER_LINK_DOWN) add_due(digest, member->connect_ms, now);
  add(digest, (uint64_t)member->trouble.code);
  add(digest, member->pace.errors);
  add(digest, (uint64_t)member->silence.lasted_ms);
  add_time(digest, member->silence.looked_ms, now);
  add_bytes(digest, member->token);
  add(digest, member->epoch << 16 | member->joins);
  add_due(digest, member->beat_ms, now);
  add_time(digest, member->heard_ms, now);
  add(digest, (uint64_t)member->first_round);
  if (member->in_round) add(digest, (uint64_t)member->round << 16 | (uint64_t)member->world_size);
}

/* Which of its node's connections: the node may have another one by now. */
static void add_link(struct digest *digest, const struct sim *sim, uint64_t link) {
  if (link == 0) {
    add(digest, 0);
    return;
  }
  const struct sim_link *way = link_of(sim, link);
  const struct sim_node *node = &sim->nodes[way->node];
  ADD_FLAGS(digest, way->open, way->broken, node->link == link, node->attached == link);
  add(digest, way->node + 1);
}

static void add_session(struct digest *digest, const struct sim *sim, const struct native_node *node, int64_t now) {
  const int64_t credit = node->run->coordinator->credit;
  ADD_FLAGS(digest, node->in_round, node->unanswered, node->told_closed, node->missed != 0,
            node->told_waits == node->run->waits);
  add(digest, (uint64_t)node->pid << 8 | node->wish);
  add_link(digest, sim, (uint64_t)(uintptr_t)node->link);
  add_bytes(digest, node->token);
  add(digest, node->epoch << 16 | node->number);
  add_time(digest, node->heard, credit);
  if (!node->link) add_time(digest, node->lost, credit);
  if (node->wish != NATIVE_NOTHING) add_time(digest, node->deadline_ms, now);
  add(digest, (uint64_t)node->first_round);
  add(digest, (uint64_t)node->joined << 16 | node->told_gone);
}

static void add_world(struct digest *digest, const struct native_world *world) {
  add(digest, (uint64_t)world->round);
  for (size_t i = 0; i < world->state.count; i++) {
    add(digest, (uint64_t)world->state.nodes[i].desc.pid << 16 | (uint64_t)world->state.nodes[i].rank);
    add(digest, world->how[i]);
  }
  for (size_t i = 0; i < world->gone_count; i++) add(digest, world->gone[i]);
}

static void add_run(struct digest *digest, const struct sim *sim, const struct coordinator_run *run,
                    struct moment now) {
  add_state(digest, &run->state, now.wall_us);
  for (const struct native_node *node = run->nodes; node; node = node->by_node.next)
    add_session(digest, sim, node, now.mono_ms);
  for (const struct native_node *node = run->pending; node; node = node->next) add(digest, (uint64_t)node->pid);
  for (const struct native_node *node = run->lost; node; node = node->lost_next) add(digest, (uint64_t)node->pid);
  ADD_FLAGS(digest, run->pass, run->retry, run->blocked, run->stale, run->beats, run->tell);
  add(digest, (uint64_t)run->first_round << 16 | run->waiting);
  add_datetime(digest, run->last_call.deadline, now.wall_us);
  if (run->last_call.deadline != DATETIME_NONE) add_time(digest, run->last_call.ends_ms, now.mono_ms);
  add_liveness(digest, &run->liveness, now);
  add_time(digest, run->due == INT64_MAX ? FAR_MS : run->due - run->coordinator->credit, 0);
  add_time(digest, run->deadline_ms == INT64_MAX ? now.mono_ms + FAR_MS : run->deadline_ms, now.mono_ms);
  add_time(digest, run->look_ms == INT64_MAX ? now.mono_ms + FAR_MS : run->look_ms, now.mono_ms);
  add_time(digest, run->beat_ms, now.mono_ms);
  add_due(digest, run->quiet_ms, now.mono_ms);
  add_world(digest, &run->world);
}

static void add_coordinator(struct digest *digest, const struct sim *sim) {
  const struct coordinator *coordinator = sim->coordinator;
  const struct moment now = sim_moment(sim, &sim->server);
  if (!coordinator) return;
  ADD_FLAGS(digest, server_is_stopped(sim), coordinator->started);
  if (!coordinator->started) return;
  add_time(digest, coordinator->last_ms, now.mono_ms);
  add_due(digest, coordinator->judge_ms, now.mono_ms);
  add_due(digest, coordinator->scan_ms, now.mono_ms);
  add_time(digest, coordinator->judged, coordinator->credit);
  add_time(digest, coordinator->wake_ms == INT64_MAX ? now.mono_ms + FAR_MS : coordinator->wake_ms, now.mono_ms);
  for (const struct coordinator_run *run = coordinator->runs; run; run = run->hh.next) add_run(digest, sim, run, now);
}

static void add_packet(struct digest *digest, const struct sim *sim, const struct sim_event *event) {
  const struct sim_packet *packet = event->packet;
  uint64_t before = 0;
  for (size_t i = 0; i < sim->heap_count; i++)
    before += sim->heap[i].kind == event->kind && sim->heap[i].link == event->link && sim->heap[i].order < event->order;
  add(digest, before << 8 | packet->kind);
  add_link(digest, sim, event->link);
  switch (packet->kind) {
    case PACKET_JOIN: add(digest, packet->join.number << 16 | (uint64_t)packet->join.first_round); /* fall through */
    case PACKET_RESUME:
      add(digest, packet->join.session.epoch);
      add_bytes(digest, packet->join.session.token);
      break;
    case PACKET_JOINED:
      add(digest, packet->joined.number << 16 | (uint64_t)packet->joined.round);
      add(digest, (uint64_t)packet->joined.rank << 16 | (uint64_t)packet->joined.world_size);
      break;
    case PACKET_NEWS: add(digest, packet->what << 16 | (uint64_t)packet->round); break;
    case PACKET_REFUSED: add(digest, (uint64_t)packet->refused << 32 | (uint32_t)packet->code); /* fall through */
    default: add(digest, packet->number); break;
  }
}

/* ---- the simulator -------------------------------------------------------------------------------------------- */

static void add_native(struct digest *digest, const struct sim *sim, const struct sim_node *node, int64_t now) {
  add_member(digest, &node->member, now);
  add_link(digest, sim, node->link);
  add_link(digest, sim, node->attached);
  ADD_FLAGS(digest, node->lost);
  add_time(digest, node->heard_at, server_clock(sim));
  if (node->lost) add_time(digest, node->lost_at, server_clock(sim));
}

static void add_node(struct digest *digest, const struct sim *sim, const struct sim_node *node) {
  const struct moment now = sim_moment(sim, node);
  ADD_FLAGS(digest, node->alive, node->killed, node->wants, node->joined, node->request > 0, node->wait > 0,
            node->listening, node->paused_until > sim->now);
  add(digest, (uint64_t)node->seen << 32 | (uint64_t)(node->last_round + 1));
  add(digest, (uint64_t)(node->knew + 1));
  if (node->listening) add_token(digest, node->listens_to, sim);
  if (!node->alive) return;
  if (node->joined) add(digest, (uint64_t)node->round);
  if (node->is_native)
    add_native(digest, sim, node, now.mono_ms);
  else if (node->is_torch)
    add_torch(digest, &node->torch, sim, now);
  else
    add_engine(digest, &node->engine, sim, now);
}

static uint64_t event_digest(const struct sim *sim, const struct sim_event *event) {
  struct digest digest = {event->kind};
  const struct moment now = sim_moment(sim, &sim->nodes[event->node]);
  add(&digest, event->node << 16 | event->deed << 1 | event_is_message(event));
  if (event->kind == SIM_REQUEST) ADD_FLAGS(&digest, event->number == sim->nodes[event->node].request);
  if (!event_is_message(event) && event->kind != SIM_SCRIPT) add_time(&digest, event->at, sim->now);
  if (event->packet) add_packet(&digest, sim, event);
  if (!event->message) return digest.bits;
  add(&digest, event->message->kind);
  ADD_FLAGS(&digest, event->message->has_state);
  if (event->message->has_state) add_state(&digest, &event->message->state, now.wall_us);
  add_token(&digest, event->message->token, sim);
  return digest.bits;
}

/* The order of the queue is no order. */
static void add_queue(struct digest *digest, const struct sim *sim) {
  uint64_t sum = 0;
  for (size_t i = 0; i < sim->heap_count; i++) sum += event_digest(sim, &sim->heap[i]);
  add(digest, sum);
}

static void add_completed(struct digest *digest, const struct sim *sim) {
  for (size_t i = 0; i < sim->round_count; i++) {
    const struct sim_round *round = &sim->rounds[i];
    ADD_FLAGS(digest, round->cut_by_torch, round->twice, round->losses == sim->losses);
    for (size_t rank = 0; rank < round->count; rank++)
      add(digest, round->nodes[rank] << 1 | (round->completed < sim->nodes[round->nodes[rank]].asked));
  }
}

uint64_t world_digest(const struct world *world) {
  const struct sim *sim = &world->sim;
  struct digest digest = {1};
  add_token(&digest, sim->version, sim);
  add_state(&digest, &sim->cell, sim_moment(sim, &sim->nodes[0]).wall_us);
  for (size_t i = 0; i < sim->node_count; i++) {
    add_node(&digest, sim, &sim->nodes[i]);
    add_datetime(&digest, sim->nodes[i].heartbeat, sim_moment(sim, &sim->nodes[i]).wall_us);
    add_time(&digest, sim->nodes[i].heard, sim->now);
  }
  add_coordinator(&digest, sim);
  add_queue(&digest, sim);
  add_completed(&digest, sim);
  for (size_t i = MOVE_DROP; i < MOVE_SERVER; i++) add(&digest, (uint64_t)world->spent[i]);
  return digest.bits;
}
