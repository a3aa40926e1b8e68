/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engine does next. Of what is wished for, closing comes first, then leaving or joining, then keeping alive.
 */
#include "base/error.h"
#include "state/engine/engine.h"
#include "state/join.h"

#include <inttypes.h>

enum { STALE_MS = 1000 }; /* PyTorch, too, takes a state for known as long */

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- failing -------------------------------------------------------------------------------------------------- */

static const char *wish_name(enum engine_event_kind asked) {
  return asked == ENGINE_EV_ASK_CLOSE ? "close" : asked == ENGINE_EV_ASK_LEAVE ? "leave" : "join";
}

static void fail(struct engine *engine, struct engine_update *update, enum engine_event_kind asked) {
  update->news |= ENGINE_NEWS_FAILED;
  update->failed = asked;
  if (asked == ENGINE_EV_ASK_CLOSE)
    engine->closing = false;
  else
    engine->wish = WISH_NOTHING;
  engine_trace(engine, "cannot %s: %s", wish_name(asked), update->error.message);
}

static bool lives(const void *argument, const struct node_desc *node) {
  return liveness_saw_change(&((const struct engine *)argument)->liveness, node);
}

static enum rendezvous_clash find_clash(const struct engine *engine, struct summary *out) {
  if (engine->closing || engine->wish != WISH_JOIN || engine->rounds.joined >= 0) return CLASH_NONE;
  return differences_clash(&engine->state, &engine->config.settings, lives, engine, out);
}

struct summary engine_clash(const struct engine *engine) {
  struct summary clash = {""};
  find_clash(engine, &clash);
  return clash;
}

static void fail_by_action(struct engine *engine, const struct rendezvous_context *context,
                           struct engine_update *update, enum engine_event_kind asked, enum rendezvous_action action) {
  struct summary summary = engine->too_late; /* with this node in it, which has been removed meanwhile */
  if (action == ACTION_ERROR_CLASH) find_clash(engine, &summary);
  if (action == ACTION_ERROR_TIMEOUT && !summary.text[0])
    summary = summary_joined(&engine->state, context->settings, &engine->liveness, context->now.mono_ms);
  join_fail(&update->error, action, wish_name(asked), &summary);
  if (action == ACTION_ERROR_CLASH) error_prefix(&update->error, RDZV_E_LIMIT, "cannot join the rendezvous");
  fail(engine, update, asked);
}

/* Trying again may help: nothing was done, or whatever was done the state will show. */
static bool is_passing(int code) {
  const rdzv_error_class class = rdzv_error_class_of(code);
  return class == RDZV_ERROR_CLASS_RETRYABLE || class == RDZV_ERROR_CLASS_UNCERTAIN;
}

static void fail_by_store(struct engine *engine, struct moment now, struct engine_update *update) {
  const bool passing = is_passing(engine->store_error.code);
  const enum engine_event_kind asked = engine->wish == WISH_LEAVE ? ENGINE_EV_ASK_LEAVE : ENGINE_EV_ASK_JOIN;
  if (engine->closing && (!passing || now.mono_ms > engine->close_deadline)) {
    error_set(&update->error, engine->store_error.code, "cannot close the rendezvous: %s", engine->store_error.message);
    fail(engine, update, ENGINE_EV_ASK_CLOSE); /* the next step reports other failures */
    return;
  }
  if (engine->wish != WISH_NOTHING && (!passing || now.mono_ms > engine->wish_deadline)) {
    error_set(&update->error, engine->store_error.code, "cannot %s the rendezvous: %s", wish_name(asked),
              engine->store_error.message);
    fail(engine, update, asked);
  }
}

/* ---- finishing ------------------------------------------------------------------------------------------------ */

static int finish_join(struct engine *engine, struct engine_update *update, rdzv_error *error) {
  const struct rendezvous_state *state = &engine->state;
  const char *obstacle = join_obstacle(state, engine->rounds.joined, world_is_whole(state));
  if (obstacle) {
    engine_trace(engine, "round %" PRId64 " %s -> exit, wait for the next", state->round, obstacle);
    engine->wish = WISH_EXIT;
    return 0;
  }
  if (!engine_watch_begin(engine)) return error_no_memory(error);
  engine->wish = WISH_NOTHING;
  engine->rounds.joined = state->round;
  update->news |= ENGINE_NEWS_JOINED;
  update->rank = state_find(state, &engine->config.node)->rank;
  update->world_size = (int64_t)state->num_participants;
  update->round = state->round;
  update->state = state;
  engine_trace(engine, "round %" PRId64 " is complete -> joined as rank %" PRId64 " of %" PRId64, update->round,
               update->rank, update->world_size);
  return 0;
}

