/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic/swap/swap.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/thread.h"
#include "base/wait/waiting.h"

#include <stdlib.h>

enum {
  NO_MEMORY_MS = 100, /* before trying again */
  FRESH_MS = 1000,    /* PyTorch, too, takes a state for known as long */
};

static struct swap *self(struct driver *driver) { return (struct swap *)driver; }

/* ---- what is asked -------------------------------------------------------------------------------------------- */

/* False: something is asked. */
static bool pause_until(struct swap *swap, int64_t until_ms) {
  pthread_mutex_lock(&swap->base.lock);
  while (!driver_is_asked(&swap->base) && !swap->view.wanted &&
         thread_cond_wait(&swap->asked, &swap->base.lock, until_ms)) {
  }
  const bool asked = driver_is_asked(&swap->base) || swap->view.wanted;
  pthread_mutex_unlock(&swap->base.lock);
  return !asked;
}

bool swap_begin_wait(struct swap *swap, bool is_look) {
  pthread_mutex_lock(&swap->base.lock);
  const bool begun = !driver_is_asked(&swap->base) && (is_look || !swap->view.wanted);
  swap->in_backend_wait = begun;
  pthread_mutex_unlock(&swap->base.lock);
  return begun;
}

void swap_end_wait(struct swap *swap) {
  pthread_mutex_lock(&swap->base.lock);
  swap->in_backend_wait = false;
  pthread_mutex_unlock(&swap->base.lock);
}

/* ---- the store ------------------------------------------------------------------------------------------------ */

void swap_note_store(struct swap *swap, const struct engine_event *event) {
  switch (event->kind) {
    case ENGINE_EV_STATE_READ:
    case ENGINE_EV_SWAP_WON:
    case ENGINE_EV_SWAP_LOST: driver_note_answer(&swap->base); break;
    case ENGINE_EV_STORE_ERROR: driver_note_failure(&swap->base, event->error); break;
    default: break;
  }
}

/* ---- what the engine knows ------------------------------------------------------------------------------------ */

static struct driver_facts facts(struct driver *driver) {
  struct swap *swap = self(driver);
  const struct engine *engine = &swap->engine;
  pthread_mutex_lock(&driver->lock);
  const struct driver_facts facts = {.is_fresh = engine->known && clock_now_ms() - engine->read_ms < FRESH_MS,
                                     .closed = engine->state.closed,
                                     .waiting = engine->state.num_waiting,
                                     .layout = swap->layout};
  pthread_mutex_unlock(&driver->lock);
  return facts;
}

/* With the lock held. */
static int64_t usual_silence(const struct driver *driver) {
  const struct swap *swap = (const struct swap *)driver;
  return pace_keep_alive(driver_settings(driver), &swap->engine.state);
}

static void tell_wait(struct driver *driver, struct waiting *waiting) {
  struct swap *swap = self(driver);
  const struct engine *engine = &swap->engine;
  const struct node_desc *desc = &engine->config.node;
  pthread_mutex_lock(&driver->lock);
  const struct state_node *own = state_find(&engine->state, desc);
  const bool is_spare = own && (own->kinds & NODE_SPARE);
  waiting->until = is_spare || engine->wish == WISH_NOTHING ? INT64_MAX : engine->wish_deadline;
  if (own && (own->kinds & NODE_PARTICIPANT) && rendezvous_phase(&engine->state) == PHASE_LAST_CALL)
    waiting->until = last_call_end(&engine->last_call, &engine->state, driver_settings(driver));
  const struct summary clash = engine_clash(engine);
  if (clash.text[0])
    waiting_about(waiting, "checking whether the node with conflicting settings is alive: %s", clash.text);
  else if (own)
    waiting_about(waiting, "%s", summary_waiting(&engine->state, driver_settings(driver), desc).text);
  pthread_mutex_unlock(&driver->lock);
}

/* ---- the engine ----------------------------------------------------------------------------------------------- */

/* Where there is no memory for a step, nothing is under way, and we try again in a while. */
void swap_step(struct swap *swap, struct engine_event *event, struct engine_update *update) {
  rdzv_error error;
  event->now = (struct moment){clock_now_ms(), clock_wall_us()};
  pthread_mutex_lock(&swap->base.lock);
  const int result = engine_step(&swap->engine, event, update, &error);
  pthread_mutex_unlock(&swap->base.lock);
  if (result == 0) {
    const struct driver_news news = {.update = update, .engine = &swap->engine};
    swap->base.tell(swap->base.user, &news);
    return;
  }
  log_line(swap->base.log, RDZV_LOG_WARNING, "%s", error.message);
  *update = (struct engine_update){.request = ENGINE_DO_BACK_OFF, .until_ms = event->now.mono_ms + NO_MEMORY_MS};
}

