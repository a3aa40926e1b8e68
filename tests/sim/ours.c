/* SPDX-License-Identifier: BSD-3-Clause */
/* Drives an engine, and plays the program that uses it: a member that hears of a change joins the next round. */
#include "sim.h"

enum { REACTION_MS = 200 };

void sim_wait(struct sim *sim, size_t at, int64_t until, bool listen, int64_t from, uint64_t token) {
  struct sim_node *node = &sim->nodes[at];
  const int64_t start = sim_moment(sim, node).mono_ms - sim->now; /* of the node's clock */
  node->wait = ++sim->next_number;
  node->listening = false;
  node->listens_to = token;
  struct sim_event event = {.at = until - start, .kind = SIM_TIMER, .node = at, .number = node->wait};
  if (event.at <= sim->now) event.at = sim->now + 1;
  sim_schedule(sim, event);
  event.kind = SIM_LISTEN;
  event.at = from - start > sim->now ? from - start : sim->now;
  if (listen) sim_schedule(sim, event);
}

static void trace(void *argument, const char *line) {
  void **pair = argument;
  struct sim *sim = pair[0];
  const struct sim_node *node = pair[1];
  fprintf(sim->details, "%9.3f  %-8s   %s\n", (double)sim->now / 1000, node->label, line);
}

static void tell_happened(struct sim *sim, const struct sim_node *node, const struct engine_update *update) {
  static const struct {
    unsigned bit;
    const char *text;
  } notices[] = {{ENGINE_NEWS_LEFT, "has left"},
                 {ENGINE_NEWS_CLOSE_DONE, "has closed"},
                 {ENGINE_NEWS_SOMEONE_WAITS, "hears that someone waits"},
                 {ENGINE_NEWS_IS_CLOSED, "hears that it is closed"},
                 {ENGINE_NEWS_EVICTED, "hears that it was evicted"}};
  for (size_t i = 0; i < sizeof notices / sizeof notices[0]; i++)
    if (update->news & notices[i].bit) sim_tell(sim, node, "%s", notices[i].text);
  if (update->news & ENGINE_NEWS_PARTICIPANT_DIED) sim_tell(sim, node, "hears that %s died", update->dead.text);
  if (update->news & ENGINE_NEWS_PARTICIPANT_LEFT && !(update->news & ENGINE_NEWS_PARTICIPANT_DIED))
    sim_tell(sim, node, "hears that %s left", update->left.text);
  if (update->news & ENGINE_NEWS_WARNING) sim_tell(sim, node, "warns: %s", update->warning.text);
  if (update->news & ENGINE_NEWS_FAILED) sim_tell(sim, node, "gives up: %s", update->error.message);
}

void sim_react(struct sim *sim, size_t at, const struct engine_update *update) {
  struct sim_node *node = &sim->nodes[at];
  const unsigned changed =
      ENGINE_NEWS_SOMEONE_WAITS | ENGINE_NEWS_PARTICIPANT_LEFT | ENGINE_NEWS_PARTICIPANT_DIED | ENGINE_NEWS_EVICTED;
  tell_happened(sim, node, update);
  if (update->news & ENGINE_NEWS_JOINED) sim_joined(sim, at, update->round, update->rank, update->world_size);
  if (update->news & ENGINE_NEWS_FAILED && update->failed == ENGINE_EV_ASK_JOIN) {
    node->wants = update->error.code != RDZV_E_CLOSED && update->error.code != RDZV_E_GRACEFUL_EXIT &&
                  update->error.code != RDZV_E_LIMIT;
    if (node->wants) sim_do(sim, sim->now + 1, at, SIM_JOIN, 0);
  }
  if (update->news & changed && node->wants && node->joined) {
    node->joined = false;
    sim_do(sim, sim->now + (int64_t)sim_random(sim, REACTION_MS), at, SIM_JOIN, 0);
  }
}

static void step(struct sim *sim, size_t at, struct engine_event *event) {
  struct sim_node *node = &sim->nodes[at];
  static struct engine_update update;
  void *pair[] = {sim, node};
  rdzv_error error = {0};
  event->now = sim_moment(sim, node);
  node->engine.config.trace = sim->details ? trace : NULL;
  node->engine.config.argument = pair;
  if (engine_step(&node->engine, event, &update, &error) < 0) {
    sim_fail(sim, "%s: %s", node->label, error.message);
    return;
  }
  sim_react(sim, at, &update);
  switch (update.request) {
    case ENGINE_DO_READ: sim_send(sim, at, ENGINE_EV_STATE_READ, NULL, 0); break;
    case ENGINE_DO_SWAP: sim_send(sim, at, ENGINE_EV_SWAP_WON, update.state, update.token); break;
    case ENGINE_DO_WAIT: sim_wait(sim, at, update.until_ms, true, update.from_ms, update.token); break;
    case ENGINE_DO_BACK_OFF: sim_wait(sim, at, update.until_ms, false, 0, 0); break;
    case ENGINE_DO_NOTHING: node->wait = 0; break;
    case ENGINE_DO_CONTINUE: break;
  }
}

void ours_ask(struct sim *sim, size_t at, enum engine_event_kind what) {
  struct sim_node *node = &sim->nodes[at];
  if (!node->desc.addr) {
    node->desc.addr = node->addr;
    const struct engine_config config = {
        .node = node->desc, .settings = sim_settings(sim, node), .seed = sim_random(sim, 0)};
    engine_init(&node->engine, &config);
  }
  step(sim, at, &(struct engine_event){.kind = what});
}

void ours_timer(struct sim *sim, size_t at) { step(sim, at, &(struct engine_event){.kind = ENGINE_EV_TIMER}); }

void ours_answer(struct sim *sim, size_t at, struct sim_message *message) {
  const rdzv_error error = {.code = RDZV_E_OUTCOME_UNKNOWN, .message = "no answer"};
  struct sim_node *node = &sim->nodes[at];
  if (message->has_state && message->state.complete && message->state.round > node->seen)
    node->seen = message->state.round;
  step(sim, at,
       &(struct engine_event){.kind = message->kind,
                              .state = message->has_state ? &message->state : NULL,
                              .token = message->token,
                              .error = message->kind == ENGINE_EV_STORE_ERROR ? &error : NULL});
}

void sim_joined(struct sim *sim, size_t at, int64_t round, int64_t rank, int64_t size) {
  struct sim_node *node = &sim->nodes[at];
  sim_tell(sim, node, "is rank %d of %d in round %d", (int)rank, (int)size, (int)round);
  const int64_t before = !node->is_torch ? node->last_round : node->joined ? node->round : -1;
  if (round <= before) sim_fail(sim, "%s: rounds go back from %d to %d", node->label, (int)before, (int)round);
  node->joined = true;
  node->last_round = round;
  if (round > node->seen) node->seen = round;
  node->round = round;
  node->joins++;
  check_joined(sim, at, round, rank, size);
}
