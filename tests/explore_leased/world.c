/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN = 2, MAX = 3, LAST_ROUND = 3, FOREVER = 1000000000 };

static const char *const addrs[] = {"a", "b", "c"};

const char *world_move_name(struct move move) {
  static const char *const names[] = {
      "its request is done", "takes the answer",  "its request gets lost",     "the answer gets lost",
      "hears of a change",   "its pause is over", "its lease ends, unnoticed", "dies",
      "joins again"};
  return names[move.kind];
}

static void fail(struct world *world, const char *what, int64_t round) {
  if (!world->failure[0]) snprintf(world->failure, sizeof world->failure, "%.200s: round %" PRId64, what, round);
}

/* ---- what must hold ------------------------------------------------------------------------------------------- */

static void check_joined(struct world *world, struct world_node *node) {
  const struct leased_update *update = &node->update;
  const struct leased_world *joined = update->world;
  world->joins++;
  if (update->world_size < MIN || update->world_size > MAX) fail(world, "too few or too many", update->round);
  if (update->rank < 0 || update->rank >= update->world_size) fail(world, "no such rank", update->round);
  if (update->round <= node->last_round) fail(world, "a round that is not after the last", update->round);
  node->last_round = update->round;
  if (update->round >= WORLD_ROUNDS) return;
  const bool known = world->rounds[update->round].count > 0;
  if (known && world->rounds[update->round].count != joined->count) fail(world, "two worlds", update->round);
  for (size_t i = 0; i < joined->count && i < WORLD_NODES + 2; i++) {
    if (known && world->rounds[update->round].leases[i] != joined->members[i].lease)
      fail(world, "two worlds", update->round);
    world->rounds[update->round].leases[i] = joined->members[i].lease;
  }
  world->rounds[update->round].count = joined->count;
}

/* The world in etcd is written once for each round, and rounds go up. */
static void check_written(struct world *world, const struct leased_update *update) {
  struct leased_world written;
  for (size_t i = 0; i < update->txn.put_count; i++) {
    if (strcmp(update->txn.puts[i].key, LEASED_WORLD) != 0) continue;
    if (leased_world_read(update->txn.puts[i].value, &written, NULL) < 0) abort();
    if (written.round <= world->last_world) fail(world, "a round is written twice", written.round);
    world->last_world = written.round;
    leased_world_free(&written);
  }
}

/* ---- moves ---------------------------------------------------------------------------------------------------- */

static void step(struct world *world, struct world_node *node, struct leased_event *event) {
  const unsigned ends = ENGINE_NEWS_SOMEONE_WAITS | ENGINE_NEWS_PARTICIPANT_LEFT | ENGINE_NEWS_PARTICIPANT_DIED |
                        ENGINE_NEWS_EVICTED | ENGINE_NEWS_FAILED;
  rdzv_error error = {0};
  event->now = (struct moment){node->now, node->now * 1000};
  if (leased_step(&node->machine, event, &node->update, &error) < 0) fail(world, error.message, 0);
  if (node->update.news & ENGINE_NEWS_JOINED) check_joined(world, node);
  if (node->update.news & ends) node->told = true;
  node->done = false;
}

/* A grant touches nothing that another node can see, and what others do does not change it: it is done at once. */
static void feed(struct world *world, struct world_node *node, struct leased_event *event) {
  step(world, node, event);
  while (node->update.request == LEASED_DO_GRANT) {
    model_answer(&world->model, &node->update, &node->answer);
    struct leased_event granted = node->answer.event;
    step(world, node, &granted);
  }
  if (node->update.request != LEASED_DO_WATCH || node->update.watch.id == node->watch_id) return;
  node->watch_id = node->update.watch.id;
  node->watch = node->update.watch;
  node->watch_pos = 0;
}

static void join(struct world *world, struct world_node *node) {
  struct leased_event event = {.kind = LEASED_EV_ASK_JOIN, .master_addr = "m", .master_port = 1};
  node->told = false;
  feed(world, node, &event);
}

static bool is_request(const struct world_node *node) {
  const enum leased_request request = node->update.request;
  return request >= LEASED_DO_GRANT && request <= LEASED_DO_READ;
}

static size_t next_change(const struct world *world, const struct world_node *node) {
  size_t at = node->watch_pos;
  while (at < world->model.change_count && !model_is_watched(&world->model, &node->watch, at)) at++;
  return at;
}

static bool has_lease(const struct world *world, int64_t id) {
  for (int i = 0; i < MODEL_LEASES; i++)
    if (id && world->model.leases[i].id == id) return true;
  return false;
}

