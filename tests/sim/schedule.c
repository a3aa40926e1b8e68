/* SPDX-License-Identifier: BSD-3-Clause */
/* What a seed stands for: how many nodes of which kind, with which clocks, on what network, and what happens to them.
 * All faults end at FAULTS_MS; then the rendezvous must settle, and stay so. */
#include "sim.h"

enum { FAULTS_MS = 60000, SETTLE_MS = 180000, STAY_MS = 30000 };
static const int64_t TEN_MINUTES_US = INT64_C(600000000);

static int64_t pick(struct sim *sim, int64_t from, int64_t to) {
  return from + (int64_t)sim_random(sim, (uint64_t)(to - from + 1));
}

static struct rendezvous_settings pick_settings(struct sim *sim, int64_t nodes, bool mixed) {
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = pick(sim, 1, nodes);
  settings.max_nodes = mixed ? 3 * nodes : pick(sim, settings.min_nodes, nodes + 1);
  settings.last_call_timeout = mixed ? pick(sim, 3000, 5000) : pick(sim, 100, 3000); /* PyTorch sleeps for a second */
  settings.join_timeout = pick(sim, 0, 3) == 0 ? pick(sim, 20000, 40000) : 600000;
  settings.has_redundancy_list = pick(sim, 0, 3) > 0;
  settings.rank_order = (enum rank_order)pick(sim, RANK_ORDER_TORCH, RANK_ORDER_NATURAL);
  return settings;
}

static void add_node(struct sim *sim, size_t host, enum sim_kind kind) {
  static const char *const signs[] = {[SIM_SWAP] = "", [SIM_TORCH] = "t", [SIM_NATIVE] = "n"};
  char addr[24];
  snprintf(addr, sizeof addr, "h%zu", host);
  const size_t added = sim_add_node(sim, host, addr, kind);
  struct sim_node *node = &sim->nodes[added];
  snprintf(node->label, sizeof node->label, "%s.%d%s", addr, (int)node->desc.pid, signs[kind]);
}

/* `mixed`: there are PyTorch nodes. */
static enum sim_kind pick_kind(struct sim *sim, enum sim_mode mode, bool mixed) {
  if (mode == SIM_MODE_NATIVE) return SIM_NATIVE;
  if (mode == SIM_MODE_SWAP) return mixed && pick(sim, 0, 1) == 1 ? SIM_TORCH : SIM_SWAP;
  return (enum sim_kind)pick(sim, SIM_SWAP, SIM_NATIVE);
}

static void pick_trouble(struct sim *sim, size_t node, bool mixed) {
  const int64_t at = pick(sim, 0, FAULTS_MS - 1), left = FAULTS_MS - at;
  const bool is_torch = sim->nodes[node].is_torch;
  switch (pick(sim, 0, 5)) {
    case 0: sim_do(sim, at, node, SIM_KILL, 0); break;
    case 1:
      sim_do(sim, at, node, is_torch ? SIM_KILL : SIM_LEAVE, 0);
      if (!is_torch && pick(sim, 0, 1)) sim_do(sim, at + pick(sim, 1, left), node, SIM_JOIN, 0);
      break;
    case 2: sim_do(sim, at, node, SIM_PAUSE, pick(sim, 1, left)); break;
    case 3: sim_do(sim, at, node, SIM_CUT, pick(sim, 1, left)); break;
    case 4: sim_do(sim, at, node, SIM_JUMP, mixed ? 0 : pick(sim, -600000, 600000)); break;
    default: sim_do(sim, at, node, is_torch ? SIM_KILL : SIM_JOIN, 0); break; /* for no reason at all */
  }
}

/* What only native nodes and their server have to fear. */
static void pick_native_trouble(struct sim *sim, size_t nodes) {
  for (int64_t i = pick(sim, 0, (int64_t)nodes); i > 0; i--) {
    const int64_t at = pick(sim, 0, FAULTS_MS - 1);
    const size_t node = (size_t)pick(sim, 0, (int64_t)nodes - 1);
    sim_do(sim, at, node, pick(sim, 0, 2) > 0 ? SIM_RESET : SIM_VANISH, 0);
  }
  for (int64_t i = pick(sim, 0, 2), at = 0; i > 0; i--) {
    at = pick(sim, at, FAULTS_MS - 1);
    sim_do(sim, at, 0, SIM_STOP_SERVER, pick(sim, 1, at + 10000 < FAULTS_MS ? 10000 : FAULTS_MS - at));
  }
}

