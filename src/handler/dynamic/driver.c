/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic/driver.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/thread.h"
#include "base/wait/waiting.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum {
  NO_MEMORY_MS = 100, /* before trying again */
  ANSWER_MS = 2000,   /* for an answer of a store that is there */
  FRESH_MS = 1000,    /* PyTorch, too, takes a state for known as long */
};

/* ---- what is asked -------------------------------------------------------------------------------------------- */

/* With the lock held. */
static bool is_asked(const struct driver *driver) {
  uint64_t any = driver->stopping;
  for (size_t i = 0; i < DRIVER_ASKS; i++) any |= driver->pending[i];
  return any != 0;
}

uint64_t driver_ask(struct driver *driver, enum driver_ask what) {
  pthread_mutex_lock(&driver->lock);
  const uint64_t ticket = ++driver->tickets;
  if (what == DRIVER_JOIN || what == DRIVER_LEAVE) driver->pending[DRIVER_JOIN] = driver->pending[DRIVER_LEAVE] = 0;
  driver->pending[what] = ticket;
  pthread_cond_signal(&driver->asked);
  if (driver->in_backend_wait) driver->ops.wake(driver->backend);
  pthread_mutex_unlock(&driver->lock);
  return ticket;
}

uint64_t driver_taken(const struct driver *driver, enum driver_ask what) { return driver->taken[what]; }

/* Takes the first thing that is asked. False: nothing is. */
static bool take_ask(struct driver *driver, struct engine_event *event) {
  static const enum engine_event_kind kinds[] = {[DRIVER_STOP] = ENGINE_EV_ASK_STOP,
                                                 [DRIVER_LEAVE] = ENGINE_EV_ASK_LEAVE,
                                                 [DRIVER_JOIN] = ENGINE_EV_ASK_JOIN,
                                                 [DRIVER_CLOSE] = ENGINE_EV_ASK_CLOSE};
  size_t what = 0;
  pthread_mutex_lock(&driver->lock);
  while (what < DRIVER_ASKS && driver->pending[what] == 0) what++;
  const bool found = what < DRIVER_ASKS;
  if (found) {
    driver->taken[what] = driver->pending[what];
    driver->pending[what] = 0;
    *event = (struct engine_event){.kind = kinds[what]};
  }
  pthread_mutex_unlock(&driver->lock);
  return found;
}

/* False: something is asked. */
static bool pause_until(struct driver *driver, int64_t until_ms) {
  pthread_mutex_lock(&driver->lock);
  while (!is_asked(driver) && !driver->view.wanted && thread_cond_wait(&driver->asked, &driver->lock, until_ms)) {
  }
  const bool asked = is_asked(driver) || driver->view.wanted;
  pthread_mutex_unlock(&driver->lock);
  return !asked;
}

bool driver_begin_wait(struct driver *driver, bool is_look) {
  pthread_mutex_lock(&driver->lock);
  const bool begun = !is_asked(driver) && (is_look || !driver->view.wanted);
  driver->in_backend_wait = begun;
  pthread_mutex_unlock(&driver->lock);
  return begun;
}

void driver_end_wait(struct driver *driver) {
  pthread_mutex_lock(&driver->lock);
  driver->in_backend_wait = false;
  pthread_mutex_unlock(&driver->lock);
}

/* ---- the store's silence -------------------------------------------------------------------------------------- */

/* With the lock held. */
static void note_answer(struct driver *driver) {
  driver->answered_ms = clock_now_ms();
  silence_end(&driver->silence, driver->answered_ms);
}

void driver_note_store(struct driver *driver, const struct engine_event *event) {
  const bool failed = event->kind == ENGINE_EV_STORE_ERROR;
  if (event->kind != ENGINE_EV_STATE_READ && event->kind != ENGINE_EV_SWAP_WON && event->kind != ENGINE_EV_SWAP_LOST &&
      !failed)
    return;
  if (failed && !driver->store_failed) {
    log_line(driver->log, RDZV_LOG_WARNING, "the store of the rendezvous fails: %s", event->error->message);
    events_note(driver->events, RDZV_NODE_STATE_RUNNING, -1, -1, "the store fails: %s", event->error->message);
  }
  if (!failed && driver->store_failed)
    events_note(driver->events, RDZV_NODE_STATE_RUNNING, -1, -1, "the store is back");
  driver->store_failed = failed;
  if (failed) {
    driver->trouble = *event->error;
  } else {
    driver->trouble.code = 0;
    note_answer(driver);
  }
}

