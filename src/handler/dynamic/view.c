/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows the state to callers. A thread that is busy with a round reads all the time, and only has to be overheard; an
 * idle one is asked to read, or to wait for a change. */
#include "base/error.h"
#include "base/wait/waiting.h"
#include "handler/dynamic/driver.h"

enum { LONGEST_MS = INT32_MAX };

/* ---- in the thread -------------------------------------------------------------------------------------------- */

static void finish(struct driver *driver, int outcome, const rdzv_error *error) {
  driver->view.outcome = outcome;
  if (error) driver->view.error = *error;
  flag_raise(&driver->view.shown);
}

/* Keeps a copy of what was read. */
static void show(struct driver *driver, const struct engine_event *event) {
  if (event->kind == ENGINE_EV_STORE_ERROR) {
    finish(driver, event->error->code, event->error);
    return;
  }
  driver->view.watched = false;
  state_free(&driver->view.state);
  driver->view.exists = event->state != NULL;
  driver->view.token = event->token;
  const bool copied = !event->state || state_copy(&driver->view.state, event->state);
  finish(driver, copied ? 0 : error_no_memory(&driver->view.error), NULL);
}

void view_overhear(struct driver *driver, const struct engine_event *event) {
  if (event->state && event->token != driver->view.known) show(driver, event);
}

/* Reads: now, or, where the engine wants nothing and the caller waits, once the state has changed. False: something is
 * asked, which comes first. */
static bool read_state(struct driver *driver, bool is_idle, struct engine_event *event, struct rendezvous_state *state,
                       rdzv_error *error) {
  pthread_mutex_lock(&driver->lock);
  const int64_t until = driver->view.until;
  const uint64_t known = driver->view.known;
  pthread_mutex_unlock(&driver->lock);
  if (is_idle && deadline_left(until) > 0) {
    if (!driver_begin_wait(driver, true)) return false;
    const bool there = cell_await(driver, known, until, event, state, error);
    driver_end_wait(driver);
    if (!there || event->kind != ENGINE_EV_TIMER) return there;
  }
  cell_read(driver, event, state, error);
  return true;
}

/* What is read is for the engine, too. */
void view_carry_out(struct driver *driver, struct engine_update *update) {
  struct rendezvous_state state = STATE_EMPTY;
  struct engine_event event;
  rdzv_error error;
  if (!read_state(driver, update->request == ENGINE_DO_NOTHING, &event, &state, &error)) return;
  pthread_mutex_lock(&driver->lock);
  driver->view.wanted = false;
  driver_note_store(driver, &event);
  show(driver, &event);
  const bool usable = event.kind == ENGINE_EV_STATE_READ && !driver->engine.under_way;
  pthread_mutex_unlock(&driver->lock);
  if (usable) driver_step(driver, &event, update);
  state_free(&state);
}

/* ---- in the caller -------------------------------------------------------------------------------------------- */

static int await_shown(struct driver *driver, int64_t timeout_ms, const struct flag *cancel) {
  struct pollfd fds[2] = {{.fd = driver->view.shown.fd, .events = POLLIN}};
  return flag_poll(cancel, fds, 1, deadline_after(timeout_ms));
}

/* Waits for a busy thread to read another state. Returns for how long an idle one is to be asked to wait. */
static int64_t overhear(struct driver *driver, int64_t wait_ms, const struct flag *cancel) {
  pthread_mutex_lock(&driver->lock);
  const bool busy = driver->engine.in_round || driver->engine.wish != WISH_NOTHING;
  if (busy) {
    flag_lower(&driver->view.shown);
    driver->view.known = driver->view.token;
    driver->view.watched = true;
  }
  pthread_mutex_unlock(&driver->lock);
  if (!busy) return wait_ms;
  await_shown(driver, wait_ms, cancel);
  pthread_mutex_lock(&driver->lock);
  driver->view.watched = false;
  pthread_mutex_unlock(&driver->lock);
  return 0;
}

/* Asks the thread to read, with the lock held. */
static void want(struct driver *driver, int64_t wait_ms) {
  flag_lower(&driver->view.shown);
  driver->view.known = driver->view.token;
  driver->view.until = deadline_after(wait_ms);
  driver->view.wanted = true;
  pthread_cond_signal(&driver->asked);
  if (driver->in_backend_wait) driver->ops.wake(driver->backend);
}

/* What came of it, with the lock held. False: nothing did. */
static bool take(struct driver *driver, int *outcome, rdzv_status **out, rdzv_error *error) {
  const bool done = !driver->view.wanted;
  driver->view.wanted = false;
  if (!done) return false;
  *outcome = driver->view.outcome;
  if (*outcome < 0) {
    if (error) *error = driver->view.error;
    return true;
  }
  rdzv_status *status = view_status(driver);
  if (status)
    *out = status;
  else
    *outcome = error_no_memory(error);
  return true;
}

static int look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                rdzv_error *error) {
  const int64_t most = wait_ms + driver_settings(driver)->close_timeout;
  struct waiting waiting; /* for the answer; a change is waited for in peace */
  driver_begin_waiting(driver, &waiting, "look at the rendezvous", deadline_after(most));
  const struct flag telling = flag_with(cancel, wait_ms > 0 ? NULL : &waiting);
  pthread_mutex_lock(&driver->lock);
  want(driver, wait_ms);
  pthread_mutex_unlock(&driver->lock);
  int result = await_shown(driver, most, &telling);
  pthread_mutex_lock(&driver->lock);
  const bool done = take(driver, &result, out, error);
  pthread_mutex_unlock(&driver->lock);
  if (done) return result;
  if (result == RDZV_E_CANCELED) return error_set(error, result, "cannot look at the rendezvous: canceled");
  return driver_fail_silent(driver, "look at the rendezvous", error);
}

int driver_look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                rdzv_error *error) {
  pthread_mutex_lock(&driver->view.call);
  const int64_t left = wait_ms > 0 ? overhear(driver, wait_ms < LONGEST_MS ? wait_ms : LONGEST_MS, cancel) : 0;
  const int result = look(driver, left, cancel, out, error);
  pthread_mutex_unlock(&driver->view.call);
  return result;
}
