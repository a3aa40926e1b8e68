/* SPDX-License-Identifier: BSD-3-Clause */
/* The server of native nodes: the coordinator, its connections, and the blob for all others. */
#include "sim.h"

#include "state/pickle/read.h"
#include "state/pickle/write.h"

#include <stdlib.h>
#include <string.h>

static void need(bool good) {
  if (!good) abort();
}

static struct moment now_of(const struct sim *sim) { return sim_moment(sim, &sim->server); }

static struct coordinator_run *run_of(const struct sim *sim) {
  return sim->coordinator ? coordinator_find(sim->coordinator, SIM_RUN_ID, strlen(SIM_RUN_ID)) : NULL;
}

bool server_has_run(const struct sim *sim) { return run_of(sim) != NULL; }

/* ---- when it runs --------------------------------------------------------------------------------------------- */

bool server_is_stopped(const struct sim *sim) { return sim->now < sim->server_stopped_until; }

/* A stop of before is over: of each a little is credited (state/native/coordinator.h). */
static int64_t missed(const struct sim *sim) {
  const int64_t end = server_is_stopped(sim) ? sim->now : sim->server_stopped_until;
  const int64_t lasted = end - sim->server_stopped_at - COORDINATOR_MOST_CREDIT_MS;
  return sim->server_missed + (lasted > 0 ? lasted : 0);
}

int64_t server_clock(const struct sim *sim) { return sim->now - missed(sim); }

void server_stop(struct sim *sim, int64_t for_ms) {
  if (server_is_stopped(sim)) return;
  sim->server_missed = missed(sim);
  sim->server_stopped_at = sim->now;
  sim->server_stopped_until = sim->now + for_ms;
}

/* ---- the blob ------------------------------------------------------------------------------------------------- */

/* What a node that reads gets: what is in the bytes. */
static void read_blob(struct sim *sim) {
  struct torch_layouts layouts;
  struct rendezvous_state state;
  need(pickle_read((rdzv_bytes){(const char *)sim->blob.data, sim->blob.len}, &state, &layouts, NULL) == 0);
  state_free(&sim->cell);
  sim->cell = state;
  check_hearts(sim, &sim->cell);
}

static void write_blob(struct sim *sim, struct coordinator_run *run) {
  struct buf blob = {0};
  need(coordinator_write_blob(run, now_of(sim), &blob, NULL) == 0);
  const bool same = blob.len == sim->blob.len && memcmp(blob.data, sim->blob.data, blob.len) == 0;
  buf_free(&sim->blob);
  sim->blob = blob;
  if (!same || sim->version == 0) sim->version = ++sim->versions;
  read_blob(sim);
}

void server_refresh(struct sim *sim) {
  struct coordinator_run *run = run_of(sim);
  if (run && (sim->version == 0 || !coordinator_blob_is_fresh(run, now_of(sim)))) write_blob(sim, run);
}

