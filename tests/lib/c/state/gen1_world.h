/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nodes of the first-generation rendezvous, and an etcd that is a few variables, on a virtual clock. Each node has one
 * request under way; requests are carried out one after the other, in the order of the nodes or, with a seed, in any.
 */
#ifndef RDZV_TESTS_GEN1_WORLD_H
#define RDZV_TESTS_GEN1_WORLD_H

#include "state/gen1/machine.h"
#include "unit.h"

enum { MAX_NODES = 16, MAX_LEASES = 64, LEASE_MS = GEN1_TTL_KEEP_ALIVE * 1000, LONGEST_WATCH_MS = 10000 };

/* What happens to a node's next request of some kind. */
enum fault { NO_FAULT, LOST, DONE_UNHEARD, REFUSED };

struct node {
  struct gen1_node machine;
  struct gen1_update update;
  bool exists, dead;
  bool joined, closed, is_closed, evicted, someone_waits, failed, has_lease;
  char round[24], died[512];
  int64_t rank, world_size, joined_at;
  char name[8];
  struct summary warning;
  rdzv_error error;
  enum gen1_request fault_at;
  enum fault fault;
  int requests;
};

struct lease {
  char key[512], round[24];
  int64_t expires; /* INT64_MAX: its node is alive */
  int node;
};

struct world {
  int64_t now;
  uint64_t index;                     /* etcd's */
  char *active;                       /* NULL: there is none */
  int64_t expires;                    /* of active */
  uint64_t active_index, whole_index; /* of the last change */
  int counter, dirs;
  struct lease leases[MAX_LEASES];
  size_t lease_count;
  struct node nodes[MAX_NODES];
  struct gen1_settings settings;
  uint64_t random; /* 0: in order */
};

static inline void lease_key(void *argument, const char *round, int64_t rank, char out[512]) {
  (void)argument;
  snprintf(out, 512, "/rdzv/v_%s/rank_%d", round, (int)rank);
}

static inline struct world world_of(int64_t min, int64_t max) {
  return (struct world){
      .now = 1000,
      .index = 10,
      .expires = INT64_MAX,
      .settings = {min, max, .join_timeout = 60000, .last_call_timeout = 3000, .close_timeout = 5000}};
}

/* ---- etcd ----------------------------------------------------------------------------------------------------- */

static inline void write_active(struct world *world, const char *text, int64_t ttl) {
  char *copy = text ? strdup(text) : NULL;
  free(world->active);
  world->active = copy;
  world->expires = text && ttl > 0 ? world->now + ttl * 1000 : INT64_MAX;
  world->active_index = world->whole_index = ++world->index;
}

static inline void expire(struct world *world) {
  if (world->active && world->now >= world->expires) write_active(world, NULL, 0);
  for (size_t i = 0; i < world->lease_count;) {
    if (world->now < world->leases[i].expires) {
      i++;
      continue;
    }
    world->leases[i] = world->leases[--world->lease_count];
    world->whole_index = ++world->index;
  }
}

static inline void drop_leases(struct world *world, int node, int64_t at) {
  for (size_t i = 0; i < world->lease_count; i++)
    if (world->leases[i].node == node && world->leases[i].expires == INT64_MAX) world->leases[i].expires = at;
  world->nodes[node].has_lease = false;
}

static inline void put_lease(struct world *world, int node, const struct gen1_update *update) {
  struct lease *lease = &world->leases[world->lease_count++];
  assert_true(world->lease_count < MAX_LEASES);
  lease_key(NULL, update->round, update->rank, lease->key);
  snprintf(lease->round, sizeof lease->round, "%s", update->round);
  lease->expires = INT64_MAX;
  lease->node = node;
  world->nodes[node].has_lease = true;
  world->whole_index = ++world->index;
}