int64_t driver_silence(struct driver *driver, int64_t *wake) {
  pthread_mutex_lock(&driver->lock);
  const int64_t lasted = silence_look(&driver->silence, driver_settings(driver), clock_now_ms());
  *wake = silence_wake(&driver->silence, driver_settings(driver));
  pthread_mutex_unlock(&driver->lock);
  return lasted;
}

void driver_forgive_silence(struct driver *driver) {
  pthread_mutex_lock(&driver->lock);
  silence_end(&driver->silence, clock_now_ms());
  pthread_mutex_unlock(&driver->lock);
}

bool driver_hears(struct driver *driver) {
  const struct rendezvous_settings *settings = driver_settings(driver);
  pthread_mutex_lock(&driver->lock);
  const int64_t lasted = silence_look(&driver->silence, settings, clock_now_ms());
  const int64_t usual = pace_keep_alive(settings, &driver->engine.state);
  pthread_mutex_unlock(&driver->lock);
  return lasted < usual + ANSWER_MS;
}

int driver_fail_silent(struct driver *driver, const char *what, rdzv_error *error) {
  pthread_mutex_lock(&driver->lock);
  const double silence = (double)(clock_now_ms() - driver->answered_ms) / 1000;
  const rdzv_error trouble = driver->trouble;
  pthread_mutex_unlock(&driver->lock);
  const char *where = driver_describe(driver);
  if (trouble.code != 0)
    return error_set(error, trouble.code, "cannot %s: no answer for %.1f s from %s: %s", what, silence, where,
                     trouble.message);
  return error_set(error, RDZV_E_TIMEOUT, "cannot %s: no answer for %.1f s from %s", what, silence, where);
}

/* ---- what the engine knows ------------------------------------------------------------------------------------ */

struct driver_facts driver_facts(struct driver *driver) {
  const struct engine *engine = &driver->engine;
  pthread_mutex_lock(&driver->lock);
  const struct driver_facts facts = {.is_fresh = engine->known && clock_now_ms() - engine->read_ms < FRESH_MS,
                                     .closed = engine->state.closed,
                                     .waiting = engine->state.num_waiting,
                                     .layout = driver->layout};
  pthread_mutex_unlock(&driver->lock);
  return facts;
}

void driver_begin_waiting(struct driver *driver, struct waiting *waiting, const char *what, deadline until) {
  waiting_begin(waiting, driver->log, until);
  waiting_about(waiting, "waiting to %s: no answer yet from %s", what, driver_describe(driver));
}

void driver_tell_wait(struct driver *driver, struct waiting *waiting) {
  const struct engine *engine = &driver->engine;
  const struct node_desc *desc = &engine->config.node;
  pthread_mutex_lock(&driver->lock);
  const struct state_node *own = state_find(&engine->state, desc);
  const bool is_spare = own && (own->kinds & NODE_SPARE);
  waiting->until = is_spare || engine->wish == WISH_NOTHING ? INT64_MAX : engine->wish_deadline;
  if (own) waiting_about(waiting, "%s", summary_waiting(&engine->state, driver_settings(driver), desc).text);
  pthread_mutex_unlock(&driver->lock);
}

/* ---- the engine ----------------------------------------------------------------------------------------------- */

/* Where there is no memory for a step, nothing is under way, and we try again in a while. */
void driver_step(struct driver *driver, struct engine_event *event, struct engine_update *update) {
  rdzv_error error;
  event->now = (struct moment){clock_now_ms(), clock_wall_us()};
  pthread_mutex_lock(&driver->lock);
  const int result = engine_step(&driver->engine, event, update, &error);
  pthread_mutex_unlock(&driver->lock);
  if (result == 0) {
    driver->tell(driver->user, update);
    return;
  }
  log_line(driver->log, RDZV_LOG_WARNING, "%s", error.message);
  *update = (struct engine_update){.request = ENGINE_DO_BACK_OFF, .until_ms = event->now.mono_ms + NO_MEMORY_MS};
}

/* Hands what is asked to the engine. */
static void take_asks(struct driver *driver, struct engine_update *update) {
  struct engine_event event;
  while (take_ask(driver, &event)) {
    struct engine_update next;
    driver_step(driver, &event, &next);
    if (next.request != ENGINE_DO_CONTINUE) *update = next; /* else what is to be carried out still is */
  }
}