static int finish(struct engine *engine, enum engine_event_kind asked, struct engine_update *update,
                  rdzv_error *error) {
  if (asked == ENGINE_EV_ASK_CLOSE) {
    engine->closing = false;
    update->news |= ENGINE_NEWS_CLOSE_DONE;
  } else if (asked == ENGINE_EV_ASK_LEAVE) {
    engine->wish = WISH_NOTHING;
    update->news |= ENGINE_NEWS_LEFT;
  } else if (engine->wish == WISH_EXIT) {
    engine->wish = WISH_JOIN;
  } else {
    return finish_join(engine, update, error);
  }
  return 0;
}

/* ---- deciding ------------------------------------------------------------------------------------------------- */

static enum rendezvous_action ask_rules(const struct engine *engine, struct rendezvous_context *context,
                                        enum engine_event_kind *asked) {
  *asked = engine->closing              ? ENGINE_EV_ASK_CLOSE
           : engine->wish == WISH_LEAVE ? ENGINE_EV_ASK_LEAVE
                                        : ENGINE_EV_ASK_JOIN;
  context->deadline_ms = engine->closing ? engine->close_deadline : engine->wish_deadline;
  if (engine->closing) return decide_close(context);
  switch (engine->wish) {
    case WISH_EXIT: return decide_exit(context);
    case WISH_JOIN: return join_decide(context);
    case WISH_LEAVE: return decide_leave(context);
    default: break;
  }
  context->deadline_ms = INT64_MAX; /* a keep-alive that fails is tried again */
  const enum rendezvous_action action = decide_keep_alive(context);
  return action == ACTION_FINISH ? ACTION_SYNC : action;
}

/* The dead are written off soon, by one of us: each waits for a random time and looks whether another was faster. */
static void drop_dead(struct engine *engine, struct moment now) {
  const struct rendezvous_settings *settings = &engine->config.settings;
  struct rendezvous_state *state = &engine->state;
  const size_t removed = liveness_sanitize(&engine->liveness, settings, &engine->config.node, state, now.mono_ms);
  if (engine->fresh && removed == 0) engine->evict_ms = 0;
  engine->fresh = false;
  if (removed == 0) return;
  engine->dropped = true;
  engine_trace(engine, "%zu silent for over their dead time -> dead, drop them", removed);
  if (engine->evict_ms == 0)
    engine->evict_ms = now.mono_ms + 1 + pace_jitter(&engine->pace, 2 * engine->pace.trip_ms * (int64_t)state->count);
}

/* Out of one collection and into another is one write, not two. */
static int come_back(struct engine *engine, struct rendezvous_context *context, rdzv_error *error) {
  context->deadline_ms = engine->wish_deadline;
  const enum rendezvous_action action = join_come_back(context);
  if (action == ACTION_SYNC) return 0;
  engine->came_back = true;
  if (engine->config.trace)
    engine_trace(engine, "%s -> %s", summary_condition(context).text, rendezvous_action_name(action));
  return rendezvous_apply(context, action, error);
}

/* Do other nodes need the change soon? Not a heartbeat, nor one more join while the round gathers. */
static bool is_urgent(const struct engine *engine, enum rendezvous_action action) {
  if (engine->dropped || engine->answers) return true;
  return action != ACTION_KEEP_ALIVE && (action != ACTION_ADD_TO_PARTICIPANTS || engine->state.complete);
}

static int write_state(struct engine *engine, struct rendezvous_context *context, enum rendezvous_action action,
                       struct engine_update *update, rdzv_error *error) {
  const bool joins = !engine->closing && (engine->wish == WISH_EXIT || engine->wish == WISH_JOIN);
  engine->came_back = false;
  if (joins && action_removes(action) && context->now.mono_ms > engine->wish_deadline)
    engine->too_late = summary_joined(&engine->state, context->settings, &engine->liveness, context->now.mono_ms);
  int result = rendezvous_apply(context, action, error);
  if (action == ACTION_REMOVE_FROM_REDUNDANCY_LIST && joins)
    engine->wish_deadline = context->now.mono_ms + context->settings->join_timeout;
  if (result == 0 && joins && action_removes(action)) result = come_back(engine, context, error);
  if (result < 0) return result;
  last_call_observe(&engine->last_call, &engine->state, context->settings, context->now, true, 0);
  const struct state_node *self = state_find(&engine->state, context->node);
  if (self && self->last_heartbeat == context->now.wall_us) {
    engine->tried_us = context->now.wall_us;
    engine->tried_ms = context->now.mono_ms;
  }
  rounds_write(&engine->rounds, &engine->state, context->node, engine->token);
  update->request = ENGINE_DO_SWAP;
  update->action = action;
  update->urgent = is_urgent(engine, action);
  update->state = &engine->state;
  update->token = engine->token;
  engine->known = false; /* until it is written */
  engine->evict_ms = 0;
  return 0;
}

