/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first-generation rendezvous with many nodes on a virtual clock, over a model of etcd with latency, lost requests,
 * lost answers, pauses and deaths, all from a seed. After every step: of one round everybody has the same world and a
 * rank of its own, between min and max of them, nobody is in it twice, for nobody do rounds go back; and once faults
 * stop, all who are alive are in one round. Every fourth seed is calm: requests and answers are lost, often, but
 * nobody dies or pauses, and then the first round that gathers is the one that they are in.
 *
 *   sim_etcd --seeds A:B     exit 1 if one fails, with the command that replays it
 *   sim_etcd --seed S        one, told as a story
 */
#include "model.h"
#include "seeded.h"

#include <jansson.h>

enum { NODES = 12, FAULTS_MS = 120000, SETTLE_MS = 180000, RENEW_MS = 5000, LOST_MS = 4000, CALM_LOST_MS = 300 };

enum stage { AT_HOME, ON_THE_WAY, WATCHING, COMING_BACK, PAUSING };

struct node {
  bool alive, member, asks_again;
  struct gen1_node machine;
  struct gen1_update update;
  enum stage stage;
  int64_t at; /* when the stage is over */
  bool lost;  /* the answer is */
  struct answer answer;
  char round[24];
  int64_t rank, renew_at, paused_until, rejoin_at, last_round;
};

struct sim {
  struct seeded seeded;
  struct model model;
  struct pace dice;
  struct gen1_settings settings;
  struct node nodes[NODES];
  int64_t latency;
  bool calm;
  uint64_t seen;                           /* the index of the state that was checked last */
  int64_t gathered;                        /* rounds that began to gather */
  bool joined;                             /* somebody has */
  int64_t worlds[MODEL_VERSIONS];          /* 0: nobody has joined it */
  int owners[MODEL_VERSIONS][MODEL_RANKS]; /* 1 + who has that rank; 0: nobody */
};

static bool faulty(const struct sim *sim) { return sim->model.now < FAULTS_MS; }
static int64_t dice(struct sim *sim, int64_t sides) { return pace_jitter(&sim->dice, sides); }

#define tell(sim, node, ...) seeded_tell(&(sim)->seeded, (sim)->model.now, (node) - (sim)->nodes, __VA_ARGS__)
#define fail(sim, ...) seeded_fail(&(sim)->seeded, (sim)->model.now, __VA_ARGS__)

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

static void feed(struct sim *sim, struct node *node, struct gen1_event *event);

static void ask(struct sim *sim, struct node *node, enum gen1_event_kind what) {
  struct gen1_event event = {.kind = what};
  feed(sim, node, &event);
}

static void join(struct sim *sim, struct node *node) {
  if (node->member) model_drop_lease(&sim->model, node->round, node->rank);
  node->member = false;
  node->renew_at = node->rejoin_at = 0;
  tell(sim, node, "asks to join");
  ask(sim, node, GEN1_EV_ASK_JOIN);
}

static void be_born(struct sim *sim, struct node *node) {
  memset(node, 0, sizeof *node);
  node->alive = true;
  gen1_node_init(&node->machine, &sim->settings, pace_random(&sim->dice), model_key, NULL);
  tell(sim, node, "is born");
  join(sim, node);
}

static void end_node(struct node *node) {
  free((char *)node->answer.event.text);
  gen1_node_free(&node->machine);
  node->alive = false;
}

static void die(struct sim *sim, struct node *node) {
  tell(sim, node, "dies");
  end_node(node);
}

/* A node that joins twice is there under its nonce once. */
static void check_state(struct sim *sim) {
  struct gen1_state active;
  if (!sim->model.active || sim->seen == sim->model.active_index) return;
  sim->seen = sim->model.active_index;
  if (gen1_state_read(sim->model.active, &active, NULL) < 0) abort();
  const size_t joins = json_object_size(json_object_get(active.json, "rdzv_joins"));
  const bool gathers = active.status == GEN1_STATUS_JOINABLE || active.status == GEN1_STATUS_FROZEN;
  if (gathers && joins != active.participants)
    fail(sim, "of %zu participants %zu are nodes: %s", active.participants, joins, active.text);
  if (active.status == GEN1_STATUS_JOINABLE && active.participants == 0) sim->gathered++;
  gen1_state_free(&active);
}

