/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rendezvous made for etcd v3 with many nodes on a virtual clock, over a model of etcd with latency, lost requests,
 * lost answers, watches that are late, repeat themselves and break, pauses longer than a lease, deaths, and the loss of
 * all data; all from a seed. After every step: of one round there is one world, with ranks 0 … n-1, between min and max
 * nodes; for nobody do rounds go back; and soon after faults stop all who are alive are in one round.
 *
 *   sim_leased --seeds A:B     exit 1 if one fails, with the command that replays it
 *   sim_leased --seed S        one, told as a story
 */
#include "model.h"
#include "seeded.h"

enum { NODES = 12, FAULTS_MS = 90000, SETTLE_MS = 120000, LOST_MS = 1500, ROUNDS = 4096, LEASE_MS = 3000 };

enum stage { AT_HOME, ON_THE_WAY, COMING_BACK, WATCHING, PAUSING };

struct node {
  bool alive, member, leaves;
  struct leased machine;
  struct leased_update update;
  struct model_answer answer;
  char addr[8];
  enum stage stage;
  int64_t at, paused_until, rejoin_at, last_round;
  bool lost;
  uint64_t watch_id;
  size_t watch_pos;
  struct leased_watch watch;
  uint64_t life; /* of etcd, in which the watch began */
  int64_t round;
};

struct sim {
  struct seeded seeded;
  struct model model;
  struct pace dice;
  struct rendezvous_settings settings;
  struct node nodes[NODES];
  int64_t latency;
  uint64_t life;
  struct {
    int64_t leases[MODEL_KEYS]; /* also of nodes that died and are not missed yet */
    size_t count;
    uint64_t life;
  } worlds[ROUNDS];
};

static bool faulty(const struct sim *sim) { return sim->model.now < FAULTS_MS; }
static int64_t dice(struct sim *sim, int64_t sides) { return pace_jitter(&sim->dice, sides); }

#define tell(sim, node, ...) seeded_tell(&(sim)->seeded, (sim)->model.now, (node) - (sim)->nodes, __VA_ARGS__)
#define fail(sim, ...) seeded_fail(&(sim)->seeded, (sim)->model.now, __VA_ARGS__)

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

static void feed(struct sim *sim, struct node *node, struct leased_event *event);

static void ask(struct sim *sim, struct node *node, enum leased_event_kind what) {
  struct leased_event event = {.kind = what, .master_addr = node->addr, .master_port = 1};
  feed(sim, node, &event);
}

static void join(struct sim *sim, struct node *node) {
  node->member = false;
  node->rejoin_at = 0;
  tell(sim, node, "asks to join");
  ask(sim, node, LEASED_EV_ASK_JOIN);
}

static void be_born(struct sim *sim, struct node *node) {
  memset(node, 0, sizeof *node);
  snprintf(node->addr, sizeof node->addr, "n%d", (int)(node - sim->nodes));
  node->alive = true;
  node->last_round = -1;
  const struct leased_config config = {.node = {node->addr, 1 + dice(sim, 30000), 0},
                                       .settings = sim->settings,
                                       .lease_ms = LEASE_MS,
                                       .seed = pace_random(&sim->dice)};
  leased_init(&node->machine, &config);
  tell(sim, node, "is born");
  join(sim, node);
}

static void die(struct sim *sim, struct node *node) {
  tell(sim, node, "dies");
  leased_free(&node->machine);
  node->alive = false;
}

static void check_joined(struct sim *sim, struct node *node) {
  const struct leased_update *update = &node->update;
  const struct leased_world *world = update->world;
  const int me = (int)(node - sim->nodes);
  if (update->world_size < sim->settings.min_nodes || update->world_size > sim->settings.max_nodes)
    fail(sim, "round %" PRId64 " has %" PRId64 " nodes", update->round, update->world_size);
  if (update->rank < 0 || update->rank >= update->world_size || world->members[update->rank].lease == 0)
    fail(sim, "n%d is rank %" PRId64 " of %" PRId64, me, update->rank, update->world_size);
  if (update->round <= node->last_round)
    fail(sim, "round %" PRId64 " comes after %" PRId64 " for n%d", update->round, node->last_round, me);
  node->last_round = update->round;
  const bool known = sim->worlds[update->round].count > 0 && sim->worlds[update->round].life == sim->life;
  for (size_t i = 0; i < world->count && !sim->seeded.failed; i++) {
    if (known && (sim->worlds[update->round].count != world->count ||
                  sim->worlds[update->round].leases[i] != world->members[i].lease))
      fail(sim, "n%d has another world in round %" PRId64 " than others", me, update->round);
    sim->worlds[update->round].leases[i] = world->members[i].lease;
  }
  sim->worlds[update->round].count = world->count;
  sim->worlds[update->round].life = sim->life;
}