/* Hands what is asked to the engine. */
static void take_asks(struct swap *swap, struct engine_update *update) {
  static const enum engine_event_kind kinds[] = {[DRIVER_STOP] = ENGINE_EV_ASK_STOP,
                                                 [DRIVER_LEAVE] = ENGINE_EV_ASK_LEAVE,
                                                 [DRIVER_JOIN] = ENGINE_EV_ASK_JOIN,
                                                 [DRIVER_CLOSE] = ENGINE_EV_ASK_CLOSE};
  enum driver_ask what;
  while (driver_take(&swap->base, &what, NULL)) {
    struct engine_event event = {.kind = kinds[what]};
    struct engine_update next;
    swap_step(swap, &event, &next);
    if (next.request != ENGINE_DO_CONTINUE) *update = next; /* else what is to be carried out still is */
  }
}

/* A write that took effect. */
static void note_written(struct swap *swap, enum rendezvous_action action, int64_t round) {
  static const char *const texts[] = {
      [ACTION_ADD_TO_PARTICIPANTS] = "is a participant of the round",
      [ACTION_ADD_TO_WAIT_LIST] = "is in the wait list: the round is complete, and it waits for the next",
      [ACTION_ADD_TO_REDUNDANCY_LIST] = "is a spare: the round is complete and full",
      [ACTION_REMOVE_FROM_PARTICIPANTS] = "is out of the round",
      [ACTION_REMOVE_FROM_WAIT_LIST] = "is out of the wait list",
      [ACTION_REMOVE_FROM_REDUNDANCY_LIST] = "is no longer a spare",
      [ACTION_MARK_RENDEZVOUS_COMPLETE] = "completed the round",
  };
  const char *text = (size_t)action < sizeof texts / sizeof texts[0] ? texts[action] : NULL;
  if (text) events_note(swap->base.events, RDZV_NODE_STATE_RUNNING, round, -1, "%s", text);
}

/* ---- carrying out --------------------------------------------------------------------------------------------- */

static void give_permit(struct swap *swap) {
  if (swap->has_permit) swap->backend_ops.give_permit(swap->backend);
  swap->has_permit = false;
}

/* One wait for the permit, shorter than the silence that counts as a lost store. */
static int await_permit(struct swap *swap, int64_t timeout_ms) {
  const int64_t most = silence_look_interval(driver_settings(&swap->base));
  rdzv_error error;
  if (!swap_begin_wait(swap, false)) return RDZV_E_CANCELED;
  const int result = swap->backend_ops.take_permit(swap->backend, timeout_ms < most ? timeout_ms : most, &error);
  swap_end_wait(swap);
  if (result == 0 || result == RDZV_E_TIMEOUT) {
    pthread_mutex_lock(&swap->base.lock);
    driver_note_answer(&swap->base);
    pthread_mutex_unlock(&swap->base.lock);
  }
  return result;
}

/* Waits for the permit. False: something is asked. */
static bool take_permit(struct swap *swap, const struct engine_update *update, struct engine_event *event) {
  int result;
  do {
    result = await_permit(swap, deadline_left(update->permit_ms));
  } while (result == RDZV_E_TIMEOUT && deadline_left(update->permit_ms) > 0);
  if (result == RDZV_E_CANCELED) return false;
  swap->has_permit = result == 0;
  *event = (struct engine_event){.kind = ENGINE_EV_PERMIT};
  return result == 0 || result == RDZV_E_TIMEOUT || pause_until(swap, update->until_ms);
}

static bool back_off(struct swap *swap, const struct engine_update *update, struct engine_event *event) {
  const bool permits = swap->backend_ops.take_permit && update->permit_ms > 0;
  if (permits && !swap->has_permit) return take_permit(swap, update, event);
  *event = (struct engine_event){.kind = ENGINE_EV_TIMER};
  return pause_until(swap, update->until_ms);
}

static bool await(struct swap *swap, const struct engine_update *update, struct engine_event *event,
                  struct rendezvous_state *state, rdzv_error *error) {
  if (!pause_until(swap, update->from_ms) || !swap_begin_wait(swap, false)) return false;
  const bool there = cell_await(swap, update->token, update->until_ms, event, state, error);
  swap_end_wait(swap);
  return there;
}

static void write_state(struct swap *swap, const struct engine_update *update, struct engine_event *event,
                        struct rendezvous_state *state, rdzv_error *error) {
  const int64_t round = update->state->round;
  cell_swap(swap, update, event, state, error);
  event->has_permit = swap->has_permit;
  if (event->kind == ENGINE_EV_SWAP_WON) note_written(swap, update->action, round);
  if (event->kind != ENGINE_EV_SWAP_LOST) give_permit(swap);
}