static void check_joined(struct sim *sim, struct node *node) {
  const int64_t round = strtoll(node->update.round, NULL, 10), size = node->update.world_size;
  const int me = (int)(node - sim->nodes) + 1;
  if (size < sim->settings.min_nodes || size > sim->settings.max_nodes)
    fail(sim, "round %" PRId64 " has %" PRId64 " nodes", round, size);
  if (sim->worlds[round] && sim->worlds[round] != size)
    fail(sim, "n%d takes round %" PRId64 " for a world of %" PRId64 ", it has %" PRId64, me - 1, round, size,
         sim->worlds[round]);
  if (node->rank < 0 || node->rank >= size) fail(sim, "n%d is rank %" PRId64 " of %" PRId64, me - 1, node->rank, size);
  if (sim->owners[round][node->rank])
    fail(sim, "rank %" PRId64 " of round %" PRId64 " is given twice", node->rank, round);
  if (round <= node->last_round)
    fail(sim, "round %" PRId64 " comes after %" PRId64 " for n%d", round, node->last_round, me - 1);
  if (sim->calm && !sim->joined && sim->gathered != 1)
    fail(sim, "it took %" PRId64 " rounds, though nobody died", sim->gathered);
  sim->joined = true;
  sim->owners[round][node->rank] = me;
  sim->worlds[round] = size;
  node->last_round = round;
}

static void hear(struct sim *sim, struct node *node) {
  const unsigned happened = node->update.happened;
  if (happened & GEN1_HAPPENED_LEASE_OVER) node->renew_at = 0;
  if (happened & GEN1_HAPPENED_JOINED) {
    node->rank = node->update.rank;
    snprintf(node->round, sizeof node->round, "%s", node->update.round);
    node->member = true;
    tell(sim, node, "is rank %" PRId64 " of %" PRId64 " in round %s", node->rank, node->update.world_size, node->round);
    check_joined(sim, node);
  }
  if (happened &
      (GEN1_HAPPENED_SOMEONE_WAITS | GEN1_HAPPENED_PARTICIPANT_DIED | GEN1_HAPPENED_EVICTED | GEN1_HAPPENED_FAILED)) {
    tell(sim, node, "hears %x%s%s", happened, happened & GEN1_HAPPENED_FAILED ? ": " : "",
         happened & GEN1_HAPPENED_FAILED ? node->update.error.message : "");
    node->rejoin_at = sim->model.now + 1 + dice(sim, 50);
  }
}

/* What the machine wants is on its way. */
static void send(struct sim *sim, struct node *node) {
  node->lost = faulty(sim) && dice(sim, 100) < (sim->calm ? 20 : 3);
  node->stage = ON_THE_WAY;
  node->at = sim->model.now + 1 + dice(sim, sim->latency);
  if (node->update.request == GEN1_DO_IDLE) node->stage = AT_HOME;
  if (node->update.request == GEN1_DO_PAUSE) {
    node->stage = PAUSING;
    node->at = node->update.until_ms > sim->model.now ? node->update.until_ms : sim->model.now + 1;
  }
}

static void feed(struct sim *sim, struct node *node, struct gen1_event *event) {
  rdzv_error error = {0};
  event->now_ms = sim->model.now;
  if (gen1_step(&node->machine, event, &node->update, &error) < 0) fail(sim, "a step fails: %s", error.message);
  hear(sim, node);
  send(sim, node);
}

/* ---- what happens at its time --------------------------------------------------------------------------------- */

static bool watch_is_over(const struct sim *sim, const struct node *node) {
  const uint64_t last = node->update.whole ? sim->model.index : sim->model.active_index;
  return last >= node->update.from_index || sim->model.now >= node->update.until_ms;
}

static void come_back(struct sim *sim, struct node *node) {
  node->stage = COMING_BACK;
  node->at = sim->model.now + 1 + dice(sim, sim->latency);
}

/* The model may have another by the time that the node reads it. */
static void keep_text(struct node *node) {
  const char *text = node->lost ? NULL : node->answer.event.text;
  node->answer.event.text = text ? strdup(text) : NULL;
  if (text && !node->answer.event.text) abort();
}

/* At etcd. A request is lost before it is done, or its answer after. */
static void arrive(struct sim *sim, struct node *node) {
  const bool never = node->lost && dice(sim, 2) == 0;
  if (node->update.request == GEN1_DO_WATCH && !node->lost) {
    node->stage = WATCHING;
    node->at = node->update.until_ms;
    return;
  }
  if (!never) model_answer(&sim->model, &node->update, &node->answer);
  check_state(sim);
  if (!never && !node->lost && node->update.request == GEN1_DO_LEASE) node->renew_at = sim->model.now + RENEW_MS;
  keep_text(node);
  come_back(sim, node);
  if (node->lost) node->at = sim->model.now + (sim->calm ? CALM_LOST_MS : LOST_MS);
}

static void get_answer(struct sim *sim, struct node *node) {
  const rdzv_error error = {.code = RDZV_E_OUTCOME_UNKNOWN, .message = "lost"};
  struct gen1_event event = node->answer.event;
  if (node->lost) event = (struct gen1_event){.kind = GEN1_EV_ERROR, .error = &error};
  if (!node->lost && node->update.request == GEN1_DO_WATCH) event = (struct gen1_event){.kind = GEN1_EV_TIMER};
  char *text = (char *)node->answer.event.text;
  node->answer.event.text = NULL;
  feed(sim, node, &event);
  free(text);
}