/* A participant that waits for the next round has left this one: both are told. */
static void check_waits(struct sim *sim, const struct node *node) {
  const struct leased *machine = &node->machine;
  for (size_t i = 0; i < sim->model.change_count; i++) {
    const struct leased_kv *kv = &sim->model.changes[i];
    if (strcmp(kv->key, LEASED_WANT) != 0 || kv->deleted || kv->mod != machine->told_want) continue;
    const int64_t rank = leased_world_rank(&machine->world, kv->lease);
    if (rank >= 0 && !machine->world.members[rank].gone)
      fail(sim, "n%d hears that rank %" PRId64 " waits, and not that it left", (int)(node - sim->nodes), rank);
  }
}

static void hear(struct sim *sim, struct node *node) {
  const unsigned news = node->update.news;
  if (news & ENGINE_NEWS_SOMEONE_WAITS) check_waits(sim, node);
  if (news & ENGINE_NEWS_JOINED) {
    node->member = true;
    node->round = node->update.round;
    tell(sim, node, "is rank %" PRId64 " of %" PRId64 " in round %" PRId64, node->update.rank, node->update.world_size,
         node->round);
    check_joined(sim, node);
  }
  if (news & ENGINE_NEWS_LEFT) node->rejoin_at = sim->model.now + 1 + dice(sim, 3000);
  if (!(news & (ENGINE_NEWS_SOMEONE_WAITS | ENGINE_NEWS_PARTICIPANT_LEFT | ENGINE_NEWS_PARTICIPANT_DIED |
                ENGINE_NEWS_EVICTED | ENGINE_NEWS_FAILED)))
    return;
  tell(sim, node, "hears %x%s%s", news, news & ENGINE_NEWS_FAILED ? ": " : "",
       news & ENGINE_NEWS_FAILED ? node->update.error.message : "");
  if (!node->rejoin_at) node->rejoin_at = sim->model.now + 1 + dice(sim, 50);
}

/* What the machine wants is on its way. */
static void send(struct sim *sim, struct node *node) {
  const enum leased_request request = node->update.request;
  if (request == LEASED_DO_CONTINUE) return;
  node->lost = faulty(sim) && dice(sim, 100) < 3;
  node->stage = request == LEASED_DO_IDLE    ? AT_HOME
                : request == LEASED_DO_PAUSE ? PAUSING
                : request == LEASED_DO_WATCH ? WATCHING
                                             : ON_THE_WAY;
  node->at = sim->model.now + 1 + dice(sim, sim->latency);
  if (request == LEASED_DO_PAUSE || request == LEASED_DO_WATCH)
    node->at = node->update.until_ms > sim->model.now ? node->update.until_ms : sim->model.now + 1;
  if (request != LEASED_DO_WATCH || node->update.watch.id == node->watch_id) return;
  node->watch_id = node->update.watch.id;
  node->watch = node->update.watch;
  node->watch_pos = 0;
  node->life = sim->life;
}

static void feed(struct sim *sim, struct node *node, struct leased_event *event) {
  rdzv_error error = {0};
  const struct leased_update before = node->update;
  event->now = (struct moment){sim->model.now, sim->model.now * 1000};
  if (leased_step(&node->machine, event, &node->update, &error) < 0) fail(sim, "a step fails: %s", error.message);
  if (node->update.request == LEASED_DO_CONTINUE) {
    const unsigned news = node->update.news;
    node->update = before;
    node->update.news = news;
    return;
  }
  hear(sim, node);
  send(sim, node);
}

/* ---- watches -------------------------------------------------------------------------------------------------- */

/* The place of the first change that the watch has not told; the end: none. */
static size_t next_change(const struct sim *sim, const struct node *node) {
  size_t at = node->watch_pos;
  while (at < sim->model.change_count && !model_is_watched(&sim->model, &node->watch, at)) at++;
  return at;
}

static bool is_told(const struct sim *sim, const struct node *node) {
  return node->life != sim->life ? false : next_change(sim, node) < sim->model.change_count;
}

/* Each of the two ranges is told in order, but not one with the other: the board may be ahead. It is told again later.
 */