/* A write that took effect. */
static void note_written(struct driver *driver, enum rendezvous_action action, int64_t round) {
  static const char *const texts[] = {
      [ACTION_ADD_TO_PARTICIPANTS] = "is a participant of the round",
      [ACTION_ADD_TO_WAIT_LIST] = "is in the wait list: the round is complete, and it waits for the next",
      [ACTION_ADD_TO_REDUNDANCY_LIST] = "is a spare: the round is complete and full",
      [ACTION_REMOVE_FROM_PARTICIPANTS] = "is out of the round",
      [ACTION_REMOVE_FROM_WAIT_LIST] = "is out of the wait list",
      [ACTION_REMOVE_FROM_REDUNDANCY_LIST] = "is not a spare any more",
      [ACTION_MARK_RENDEZVOUS_COMPLETE] = "completed the round",
  };
  const char *text = (size_t)action < sizeof texts / sizeof texts[0] ? texts[action] : NULL;
  if (text) events_note(driver->events, RDZV_NODE_STATE_RUNNING, round, -1, "%s", text);
}

/* ---- carrying out --------------------------------------------------------------------------------------------- */

static void give_permit(struct driver *driver) {
  if (driver->has_permit) driver->ops.give_permit(driver->backend);
  driver->has_permit = false;
}

/* One wait for the permit, no longer than what the silence of a store is told from: it has answered by then. */
static int await_permit(struct driver *driver, int64_t timeout_ms) {
  const int64_t most = silence_look_interval(driver_settings(driver));
  rdzv_error error;
  if (!driver_begin_wait(driver, false)) return RDZV_E_CANCELED;
  const int result = driver->ops.take_permit(driver->backend, timeout_ms < most ? timeout_ms : most, &error);
  driver_end_wait(driver);
  if (result == 0 || result == RDZV_E_TIMEOUT) {
    pthread_mutex_lock(&driver->lock);
    note_answer(driver);
    pthread_mutex_unlock(&driver->lock);
  }
  return result;
}

/* Waits for the permit. False: something is asked. */
static bool take_permit(struct driver *driver, const struct engine_update *update, struct engine_event *event) {
  int result;
  do {
    result = await_permit(driver, deadline_left(update->permit_ms));
  } while (result == RDZV_E_TIMEOUT && deadline_left(update->permit_ms) > 0);
  if (result == RDZV_E_CANCELED) return false;
  driver->has_permit = result == 0;
  *event = (struct engine_event){.kind = ENGINE_EV_PERMIT};
  return result == 0 || result == RDZV_E_TIMEOUT || pause_until(driver, update->until_ms);
}

static bool back_off(struct driver *driver, const struct engine_update *update, struct engine_event *event) {
  const bool permits = driver->ops.take_permit && update->permit_ms > 0;
  if (permits && !driver->has_permit) return take_permit(driver, update, event);
  *event = (struct engine_event){.kind = ENGINE_EV_TIMER};
  return pause_until(driver, update->until_ms);
}

static bool await(struct driver *driver, const struct engine_update *update, struct engine_event *event,
                  struct rendezvous_state *state, rdzv_error *error) {
  if (!pause_until(driver, update->from_ms) || !driver_begin_wait(driver, false)) return false;
  const bool there = cell_await(driver, update->token, update->until_ms, event, state, error);
  driver_end_wait(driver);
  return there;
}

static void swap(struct driver *driver, const struct engine_update *update, struct engine_event *event,
                 struct rendezvous_state *state, rdzv_error *error) {
  const int64_t round = update->state->round;
  cell_swap(driver, update, event, state, error);
  event->has_permit = driver->has_permit;
  if (event->kind == ENGINE_EV_SWAP_WON) note_written(driver, update->action, round);
  if (event->kind != ENGINE_EV_SWAP_LOST) give_permit(driver);
}

/* What the engine wants; false: there is no event, for something is asked. */
static bool carry_out(struct driver *driver, const struct engine_update *update, struct engine_event *event,
                      struct rendezvous_state *state, rdzv_error *error) {
  if (update->request == ENGINE_DO_NOTHING || update->request == ENGINE_DO_WAIT) give_permit(driver);
  switch (update->request) {
    case ENGINE_DO_READ:
      cell_read(driver, event, state, error);
      if (event->kind == ENGINE_EV_STORE_ERROR) give_permit(driver);
      return true;
    case ENGINE_DO_SWAP: swap(driver, update, event, state, error); return true;
    case ENGINE_DO_WAIT: return await(driver, update, event, state, error);
    case ENGINE_DO_BACK_OFF: return back_off(driver, update, event);
    case ENGINE_DO_NOTHING:
    case ENGINE_DO_CONTINUE: break; /* which take_asks keeps from us */
  }
  return pause_until(driver, INT64_MAX);
}

