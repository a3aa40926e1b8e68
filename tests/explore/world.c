/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include "state/native/run.h"

#include <stdlib.h>
#include <string.h>

enum { ABOUT_TO_MS = 100 };

/* Short times, so that few moves lead to a death. */
static struct rendezvous_settings explored_settings(int64_t nodes) {
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = nodes - 1;
  settings.max_nodes = nodes;
  settings.last_call_timeout = 1000;
  settings.keep_alive_interval = 2000;
  settings.keep_alive_max_attempt = 2;
  return settings;
}

/* ---- the queue ------------------------------------------------------------------------------------------------ */

/* Of a connection; one that is not open in time is told so by a timer, which looks like one. */
bool event_is_packet(const struct sim_event *event) {
  return event->kind == SIM_TO_SERVER || (event->kind == SIM_TO_NODE && event->packet->kind != PACKET_CONNECT);
}

bool event_is_message(const struct sim_event *event) {
  return event->kind == SIM_REQUEST || event_is_packet(event) ||
         (event->kind == SIM_ANSWER && event->message->kind != ENGINE_EV_STORE_ERROR);
}

static bool packet_is_due(const struct sim *sim, const struct sim_event *event) {
  const struct sim_node *node = &sim->nodes[event->node];
  const bool lost = link_of(sim, event->link)->broken && event->packet->kind != PACKET_DOWN;
  if (event->kind == SIM_TO_SERVER) return !lost; /* also that of a dead node */
  if (!node->alive || event->link != node->link) return false;
  return event->packet->kind == PACKET_CONNECT ? node->member.link == MEMBER_LINK_CONNECTING : !lost;
}

bool event_is_due(const struct sim *sim, const struct sim_event *event) {
  const struct sim_node *node = &sim->nodes[event->node];
  switch (event->kind) {
    case SIM_REQUEST: return true; /* also that of a dead node */
    case SIM_ANSWER: return node->alive && event->number == node->request;
    case SIM_LISTEN:
    case SIM_TIMER: return node->alive && event->number == node->wait;
    case SIM_SCRIPT: return node->alive;
    case SIM_TO_SERVER:
    case SIM_TO_NODE: return packet_is_due(sim, event);
    case SIM_SERVER_TIMER: return event->number == sim->server_timer;
  }
  return false;
}

static bool is_timer(const struct sim_event *event) {
  return !event_is_message(event) && event->kind != SIM_SCRIPT && event->kind != SIM_SERVER_TIMER;
}

static bool is_stopped(const struct sim *sim, size_t node) { return sim->nodes[node].paused_until > sim->now; }

/* Packets of a connection keep their order. */
static bool is_first(const struct sim *sim, const struct sim_event *event) {
  for (size_t i = 0; i < sim->heap_count; i++) {
    const struct sim_event *other = &sim->heap[i];
    if (other->kind == event->kind && other->link == event->link && event_is_packet(other) &&
        other->order < event->order)
      return false;
  }
  return true;
}

/* A stopped node's request arrives all the same. */
static bool can_happen(const struct sim *sim, const struct sim_event *event) {
  if (event_is_packet(event) && !is_first(sim, event)) return false;
  if (event->kind == SIM_REQUEST || event->kind == SIM_TO_SERVER) return !server_is_stopped(sim);
  return event->kind != SIM_SERVER_TIMER && !is_stopped(sim, event->node);
}

static int64_t next_time(const struct sim *sim) {
  int64_t next = INT64_MAX;
  for (size_t i = 0; i < sim->heap_count; i++) {
    const struct sim_event *event = &sim->heap[i];
    if (is_timer(event) && can_happen(sim, event) && event->at < next) next = event->at;
  }
  return next > sim->now ? next : sim->now;
}

static struct sim_event take(struct sim *sim, size_t at) {
  const struct sim_event event = sim->heap[at];
  sim->heap[at] = sim->heap[--sim->heap_count];
  return event;
}

static void drop_stale(struct sim *sim) {
  for (size_t i = sim->heap_count; i > 0; i--) {
    if (event_is_due(sim, &sim->heap[i - 1])) continue;
    struct sim_event event = take(sim, i - 1);
    sim_message_free(event.message);
    free(event.packet);
  }
}

/* Nothing is random: what a step draws is the same whatever came before. And where any message may be late, no node is
 * blamed for it. */
static void calm(struct sim *sim) {
  sim->random = 1;
  for (size_t i = 0; i < sim->node_count; i++) {
    sim->nodes[i].troubled = sim->now;
    sim->nodes[i].engine.pace.random = i;
    sim->nodes[i].engine.pace.trip_ms = 1;
    sim->nodes[i].member.pace.random = i;
  }
}

