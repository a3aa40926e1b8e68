/* SPDX-License-Identifier: BSD-3-Clause */
/* The cell of state, and the way to it: messages take a while each way, and may be lost or late; whoever gets no answer
 * in time is told so, although the request may have taken effect, or still will. */
#include "sim.h"

#include <stdlib.h>

enum { LATE_MS = 4000 };

void sim_message_free(struct sim_message *message) {
  if (!message) return;
  state_free(&message->state);
  free(message);
}

static struct sim_message *message_of(enum engine_event_kind kind, const struct rendezvous_state *state,
                                      uint64_t token) {
  struct sim_message *message = calloc(1, sizeof *message);
  if (!message) abort();
  *message = (struct sim_message){.kind = kind, .has_state = state != NULL, .state = STATE_EMPTY, .token = token};
  if (state && !state_copy(&message->state, state)) abort();
  return message;
}

static bool has_fault(struct sim *sim) {
  return sim->now < sim->quiet_from && (int)sim_random(sim, 1000) < sim->faults;
}

static int64_t travel(struct sim *sim, struct sim_node *node) {
  const int64_t late = has_fault(sim) ? (int64_t)sim_random(sim, LATE_MS) : 0;
  if (late > 0) node->troubled = sim->now;
  return 1 + late + (int64_t)sim_random(sim, (uint64_t)sim->latency_ms);
}

static bool is_cut(const struct sim *sim, const struct sim_node *node) { return sim->now < node->cut_until; }

static bool is_lost(struct sim *sim, struct sim_node *node) {
  const bool lost = is_cut(sim, node) || has_fault(sim);
  if (lost) node->troubled = sim->now;
  return lost;
}

void sim_send(struct sim *sim, size_t at, enum engine_event_kind kind, const struct rendezvous_state *state,
              uint64_t token) {
  struct sim_node *node = &sim->nodes[at];
  node->request = ++sim->next_number;
  node->wait = 0;
  node->listening = false;
  if (kind == ENGINE_EV_STATE_READ)
    sim->reads++, node->reads++;
  else
    sim->swaps++, node->swaps++;
  struct sim_event event = {.kind = SIM_ANSWER, .node = at, .number = node->request};
  event.at = sim->now + ANSWER_TIMEOUT_MS;
  event.message = message_of(ENGINE_EV_STORE_ERROR, NULL, 0);
  sim_schedule(sim, event);
  if (is_lost(sim, node)) return;
  event.kind = SIM_REQUEST;
  event.at = sim->now + travel(sim, node);
  event.message = message_of(kind, state, token);
  sim_schedule(sim, event);
}

/* `token`: of what was written, or of what is there. */
static void answer(struct sim *sim, size_t at, uint64_t number, enum engine_event_kind kind, uint64_t token) {
  struct sim_node *node = &sim->nodes[at];
  if (is_lost(sim, node)) return;
  const struct rendezvous_state *state = kind == ENGINE_EV_SWAP_WON || sim->version == 0 ? NULL : &sim->cell;
  sim_schedule(sim, (struct sim_event){.at = sim->now + travel(sim, node),
                                       .kind = SIM_ANSWER,
                                       .node = at,
                                       .number = number,
                                       .message = message_of(kind, state, token)});
}

/* If what is there is not what the node knows, it hears of it. */
void sim_listen(struct sim *sim, size_t at) {
  struct sim_node *node = &sim->nodes[at];
  if (node->alive && node->listening && !server_is_stopped(sim)) server_refresh(sim);
  if (server_is_stopped(sim) || !node->alive || !node->listening || node->listens_to == sim->version ||
      is_cut(sim, node))
    return;
  node->listening = false;
  node->request = ++sim->next_number; /* an answer without a question */
  answer(sim, at, node->request, ENGINE_EV_STATE_READ, sim->version);
}

void sim_receive(struct sim *sim, struct sim_event *event) {
  struct sim_message *message = event->message;
  server_refresh(sim);
  if (message->kind == ENGINE_EV_STATE_READ) {
    answer(sim, event->node, event->number, ENGINE_EV_STATE_READ, sim->version);
    return;
  }
  const bool won = message->token == sim->version;
  uint64_t token = sim->version;
  if (won && server_has_run(sim)) {
    sim->wins++;
    token = server_swapped(sim, event->node, &message->state);
  } else if (won) {
    sim->wins++;
    token = sim->version = ++sim->versions;
    check_write(sim, event->node, &sim->cell, &message->state);
    state_free(&sim->cell);
    sim->cell = message->state;
    message->state = STATE_EMPTY;
  }
  answer(sim, event->node, event->number, won ? ENGINE_EV_SWAP_WON : ENGINE_EV_SWAP_LOST, token);
  for (size_t i = 0; won && i < sim->node_count; i++) sim_listen(sim, i);
}

/* Somebody deletes the state, or the server begins again with nothing. */
void sim_lose(struct sim *sim) {
  sim_tell(sim, NULL, "the state is lost");
  sim->losses++;
  sim->version = 0;
  server_lose(sim);
  state_free(&sim->cell);
  for (size_t i = 0; i < sim->node_count; i++) {
    sim->nodes[i].knew = sim->nodes[i].seen;
    sim_listen(sim, i);
  }
}
