/* SPDX-License-Identifier: BSD-3-Clause */
/* Drives a native node's machine. */
#include "sim.h"

#include <stdlib.h>

static void trace(void *argument, const char *line) {
  void **pair = argument;
  struct sim *sim = pair[0];
  const struct sim_node *node = pair[1];
  fprintf(sim->details, "%9.3f  %-8s   %s\n", (double)sim->now / 1000, node->label, line);
}

static void drop(struct sim *sim, struct sim_node *node) {
  if (node->link == 0) return;
  link_send(sim, node->link, true, &(struct sim_packet){.kind = PACKET_DOWN});
  node->link = 0;
}

/* A connection that is not open after a while never will be. */
static void connect_to_server(struct sim *sim, size_t at) {
  struct sim_node *node = &sim->nodes[at];
  node->link = link_new(sim, at);
  struct sim_event event = {.at = sim->now + ANSWER_TIMEOUT_MS, .kind = SIM_TO_NODE, .node = at, .link = node->link};
  event.packet = calloc(1, sizeof *event.packet);
  if (!event.packet) abort();
  event.packet->kind = PACKET_CONNECT; /* it is still only that */
  sim_schedule(sim, event);
}

static void send_packets(struct sim *sim, struct sim_node *node, const struct member_update *update) {
  static const struct {
    enum member_request request;
    enum packet_kind kind;
  } kinds[] = {{MEMBER_DO_JOIN, PACKET_JOIN},
               {MEMBER_DO_RESUME, PACKET_RESUME},
               {MEMBER_DO_LEAVE, PACKET_LEAVE},
               {MEMBER_DO_CLOSE, PACKET_CLOSE},
               {MEMBER_DO_BEAT, PACKET_BEAT}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (!(update->doing & kinds[i].request)) continue;
    if (kinds[i].request == MEMBER_DO_JOIN) sim->swaps++;
    link_send(sim, node->link, true,
              &(struct sim_packet){.kind = kinds[i].kind, .join = update->join, .number = update->wants_answer});
  }
}

static void step(struct sim *sim, size_t at, struct member_event *event) {
  struct sim_node *node = &sim->nodes[at];
  static struct member_update update;
  void *pair[] = {sim, node};
  event->now = sim_moment(sim, node);
  node->member.config.trace = sim->details ? trace : NULL;
  node->member.config.argument = pair;
  member_step(&node->member, event, &update);
  sim_react(sim, at, &update.told);
  if (update.doing & MEMBER_DO_DROP) drop(sim, node);
  if (update.doing & MEMBER_DO_CONNECT) connect_to_server(sim, at);
  send_packets(sim, node, &update);
  if (update.until_ms == INT64_MAX)
    node->wait = 0;
  else
    sim_wait(sim, at, update.until_ms, false, 0, 0);
}

void native_ask(struct sim *sim, size_t at, enum engine_event_kind what) {
  struct sim_node *node = &sim->nodes[at];
  if (!node->desc.addr) {
    node->desc.addr = node->addr;
    const struct member_config config = {.run_id = SIM_RUN_ID,
                                         .node = node->desc,
                                         .settings = sim_settings(sim, node),
                                         .times = sim->times,
                                         .layout = TORCH_NEWEST,
                                         .secret = {{sim_random(sim, 0), at}}};
    member_init(&node->member, &config);
  }
  step(sim, at,
       &(struct member_event){.kind = what == ENGINE_EV_ASK_JOIN    ? MEMBER_EV_ASK_JOIN
                                      : what == ENGINE_EV_ASK_LEAVE ? MEMBER_EV_ASK_LEAVE
                                                                    : MEMBER_EV_ASK_CLOSE});
}

void native_timer(struct sim *sim, size_t at) { step(sim, at, &(struct member_event){.kind = MEMBER_EV_TIMER}); }

static enum member_event_kind event_kind(enum packet_kind kind) {
  switch (kind) {
    case PACKET_CONNECTED: return MEMBER_EV_CONNECTED;
    case PACKET_JOINED: return MEMBER_EV_JOINED;
    case PACKET_RESUMED: return MEMBER_EV_RESUMED;
    case PACKET_LEFT: return MEMBER_EV_LEFT;
    case PACKET_CLOSED: return MEMBER_EV_CLOSED;
    case PACKET_BEAT: return MEMBER_EV_BEAT;
    case PACKET_NEWS: return MEMBER_EV_NEWS;
    case PACKET_REFUSED: return MEMBER_EV_REFUSED;
    default: return MEMBER_EV_LOST;
  }
}

void native_receive(struct sim *sim, struct sim_event *event) {
  struct sim_node *node = &sim->nodes[event->node];
  const struct sim_packet *packet = event->packet;
  const bool ends = packet->kind == PACKET_DOWN || packet->kind == PACKET_CONNECT;
  if (event->link != node->link) return; /* one of before */
  if (packet->kind == PACKET_CONNECT ? node->member.link != MEMBER_LINK_CONNECTING
                                     : !ends && link_of(sim, event->link)->broken)
    return;
  if (packet->kind == PACKET_CONNECT) link_vanish(sim, event->link);
  if (ends) node->link = 0;
  if (packet->kind == PACKET_RESUMED) sim_tell(sim, node, "resumes its session");
  struct native_news news = {.what = packet->what,
                             .round = packet->round,
                             .waiting = packet->waiting,
                             .gone = packet->gone,
                             .warning = packet->text};
  if (packet->gone > 0) news.nodes[news.named++] = sim->nodes[packet->who].desc;
  const bool late = packet->kind == PACKET_REFUSED && packet->refused == MEMBER_DO_JOIN &&
                    packet->number != node->member.joins && node->member.sent_join;
  rdzv_error error = {.code = ends ? RDZV_E_CONNECTION : packet->code};
  snprintf(error.message, sizeof error.message, "%s", ends ? "no connection" : packet->text);
  step(sim, event->node,
       &(struct member_event){.kind = event_kind(packet->kind),
                              .error = &error,
                              .joined = &packet->joined,
                              .news = &news,
                              .number = packet->number,
                              .refused = packet->refused});
  if (late && !node->member.sent_join) sim_fail(sim, "%s: the refusal of a join ended a later one", node->label);
}

/* The system closes what a process had open; of a host that is gone nobody hears. */
void native_died(struct sim *sim, size_t at) {
  struct sim_node *node = &sim->nodes[at];
  if (node->link && at % 2 == 0) link_vanish(sim, node->link);
  drop(sim, node);
}