/* One iteration of the loop. False: it is over. */
static bool iterate(struct driver *driver, struct engine_update *update) {
  struct rendezvous_state state = STATE_EMPTY;
  struct engine_event event = {.kind = ENGINE_EV_TIMER};
  rdzv_error error;
  const bool there = carry_out(driver, update, &event, &state, &error);
  pthread_mutex_lock(&driver->lock);
  silence_look(&driver->silence, driver_settings(driver), clock_now_ms());
  if (there) {
    driver_note_store(driver, &event);
    if (driver->view.watched) view_overhear(driver, &event);
  }
  pthread_mutex_unlock(&driver->lock);
  if (there) driver_step(driver, &event, update);
  take_asks(driver, update);
  events_flush(driver->events);
  state_free(&state);
  pthread_mutex_lock(&driver->lock);
  const bool wants_look = driver->view.wanted, over = driver->stopping;
  pthread_mutex_unlock(&driver->lock);
  const bool busy = update->request == ENGINE_DO_READ || update->request == ENGINE_DO_SWAP;
  if (wants_look && !over && !busy) view_carry_out(driver, update);
  return !over;
}

static void *run(void *arg) {
  struct driver *driver = arg;
  struct engine_update update = {.request = ENGINE_DO_NOTHING};
  while (iterate(driver, &update)) {
  }
  give_permit(driver);
  return NULL;
}

/* ---- beginning and end ---------------------------------------------------------------------------------------- */

static void trace(void *argument, const char *line) {
  log_line(((struct driver *)argument)->log, RDZV_LOG_DEBUG, "%s", line);
}

static int64_t next_local_id(void) {
  static atomic_int_fast64_t last = -1;
  return atomic_fetch_add(&last, 1) + 1;
}

void driver_init(struct driver *driver, const struct driver_options *options) {
  *driver = (struct driver){.ops = *options->ops,
                            .backend = options->backend,
                            .log = options->log,
                            .events = options->events,
                            .tell = options->tell,
                            .user = options->user,
                            .layout = options->layout,
                            .view = {.shown = FLAG_NONE, .state = STATE_EMPTY}};
  if (options->local_addr)
    snprintf(driver->addr, sizeof driver->addr, "%s", options->local_addr);
  else
    host_name(driver->addr);
  struct engine_config config = options->engine;
  config.node = (struct node_desc){driver->addr, getpid(), next_local_id()};
  config.trace = log_on(options->log, RDZV_LOG_DEBUG) ? trace : NULL;
  config.argument = driver;
  config.settings.has_redundancy_list = torch_traits(options->layout)->redundancy_list;
  engine_init(&driver->engine, &config);
  pthread_mutex_init(&driver->lock, NULL);
  pthread_mutex_init(&driver->view.call, NULL);
  thread_cond_init(&driver->asked);
  note_answer(driver);
}

int driver_start(struct driver *driver, rdzv_error *error) {
  const int result = flag_open(&driver->view.shown, error);
  if (result < 0) return result;
  const int errnum = thread_start(&driver->thread, run, driver);
  if (errnum) return error_errno(error, RDZV_E_IO, errnum, "cannot start the thread of the rendezvous");
  driver->started = true;
  return 0;
}

void driver_stop(struct driver *driver) {
  if (!driver->started) return;
  pthread_mutex_lock(&driver->lock);
  driver->stopping = true;
  pthread_cond_signal(&driver->asked);
  pthread_mutex_unlock(&driver->lock);
  driver->ops.cancel(driver->backend);
  pthread_join(driver->thread, NULL);
  driver->started = false;
}

void driver_free(struct driver *driver) {
  driver_stop(driver);
  engine_free(&driver->engine);
  state_free(&driver->view.state);
  driver->ops.close(driver->backend);
  flag_close(&driver->view.shown);
  pthread_mutex_destroy(&driver->lock);
  pthread_mutex_destroy(&driver->view.call);
  pthread_cond_destroy(&driver->asked);
}

/* The lock tells whether the parent's thread was changing the state when the parent forked: then it is left as it is.
 */
void driver_abandon(struct driver *driver) {
  if (pthread_mutex_trylock(&driver->lock) == 0) {
    engine_free(&driver->engine);
    state_free(&driver->view.state);
  }
  driver->ops.close(driver->backend);
  flag_close(&driver->view.shown);
}