/* What the engine wants; false: there is no event, for something is asked. */
static bool carry_out(struct swap *swap, const struct engine_update *update, struct engine_event *event,
                      struct rendezvous_state *state, rdzv_error *error) {
  if (update->request == ENGINE_DO_NOTHING || update->request == ENGINE_DO_WAIT) give_permit(swap);
  switch (update->request) {
    case ENGINE_DO_READ:
      cell_read(swap, event, state, error);
      if (event->kind == ENGINE_EV_STORE_ERROR) give_permit(swap);
      return true;
    case ENGINE_DO_SWAP: write_state(swap, update, event, state, error); return true;
    case ENGINE_DO_WAIT: return await(swap, update, event, state, error);
    case ENGINE_DO_BACK_OFF: return back_off(swap, update, event);
    case ENGINE_DO_NOTHING:
    case ENGINE_DO_CONTINUE: break; /* which take_asks keeps from us */
  }
  return pause_until(swap, INT64_MAX);
}

/* One iteration of the loop. False: it is over. */
static bool iterate(struct swap *swap, struct engine_update *update) {
  struct rendezvous_state state = STATE_EMPTY;
  struct engine_event event = {.kind = ENGINE_EV_TIMER};
  rdzv_error error;
  const bool there = carry_out(swap, update, &event, &state, &error);
  pthread_mutex_lock(&swap->base.lock);
  silence_look(&swap->base.silence, driver_settings(&swap->base), clock_now_ms());
  if (there) {
    swap_note_store(swap, &event);
    if (swap->view.watched) view_overhear(swap, &event);
  }
  pthread_mutex_unlock(&swap->base.lock);
  if (there) swap_step(swap, &event, update);
  take_asks(swap, update);
  events_flush(swap->base.events);
  state_free(&state);
  pthread_mutex_lock(&swap->base.lock);
  const bool wants_look = swap->view.wanted, over = swap->base.stopping;
  pthread_mutex_unlock(&swap->base.lock);
  const bool busy = update->request == ENGINE_DO_READ || update->request == ENGINE_DO_SWAP;
  if (wants_look && !over && !busy) view_carry_out(swap, update);
  return !over;
}

static void run(struct driver *driver) {
  struct swap *swap = self(driver);
  struct engine_update update = {.request = ENGINE_DO_NOTHING};
  while (iterate(swap, &update)) {
  }
  give_permit(swap);
}

/* ---- beginning and end ---------------------------------------------------------------------------------------- */

static const char *describe(struct driver *driver) {
  struct swap *swap = self(driver);
  return swap->backend_ops.describe(swap->backend);
}

static void wake(struct driver *driver) {
  struct swap *swap = self(driver);
  pthread_cond_signal(&swap->asked);
  if (swap->in_backend_wait) swap->backend_ops.wake(swap->backend);
}

static void cancel(struct driver *driver) { self(driver)->backend_ops.cancel(self(driver)->backend); }

static void free_swap(struct driver *driver, bool abandoned, bool quiet) {
  struct swap *swap = self(driver);
  if (quiet) {
    engine_free(&swap->engine);
    state_free(&swap->view.state);
  }
  if (swap->backend) swap->backend_ops.close(swap->backend);
  flag_close(&swap->view.shown);
  if (!abandoned) {
    pthread_mutex_destroy(&swap->view.call);
    pthread_cond_destroy(&swap->asked);
  }
  free(swap);
}

int swap_open(const struct driver_options *options, const rdzv_backend_ops *ops, rdzv_backend *backend,
              struct driver **out, rdzv_error *error) {
  struct swap *swap = calloc(1, sizeof *swap);
  if (!swap) return error_no_memory(error);
  swap->ops = (struct driver_ops){.backend = ops->name,
                                  .run = run,
                                  .wake = wake,
                                  .cancel = cancel,
                                  .describe = describe,
                                  .usual_silence = usual_silence,
                                  .facts = facts,
                                  .tell_wait = tell_wait,
                                  .look = swap_look,
                                  .free = free_swap};
  driver_init(&swap->base, &swap->ops, options);
  swap->backend_ops = *ops;
  swap->layout = options->layout;
  swap->view.state = STATE_EMPTY;
  struct engine_config config = options->engine;
  config.node = swap->base.node;
  config.settings = swap->base.settings;
  config.trace = log_on(options->log, RDZV_LOG_DEBUG) ? driver_trace : NULL;
  config.argument = swap;
  engine_init(&swap->engine, &config);
  pthread_mutex_init(&swap->view.call, NULL);
  thread_cond_init(&swap->asked);
  const int result = flag_open(&swap->view.shown, error);
  if (result < 0) {
    driver_free(&swap->base);
    return result;
  }
  swap->backend = backend;
  *out = &swap->base;
  return 0;
}