/* A blob that was there before the first native node. */
static void adopt(struct sim *sim) {
  struct rendezvous_state copy;
  if (run_of(sim) || sim->version == 0) return;
  need(state_copy(&copy, &sim->cell));
  need(coordinator_adopt(sim->coordinator, SIM_RUN_ID, &copy, TORCH_NEWEST, now_of(sim), NULL) == 0);
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

/* The cell is the state as it is now. */
static void look(struct sim *sim, const struct coordinator_run *run) {
  const struct rendezvous_state *state = coordinator_run_state(run);
  struct rendezvous_state copy;
  check_served(sim, state);
  need(state_copy(&copy, state));
  state_free(&sim->cell);
  sim->cell = copy;
}

static void tell(struct sim *sim, const struct coordinator_effect *effect, struct sim_packet packet) {
  const uint64_t link = (uint64_t)(uintptr_t)effect->link;
  if (link_of(sim, link)->open) link_send(sim, link, false, &packet);
}

static enum member_request refused_request(enum coordinator_event_kind asked) {
  return asked == COORDINATOR_EV_JOIN     ? MEMBER_DO_JOIN
         : asked == COORDINATOR_EV_RESUME ? MEMBER_DO_RESUME
         : asked == COORDINATOR_EV_LEAVE  ? MEMBER_DO_LEAVE
                                          : MEMBER_DO_CLOSE;
}

static void refuse(struct sim *sim, const struct coordinator_effect *effect) {
  struct sim_packet packet = {.kind = PACKET_REFUSED,
                              .refused = refused_request(effect->asked),
                              .number = effect->number,
                              .code = effect->error->code};
  snprintf(packet.text, sizeof packet.text, "%.399s", effect->error->message);
  if (effect->asked == COORDINATOR_EV_JOIN)
    sim->nodes[link_of(sim, (uint64_t)(uintptr_t)effect->link)->node].excused = true;
  link_of(sim, (uint64_t)(uintptr_t)effect->link)->refused = true;
  tell(sim, effect, packet);
}

static void tell_news(struct sim *sim, const struct coordinator_effect *effect) {
  const struct native_news *news = effect->news;
  struct sim_packet packet = {.kind = PACKET_NEWS,
                              .what = news->what,
                              .round = news->round,
                              .waiting = news->waiting,
                              .gone = news->gone,
                              .who = news->named > 0 ? sim_find(&news->nodes[0]) : 0};
  snprintf(packet.text, sizeof packet.text, "%s", news->warning ? news->warning : "");
  tell(sim, effect, packet);
}

static void close_link(struct sim *sim, const struct coordinator_effect *effect) {
  tell(sim, effect, (struct sim_packet){.kind = PACKET_DOWN});
  link_of(sim, (uint64_t)(uintptr_t)effect->link)->open = false;
}

static void tell_joined(struct sim *sim, const struct coordinator_effect *effect) {
  struct native_joined joined = *effect->joined;
  joined.master_node = joined.master_addr = "";
  if (!check_knows_round(sim, joined.round)) look(sim, effect->run);
  tell(sim, effect, (struct sim_packet){.kind = PACKET_JOINED, .joined = joined});
}

static void save(struct sim *sim, struct coordinator_run *run) {
  look(sim, run);
  write_blob(sim, run);
}

static void carry_out(void *user, const struct coordinator_effect *effect) {
  struct sim *sim = user;
  switch (effect->kind) {
    case COORDINATOR_DO_JOINED: tell_joined(sim, effect); break;
    case COORDINATOR_DO_RESUMED:
      tell(sim, effect, (struct sim_packet){.kind = PACKET_RESUMED, .number = effect->number});
      break;
    case COORDINATOR_DO_LEFT:
      sim->nodes[link_of(sim, (uint64_t)(uintptr_t)effect->link)->node].excused = true;
      tell(sim, effect, (struct sim_packet){.kind = PACKET_LEFT});
      break;
    case COORDINATOR_DO_CLOSED: tell(sim, effect, (struct sim_packet){.kind = PACKET_CLOSED}); break;
    case COORDINATOR_DO_FAIL: refuse(sim, effect); break;
    case COORDINATOR_DO_TELL: tell_news(sim, effect); break;
    case COORDINATOR_DO_DROP: close_link(sim, effect); break;
    case COORDINATOR_DO_CHANGED: sim->blob_changed = true; break;
    case COORDINATOR_DO_SAVE: save(sim, effect->run); break;
  }
}

static void trace(void *user, const char *line) {
  struct sim *sim = user;
  if (sim->details) fprintf(sim->details, "%9.3f  %-8s   %s\n", (double)sim->now / 1000, "server", line);
}

static void wake(struct sim *sim) {
  const int64_t at = coordinator_wake(sim->coordinator), start = now_of(sim).mono_ms - sim->now;
  if (at == sim->server_wake) return;
  sim->server_wake = at;
  sim->server_timer = ++sim->next_number;
  if (at == INT64_MAX) return;
  struct sim_event event = {.at = at - start, .kind = SIM_SERVER_TIMER, .number = sim->server_timer};
  if (event.at <= sim->now) event.at = sim->now + 1;
  sim_schedule(sim, event);
}

static void step(struct sim *sim, struct coordinator_event event) {
  rdzv_error error = {0};
  event.now = now_of(sim);
  event.run_id = SIM_RUN_ID;
  if (coordinator_step(sim->coordinator, &event, &error) < 0) sim_fail(sim, "the server: %s", error.message);
  const struct coordinator_run *run = run_of(sim);
  if (run && sim->blob_changed) look(sim, run);
  for (size_t i = 0; i < sim->node_count; i++) sim->nodes[i].excused = false;
  for (size_t i = 0; sim->blob_changed && i < sim->node_count; i++) sim_listen(sim, i);
  sim->blob_changed = false;
  wake(sim);
}

/* ---- what comes ----------------------------------------------------------------------------------------------- */

static void *name_of(uint64_t link) { return (void *)(uintptr_t)link; } /* NOLINT: not looked into */

/* The session is heard on this connection, unless it was just refused. */
static void attach(struct sim *sim, uint64_t link) {
  struct sim_node *node = &sim->nodes[link_of(sim, link)->node];
  if (!link_of(sim, link)->open || link_of(sim, link)->refused) return;
  node->attached = link;
  node->lost = false;
  node->heard_at = server_clock(sim);
}

static void end(struct sim *sim, uint64_t link) {
  struct sim_node *node = &sim->nodes[link_of(sim, link)->node];
  if (!link_of(sim, link)->open) return;
  link_of(sim, link)->open = false;
  if (node->attached == link) {
    node->lost = true;
    node->lost_at = server_clock(sim);
  }
  step(sim, (struct coordinator_event){.kind = COORDINATOR_EV_LOST, .link = name_of(link)});
}

static void beat(struct sim *sim, uint64_t link, bool wants_answer) {
  struct sim_node *node = &sim->nodes[link_of(sim, link)->node];
  if (node->attached == link) node->heard_at = server_clock(sim);
  step(sim, (struct coordinator_event){.kind = COORDINATOR_EV_HEARD, .link = name_of(link), .trip_us = -1});
  if (wants_answer) link_send(sim, link, false, &(struct sim_packet){.kind = PACKET_BEAT});
}

static void join(struct sim *sim, uint64_t link, const struct native_join *join) {
  struct sim_node *node = &sim->nodes[link_of(sim, link)->node];
  const int64_t ends = sim->now + join->settings.join_timeout;
  if (node->join_number != join->number || ends < node->join_ends) node->join_ends = ends; /* it may be sent again */
  node->join_number = join->number;
  adopt(sim);
  step(sim, (struct coordinator_event){.kind = COORDINATOR_EV_JOIN, .link = name_of(link), .join = join});
  attach(sim, link);
}

void server_receive(struct sim *sim, struct sim_event *event) {
  const struct sim_packet *packet = event->packet;
  const uint64_t link = event->link;
  struct sim_link *way = link_of(sim, link);
  if (packet->kind != PACKET_DOWN && (way->broken || way->open == (packet->kind == PACKET_CONNECT))) return;
  way->refused = false;
  switch (packet->kind) {
    case PACKET_CONNECT:
      way->open = true;
      link_send(sim, link, false, &(struct sim_packet){.kind = PACKET_CONNECTED});
      break;
    case PACKET_DOWN: end(sim, link); break;
    case PACKET_JOIN: join(sim, link, &packet->join); break;
    case PACKET_RESUME:
      step(sim, (struct coordinator_event){
                    .kind = COORDINATOR_EV_RESUME, .link = name_of(link), .session = &packet->join.session});
      attach(sim, link);
      break;
    case PACKET_LEAVE:
      step(sim, (struct coordinator_event){.kind = COORDINATOR_EV_LEAVE, .link = name_of(link)});
      break;
    case PACKET_CLOSE:
      adopt(sim);
      step(sim, (struct coordinator_event){.kind = COORDINATOR_EV_CLOSE, .link = name_of(link)});
      break;
    default: beat(sim, link, packet->number > 0); break;
  }
}

void server_time(struct sim *sim) {
  sim->server_wake = INT64_MIN;
  step(sim, (struct coordinator_event){.kind = COORDINATOR_EV_TIMER});
}

uint64_t server_swapped(struct sim *sim, size_t writer, struct rendezvous_state *state) {
  struct rendezvous_state copy;
  check_write(sim, writer, &sim->cell, state);
  need(state_copy(&copy, state));
  state_free(&sim->cell);
  sim->cell = copy;
  buf_free(&sim->blob);
  need(pickle_write(state, coordinator_run_layout(run_of(sim)), &sim->blob, NULL) == 0);
  const uint64_t token = sim->version = ++sim->versions; /* the step may change the state further */
  const enum torch_layout layout = coordinator_run_layout(run_of(sim));
  step(sim, (struct coordinator_event){.kind = COORDINATOR_EV_SWAPPED, .state = state, .layout = layout});
  return token;
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

void server_begin(struct sim *sim) {
  sim->server = (struct sim_node){.host = sim_add_host(sim, 0), .label = "server"};
  sim->server_wake = INT64_MAX;
  sim->coordinator = coordinator_new(carry_out, sim, trace);
  need(sim->coordinator != NULL);
}

void server_free(struct sim *sim) {
  coordinator_free(sim->coordinator);
  sim->coordinator = NULL;
  free(sim->links);
  buf_free(&sim->blob);
}

void server_lose(struct sim *sim) {
  if (!sim->coordinator) return;
  coordinator_free(sim->coordinator);
  sim->coordinator = coordinator_new(carry_out, sim, trace);
  need(sim->coordinator != NULL);
  buf_free(&sim->blob);
  for (size_t i = 0; i < sim->link_count; i++) {
    if (sim->links[i].open) link_reset(sim, i + 1);
    sim->links[i].open = false;
  }
  wake(sim);
}