/* What is no move of its own. */
static bool is_immediate(const struct sim *sim, const struct sim_event *event) {
  if (!can_happen(sim, event)) return false;
  if (event_is_packet(event)) return event->packet->kind <= PACKET_CONNECTED;
  if (event->kind == SIM_REQUEST) return event->message->kind == ENGINE_EV_STATE_READ;
  return event->kind == SIM_LISTEN;
}

static void follow_up(struct sim *sim) {
  drop_stale(sim);
  for (size_t i = 0; i < sim->heap_count;) {
    if (!is_immediate(sim, &sim->heap[i])) {
      i++;
      continue;
    }
    struct sim_event event = take(sim, i);
    sim_happen(sim, &event);
    drop_stale(sim);
    i = 0;
  }
  calm(sim);
}

/* ---- the server ----------------------------------------------------------------------------------------------- */

static struct sim_event *server_timer(const struct sim *sim) {
  for (size_t i = 0; i < sim->heap_count; i++)
    if (sim->heap[i].kind == SIM_SERVER_TIMER && event_is_due(sim, &sim->heap[i])) return &sim->heap[i];
  return NULL;
}

/* Time passes, and the server, unless it is stopped, looks at its clock meanwhile. */
static void advance(struct sim *sim, int64_t to) {
  for (struct sim_event *timer; !server_is_stopped(sim) && (timer = server_timer(sim)) && timer->at <= to;) {
    struct sim_event event = take(sim, (size_t)(timer - sim->heap));
    if (event.at > sim->now) sim->now = event.at;
    sim_happen(sim, &event);
  }
  if (to > sim->now) sim->now = to;
}

/* When something is due there, on the clock of the simulator; INT64_MAX: nothing. */
static int64_t server_due(const struct sim *sim) {
  if (!sim->coordinator || server_is_stopped(sim) || sim->coordinator->wake_ms == INT64_MAX) return INT64_MAX;
  const int64_t due = sim->coordinator->wake_ms - sim_moment(sim, &sim->server).mono_ms + sim->now;
  return due > sim->now ? due : sim->now + 1;
}

/* ---- moves ---------------------------------------------------------------------------------------------------- */

static bool may(const struct world *world, const struct world_options *options, enum move_kind kind) {
  return world->spent[kind] < options->budget.most[kind];
}

static bool is_possible(const struct sim *sim, enum move_kind kind, size_t at) {
  const struct sim_node *node = &sim->nodes[at];
  const bool runs = node->alive && !is_stopped(sim, at);
  switch (kind) {
    case MOVE_JOIN: return node->alive ? runs && !node->wants && !node->is_torch : !node->killed; /* or again */
    case MOVE_LEAVE: return runs && node->wants && !node->is_torch;
    case MOVE_CLOSE: return runs && !sim->cell.closed && !node->is_torch;
    case MOVE_KILL: return node->alive;
    case MOVE_STOP: return runs;
    case MOVE_CONTINUE: return node->alive && is_stopped(sim, at);
    case MOVE_FORGET: return at == 0 && (sim->version != 0 || server_has_run(sim));
    case MOVE_RESET:
    case MOVE_VANISH: return node->alive && node->link && !link_of(sim, node->link)->broken;
    case MOVE_STOP_SERVER: return at == 0 && sim->coordinator && !server_is_stopped(sim);
    case MOVE_CONTINUE_SERVER: return at == 0 && server_is_stopped(sim);
    case MOVE_SERVER: return at == 0 && server_due(sim) != INT64_MAX && server_due(sim) <= next_time(sim);
    default: return false;
  }
}

size_t world_moves(const struct world *world, const struct world_options *options,
                   struct move moves[WORLD_MOST_MOVES]) {
  const struct sim *sim = &world->sim;
  const int64_t next = next_time(sim);
  size_t count = 0;
  for (size_t i = 0; i < sim->heap_count; i++) {
    const struct sim_event *event = &sim->heap[i];
    if (!can_happen(sim, event) || (is_timer(event) && event->at > next)) continue;
    if (count + 2 + MOVE_KINDS * sim->node_count > WORLD_MOST_MOVES) abort();
    moves[count++] = (struct move){MOVE_EVENT, (uint8_t)i};
    if (event_is_message(event) && !event_is_packet(event) && may(world, options, MOVE_DROP))
      moves[count++] = (struct move){MOVE_DROP, (uint8_t)i};
  }
  for (enum move_kind kind = MOVE_JOIN; kind < MOVE_KINDS; kind++)
    for (size_t i = 0; i < sim->node_count; i++)
      if (may(world, options, kind) && is_possible(sim, kind, i))
        moves[count++] = (struct move){(uint8_t)kind, (uint8_t)i};
  return count;
}