static bool can(const struct world *world, const struct world_node *node, enum move_kind kind) {
  const bool asks = node->alive && is_request(node), waits = node->alive && node->update.request == LEASED_DO_WATCH;
  switch (kind) {
    case MOVE_DO: return asks && !node->done;
    case MOVE_TAKE: return asks && node->done;
    case MOVE_LOSE_BEFORE: return asks && !node->done && world->faults > 0;
    case MOVE_LOSE_AFTER: return asks && node->done && world->faults > 0;
    case MOVE_HEAR: return waits && next_change(world, node) < world->model.change_count;
    case MOVE_WAKE: return node->alive && node->update.request == LEASED_DO_PAUSE;
    case MOVE_EXPIRE: return node->alive && world->faults > 0 && has_lease(world, node->machine.lease);
    case MOVE_DIE: return node->alive && world->faults > 0;
    case MOVE_REJOIN: return waits && node->told && node->last_round < LAST_ROUND;
  }
  return false;
}

size_t world_moves(const struct world *world, struct move moves[64]) {
  size_t count = 0;
  for (int i = 0; i < WORLD_NODES; i++)
    for (enum move_kind kind = MOVE_DO; kind <= MOVE_REJOIN; kind++)
      if (can(world, &world->nodes[i], kind)) moves[count++] = (struct move){(uint8_t)i, (uint8_t)kind};
  return count;
}

static void lose(struct world *world, struct world_node *node) {
  const rdzv_error error = {.code = RDZV_E_OUTCOME_UNKNOWN, .message = "lost"};
  struct leased_event event = {.kind = LEASED_EV_ERROR, .error = &error};
  world->faults--;
  feed(world, node, &event);
}

static void do_request(struct world *world, struct world_node *node) {
  const bool completes = node->machine.under_way == LEASED_STEP_COMPLETE;
  if (world->unfenced && completes) node->update.txn.compare_count = 0;
  model_answer(&world->model, &node->update, &node->answer);
  node->done = true;
  if (node->answer.event.kind == LEASED_EV_DONE) check_written(world, &node->update);
}

static void hear(struct world *world, struct world_node *node) {
  struct leased_kv kvs[8];
  struct leased_event event = {.kind = LEASED_EV_CHANGED, .kvs = kvs};
  const int64_t revision = world->model.changes[next_change(world, node)].mod;
  for (size_t i = next_change(world, node); i < world->model.change_count && event.kv_count < 8; i++) {
    if (world->model.changes[i].mod != revision) break;
    node->watch_pos = i + 1;
    if (model_is_watched(&world->model, &node->watch, i)) kvs[event.kv_count++] = world->model.changes[i];
  }
  feed(world, node, &event);
}

void world_do(struct world *world, struct move move) {
  struct world_node *node = &world->nodes[move.node];
  struct leased_event event = {.kind = LEASED_EV_TIMER};
  switch ((enum move_kind)move.kind) {
    case MOVE_DO: do_request(world, node); break;
    case MOVE_TAKE:
      event = node->answer.event;
      if (event.kv_count) event.kvs = node->answer.found;
      feed(world, node, &event);
      break;
    case MOVE_LOSE_BEFORE:
    case MOVE_LOSE_AFTER: lose(world, node); break;
    case MOVE_HEAR: hear(world, node); break;
    case MOVE_WAKE:
      node->now = node->update.until_ms;
      feed(world, node, &event);
      break;
    case MOVE_EXPIRE:
      world->faults--;
      model_end_lease(&world->model, node->machine.lease);
      break;
    case MOVE_DIE:
      world->faults--;
      node->alive = false;
      model_end_lease(&world->model, node->machine.lease);
      break;
    case MOVE_REJOIN: join(world, node); break;
  }
}

static bool is_there(const struct world *world, enum world_root root) {
  size_t completing = 0, listening = 0;
  for (int i = 0; i < WORLD_NODES; i++) {
    const struct world_node *node = &world->nodes[i];
    completing += node->machine.under_way == LEASED_STEP_COMPLETE && !node->done;
    listening += node->update.request == LEASED_DO_WATCH;
  }
  if (root == ROOT_COMPLETING) return completing == 1 && listening == WORLD_NODES - 1;
  return root == ROOT_NOTHING || world->joins >= MIN;
}