static void act(struct sim *sim, struct node *node) {
  switch (node->stage) {
    case ON_THE_WAY: arrive(sim, node); break;
    case WATCHING: come_back(sim, node); break;
    case COMING_BACK: get_answer(sim, node); break;
    case PAUSING: {
      struct gen1_event event = {.kind = GEN1_EV_TIMER};
      feed(sim, node, &event);
      break;
    }
    case AT_HOME: break;
  }
}

static void tick(struct sim *sim, struct node *node) {
  const int64_t now = sim->model.now;
  if (!node->alive || now < node->paused_until) return;
  if (node->renew_at && now >= node->renew_at) {
    node->renew_at = model_renew(&sim->model, node->machine.round, node->machine.rank) ? now + RENEW_MS : 0;
  }
  if (node->rejoin_at && now >= node->rejoin_at && node->stage != ON_THE_WAY && node->stage != COMING_BACK)
    join(sim, node);
  else if (node->stage == WATCHING ? watch_is_over(sim, node) : node->stage != AT_HOME && now >= node->at)
    act(sim, node);
}

static int64_t next_of(const struct sim *sim, const struct node *node) {
  int64_t next = node->stage == AT_HOME ? INT64_MAX : node->at;
  if (node->stage == WATCHING && watch_is_over(sim, node)) next = sim->model.now;
  if (node->renew_at && node->renew_at < next) next = node->renew_at;
  const bool busy = node->stage == ON_THE_WAY || node->stage == COMING_BACK;
  if (node->rejoin_at && !busy && node->rejoin_at < next) next = node->rejoin_at;
  return next < node->paused_until ? node->paused_until : next;
}

/* ---- one run -------------------------------------------------------------------------------------------------- */

static void strike(struct sim *sim) {
  struct node *node = &sim->nodes[dice(sim, NODES)];
  const int64_t kind = dice(sim, 10);
  if (!node->alive)
    be_born(sim, node);
  else if (kind < 3)
    die(sim, node);
  else if (kind < 6)
    node->paused_until = sim->model.now + dice(sim, 20000);
}

static bool all_in_one(const struct sim *sim) {
  const struct node *first = NULL;
  int64_t alive = 0, members = 0;
  for (int i = 0; i < NODES; i++) {
    const struct node *node = &sim->nodes[i];
    if (!node->alive) continue;
    alive++;
    if (!node->member) continue;
    if (first && strcmp(first->round, node->round) != 0) return false;
    first = node;
    members++;
  }
  const int64_t most = alive < sim->settings.max_nodes ? alive : sim->settings.max_nodes;
  if (alive < sim->settings.min_nodes) return true;
  return members == most && first && sim->worlds[strtoll(first->round, NULL, 10)] == most;
}

static void begin(struct sim *sim) {
  const uint64_t seed = sim->seeded.seed;
  sim->calm = seed % 4 == 3;
  sim->dice.random = seed * UINT64_C(0x9e3779b97f4a7c15);
  sim->latency = 1 + dice(sim, 3) * 20;
  const int64_t min = 1 + dice(sim, 4);
  sim->settings = (struct gen1_settings){.min_nodes = min,
                                         .max_nodes = min + dice(sim, NODES),
                                         .join_timeout = 600000,
                                         .last_call_timeout = (1 + dice(sim, 4)) * 1000,
                                         .close_timeout = 30000};
  const int64_t count = min + dice(sim, NODES + 1 - min);
  for (int i = 0; i < count; i++) be_born(sim, &sim->nodes[i]);
}

static bool run(struct seeded seeded) {
  struct sim *sim = calloc(1, sizeof *sim);
  if (!sim) abort();
  sim->seeded = seeded;
  begin(sim);
  int64_t strike_at = 2000;
  bool done = false;
  while (!sim->seeded.failed && !done) {
    int64_t next = model_next_expiry(&sim->model);
    for (int i = 0; i < NODES; i++)
      if (sim->nodes[i].alive && next_of(sim, &sim->nodes[i]) < next) next = next_of(sim, &sim->nodes[i]);
    if (faulty(sim) && strike_at < next) next = strike_at;
    if (next > FAULTS_MS + SETTLE_MS) break;
    model_advance(&sim->model, next > sim->model.now ? next : sim->model.now);
    if (faulty(sim) && sim->model.now >= strike_at) {
      if (!sim->calm) strike(sim);
      strike_at = sim->model.now + dice(sim, 8000);
    }
    for (int i = 0; i < NODES; i++) tick(sim, &sim->nodes[i]);
    done = !faulty(sim) && sim->model.now > FAULTS_MS + 60000 && all_in_one(sim);
  }
  if (!sim->seeded.failed && !all_in_one(sim)) fail(sim, "faults stopped, and not all are in one round");
  const bool ok = !sim->seeded.failed;
  for (int i = 0; i < NODES; i++)
    if (sim->nodes[i].alive) end_node(&sim->nodes[i]);
  model_free(&sim->model);
  free(sim);
  return ok;
}

int main(int argc, char **argv) { return seeded_main(argc, argv, "sim_etcd", run); }