static void happen(struct sim *sim, struct sim_event event) {
  if (is_timer(&event)) advance(sim, event.at - 1);
  if (is_timer(&event) && event.at > sim->now) sim->now = event.at;
  sim_happen(sim, &event);
}

static void deed(struct sim *sim, size_t node, enum sim_deed deed, int64_t amount) {
  sim_happen(sim,
             &(struct sim_event){.at = sim->now, .kind = SIM_SCRIPT, .node = node, .deed = deed, .amount = amount});
}

static void do_to_node(struct sim *sim, enum move_kind kind, size_t at) {
  static const enum sim_deed deeds[MOVE_KINDS] = {
      [MOVE_JOIN] = SIM_JOIN,  [MOVE_LEAVE] = SIM_LEAVE, [MOVE_CLOSE] = SIM_CLOSE,   [MOVE_KILL] = SIM_KILL,
      [MOVE_STOP] = SIM_PAUSE, [MOVE_RESET] = SIM_RESET, [MOVE_VANISH] = SIM_VANISH, [MOVE_FORGET] = SIM_LOSE};
  struct sim_node *node = &sim->nodes[at];
  switch (kind) {
    case MOVE_CONTINUE: node->paused_until = 0; break;
    case MOVE_STOP_SERVER: server_stop(sim, INT64_MAX / 4); break;
    case MOVE_CONTINUE_SERVER: sim->server_stopped_until = sim->now; break;
    case MOVE_SERVER: advance(sim, server_due(sim)); break;
    default: deed(sim, at, deeds[kind], kind == MOVE_STOP ? INT64_MAX / 4 : 0); break;
  }
  if (kind == MOVE_KILL) node->paused_until = 0;
}

void world_do(struct world *world, struct move move) {
  struct sim *sim = &world->sim;
  world->spent[move.kind]++;
  if (move.kind == MOVE_EVENT) {
    happen(sim, take(sim, move.what));
  } else if (move.kind == MOVE_DROP) {
    struct sim_event event = take(sim, move.what);
    sim_message_free(event.message);
  } else {
    do_to_node(sim, move.kind, move.what);
  }
  follow_up(sim);
}

/* ---- telling -------------------------------------------------------------------------------------------------- */

static const char *const packet_names[] = {[PACKET_CONNECT] = "connection",
                                           [PACKET_CONNECTED] = "connection",
                                           [PACKET_DOWN] = "end of connection",
                                           [PACKET_JOIN] = "JOIN",
                                           [PACKET_RESUME] = "RESUME",
                                           [PACKET_LEAVE] = "LEAVE",
                                           [PACKET_CLOSE] = "CLOSE",
                                           [PACKET_BEAT] = "beat",
                                           [PACKET_JOINED] = "answer JOINED",
                                           [PACKET_RESUMED] = "answer RESUMED",
                                           [PACKET_LEFT] = "answer LEFT",
                                           [PACKET_CLOSED] = "answer CLOSED",
                                           [PACKET_NEWS] = "news",
                                           [PACKET_REFUSED] = "refusal"};

static const char *event_name(const struct sim_event *event) {
  const enum engine_event_kind kind = event->message ? event->message->kind : ENGINE_EV_TIMER;
  const bool read = kind == ENGINE_EV_STATE_READ;
  switch (event->kind) {
    case SIM_REQUEST: return read ? "read" : "swap";
    case SIM_ANSWER: return read ? "state" : kind == ENGINE_EV_SWAP_WON ? "win" : "loss";
    case SIM_LISTEN:
    case SIM_TIMER: return "timer";
    case SIM_SCRIPT: return "program";
    case SIM_TO_SERVER:
    case SIM_TO_NODE: return packet_names[event->packet->kind];
    case SIM_SERVER_TIMER: break;
  }
  return "?";
}

