/* SPDX-License-Identifier: BSD-3-Clause */
/* The handler's thread: carries out what the engine wants, feeds it what comes of that and what the user asks, and
 * tells the user what happens. */
#include "base/error.h"
#include "base/log.h"
#include "base/wait/thread.h"
#include "handler/dynamic/dynamic.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum { NO_MEMORY_MS = 100 }; /* before trying again */

/* ---- telling -------------------------------------------------------------------------------------------------- */

void dynamic_ask(struct dynamic *handler, unsigned what) {
  handler->asks |= what;
  pthread_cond_signal(&handler->asked);
  if (handler->in_backend_wait) handler->ops.wake(handler->backend);
}

static void answer(struct dynamic *handler, unsigned what, int outcome, const rdzv_error *error) {
  if (handler->answering != what || (handler->asks & what)) return; /* nobody waits any more, or for a later one */
  handler->answering = 0;
  handler->outcome = outcome;
  if (error) handler->error = *error;
  flag_raise(&handler->done);
}

static void tell_joined(struct dynamic *handler, const struct engine_update *update) {
  events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, update->round, update->rank,
              "joined round %" PRId64 " as rank %" PRId64 " in a world of %" PRId64, update->round, update->rank,
              update->world_size);
  if (handler->answering != DYNAMIC_JOIN || (handler->asks & DYNAMIC_JOIN)) return; /* nobody waits any more */
  struct round_result *result = result_new(handler->base.run_id, handler->ops.name, handler->base.node);
  if (!result || !result_add_participants(result, update->state)) {
    answer(handler, DYNAMIC_JOIN, error_no_memory(&handler->error), NULL);
    rdzv_result_free(result ? &result->base : NULL);
    return;
  }
  result->base.round = update->round;
  result->base.rank = update->rank;
  result->base.world_size = update->world_size;
  handler->joined = result;
  handler->member = handler->been_member = true;
  change_clear(&handler->change);
  flag_lower(&handler->changed);
  flag_lower(&handler->ended);
  answer(handler, DYNAMIC_JOIN, 0, NULL);
}

static void tell_failed(struct dynamic *handler, const struct engine_update *update) {
  const unsigned what = update->failed == ENGINE_EV_ASK_JOIN    ? DYNAMIC_JOIN
                        : update->failed == ENGINE_EV_ASK_LEAVE ? DYNAMIC_LEAVE
                                                                : DYNAMIC_CLOSE;
  rdzv_error error = update->error;
  if (error.code == RDZV_E_TIMEOUT) error_append(&error, "; at %s", handler->ops.describe(handler->backend));
  events_note(&handler->events, RDZV_NODE_STATE_FAILED, -1, -1, "%s", error.message);
  answer(handler, what, error.code, &error);
}

static void tell_changes(struct dynamic *handler, const struct engine_update *update) {
  static const struct {
    unsigned news, what;
    const char *text;
  } changes[] = {{ENGINE_NEWS_SOMEONE_WAITS, RDZV_CHANGE_WAITING, "somebody waits for the next round"},
                 {ENGINE_NEWS_PARTICIPANT_LEFT, RDZV_CHANGE_LEFT, "a member left the round"},
                 {ENGINE_NEWS_PARTICIPANT_DIED, RDZV_CHANGE_DIED, "a member died"},
                 {ENGINE_NEWS_IS_CLOSED, RDZV_CHANGE_CLOSED, "the rendezvous was closed"},
                 {ENGINE_NEWS_EVICTED, RDZV_CHANGE_EVICTED, "the round goes on without this node"}};
  unsigned what = 0;
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    const unsigned news = update->news & changes[i].news;
    if (!news) continue;
    what |= changes[i].what;
    const char *name = news == ENGINE_NEWS_PARTICIPANT_LEFT   ? update->left.text
                       : news == ENGINE_NEWS_PARTICIPANT_DIED ? update->dead.text
                                                              : "";
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, handler->engine.round, -1, "%s%s%s", changes[i].text,
                *name ? ": " : "", name);
  }
  if (what == 0) return;
  for (const struct peer *peer = NULL; (peer = engine_gone(&handler->engine, update, peer));)
    change_add_node(&handler->change, node_text(&peer->desc).text);
  handler->change.what |= what;
  if (what & RDZV_CHANGE_EVICTED) handler->member = false;
  flag_raise(&handler->changed);
  if (what & ~(unsigned)RDZV_CHANGE_WAITING) flag_raise(&handler->ended);
}