/* What goes well goes on, the last node's first, until the root is reached. The one that leads hears last. */
static void advance(struct world *world, enum world_root root) {
  struct move moves[64];
  while (!is_there(world, root)) {
    size_t count = world_moves(world, moves), best = count;
    for (size_t i = 0; i < count; i++) {
      const bool good = moves[i].kind == MOVE_DO || moves[i].kind == MOVE_TAKE || moves[i].kind == MOVE_HEAR;
      const bool holds = world->nodes[moves[i].node].machine.under_way == LEASED_STEP_COMPLETE && root != ROOT_IN;
      const bool lone = world->nodes[moves[i].node].machine.leads && moves[i].kind == MOVE_HEAR && best < count;
      if (good && !holds && !lone) best = i;
    }
    if (best == count) abort();
    world_do(world, moves[best]);
  }
}

struct world *world_new(enum world_root root, bool unfenced, int faults) {
  struct world *world = calloc(1, sizeof *world);
  if (!world) abort();
  world->model.revision = 1;
  world->unfenced = unfenced;
  world->faults = faults;
  world->last_world = -1;
  for (int i = 0; i < WORLD_NODES; i++) {
    struct world_node *node = &world->nodes[i];
    struct leased_config config = {.node = {addrs[i], 1, 0}, .lease_ms = FOREVER, .seed = (uint64_t)i + 1};
    config.settings = RENDEZVOUS_SETTINGS_DEFAULT;
    config.settings.min_nodes = MIN;
    config.settings.max_nodes = MAX;
    config.settings.last_call_timeout = 0;
    config.settings.join_timeout = FOREVER;
    node->alive = true;
    node->last_round = -1;
    leased_init(&node->machine, &config);
    join(world, node);
  }
  advance(world, root);
  world->joins = 0;
  return world;
}

/* ---- digests -------------------------------------------------------------------------------------------------- */

static void mix(uint64_t *hash, int64_t number) {
  *hash = (*hash ^ (uint64_t)number) * UINT64_C(0x100000001b3);
  *hash ^= *hash >> 29;
}

static void mix_text(uint64_t *hash, const char *text) {
  for (; text && *text; text++) mix(hash, *text);
  mix(hash, -1);
}

static void mix_kv(uint64_t *hash, const struct leased_kv *kv) {
  mix_text(hash, kv->key);
  mix_text(hash, kv->value);
  mix(hash, kv->create), mix(hash, kv->mod), mix(hash, kv->lease), mix(hash, kv->deleted);
}

static void mix_machine(uint64_t *hash, const struct leased *m) {
  const int64_t numbers[] = {m->wish,
                             m->answered,
                             m->under_way,
                             m->back_off_ms > m->now.mono_ms,
                             m->lease,
                             m->dropped,
                             m->run_lease,
                             m->phase,
                             m->placed,
                             m->at,
                             m->born,
                             m->marked,
                             m->first,
                             m->world_mod,
                             m->world.round,
                             m->closed,
                             m->want,
                             m->board_seen,
                             m->synced,
                             m->nodes_seen,
                             m->older,
                             m->leads,
                             (int64_t)m->watches,
                             m->watches_all,
                             m->spare,
                             m->told_want,
                             m->trouble.code};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) mix(hash, numbers[i]);
  for (size_t i = 0; i < m->gone_count; i++) mix(hash, m->gone[i]);
  for (size_t i = 0; i < m->seat_count; i++) mix(hash, m->seats[i].lease), mix(hash, m->seats[i].round);
  for (size_t i = 0; i < m->world.count; i++) mix(hash, m->world.members[i].gone != 0);
}

uint64_t world_digest(const struct world *world) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  mix(&hash, world->faults), mix(&hash, world->model.revision), mix(&hash, world->last_world);
  for (size_t i = 0; i < world->model.key_count; i++) mix_kv(&hash, &world->model.keys[i]);
  for (int i = 0; i < MODEL_LEASES; i++) mix(&hash, world->model.leases[i].id);
  for (int i = 0; i < WORLD_NODES; i++) {
    const struct world_node *node = &world->nodes[i];
    mix(&hash, node->alive), mix(&hash, node->told), mix(&hash, node->done), mix(&hash, node->update.request);
    mix(&hash, (int64_t)(node->update.request == LEASED_DO_WATCH ? next_change(world, node) : 0));
    mix(&hash, node->last_round);
    if (node->alive) mix_machine(&hash, &node->machine);
    if (!node->done) continue;
    mix(&hash, node->answer.event.kind), mix(&hash, node->answer.event.revision), mix(&hash, node->answer.event.count);
    for (size_t k = 0; k < node->answer.event.kv_count; k++) mix_kv(&hash, &node->answer.found[k]);
  }
  return hash;
}
