/* SPDX-License-Identifier: BSD-3-Clause */
/* Time and what happens in it. */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const int64_t EPOCH_US = INT64_C(1790000000000000);

static void *need(void *memory) {
  if (!memory) abort();
  return memory;
}

void sim_init(struct sim *sim, uint64_t seed, const struct rendezvous_settings *settings) {
  *sim = (struct sim){.seed = seed,
                      .random = seed,
                      .settings = *settings,
                      .times = NATIVE_TIMES_DEFAULT,
                      .cell = STATE_EMPTY,
                      .latency_ms = 2};
}

void sim_free(struct sim *sim) {
  for (size_t i = 0; i < sim->heap_count; i++) {
    sim_message_free(sim->heap[i].message);
    free(sim->heap[i].packet);
  }
  server_free(sim);
  for (size_t i = 0; i < sim->node_count; i++) {
    engine_free(&sim->nodes[i].engine);
    state_free(&sim->nodes[i].torch.state);
  }
  for (size_t i = 0; i < sim->round_count; i++) free(sim->rounds[i].nodes);
  free(sim->rounds);
  free(sim->heap);
  free(sim->nodes);
  free(sim->hosts);
  state_free(&sim->cell);
}

uint64_t sim_random(struct sim *sim, uint64_t below) {
  struct pace generator = {.random = sim->random};
  const uint64_t bits = pace_random(&generator);
  sim->random = generator.random;
  return below > 0 ? bits % below : bits;
}

void sim_fail(struct sim *sim, const char *format, ...) {
  if (sim->failure[0]) return; /* the first one is the cause */
  const int len = snprintf(sim->failure, sizeof sim->failure, "at %.3f s: ", (double)sim->now / 1000);
  va_list args;
  va_start(args, format);
  vsnprintf(sim->failure + len, sizeof sim->failure - (size_t)len, format, args);
  va_end(args);
}

void sim_tell(struct sim *sim, const struct sim_node *node, const char *format, ...) {
  if (!sim->story) return;
  fprintf(sim->story, "%9.3f  %-6s ", (double)sim->now / 1000, node ? node->label : "");
  va_list args;
  va_start(args, format);
  vfprintf(sim->story, format, args);
  va_end(args);
  fputc('\n', sim->story);
}

struct moment sim_moment(const struct sim *sim, const struct sim_node *node) {
  /* Monotonic clocks have nothing to do with one another. */
  return (struct moment){1000000 + (int64_t)node->host * 77777 + sim->now,
                         EPOCH_US + sim->now * 1000 + sim->hosts[node->host].skew_us};
}

struct rendezvous_settings sim_settings(const struct sim *sim, const struct sim_node *node) {
  struct rendezvous_settings settings = sim->settings;
  if (node->min_nodes > 0) settings.min_nodes = node->min_nodes;
  if (node->max_nodes > 0) settings.max_nodes = node->max_nodes;
  return settings;
}

/* ---- the queue, a binary heap ---------------------------------------------------------------------------------- */

static bool is_before(const struct sim_event *a, const struct sim_event *b) {
  return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void sim_schedule(struct sim *sim, struct sim_event event) {
  event.order = sim->next_order++;
  if (sim->heap_count == sim->heap_cap) {
    sim->heap_cap = sim->heap_cap ? sim->heap_cap * 2 : 16;
    sim->heap = need(realloc(sim->heap, sim->heap_cap * sizeof *sim->heap));
  }
  size_t at = sim->heap_count++;
  for (; at > 0 && is_before(&event, &sim->heap[(at - 1) / 2]); at = (at - 1) / 2)
    sim->heap[at] = sim->heap[(at - 1) / 2];
  sim->heap[at] = event;
}

static struct sim_event pop(struct sim *sim) {
  const struct sim_event first = sim->heap[0], last = sim->heap[--sim->heap_count];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < sim->heap_count; at = child) {
    if (child + 1 < sim->heap_count && is_before(&sim->heap[child + 1], &sim->heap[child])) child++;
    if (!is_before(&sim->heap[child], &last)) break;
    sim->heap[at] = sim->heap[child];
  }
  if (sim->heap_count > 0) sim->heap[at] = last;
  return first;
}