static void tell(struct dynamic *handler, const struct engine_update *update) {
  if (update->news & ENGINE_NEWS_JOINED) tell_joined(handler, update);
  if (update->news & ENGINE_NEWS_LEFT) {
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, -1, -1, "left the rendezvous");
    answer(handler, DYNAMIC_LEAVE, 0, NULL);
  }
  if (update->news & ENGINE_NEWS_CLOSE_DONE) {
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, -1, -1, "closed the rendezvous");
    answer(handler, DYNAMIC_CLOSE, 0, NULL);
  }
  if (update->news & ENGINE_NEWS_FAILED) tell_failed(handler, update);
  tell_changes(handler, update);
}

/* A write that took effect. */
static void tell_written(struct dynamic *handler, enum rendezvous_action action, int64_t round) {
  static const char *const texts[] = {
      [ACTION_ADD_TO_PARTICIPANTS] = "is a participant of the round",
      [ACTION_ADD_TO_WAIT_LIST] = "is in the wait list: the round is complete, and it waits for the next",
      [ACTION_ADD_TO_REDUNDANCY_LIST] = "is a spare: the round is complete and full",
      [ACTION_REMOVE_FROM_PARTICIPANTS] = "is out of the round",
      [ACTION_REMOVE_FROM_WAIT_LIST] = "is out of the wait list",
      [ACTION_REMOVE_FROM_REDUNDANCY_LIST] = "is no spare any more",
      [ACTION_MARK_RENDEZVOUS_COMPLETE] = "completed the round",
  };
  const char *text = (size_t)action < sizeof texts / sizeof texts[0] ? texts[action] : NULL;
  if (text) events_note(&handler->events, RDZV_NODE_STATE_RUNNING, round, -1, "%s", text);
}

/* ---- the engine ----------------------------------------------------------------------------------------------- */

static struct moment now(void) { return (struct moment){clock_now_ms(), clock_wall_us()}; }

/* One step, with the lock held. Where there is no memory for it, nothing is under way, and we try again in a while. */
static void step(struct dynamic *handler, struct engine_event *event, struct engine_update *update) {
  rdzv_error error;
  event->now = now();
  if (engine_step(&handler->engine, event, update, &error) < 0) {
    log_line(&handler->base.log, RDZV_LOG_WARNING, "%s", error.message);
    *update = (struct engine_update){.request = ENGINE_DO_BACK_OFF, .until_ms = event->now.mono_ms + NO_MEMORY_MS};
    return;
  }
  tell(handler, update);
}

static void note_answer(struct dynamic *handler) {
  handler->answered_ms = clock_now_ms();
  silence_end(&handler->silence, handler->answered_ms);
}

/* What the store's answer, or its absence, tells of the store. */
static void note_store(struct dynamic *handler, const struct engine_event *event) {
  const bool failed = event->kind == ENGINE_EV_STORE_ERROR;
  if (event->kind != ENGINE_EV_STATE_READ && event->kind != ENGINE_EV_SWAP_WON && event->kind != ENGINE_EV_SWAP_LOST &&
      !failed)
    return;
  if (failed && !handler->store_failed) {
    log_line(&handler->base.log, RDZV_LOG_WARNING, "the store of the rendezvous fails: %s", event->error->message);
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, -1, -1, "the store fails: %s", event->error->message);
  }
  if (!failed && handler->store_failed)
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, -1, -1, "the store is back");
  handler->store_failed = failed;
  if (failed)
    handler->trouble = *event->error;
  else
    handler->trouble.code = 0;
  if (!failed) note_answer(handler);
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

static void finish_look(struct dynamic *handler, int outcome, const rdzv_error *error) {
  handler->look_outcome = outcome;
  if (error) handler->look_error = *error;
  flag_raise(&handler->looked);
}

/* Keeps a copy of what was read for the user. */
static void show(struct dynamic *handler, const struct engine_event *event) {
  if (event->kind == ENGINE_EV_STORE_ERROR) {
    finish_look(handler, event->error->code, event->error);
    return;
  }
  handler->watching = false;
  state_free(&handler->view);
  handler->view_exists = event->state != NULL;
  handler->view_token = event->token;
  const bool copied = !event->state || state_copy(&handler->view, event->state);
  finish_look(handler, copied ? 0 : error_no_memory(&handler->look_error), NULL);
}

