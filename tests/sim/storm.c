/* SPDX-License-Identifier: BSD-3-Clause */
/* N nodes that join at once, max_nodes = N: what it costs, and how long it takes on a network of that latency. */
#include "sim.h"

#include <inttypes.h>

static bool complete_and_known(const struct sim *sim) {
  const char *why;
  return sim->cell.complete && check_settled(sim, &why);
}

int storm(size_t nodes, int64_t latency_ms) {
  static struct sim sim;
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = settings.max_nodes = (int64_t)nodes;
  sim_init(&sim, nodes, &settings);
  sim.latency_ms = latency_ms;
  for (size_t i = 0; i < nodes; i++) {
    char addr[24];
    snprintf(addr, sizeof addr, "n%zu", i);
    sim_do(&sim, 0, sim_add_node(&sim, sim_add_host(&sim, 0), addr, SIM_SWAP), SIM_JOIN, 0);
  }
  int64_t complete = -1;
  while (!complete_and_known(&sim) && sim.now < 600000) {
    if (!sim_run(&sim, sim.now + 1)) break;
    if (complete < 0 && sim.cell.complete) complete = sim.now;
  }
  const double n = (double)nodes;
  printf("%5zu nodes, %2" PRId64 " ms each way at most: complete after %6" PRId64 " ms, all know after %6" PRId64
         " ms; per join %.2f swaps, %.2f reads%s%s\n",
         nodes, latency_ms, complete, sim.now, (double)sim.swaps / n, (double)sim.reads / n,
         sim.failure[0] ? "; FAILED: " : "", sim.failure);
  const bool good = !sim.failure[0] && complete_and_known(&sim);
  sim_free(&sim);
  return good ? 0 : 1;
}