static void wait_for_change(const struct engine *engine, const struct rendezvous_context *context,
                            struct engine_update *update) {
  const struct rendezvous_settings *settings = context->settings;
  const struct state_node *self = state_find(&engine->state, context->node);
  int64_t until = liveness_wake(&engine->liveness, settings, context->node);
  if (self && self->last_heartbeat != DATETIME_NONE)
    until = earlier(until, engine->beat_ms + pace_keep_alive(settings, &engine->state));
  if (self && engine->evict_ms > 0) until = earlier(until, engine->evict_ms);
  if (context->deadline_ms != INT64_MAX) until = earlier(until, context->deadline_ms + 1);
  const int64_t call_end = last_call_end(&engine->last_call, &engine->state, settings);
  if (!engine->state.complete && call_end != INT64_MAX) until = earlier(until, call_end + 1);
  const int64_t look = earlier(settings->keep_alive_interval, liveness_look_interval(settings));
  until = earlier(until, context->now.mono_ms + look);
  update->request = ENGINE_DO_WAIT;
  update->token = engine->token;
  update->until_ms = until > context->now.mono_ms ? until : context->now.mono_ms + 1;
  update->from_ms =
      earlier(update->until_ms, context->now.mono_ms + pace_rest(settings, &engine->state, engine->config.swap_ms));
}

/* One decision. *again: something was finished, and there may be more to do. */
static int decide_once(struct engine *engine, struct moment now, struct engine_update *update, bool *again,
                       rdzv_error *error) {
  const struct rendezvous_settings *settings = &engine->config.settings;
  drop_dead(engine, now);
  struct rendezvous_context context = {.node = &engine->config.node,
                                       .state = &engine->state,
                                       .settings = settings,
                                       .now = now,
                                       .first_round = engine->rounds.first};
  context.last_call_over = now.mono_ms > last_call_end(&engine->last_call, &engine->state, settings);
  context.keep_alive_due = now.mono_ms - engine->beat_ms >= pace_keep_alive(settings, &engine->state) ||
                           engine->answers || (engine->evict_ms > 0 && now.mono_ms >= engine->evict_ms);
  context.clash = find_clash(engine, &(struct summary){""});
  enum engine_event_kind asked;
  const enum rendezvous_action action = ask_rules(engine, &context, &asked);
  if (engine->config.trace)
    engine_trace(engine, "%s -> %s", summary_condition(&context).text, rendezvous_action_name(action));
  if (action_writes(action)) return write_state(engine, &context, action, update, error);
  if (action == ACTION_SYNC) {
    wait_for_change(engine, &context, update);
    return 0;
  }
  *again = true;
  if (action == ACTION_FINISH) return finish(engine, asked, update, error);
  fail_by_action(engine, &context, update, asked, action);
  return 0;
}

/* A heartbeat that has waited for most of the dead time does not back off. */
static bool is_overdue(const struct engine *engine, struct moment now) {
  const struct state_node *self = state_find(&engine->state, &engine->config.node);
  return engine->known && self &&
         now.mono_ms - engine->beat_ms > rendezvous_dead_time(&engine->config.settings) * 2 / 3;
}

static bool is_stale(const struct engine *engine, struct moment now) {
  const int64_t age = now.mono_ms - engine->read_ms;
  return age >= STALE_MS || age * (int64_t)engine->state.count > engine->config.settings.keep_alive_interval;
}

static bool must_back_off(struct engine *engine, struct moment now, struct engine_update *update) {
  if (engine->back_off_ms <= now.mono_ms || is_overdue(engine, now)) return false;
  engine->known = engine->known && engine->back_off_ms - now.mono_ms <= 1; /* by then another node will have written */
  update->request = ENGINE_DO_BACK_OFF;
  update->permit_ms = engine->permit_ms;
  update->until_ms = engine->back_off_ms;
  return true;
}

int engine_decide(struct engine *engine, struct moment now, struct engine_update *update, rdzv_error *error) {
  if (engine->store_error.code != 0) fail_by_store(engine, now, update);
  for (bool again = true; again;) {
    again = false;
    const bool idle = engine->wish == WISH_NOTHING && !engine->closing && !engine->in_round;
    if (idle || must_back_off(engine, now, update)) return 0; /* IDLE, unless it says otherwise */
    if (!engine->known || is_stale(engine, now)) {
      update->request = ENGINE_DO_READ;
      return 0;
    }
    const int result = decide_once(engine, now, update, &again, error);
    if (result < 0) return result;
  }
  return 0;
}