/* Enters a wait in the backend, unless something is asked already, other than what it is for. */
static bool begin_backend_wait(struct dynamic *handler, unsigned what_for) {
  pthread_mutex_lock(&handler->lock);
  handler->in_backend_wait = (handler->asks & ~what_for) == 0 && !handler->stopping;
  const bool begun = handler->in_backend_wait;
  pthread_mutex_unlock(&handler->lock);
  return begun;
}

static void end_backend_wait(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  handler->in_backend_wait = false;
  pthread_mutex_unlock(&handler->lock);
}

/* The user wants to see the state: now, or when it is another than what was seen. Whatever else is to be done comes
 * first, and what is read is the engine's, too. */
static void look(struct dynamic *handler, struct engine_update *update) {
  struct rendezvous_state state = STATE_EMPTY;
  struct engine_event event;
  rdzv_error error;
  pthread_mutex_lock(&handler->lock);
  const int64_t until = handler->look_until;
  const uint64_t known = handler->look_known;
  pthread_mutex_unlock(&handler->lock);
  const bool may_wait = update->request == ENGINE_DO_NOTHING && deadline_left(until) > 0;
  bool there = true;
  if (may_wait) {
    if (!begin_backend_wait(handler, DYNAMIC_LOOK)) return;
    there = cell_await(handler, known, until, &event, &state, &error);
    end_backend_wait(handler);
    if (there && event.kind == ENGINE_EV_TIMER) cell_read(handler, &event, &state, &error);
  } else {
    cell_read(handler, &event, &state, &error);
  }
  if (!there) return;
  pthread_mutex_lock(&handler->lock);
  handler->asks &= ~(unsigned)DYNAMIC_LOOK;
  note_store(handler, &event);
  show(handler, &event);
  const bool usable = event.kind == ENGINE_EV_STATE_READ && !handler->engine.under_way;
  if (usable) step(handler, &event, update);
  pthread_mutex_unlock(&handler->lock);
  state_free(&state);
}

/* ---- carrying out --------------------------------------------------------------------------------------------- */

/* False: something is asked. */
static bool pause_until(struct dynamic *handler, int64_t until_ms) {
  pthread_mutex_lock(&handler->lock);
  while (handler->asks == 0 && !handler->stopping && thread_cond_wait(&handler->asked, &handler->lock, until_ms)) {
  }
  const bool asked = handler->asks != 0 || handler->stopping;
  pthread_mutex_unlock(&handler->lock);
  return !asked;
}

static void give_permit(struct dynamic *handler) {
  if (handler->has_permit) handler->ops.give_permit(handler->backend);
  handler->has_permit = false;
}

/* One wait for the permit, no longer than what the silence of a store is told from: it has answered by then. */
static int await_permit(struct dynamic *handler, int64_t timeout_ms) {
  const int64_t most = silence_look_interval(&handler->engine.config.settings);
  rdzv_error error;
  if (!begin_backend_wait(handler, 0)) return RDZV_E_CANCELED;
  const int result = handler->ops.take_permit(handler->backend, timeout_ms < most ? timeout_ms : most, &error);
  end_backend_wait(handler);
  if (result == 0 || result == RDZV_E_TIMEOUT) {
    pthread_mutex_lock(&handler->lock);
    note_answer(handler);
    pthread_mutex_unlock(&handler->lock);
  }
  return result;
}

/* Waits for the permit. False: something is asked. */
static bool take_permit(struct dynamic *handler, const struct engine_update *update, struct engine_event *event) {
  int result;
  do {
    result = await_permit(handler, deadline_left(update->permit_ms));
  } while (result == RDZV_E_TIMEOUT && deadline_left(update->permit_ms) > 0);
  if (result == RDZV_E_CANCELED) return false;
  handler->has_permit = result == 0;
  *event = (struct engine_event){.kind = ENGINE_EV_PERMIT};
  return result == 0 || result == RDZV_E_TIMEOUT || pause_until(handler, update->until_ms);
}