/* etcd is started again, without its data, and counts from 1. */
static inline void wipe(struct world *world) {
  write_active(world, NULL, 0);
  world->lease_count = 0;
  world->counter = 0;
  world->index = world->active_index = world->whole_index = 1;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

static inline void take_update(struct world *world, int at) {
  struct node *node = &world->nodes[at];
  const struct gen1_update *update = &node->update;
  if (update->happened & GEN1_HAPPENED_JOINED) {
    node->joined = true;
    node->joined_at = world->now;
    snprintf(node->round, sizeof node->round, "%s", update->round);
    node->rank = update->rank;
    node->world_size = update->world_size;
  }
  if (update->happened & GEN1_HAPPENED_CLOSED) node->closed = true;
  if (update->happened & GEN1_HAPPENED_IS_CLOSED) node->is_closed = true;
  if (update->happened & GEN1_HAPPENED_EVICTED) node->evicted = true;
  if (update->happened & GEN1_HAPPENED_SOMEONE_WAITS) node->someone_waits = true;
  if (update->happened & GEN1_HAPPENED_PARTICIPANT_DIED) snprintf(node->died, sizeof node->died, "%s", update->who);
  if (update->happened & GEN1_HAPPENED_LEASE_OVER) drop_leases(world, at, world->now);
  if (update->happened & GEN1_HAPPENED_WARNING) node->warning = update->warning;
  if (update->happened & GEN1_HAPPENED_FAILED) {
    node->failed = true;
    node->error = update->error;
  }
}

static inline void step(struct world *world, int at, struct gen1_event event) {
  struct node *node = &world->nodes[at];
  rdzv_error error = {0};
  event.now_ms = world->now;
  const int result = gen1_step(&node->machine, &event, &node->update, &error);
  if (result < 0) fail_msg("node %d: %s", at, error.message);
  if (node->update.request == GEN1_DO_WATCH) assert_true(node->update.until_ms <= world->now + LONGEST_WATCH_MS);
  take_update(world, at);
}

static inline void add_node(struct world *world, int at) {
  struct node *node = &world->nodes[at];
  assert_false(node->exists);
  node->exists = true;
  struct gen1_settings settings = world->settings;
  snprintf(node->name, sizeof node->name, "n%d", at);
  settings.name = node->name;
  gen1_node_init(&node->machine, &settings, (uint64_t)at + 1, lease_key, NULL);
}

/* A member that joins again lets its lease go first, as the handler has to. */
static inline void join(struct world *world, int at) {
  if (!world->nodes[at].exists) add_node(world, at);
  world->nodes[at].joined = world->nodes[at].failed = world->nodes[at].someone_waits = world->nodes[at].evicted = false;
  drop_leases(world, at, world->now);
  step(world, at, (struct gen1_event){.kind = GEN1_EV_ASK_JOIN});
}

static inline void ask_close(struct world *world, int at) {
  if (!world->nodes[at].exists) add_node(world, at);
  step(world, at, (struct gen1_event){.kind = GEN1_EV_ASK_CLOSE});
}

static inline void die(struct world *world, int at) {
  world->nodes[at].dead = true;
  drop_leases(world, at, world->now + LEASE_MS);
}

static inline void break_next(struct world *world, int at, enum gen1_request request, enum fault fault) {
  world->nodes[at].fault_at = request;
  world->nodes[at].fault = fault;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static inline struct gen1_event swap_active(struct world *world, const struct gen1_update *update) {
  if (!world->active || strcmp(world->active, update->expected) != 0)
    return (struct gen1_event){.kind = GEN1_EV_REFUSED};
  write_active(world, update->request == GEN1_DO_DROP ? NULL : update->text, update->ttl);
  return (struct gen1_event){.kind = GEN1_EV_DONE, .index = world->index};
}

static inline struct gen1_event carry_out(struct world *world, int at, const char **keys, char round[24]) {
  const struct gen1_update *update = &world->nodes[at].update;
  struct gen1_event event = {.kind = GEN1_EV_DONE, .index = world->index};
  switch (update->request) {
    case GEN1_DO_READ: return (struct gen1_event){.kind = GEN1_EV_STATE, .text = world->active, .index = world->index};
    case GEN1_DO_CREATE:
      if (world->active) return (struct gen1_event){.kind = GEN1_EV_REFUSED};
      write_active(world, update->text, update->ttl);
      event.index = world->index;
      return event;
    case GEN1_DO_COUNT:
      snprintf(round, 24, "%d", ++world->counter);
      event.round = round;
      return event;
    case GEN1_DO_MAKE_DIR: world->dirs++; return event;
    case GEN1_DO_SWAP:
    case GEN1_DO_DROP: return swap_active(world, update);
    case GEN1_DO_LEASE: put_lease(world, at, update); return event;
    case GEN1_DO_LIST:
      event = (struct gen1_event){.kind = GEN1_EV_LISTED, .keys = keys};
      for (size_t i = 0; i < world->lease_count; i++)
        if (strcmp(world->leases[i].round, update->round) == 0) keys[event.key_count++] = world->leases[i].key;
      return event;
    default: fail_msg("no such request"); return event;
  }
}

static inline bool is_due(const struct world *world, const struct node *node) {
  const struct gen1_update *update = &node->update;
  if (!node->exists || node->dead || update->request == GEN1_DO_IDLE) return false;
  if (update->request == GEN1_DO_PAUSE) return world->now >= update->until_ms;
  if (update->request != GEN1_DO_WATCH) return true;
  const uint64_t changed = update->whole ? world->whole_index : world->active_index;
  return changed >= update->from_index || world->now >= update->until_ms;
}

static inline struct gen1_event with_fault(struct world *world, int at, const char **keys, char round[24]) {
  static const rdzv_error lost = {.code = RDZV_E_CONNECTION, .message = "lost"},
                          unheard = {.code = RDZV_E_OUTCOME_UNKNOWN, .message = "unheard"};
  struct node *node = &world->nodes[at];
  const enum fault fault = node->fault;
  if (fault == NO_FAULT || node->update.request != node->fault_at) return carry_out(world, at, keys, round);
  node->fault = NO_FAULT;
  if (fault == REFUSED) return (struct gen1_event){.kind = GEN1_EV_REFUSED};
  if (fault == DONE_UNHEARD) carry_out(world, at, keys, round);
  return (struct gen1_event){.kind = GEN1_EV_ERROR, .error = fault == LOST ? &lost : &unheard};
}

static inline void serve_node(struct world *world, int at) {
  const char *keys[MAX_LEASES];
  char round[24];
  struct node *node = &world->nodes[at];
  const bool waits = node->update.request == GEN1_DO_WATCH || node->update.request == GEN1_DO_PAUSE;
  node->requests += !waits;
  step(world, at, waits ? (struct gen1_event){.kind = GEN1_EV_TIMER} : with_fault(world, at, keys, round));
}

static inline int pick_due(struct world *world) {
  int due[MAX_NODES], count = 0;
  for (int i = 0; i < MAX_NODES; i++)
    if (is_due(world, &world->nodes[i])) due[count++] = i;
  if (count == 0) return -1;
  if (!world->random) return due[0];
  world->random = world->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return due[(world->random >> 33) % (uint64_t)count];
}

static inline int64_t next_time(const struct world *world) {
  int64_t next = world->expires;
  for (size_t i = 0; i < world->lease_count; i++)
    if (world->leases[i].expires < next) next = world->leases[i].expires;
  for (int i = 0; i < MAX_NODES; i++) {
    const struct node *node = &world->nodes[i];
    const bool waits = node->update.request == GEN1_DO_WATCH || node->update.request == GEN1_DO_PAUSE;
    if (node->exists && !node->dead && waits && node->update.until_ms < next) next = node->update.until_ms;
  }
  return next;
}

/* Goes on for so long. With no work for that long in one moment, they spin. */
static inline void run_for(struct world *world, int64_t ms) {
  const int64_t end = world->now + ms;
  for (int spins = 0; world->now <= end;) {
    expire(world);
    const int at = pick_due(world);
    if (at >= 0) {
      serve_node(world, at);
      assert_true(++spins < 100000);
      continue;
    }
    const int64_t next = next_time(world);
    if (next > end) break;
    if (next > world->now) spins = 0;
    world->now = next > world->now ? next : world->now + 1;
  }
  world->now = end;
}

static inline void end_world(struct world *world) {
  for (int i = 0; i < MAX_NODES; i++)
    if (world->nodes[i].exists) gen1_node_free(&world->nodes[i].machine);
  free(world->active);
}

/* These are in one round, of them alone, with ranks from 0 on. */
static inline void assert_round_(struct world *world, const char *who, const char *file, int line) {
  const size_t count = strlen(who);
  bool taken[MAX_NODES] = {false};
  const struct node *first = &world->nodes[who[0] - '0'];
  for (size_t i = 0; i < count; i++) {
    const struct node *node = &world->nodes[who[i] - '0'];
    const bool fine = node->joined && strcmp(node->round, first->round) == 0 && node->world_size == (int64_t)count &&
                      node->rank >= 0 && node->rank < (int64_t)count && !taken[node->rank];
    if (!fine) {
      print_error("node %c: joined %d, round %s, rank %d of %d; %s; state %s\n", who[i], node->joined, node->round,
                  (int)node->rank, (int)node->world_size, node->error.message, world->active ? world->active : "none");
      _fail(file, line);
    }
    taken[node->rank] = true;
  }
}
#define assert_round(world, who) assert_round_((world), (who), __FILE__, __LINE__)

#endif