void sim_do(struct sim *sim, int64_t at, size_t node, enum sim_deed deed, int64_t amount) {
  sim_schedule(sim, (struct sim_event){.at = at, .kind = SIM_SCRIPT, .node = node, .deed = deed, .amount = amount});
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

size_t sim_add_host(struct sim *sim, int64_t skew_us) {
  sim->hosts = need(realloc(sim->hosts, (sim->host_count + 1) * sizeof *sim->hosts));
  sim->hosts[sim->host_count] = (struct sim_host){.skew_us = skew_us, .jumped = INT64_MIN / 2};
  return sim->host_count++;
}

/* All nodes are added before the first one moves: engines keep pointers to their addresses. */
size_t sim_add_node(struct sim *sim, size_t host, const char *addr, enum sim_kind kind) {
  if (sim->node_count == sim->node_cap) {
    sim->node_cap = sim->node_cap ? sim->node_cap * 2 : 4;
    sim->nodes = need(realloc(sim->nodes, sim->node_cap * sizeof *sim->nodes));
  }
  struct sim_node *node = &sim->nodes[sim->node_count];
  *node = (struct sim_node){.host = host,
                            .is_torch = kind == SIM_TORCH,
                            .is_native = kind == SIM_NATIVE,
                            .troubled = INT64_MIN / 2,
                            .heartbeat = DATETIME_NONE,
                            .last_round = -1,
                            .seen = -1,
                            .knew = -1,
                            .torch = {.state = STATE_EMPTY}};
  snprintf(node->addr, sizeof node->addr, "%s", addr);
  snprintf(node->label, sizeof node->label, "%s", addr);
  node->desc = (struct node_desc){.pid = (int64_t)sim->node_count + 1};
  return sim->node_count++;
}

static void ask(struct sim *sim, size_t node, enum engine_event_kind what) {
  const struct sim_node *asked = &sim->nodes[node];
  (asked->is_native ? native_ask : asked->is_torch ? torch_ask : ours_ask)(sim, node, what);
}

static void run_script(struct sim *sim, const struct sim_event *event) {
  struct sim_node *node = &sim->nodes[event->node];
  switch (event->deed) {
    case SIM_JOIN:
      if (node->killed) break; /* who comes in its place is another node */
      if (!node->alive) node->born = sim->now;
      if (!node->wants) node->asked = sim->events;
      node->alive = node->wants = true;
      node->joined = false;
      sim_tell(sim, node, "asks to join");
      ask(sim, event->node, ENGINE_EV_ASK_JOIN);
      break;
    case SIM_LEAVE:
      if (!node->alive) break;
      node->wants = node->joined = false;
      sim_tell(sim, node, "asks to leave");
      ask(sim, event->node, ENGINE_EV_ASK_LEAVE);
      break;
    case SIM_CLOSE:
      if (!node->alive) break;
      sim_tell(sim, node, "asks to close");
      ask(sim, event->node, ENGINE_EV_ASK_CLOSE);
      break;
    case SIM_KILL:
      if (!node->alive) break;
      sim_tell(sim, node, "is killed");
      node->alive = node->wants = node->joined = false;
      node->killed = true;
      node->troubled = sim->now;
      if (node->is_native) native_died(sim, event->node);
      break;
    case SIM_PAUSE:
      sim_tell(sim, node, "is stopped for %.1f s", (double)event->amount / 1000);
      node->paused_until = sim->now + event->amount;
      break;
    case SIM_CUT:
      sim_tell(sim, node, "is cut off for %.1f s", (double)event->amount / 1000);
      node->cut_until = sim->now + event->amount;
      break;
    case SIM_JUMP:
      sim_tell(sim, node, "has its clock set by %+.1f s", (double)event->amount / 1000);
      sim->hosts[node->host].skew_us += event->amount * 1000;
      sim->hosts[node->host].jumped = sim->now;
      break;
    case SIM_LOSE: sim_lose(sim); break;
    case SIM_RESET:
    case SIM_VANISH:
      if (!node->alive || node->link == 0) break;
      sim_tell(sim, node, event->deed == SIM_RESET ? "loses its connection" : "has a dead connection");
      (event->deed == SIM_RESET ? link_reset : link_vanish)(sim, node->link);
      break;
    case SIM_STOP_SERVER:
      sim_tell(sim, &sim->server, "is stopped for %.1f s", (double)event->amount / 1000);
      server_stop(sim, event->amount);
      break;
  }
}

static void happen_later(struct sim *sim, struct sim_event *event, int64_t at) {
  event->at = at;
  sim_schedule(sim, *event);
  event->message = NULL;
  event->packet = NULL;
}

static void happen_to_server(struct sim *sim, struct sim_event *event) {
  if (server_is_stopped(sim)) {
    if (event->kind == SIM_REQUEST) sim->nodes[event->node].troubled = sim->server_stopped_until;
    happen_later(sim, event, sim->server_stopped_until);
    return;
  }
  switch (event->kind) {
    case SIM_REQUEST: sim_receive(sim, event); break;
    case SIM_TO_SERVER: server_receive(sim, event); break;
    default:
      if (event->number == sim->server_timer) server_time(sim);
      break;
  }
}

static void time_node(struct sim *sim, size_t at) {
  const struct sim_node *node = &sim->nodes[at];
  (node->is_native ? native_timer : node->is_torch ? torch_timer : ours_timer)(sim, at);
}

static void happen(struct sim *sim, struct sim_event *event) {
  struct sim_node *node = &sim->nodes[event->node];
  if (event->kind == SIM_REQUEST || event->kind == SIM_TO_SERVER || event->kind == SIM_SERVER_TIMER) {
    happen_to_server(sim, event);
    return;
  }
  if (event->kind == SIM_SCRIPT && (event->deed == SIM_LOSE || event->deed == SIM_STOP_SERVER)) {
    run_script(sim, event);
    return;
  }
  if (sim->now < node->paused_until && (event->kind != SIM_SCRIPT || event->deed <= SIM_CLOSE)) {
    node->troubled = sim->now;
    happen_later(sim, event, node->paused_until);
    return;
  }
  if (event->kind == SIM_SCRIPT) {
    run_script(sim, event);
    return;
  }
  if (!node->alive) return;
  if (event->kind == SIM_ANSWER && event->number == node->request) {
    node->request = 0;
    (node->is_torch ? torch_answer : ours_answer)(sim, event->node, event->message);
  }
  if (event->kind == SIM_TO_NODE) native_receive(sim, event);
  if (event->kind == SIM_TIMER && event->number == node->wait) time_node(sim, event->node);
  if (event->kind == SIM_LISTEN && event->number == node->wait) {
    node->listening = true;
    sim_listen(sim, event->node);
  }
}

void sim_happen(struct sim *sim, struct sim_event *event) {
  sim->events++;
  happen(sim, event);
  sim_message_free(event->message);
  free(event->packet);
}

bool sim_run(struct sim *sim, int64_t until) {
  while (!sim->failure[0] && sim->heap_count > 0 && sim->heap[0].at <= until) {
    struct sim_event event = pop(sim);
    sim->now = event.at;
    sim->steps++;
    sim_happen(sim, &event);
  }
  if (!sim->failure[0]) sim->now = until;
  return !sim->failure[0];
}