static bool back_off(struct dynamic *handler, const struct engine_update *update, struct engine_event *event) {
  const bool permits = handler->ops.take_permit && update->permit_ms > 0;
  if (permits && !handler->has_permit) return take_permit(handler, update, event);
  *event = (struct engine_event){.kind = ENGINE_EV_TIMER};
  return pause_until(handler, update->until_ms);
}

static bool await(struct dynamic *handler, const struct engine_update *update, struct engine_event *event,
                  struct rendezvous_state *state, rdzv_error *error) {
  if (!pause_until(handler, update->from_ms) || !begin_backend_wait(handler, 0)) return false;
  const bool there = cell_await(handler, update->token, update->until_ms, event, state, error);
  end_backend_wait(handler);
  return there;
}

static void swap(struct dynamic *handler, const struct engine_update *update, struct engine_event *event,
                 struct rendezvous_state *state, rdzv_error *error) {
  const int64_t round = update->state->round;
  cell_swap(handler, update, event, state, error);
  event->has_permit = handler->has_permit;
  if (event->kind == ENGINE_EV_SWAP_WON) tell_written(handler, update->action, round);
  if (event->kind != ENGINE_EV_SWAP_LOST) give_permit(handler);
}

/* What the engine wants; false: there is no event, for something is asked. */
static bool carry_out(struct dynamic *handler, const struct engine_update *update, struct engine_event *event,
                      struct rendezvous_state *state, rdzv_error *error) {
  if (update->request == ENGINE_DO_NOTHING || update->request == ENGINE_DO_WAIT) give_permit(handler);
  switch (update->request) {
    case ENGINE_DO_READ:
      cell_read(handler, event, state, error);
      if (event->kind == ENGINE_EV_STORE_ERROR) give_permit(handler);
      return true;
    case ENGINE_DO_SWAP: swap(handler, update, event, state, error); return true;
    case ENGINE_DO_WAIT: return await(handler, update, event, state, error);
    case ENGINE_DO_BACK_OFF: return back_off(handler, update, event);
    case ENGINE_DO_NOTHING:
    case ENGINE_DO_CONTINUE: break; /* which take_asks lets nobody see */
  }
  return pause_until(handler, INT64_MAX);
}

/* Hands what the user asked to the engine, with the lock held. */
static void take_asks(struct dynamic *handler, struct engine_update *update) {
  static const struct {
    unsigned what;
    enum engine_event_kind kind;
  } kinds[] = {{DYNAMIC_STOP, ENGINE_EV_ASK_STOP},
               {DYNAMIC_LEAVE, ENGINE_EV_ASK_LEAVE},
               {DYNAMIC_JOIN, ENGINE_EV_ASK_JOIN},
               {DYNAMIC_CLOSE, ENGINE_EV_ASK_CLOSE}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (!(handler->asks & kinds[i].what)) continue;
    handler->asks &= ~kinds[i].what;
    struct engine_event event = {.kind = kinds[i].kind};
    struct engine_update next;
    step(handler, &event, &next);
    if (next.request != ENGINE_DO_CONTINUE) *update = next; /* else what is to be carried out still is */
  }
}

/* One iteration of the loop. False: it is over. */
static bool iterate(struct dynamic *handler, struct engine_update *update) {
  struct rendezvous_state state = STATE_EMPTY;
  struct engine_event event = {.kind = ENGINE_EV_TIMER};
  rdzv_error error;
  const bool there = carry_out(handler, update, &event, &state, &error);
  pthread_mutex_lock(&handler->lock);
  silence_look(&handler->silence, &handler->engine.config.settings, clock_now_ms());
  if (there) {
    note_store(handler, &event);
    if (handler->watching && event.state && event.token != handler->look_known) show(handler, &event);
    step(handler, &event, update);
  }
  take_asks(handler, update);
  const bool wants_look = handler->asks & DYNAMIC_LOOK, over = handler->stopping;
  pthread_mutex_unlock(&handler->lock);
  events_flush(&handler->events);
  state_free(&state);
  const bool busy = update->request == ENGINE_DO_READ || update->request == ENGINE_DO_SWAP;
  if (wants_look && !over && !busy) look(handler, update);
  return !over;
}

void *dynamic_run(void *arg) {
  struct dynamic *handler = arg;
  struct engine_update update = {.request = ENGINE_DO_NOTHING};
  while (iterate(handler, &update)) {
  }
  give_permit(handler);
  return NULL;
}