struct move_text world_describe(const struct world *world, struct move move) {
  static const char *const deeds[MOVE_KINDS] = {[MOVE_JOIN] = "is started",
                                                [MOVE_LEAVE] = "is told to leave",
                                                [MOVE_CLOSE] = "is told to close",
                                                [MOVE_KILL] = "dies",
                                                [MOVE_STOP] = "is stopped",
                                                [MOVE_CONTINUE] = "goes on",
                                                [MOVE_RESET] = "loses its connection",
                                                [MOVE_VANISH] = "has a dead connection"};
  static const char *const server_deeds[MOVE_KINDS] = {[MOVE_FORGET] = "the store loses its state",
                                                       [MOVE_STOP_SERVER] = "the server is stopped",
                                                       [MOVE_CONTINUE_SERVER] = "the server goes on",
                                                       [MOVE_SERVER] = "the server's timer goes off"};
  const struct sim *sim = &world->sim;
  struct move_text text;
  if (server_deeds[move.kind]) {
    snprintf(text.text, sizeof text.text, "%s", server_deeds[move.kind]);
  } else if (move.kind > MOVE_DROP) {
    snprintf(text.text, sizeof text.text, "%s %s", sim->nodes[move.what].label, deeds[move.kind]);
  } else {
    const struct sim_event *event = &sim->heap[move.what];
    const char *happens = move.kind == MOVE_DROP                                    ? "is lost"
                          : event_is_message(event)                                 ? "arrives"
                          : event->kind == SIM_SCRIPT                               ? "reacts"
                          : event->kind == SIM_ANSWER || event->kind == SIM_TO_NODE ? "has had no answer in time"
                                                                                    : "goes off";
    const char *what = event->kind == SIM_ANSWER && !event_is_message(event) ? "request" : event_name(event);
    snprintf(text.text, sizeof text.text, "%s's %s %s", sim->nodes[event->node].label, what, happens);
  }
  return text;
}

/* ---- beginning and end ---------------------------------------------------------------------------------------- */

static enum sim_kind kind_of(char letter) { return letter == 't' ? SIM_TORCH : letter == 'n' ? SIM_NATIVE : SIM_SWAP; }

static void complete(struct sim *sim) {
  const char *why;
  while (!sim->cell.complete || !check_settled(sim, &why))
    if (!sim_run(sim, sim->now + 1) || sim->now > 60000) abort();
}

/* The last node dies without a word, and time passes until that is about to be found. */
static void die(struct sim *sim) {
  const size_t last = sim->node_count - 1;
  const struct sim_node *node = &sim->nodes[last];
  const int64_t dead =
      node->is_native ? NATIVE_SILENT_INTERVALS * sim->times.keep_alive_ms : rendezvous_dead_time(&sim->settings);
  sim_do(sim, sim->now, last, SIM_VANISH, 0);
  sim_do(sim, sim->now, last, SIM_KILL, 0);
  do {
    if (!sim_run(sim, sim->now + 1)) abort();
  } while (sim->now - (node->is_native ? node->heard_at : node->heard) < dead - ABOUT_TO_MS);
}

struct world *world_new(const struct world_options *options) {
  struct world *world = calloc(1, sizeof *world);
  if (!world) abort();
  struct sim *sim = &world->sim;
  const struct rendezvous_settings settings = explored_settings((int64_t)strlen(options->nodes));
  sim_init(sim, 1, &settings);
  sim->latency_ms = 1;
  for (size_t i = 0; options->nodes[i]; i++) {
    const char addr[] = {(char)('a' + i), '\0'};
    const size_t node = sim_add_node(sim, sim_add_host(sim, 0), addr, kind_of(options->nodes[i]));
    const bool joins = options->start != START_PARTIAL || options->nodes[i + 1];
    if (options->start != START_EMPTY && joins) sim_do(sim, 0, node, SIM_JOIN, 0);
  }
  sim->times.keep_alive_ms = 1000;
  if (strchr(options->nodes, 'n')) server_begin(sim);
  if (options->start != START_EMPTY) complete(sim);
  if (options->start == START_DYING) die(sim);
  sim->faults = 1; /* messages may be late: what is checked allows for it */
  follow_up(sim);
  return world;
}

static int compare_order(const void *a, const void *b) {
  const struct sim_event *one = a, *other = b;
  return one->order < other->order ? -1 : 1;
}

bool world_settles(struct world *world) {
  struct sim *sim = &world->sim;
  if (server_is_stopped(sim)) sim->server_stopped_until = sim->now;
  for (size_t i = 0; i < sim->node_count; i++) sim->nodes[i].paused_until = 0;
  const size_t count = sim->heap_count;
  struct sim_event *events = malloc((count + 1) * sizeof *events);
  if (!events) abort();
  memcpy(events, sim->heap, count * sizeof *events);
  sim->heap_count = 0;
  qsort(events, count, sizeof *events, compare_order);
  for (size_t i = 0; i < count; i++) { /* into their order */
    if (event_is_message(&events[i]) || events[i].at < sim->now) events[i].at = sim->now + 1;
    sim_schedule(sim, events[i]);
  }
  free(events);
  return schedule_settles(sim);
}
