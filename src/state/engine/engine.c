/* SPDX-License-Identifier: BSD-3-Clause */
/* What an event does to the engine. decide.c decides what follows. */
#include "state/engine/engine.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

void engine_init(struct engine *engine, const struct engine_config *config) {
  *engine = (struct engine){.config = *config,
                            .state = STATE_EMPTY,
                            .last_call = LAST_CALL_NONE,
                            .tried_us = DATETIME_NONE,
                            .pace = {.random = config->seed},
                            .rounds = ROUNDS_NONE};
}

void engine_free(struct engine *engine) {
  state_free(&engine->state);
  liveness_free(&engine->liveness);
  engine_watch_end(engine);
}

void engine_set_redundancy_list(struct engine *engine, bool has) { engine->config.settings.has_redundancy_list = has; }

void engine_trace(const struct engine *engine, const char *format, ...) {
  if (!engine->config.trace) return;
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  engine->config.trace(engine->config.argument, line);
}

static void ask(struct engine *engine, enum engine_wish wish, int64_t deadline) {
  engine_watch_end(engine);
  engine->wish = wish;
  engine->wish_deadline = deadline;
  engine->store_error.code = 0; /* of before */
  engine->too_late.text[0] = '\0';
}

static void stop(struct engine *engine) {
  ask(engine, WISH_NOTHING, 0);
  engine->closing = false;
}

/* The request was answered, so the store is there. */
static void answered(struct engine *engine, struct moment now) {
  if (engine->under_way) pace_measure(&engine->pace, now.mono_ms - engine->sent_ms);
  engine->under_way = false;
  engine->store_error.code = 0;
  engine->pace.errors = 0;
}

/* Everything that is to be learnt from a state that is in the store as it is here. */
static int learn(struct engine *engine, const struct engine_event *event, struct engine_update *update,
                 rdzv_error *error) {
  const struct engine_config *config = &engine->config;
  const struct state_node *self = state_find(&engine->state, &config->node);
  engine->token = event->token;
  engine->read_ms = event->now.mono_ms;
  if (self && self->last_heartbeat == engine->tried_us) { /* our last write took effect, answered or not */
    if (engine->beat_ms != engine->tried_ms) engine->answers = false;
    engine->beat_ms = engine->tried_ms;
    if (engine->came_back && engine->wish == WISH_EXIT) engine->wish = WISH_JOIN;
  }
  engine->came_back = false;
  rounds_observe(&engine->rounds, &engine->state, &config->node, event->token);
  engine_watch(engine, event->now, update);
  if ((engine->in_round || engine->wish != WISH_NOTHING) &&
      differences_next(&engine->differences, &engine->state, &config->settings, differences_find_torch(&engine->state),
                       &update->warning)) {
    update->news |= ENGINE_NEWS_WARNING;
    engine->answers = differences_is_asked(&engine->state, &config->node, &config->settings);
  }
  last_call_observe(&engine->last_call, &engine->state, &config->settings, event->now, false,
                    pace_jitter(&engine->pace, 20 * (int64_t)engine->state.num_participants));
  const int result =
      liveness_observe(&engine->liveness, &config->settings, &config->node, &engine->state, event->now, error);
  engine->known = engine->fresh = result == 0;
  engine->dropped = false;
  return result;
}

static void take_over(struct engine *engine, struct rendezvous_state *state) {
  state_free(&engine->state);
  if (!state) return;
  engine->state = *state;
  *state = STATE_EMPTY;
}

static void lose(struct engine *engine, struct moment now, bool has_permit) {
  const struct rendezvous_settings *settings = &engine->config.settings;
  const bool has_heartbeat = state_find(&engine->state, &engine->config.node) != NULL;
  int64_t wait = pace_after_loss(&engine->pace, settings, &engine->state, has_heartbeat);
  if (engine->closing || engine->wish == WISH_LEAVE) wait %= 1 + settings->close_timeout / 16;
  if (has_permit) wait = 0; /* no other node that takes permits writes now */
  engine->back_off_ms = now.mono_ms + wait;
  engine->permit_ms = now.mono_ms + pace_permit(settings, has_heartbeat);
  engine_trace(engine, "another node wrote first, %u in a row -> back off for %lld ms", engine->pace.losses,
               (long long)wait);
}

static void store_failed(struct engine *engine, struct moment now, const rdzv_error *error) {
  engine->under_way = engine->known = false;
  rounds_maybe_written(&engine->rounds);
  engine->store_error = error ? *error : (rdzv_error){.code = RDZV_E_CONNECTION};
  if (engine->store_error.code == 0) engine->store_error.code = RDZV_E_CONNECTION;
  const int64_t wait = pace_after_error(&engine->pace);
  engine->back_off_ms = now.mono_ms + wait;
  engine->permit_ms = 0;
  engine_trace(engine, "the store failed: %s -> back off for %lld ms", engine->store_error.message, (long long)wait);
}

static int absorb(struct engine *engine, const struct engine_event *event, struct engine_update *update,
                  rdzv_error *error) {
  const struct rendezvous_settings *settings = &engine->config.settings;
  const int64_t now_ms = event->now.mono_ms;
  int result = 0;
  switch (event->kind) {
    case ENGINE_EV_ASK_JOIN:
      ask(engine, WISH_EXIT, now_ms + settings->join_timeout);
      engine->back_off_ms = now_ms + pace_before_join(&engine->pace, settings);
      engine->permit_ms = now_ms + pace_permit(settings, false);
      break;
    case ENGINE_EV_ASK_LEAVE:
      ask(engine, WISH_LEAVE, now_ms + settings->close_timeout);
      if (engine->permit_ms > 0) engine->back_off_ms = now_ms;
      break;
    case ENGINE_EV_ASK_CLOSE:
      engine->closing = true;
      engine->store_error.code = 0;
      engine->close_deadline = now_ms + settings->close_timeout;
      if (engine->permit_ms > 0) engine->back_off_ms = now_ms;
      break;
    case ENGINE_EV_ASK_STOP: stop(engine); break;
    case ENGINE_EV_STATE_READ:
    case ENGINE_EV_SWAP_LOST:
      if (event->kind == ENGINE_EV_SWAP_LOST) rounds_not_written(&engine->rounds);
      answered(engine, event->now);
      take_over(engine, event->state);
      result = learn(engine, event, update, error);
      if (event->kind == ENGINE_EV_SWAP_LOST) lose(engine, event->now, event->has_permit);
      break;
    case ENGINE_EV_SWAP_WON:
      answered(engine, event->now);
      rounds_written(&engine->rounds);
      engine->pace.losses = 0;
      result = learn(engine, event, update, error);
      break;
    case ENGINE_EV_STORE_ERROR: store_failed(engine, event->now, event->error); break;
    case ENGINE_EV_PERMIT: engine->back_off_ms = now_ms; break;
    case ENGINE_EV_TIMER: break;
  }
  return result;
}

int engine_step(struct engine *engine, const struct engine_event *event, struct engine_update *update,
                rdzv_error *error) {
  engine->steps++;
  update->request = ENGINE_DO_NOTHING;
  update->state = NULL;
  update->news = 0;
  int result = absorb(engine, event, update, error);
  if (result == 0 && engine->under_way) {
    update->request = ENGINE_DO_CONTINUE;
    return 0;
  }
  if (result == 0) result = engine_decide(engine, event->now, update, error);
  engine->under_way = result == 0 && (update->request == ENGINE_DO_READ || update->request == ENGINE_DO_SWAP);
  if (engine->under_way) engine->sent_ms = event->now.mono_ms;
  if (result < 0) engine->known = false;
  return result;
}