static bool tell_board_first(struct sim *sim, struct node *node) {
  struct leased_kv kvs[64];
  struct leased_event event = {.kind = LEASED_EV_CHANGED, .kvs = kvs};
  if (!faulty(sim) || node->watch.all || dice(sim, 6) > 0) return false;
  for (size_t i = next_change(sim, node); i < sim->model.change_count && event.kv_count < 64; i++)
    if (sim->model.changes[i].key[0] >= 'a' && model_is_watched(&sim->model, &node->watch, i))
      kvs[event.kv_count++] = sim->model.changes[i];
  if (event.kv_count > 0) feed(sim, node, &event);
  return event.kv_count > 0;
}

/* Some of what there is to tell, whole revisions. Now and then it repeats itself, or breaks. */
static void tell_changes(struct sim *sim, struct node *node) {
  struct leased_kv kvs[64];
  struct leased_event event = {.kind = LEASED_EV_CHANGED, .kvs = kvs};
  if (faulty(sim) && dice(sim, 100) < 2) {
    node->watch_id = 0;
    event.kind = LEASED_EV_WATCH_LOST;
    feed(sim, node, &event);
    return;
  }
  if (tell_board_first(sim, node)) return;
  if (faulty(sim) && dice(sim, 10) == 0 && node->watch_pos > 3) node->watch_pos -= (size_t)dice(sim, 4);
  const size_t most = 1 + (size_t)dice(sim, 8);
  for (size_t i = next_change(sim, node); i < sim->model.change_count; i++) {
    const struct leased_kv *kv = &sim->model.changes[i];
    const bool torn = event.kv_count > 0 && kvs[event.kv_count - 1].mod == kv->mod;
    if ((event.kv_count >= most && !torn) || event.kv_count == 64) break;
    node->watch_pos = i + 1;
    if (model_is_watched(&sim->model, &node->watch, i)) kvs[event.kv_count++] = *kv;
  }
  feed(sim, node, &event);
}

/* ---- what happens at its time --------------------------------------------------------------------------------- */

static void arrive(struct sim *sim, struct node *node) {
  const bool never = node->lost && dice(sim, 2) == 0;
  if (!never) model_answer(&sim->model, &node->update, &node->answer);
  node->stage = COMING_BACK;
  node->at = sim->model.now + 1 + dice(sim, sim->latency);
  if (node->lost) node->at = sim->model.now + LOST_MS;
}

static void get_answer(struct sim *sim, struct node *node) {
  const rdzv_error error = {.code = RDZV_E_OUTCOME_UNKNOWN, .message = "lost"};
  struct leased_event event = node->answer.event;
  if (event.kv_count) event.kvs = node->answer.found;
  if (node->lost) event = (struct leased_event){.kind = LEASED_EV_ERROR, .error = &error};
  feed(sim, node, &event);
}

static void tick(struct sim *sim, struct node *node) {
  const int64_t now = sim->model.now;
  struct leased_event timer = {.kind = LEASED_EV_TIMER};
  if (!node->alive || now < node->paused_until) return;
  if (node->rejoin_at && now >= node->rejoin_at) {
    if (dice(sim, 20) == 0 && faulty(sim) && !node->leaves) {
      node->rejoin_at = 0;
      node->member = false;
      tell(sim, node, "leaves");
      ask(sim, node, LEASED_EV_ASK_LEAVE);
    } else {
      join(sim, node);
    }
    return;
  }
  switch (node->stage) {
    case ON_THE_WAY:
      if (now >= node->at) arrive(sim, node);
      break;
    case COMING_BACK:
      if (now >= node->at) get_answer(sim, node);
      break;
    case WATCHING:
      if (is_told(sim, node) && (!faulty(sim) || dice(sim, 3) > 0))
        tell_changes(sim, node);
      else if (now >= node->at)
        feed(sim, node, &timer);
      break;
    case PAUSING:
      if (now >= node->at) feed(sim, node, &timer);
      break;
    case AT_HOME: break;
  }
}

static int64_t next_of(const struct sim *sim, const struct node *node) {
  int64_t next = node->stage == AT_HOME ? INT64_MAX : node->at;
  if (node->stage == WATCHING && is_told(sim, node)) next = sim->model.now + 1;
  if (node->rejoin_at && node->rejoin_at < next) next = node->rejoin_at;
  return next < node->paused_until ? node->paused_until : next;
}

/* ---- one run -------------------------------------------------------------------------------------------------- */

