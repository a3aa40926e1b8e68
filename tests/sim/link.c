/* SPDX-License-Identifier: BSD-3-Clause */
/* The connections of native nodes: packets arrive in order or not at all, and a connection that loses one is lost. */
#include "sim.h"

#include <stdlib.h>

enum { LATE_MS = 4000 };

static bool has_fault(struct sim *sim) {
  return sim->now < sim->quiet_from && (int)sim_random(sim, 1000) < sim->faults;
}

static void put(struct sim *sim, uint64_t link, bool to_server, const struct sim_packet *packet, int64_t delay) {
  struct sim_link *way = link_of(sim, link);
  struct sim_event event = {.kind = to_server ? SIM_TO_SERVER : SIM_TO_NODE, .node = way->node, .link = link};
  event.at = sim->now + delay;
  if (event.at < way->arrives[to_server]) event.at = way->arrives[to_server];
  way->arrives[to_server] = event.at;
  event.packet = malloc(sizeof *event.packet);
  if (!event.packet) abort();
  *event.packet = *packet;
  sim_schedule(sim, event);
}

static int64_t travel(struct sim *sim) {
  const int64_t late = has_fault(sim) ? (int64_t)sim_random(sim, LATE_MS) : 0;
  return 1 + late + (int64_t)sim_random(sim, (uint64_t)sim->latency_ms);
}

void link_send(struct sim *sim, uint64_t link, bool to_server, const struct sim_packet *packet) {
  struct sim_link *way = link_of(sim, link);
  struct sim_node *node = &sim->nodes[way->node];
  if (sim->now < node->cut_until) link_vanish(sim, link);
  if (way->broken) return;
  if (has_fault(sim)) {
    node->troubled = sim->now;
    link_reset(sim, link);
    return;
  }
  put(sim, link, to_server, packet, travel(sim));
}

uint64_t link_new(struct sim *sim, size_t node) {
  sim->links = realloc(sim->links, (sim->link_count + 1) * sizeof *sim->links);
  if (!sim->links) abort();
  sim->links[sim->link_count++] = (struct sim_link){.node = node};
  const uint64_t link = sim->link_count;
  link_send(sim, link, true, &(struct sim_packet){.kind = PACKET_CONNECT});
  return link;
}

void link_reset(struct sim *sim, uint64_t link) {
  const struct sim_packet down = {.kind = PACKET_DOWN};
  if (link_of(sim, link)->broken) return;
  link_of(sim, link)->broken = true;
  put(sim, link, true, &down, travel(sim));
  put(sim, link, false, &down, travel(sim));
}

void link_vanish(struct sim *sim, uint64_t link) {
  struct sim_link *way = link_of(sim, link);
  sim->nodes[way->node].troubled = sim->now;
  way->broken = true;
}
