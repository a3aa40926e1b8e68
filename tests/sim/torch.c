/* SPDX-License-Identifier: BSD-3-Clause */
/* A node as PyTorch's DynamicRendezvousHandler and its agent would be: everything by the wall clock, a second of sleep
 * where there is nothing to do, a heartbeat every interval, and a look at the wait list every second. */
#include "judge_by_wall.h"
#include "sim.h"

enum { SLEEP_MS = 1000, KEEP_ALIVE_MS = 5000 }; /* PyTorch 2.6 has no option for the latter */

static int64_t mono(const struct sim *sim, const struct sim_node *node) { return sim_moment(sim, node).mono_ms; }

static bool is_dead(void *expiry, const struct state_node *member) {
  return member->last_heartbeat != DATETIME_NONE && member->last_heartbeat < *(int64_t *)expiry;
}

static void sleep_for(struct sim *sim, size_t at, int64_t ms) {
  sim_wait(sim, at, mono(sim, &sim->nodes[at]) + ms, false, 0, 0);
}

static void join_again(struct sim *sim, size_t at) {
  struct sim_node *node = &sim->nodes[at];
  node->joined = false;
  node->torch.doing = TORCH_EXIT;
  node->torch.deadline_ms = mono(sim, node) + sim->settings.join_timeout;
  sim_send(sim, at, ENGINE_EV_STATE_READ, NULL, 0);
}

static enum rendezvous_action decide(const struct torch_node *torch, const struct rendezvous_context *context) {
  switch (torch->doing) {
    case TORCH_EXIT: return decide_exit(context);
    case TORCH_JOIN: return decide_join(context);
    default: return decide_keep_alive(context);
  }
}

/* The agent's second: is anybody waiting, am I still in it, is a heartbeat due? */
static void watch(struct sim *sim, size_t at) {
  struct sim_node *node = &sim->nodes[at];
  struct torch_node *torch = &node->torch;
  const struct state_node *self = state_find(&torch->state, &node->desc);
  torch->doing = TORCH_WATCH;
  if (torch->state.closed) {
    node->wants = node->joined = false;
    torch->doing = TORCH_IDLE;
  } else if (torch->state.num_waiting > 0 || !self || !(self->kinds & NODE_PARTICIPANT)) {
    join_again(sim, at);
  } else if (mono(sim, node) >= torch->next_beat_ms) {
    torch->next_beat_ms = mono(sim, node) + KEEP_ALIVE_MS;
    torch->deadline_ms = mono(sim, node) + sim->settings.heartbeat_timeout;
    torch->doing = TORCH_KEEP_ALIVE;
    sim_send(sim, at, ENGINE_EV_STATE_READ, NULL, 0);
  } else {
    sleep_for(sim, at, SLEEP_MS);
  }
}

static void finish(struct sim *sim, size_t at) {
  struct sim_node *node = &sim->nodes[at];
  struct torch_node *torch = &node->torch;
  if (torch->doing == TORCH_EXIT) {
    torch->doing = TORCH_JOIN;
    sim_send(sim, at, ENGINE_EV_STATE_READ, NULL, 0);
    return;
  }
  if (torch->doing == TORCH_JOIN) {
    const struct state_node *self = state_find(&torch->state, &node->desc);
    torch->next_beat_ms = mono(sim, node) + KEEP_ALIVE_MS;
    sim_joined(sim, at, torch->state.round, self->rank, (int64_t)torch->state.num_participants);
  }
  torch->doing = TORCH_WATCH;
  sleep_for(sim, at, SLEEP_MS);
}

static void act(struct sim *sim, size_t at) {
  struct sim_node *node = &sim->nodes[at];
  struct torch_node *torch = &node->torch;
  const struct moment now = sim_moment(sim, node);
  int64_t expiry = now.wall_us - TORCH_DEAD_MS * INT64_C(1000);
  struct rendezvous_settings settings = sim->settings;
  settings.marks = false;
  settings.keep_alive_interval = KEEP_ALIVE_MS;
  settings.keep_alive_max_attempt = TORCH_DEAD_MS / KEEP_ALIVE_MS;
  settings.rank_order = RANK_ORDER_TORCH;
  rendezvous_sanitize(&torch->state, &settings, is_dead, &expiry);
  if (torch->doing == TORCH_WATCH) {
    watch(sim, at);
    return;
  }
  struct rendezvous_context context = {.node = &node->desc,
                                       .state = &torch->state,
                                       .settings = &settings,
                                       .now = now,
                                       .deadline_ms = torch->deadline_ms};
  judge_by_wall(&context);
  const enum rendezvous_action action = decide(torch, &context);
  if (action_writes(action)) {
    if (rendezvous_apply(&context, action, NULL) < 0) sim_fail(sim, "no memory");
    sim_send(sim, at, ENGINE_EV_SWAP_WON, &torch->state, torch->token);
  } else if (action == ACTION_SYNC) {
    sleep_for(sim, at, SLEEP_MS);
  } else if (action == ACTION_FINISH || torch->doing == TORCH_KEEP_ALIVE) { /* which fails without a sound */
    finish(sim, at);
  } else {
    sim_tell(sim, node, "gives up: %s", rendezvous_action_name(action));
    torch->doing = TORCH_IDLE;
    node->wants = action == ACTION_ERROR_TIMEOUT;
    if (node->wants) join_again(sim, at);
  }
}

void torch_answer(struct sim *sim, size_t at, struct sim_message *message) {
  struct torch_node *torch = &sim->nodes[at].torch;
  if (message->kind == ENGINE_EV_STORE_ERROR) { /* an agent that is started again would go on so */
    sim_send(sim, at, ENGINE_EV_STATE_READ, NULL, 0);
    return;
  }
  if (message->kind != ENGINE_EV_SWAP_WON) {
    state_free(&torch->state);
    torch->state = message->state;
    message->state = STATE_EMPTY;
  }
  torch->token = message->token;
  act(sim, at);
}

void torch_timer(struct sim *sim, size_t at) { sim_send(sim, at, ENGINE_EV_STATE_READ, NULL, 0); }

void torch_ask(struct sim *sim, size_t at, enum engine_event_kind what) {
  struct sim_node *node = &sim->nodes[at];
  node->desc.addr = node->addr;
  if (what == ENGINE_EV_ASK_JOIN) join_again(sim, at);
}