static void strike(struct sim *sim) {
  struct node *node = &sim->nodes[dice(sim, NODES)];
  const int64_t kind = dice(sim, 100);
  if (kind == 0 && sim->seeded.seed % 3 == 0) {
    model_lose_data(&sim->model);
    sim->life++;
    if (sim->seeded.story) printf("%10.3f  etcd loses its data\n", (double)sim->model.now / 1000);
  } else if (!node->alive) {
    be_born(sim, node);
  } else if (kind < 30) {
    die(sim, node);
  } else if (kind < 60) {
    node->paused_until = sim->model.now + dice(sim, INT64_C(3) * LEASE_MS);
  }
}

static bool all_in_one(const struct sim *sim) {
  const struct node *first = NULL;
  int64_t alive = 0, members = 0;
  for (int i = 0; i < NODES; i++) {
    const struct node *node = &sim->nodes[i];
    if (!node->alive) continue;
    alive++;
    if (!node->member || node->rejoin_at) continue;
    if (first && first->round != node->round) return false;
    first = node;
    members++;
  }
  const int64_t most = alive < sim->settings.max_nodes ? alive : sim->settings.max_nodes;
  if (alive < sim->settings.min_nodes) return true;
  return members == most && first && (int64_t)sim->worlds[first->round].count == most;
}

static void begin(struct sim *sim) {
  sim->life = 1;
  sim->model.revision = 1;
  sim->dice.random = sim->seeded.seed * UINT64_C(0x9e3779b97f4a7c15);
  sim->latency = 1 + dice(sim, 3) * 20;
  sim->settings = RENDEZVOUS_SETTINGS_DEFAULT;
  sim->settings.min_nodes = 1 + dice(sim, 4);
  sim->settings.max_nodes = sim->settings.min_nodes + dice(sim, NODES);
  sim->settings.last_call_timeout = dice(sim, 3) * 700;
  sim->settings.rank_order = (enum rank_order)dice(sim, 3);
  const int64_t count = sim->settings.min_nodes + dice(sim, NODES + 1 - sim->settings.min_nodes);
  for (int i = 0; i < count; i++) be_born(sim, &sim->nodes[i]);
}

/* For a story that ends badly: what everybody thinks, and what is there. */
static void tell_all(const struct sim *sim) {
  for (int i = 0; i < NODES; i++) {
    const struct leased *m = &sim->nodes[i].machine;
    if (sim->nodes[i].alive)
      tell(sim, &sim->nodes[i],
           "stage %d, request %d, wish %d, phase %d, at %" PRId64 ", world %" PRId64 " @%" PRId64 ", older %" PRId64
           ", leads %d, synced %d, spare %d, first %" PRId64 ", lease %" PRId64 ", seen %" PRId64 " %" PRId64,
           (int)sim->nodes[i].stage, (int)sim->nodes[i].update.request, (int)m->wish, (int)m->phase, m->at,
           m->world.round, m->world_mod, m->older, m->leads, m->synced, m->spare, m->first, m->lease, m->board_seen,
           m->nodes_seen);
  }
  for (size_t i = 0; i < sim->model.key_count; i++)
    printf("  %s @%" PRId64 ": %s\n", sim->model.keys[i].key, sim->model.keys[i].create, sim->model.keys[i].value);
}

static bool run(struct seeded seeded) {
  struct sim *sim = calloc(1, sizeof *sim);
  if (!sim) abort();
  sim->seeded = seeded;
  begin(sim);
  int64_t strike_at = 1000;
  bool done = false;
  while (!sim->seeded.failed && !done) {
    int64_t next = model_next_end(&sim->model);
    for (int i = 0; i < NODES; i++)
      if (sim->nodes[i].alive && next_of(sim, &sim->nodes[i]) < next) next = next_of(sim, &sim->nodes[i]);
    if (faulty(sim) && strike_at < next) next = strike_at;
    if (next > FAULTS_MS + SETTLE_MS) break;
    model_advance(&sim->model, next > sim->model.now ? next : sim->model.now);
    if (faulty(sim) && sim->model.now >= strike_at) {
      strike(sim);
      strike_at = sim->model.now + dice(sim, 4000);
    }
    for (int i = 0; i < NODES; i++) tick(sim, &sim->nodes[i]);
    done = sim->model.now > FAULTS_MS + 20000 && all_in_one(sim);
  }
  if (!sim->seeded.failed && !all_in_one(sim)) fail(sim, "faults stopped, and not all are in one round");
  const bool ok = !sim->seeded.failed;
  if (!ok && seeded.story) tell_all(sim);
  for (int i = 0; i < NODES; i++)
    if (sim->nodes[i].alive) leased_free(&sim->nodes[i].machine);
  model_free(&sim->model);
  free(sim);
  return ok;
}

int main(int argc, char **argv) { return seeded_main(argc, argv, "sim_leased", run); }
