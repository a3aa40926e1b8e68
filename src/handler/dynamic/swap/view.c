/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows the state to callers. A thread that is busy with a round reads all the time, and only has to be overheard; an
 * idle one is asked to read, or to wait for a change. */
#include "base/error.h"
#include "base/wait/waiting.h"
#include "handler/dynamic/swap/swap.h"

enum { LONGEST_MS = INT32_MAX };

/* ---- in the thread -------------------------------------------------------------------------------------------- */

static void finish(struct swap *swap, int outcome, const rdzv_error *error) {
  swap->view.outcome = outcome;
  if (error) swap->view.error = *error;
  flag_raise(&swap->view.shown);
}

/* Keeps a copy of what was read. */
static void show(struct swap *swap, const struct engine_event *event) {
  if (event->kind == ENGINE_EV_STORE_ERROR) {
    finish(swap, event->error->code, event->error);
    return;
  }
  swap->view.watched = false;
  state_free(&swap->view.state);
  swap->view.exists = event->state != NULL;
  swap->view.token = event->token;
  status_look(&swap->view.still, event->token);
  const bool copied = !event->state || state_copy(&swap->view.state, event->state);
  finish(swap, copied ? 0 : error_no_memory(&swap->view.error), NULL);
}

void view_overhear(struct swap *swap, const struct engine_event *event) {
  if (event->state && event->token != swap->view.known) show(swap, event);
}

/* Reads: now, or, where the engine wants nothing and the caller waits, once the state has changed. False: something is
 * asked, which comes first. */
static bool read_state(struct swap *swap, bool is_idle, struct engine_event *event, struct rendezvous_state *state,
                       rdzv_error *error) {
  pthread_mutex_lock(&swap->base.lock);
  const int64_t until = swap->view.until;
  const uint64_t known = swap->view.known;
  pthread_mutex_unlock(&swap->base.lock);
  if (is_idle && deadline_left(until) > 0) {
    if (!swap_begin_wait(swap, true)) return false;
    const bool there = cell_await(swap, known, until, event, state, error);
    swap_end_wait(swap);
    if (!there || event->kind != ENGINE_EV_TIMER) return there;
  }
  cell_read(swap, event, state, error);
  return true;
}

/* What is read is for the engine, too. */
void view_carry_out(struct swap *swap, struct engine_update *update) {
  struct rendezvous_state state = STATE_EMPTY;
  struct engine_event event;
  rdzv_error error;
  if (!read_state(swap, update->request == ENGINE_DO_NOTHING, &event, &state, &error)) return;
  pthread_mutex_lock(&swap->base.lock);
  swap->view.wanted = false;
  swap_note_store(swap, &event);
  show(swap, &event);
  const bool usable = event.kind == ENGINE_EV_STATE_READ && !swap->engine.under_way;
  pthread_mutex_unlock(&swap->base.lock);
  if (usable) swap_step(swap, &event, update);
  state_free(&state);
}

/* ---- in the caller -------------------------------------------------------------------------------------------- */

static int await_shown(struct swap *swap, int64_t timeout_ms, const struct flag *cancel) {
  return flag_await(&swap->view.shown, cancel, deadline_after(timeout_ms));
}

/* Waits for a busy thread to read another state. Returns for how long an idle one is to be asked to wait. */
static int64_t overhear(struct swap *swap, int64_t wait_ms, const struct flag *cancel) {
  pthread_mutex_lock(&swap->base.lock);
  const bool busy = swap->engine.in_round || swap->engine.wish != WISH_NOTHING;
  if (busy) {
    flag_lower(&swap->view.shown);
    swap->view.known = swap->view.token;
    swap->view.watched = true;
  }
  pthread_mutex_unlock(&swap->base.lock);
  if (!busy) return wait_ms;
  await_shown(swap, wait_ms, cancel);
  pthread_mutex_lock(&swap->base.lock);
  swap->view.watched = false;
  pthread_mutex_unlock(&swap->base.lock);
  return 0;
}

/* Asks the thread to read, with the lock held. */
static void want(struct swap *swap, int64_t wait_ms) {
  flag_lower(&swap->view.shown);
  swap->view.known = swap->view.token;
  swap->view.until = deadline_after(wait_ms);
  swap->view.wanted = true;
  pthread_cond_signal(&swap->asked);
  if (swap->in_backend_wait) swap->backend_ops.wake(swap->backend);
}

/* What came of it, with the lock held. False: nothing did. */
static bool take(struct swap *swap, int *outcome, rdzv_status **out, rdzv_error *error) {
  const bool done = !swap->view.wanted;
  swap->view.wanted = false;
  if (!done) return false;
  *outcome = swap->view.outcome;
  if (*outcome < 0) {
    if (error) *error = swap->view.error;
    return true;
  }
  rdzv_status *status = view_status(swap);
  if (status)
    *out = status;
  else
    *outcome = error_no_memory(error);
  return true;
}

static int look(struct swap *swap, int64_t wait_ms, const struct flag *cancel, rdzv_status **out, rdzv_error *error) {
  const int64_t most = wait_ms + driver_settings(&swap->base)->close_timeout;
  struct waiting waiting; /* for the answer; a change is waited for in peace */
  driver_begin_waiting(&swap->base, &waiting, "look at the rendezvous", deadline_after(most));
  const struct flag telling = flag_with(cancel, wait_ms > 0 ? NULL : &waiting);
  pthread_mutex_lock(&swap->base.lock);
  want(swap, wait_ms);
  pthread_mutex_unlock(&swap->base.lock);
  int result = await_shown(swap, most, &telling);
  pthread_mutex_lock(&swap->base.lock);
  const bool done = take(swap, &result, out, error);
  pthread_mutex_unlock(&swap->base.lock);
  if (done) return result;
  if (result == RDZV_E_CANCELED) return error_set(error, result, "cannot read the state of the rendezvous: canceled");
  return driver_fail_silent(&swap->base, "look at the rendezvous", error);
}

int swap_look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out, rdzv_error *error) {
  struct swap *swap = (struct swap *)driver;
  pthread_mutex_lock(&swap->view.call);
  const int64_t left = wait_ms > 0 ? overhear(swap, wait_ms < LONGEST_MS ? wait_ms : LONGEST_MS, cancel) : 0;
  const int result = look(swap, left, cancel, out, error);
  pthread_mutex_unlock(&swap->view.call);
  return result;
}