/* Half as many again come later, on the same hosts, in the place of others or beside them. */
static void pick_schedule(struct sim *sim, enum sim_mode mode, size_t nodes, bool mixed) {
  const size_t hosts = (size_t)pick(sim, 1, (int64_t)nodes), all = nodes + nodes / 2;
  const bool skewed = !mixed && pick(sim, 0, 2) > 0, at_once = pick(sim, 0, 1) == 1;
  static const int fault_rates[] = {0, 10, 50, 150};
  sim->quiet_from = FAULTS_MS;
  sim->faults = fault_rates[pick(sim, 0, 3)];
  sim->latency_ms = pick(sim, 1, 20);
  for (size_t i = 0; i < hosts; i++)
    sim_add_host(sim, skewed ? pick(sim, -TEN_MINUTES_US, TEN_MINUTES_US) : pick(sim, -1000, 1000));
  for (size_t i = 0; i < all; i++)
    add_node(sim, i < hosts ? i : (size_t)pick(sim, 0, (int64_t)hosts - 1), pick_kind(sim, mode, mixed));
  for (size_t i = 0; i < all; i++)
    sim_do(sim, i >= nodes ? pick(sim, 5000, FAULTS_MS) : at_once ? 0 : pick(sim, 0, 5000), i, SIM_JOIN, 0);
  for (int64_t i = pick(sim, 0, (int64_t)all); i > 0; i--)
    pick_trouble(sim, (size_t)pick(sim, 0, (int64_t)all - 1), mixed);
  if (pick(sim, 0, 30) == 0) sim_do(sim, pick(sim, 0, FAULTS_MS), 0, SIM_CLOSE, 0);
  if (mode != SIM_MODE_SWAP) pick_native_trouble(sim, all);
}

/* With one seed in seven the state is lost now and then. That is drawn from numbers of its own, so that the other seeds
 * mean what they meant before there was such a thing. */
static void pick_losses(struct sim *sim) {
  struct pace generator = {.random = ~sim->seed};
  if (sim->seed % 7 != 4) return;
  for (uint64_t i = 1 + pace_random(&generator) % 3; i > 0; i--)
    sim_do(sim, (int64_t)(pace_random(&generator) % FAULTS_MS), 0, SIM_LOSE, 0);
}

/* Whether it settles by then; what was late may stir it up again. */
static bool settles(struct sim *sim, int64_t end, const char **why) {
  while (!check_settled(sim, why) && sim->now < end)
    if (!sim_run(sim, sim->now + 100)) return false;
  return check_settled(sim, why);
}

bool schedule_settles(struct sim *sim) {
  const char *why = "";
  const int64_t end = sim->now + SETTLE_MS;
  while (sim->now < end) {
    if (!settles(sim, end, &why)) {
      sim_fail(sim, "it does not settle: %s", why ? why : "the dead are still there");
      return false;
    }
    const bool enough = why != NULL;
    const int64_t round = sim->cell.round;
    sim_tell(sim, NULL, "it has settled in round %d", (int)round);
    if (!sim_run(sim, sim->now + STAY_MS)) return false;
    if (!enough || (check_settled(sim, &why) && sim->cell.round == round)) return true;
  }
  sim_fail(sim, "it does not stay as it is, although nothing happens");
  return false;
}

bool schedule_run(uint64_t seed, enum sim_mode mode, size_t nodes, FILE *story, FILE *details, struct sim *sim) {
  sim_init(sim, seed, &RENDEZVOUS_SETTINGS_DEFAULT);
  sim->story = story;
  sim->details = details;
  if (nodes == 0) nodes = (size_t)pick(sim, 2, 9);
  const bool mixed = mode == SIM_MODE_SWAP ? pick(sim, 0, 3) == 0 : mode == SIM_MODE_MIXED;
  sim->settings = pick_settings(sim, (int64_t)nodes, mixed);
  if (mode != SIM_MODE_SWAP) sim->settings.has_redundancy_list = true; /* as the layout of a native run has */
  pick_schedule(sim, mode, nodes, mixed);
  if (mode != SIM_MODE_SWAP) server_begin(sim);
  pick_losses(sim);
  return sim_run(sim, FAULTS_MS + 1) && schedule_settles(sim);
}
