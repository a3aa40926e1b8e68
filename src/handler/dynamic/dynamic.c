/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic/dynamic.h"
#include "handler/status.h"
#include "store/store.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  GRACE_MS = RENDEZVOUS_ROLLBACK_MS + 2000, /* beyond its own deadline, for the thread to say that it has passed */
  ANSWER_MS = 2000,                         /* for an answer of the store that is there */
  LONGEST_MS = INT32_MAX,
  VIEW_MS = 1000, /* PyTorch, too, takes a state for known as long */
};

static struct dynamic *self(rdzv_handler *handler) { return (struct dynamic *)handler; }

static const struct rendezvous_settings *settings_of(const struct dynamic *handler) {
  return &handler->engine.config.settings;
}

/* ---- asking the thread ---------------------------------------------------------------------------------------- */

void dynamic_drop_joined(struct dynamic *handler) {
  if (handler->joined) rdzv_result_free(&handler->joined->base);
  handler->joined = NULL;
}

static void begin_ask(struct dynamic *handler, unsigned what) {
  pthread_mutex_lock(&handler->lock);
  dynamic_drop_joined(handler);
  flag_lower(&handler->done);
  handler->answering = what;
  /* A store that was not asked anything before, or whose silence the user knows of, gets its chance. */
  if (!handler->member || handler->told_silent) silence_end(&handler->silence, clock_now_ms());
  handler->told_silent = false;
  if (what == DYNAMIC_JOIN || what == DYNAMIC_LEAVE) {
    handler->member = false;
    change_clear(&handler->change);
    flag_lower(&handler->changed);
    flag_lower(&handler->ended);
    handler->asks &= ~(unsigned)(DYNAMIC_JOIN | DYNAMIC_LEAVE);
  }
  dynamic_ask(handler, what);
  pthread_mutex_unlock(&handler->lock);
}

/* For how long an answer is waited for. */
struct patience {
  deadline until;
  const struct flag *cancel; /* or NULL */
  bool for_answers;          /* not longer than the dead time, where the store does not answer */
};

/* The sentence for a thread that has not answered: it waits for the store, which is silent. */
static int silent(struct dynamic *handler, const char *what, rdzv_error *error) {
  const double silence = (double)(clock_now_ms() - handler->answered_ms) / 1000;
  const char *where = handler->ops.describe(handler->backend);
  if (handler->trouble.code != 0)
    return error_set(error, handler->trouble.code, "cannot %s: no answer for %.1f s from %s: %s", what, silence, where,
                     handler->trouble.message);
  return error_set(error, RDZV_E_TIMEOUT, "cannot %s: no answer for %.1f s from %s", what, silence, where);
}

/* The store is lost, whatever became of the last request: a time-out is for what the caller waits for. */
static int lost(int result, rdzv_error *error) {
  if (rdzv_error_class_of(result) == RDZV_ERROR_CLASS_DEFINITE) return result;
  if (error) error->code = RDZV_E_CONNECTION;
  return RDZV_E_CONNECTION;
}

/* Looks at the store's silence. *wake is when to look again. */
static int64_t look_at_silence(struct dynamic *handler, int64_t *wake) {
  pthread_mutex_lock(&handler->lock);
  const int64_t lasted = silence_look(&handler->silence, settings_of(handler), clock_now_ms());
  *wake = silence_wake(&handler->silence, settings_of(handler));
  pthread_mutex_unlock(&handler->lock);
  return lasted;
}

/* Then the thread knows best when the time is over: that of a spare does not pass. */
static bool store_answers(struct dynamic *handler) {
  int64_t unused;
  const int64_t silence = look_at_silence(handler, &unused);
  pthread_mutex_lock(&handler->lock);
  const int64_t usual = pace_keep_alive(settings_of(handler), &handler->engine.state);
  pthread_mutex_unlock(&handler->lock);
  return silence < usual + ANSWER_MS;
}

static int poll_failed(const char *what, int errnum, rdzv_error *error) {
  return error_errno(error, RDZV_E_IO, errnum, "cannot %s: waiting failed", what);
}

/* Waits until the thread has answered; RDZV_E_TIMEOUT: it has not, and is not waited for any longer. */
static int await_answer(struct dynamic *handler, const struct patience *patience) {
  struct pollfd fds[2] = {{.fd = handler->done.fd, .events = POLLIN}};
  for (deadline until = patience->until;;) {
    int64_t wake;
    const int64_t silence = look_at_silence(handler, &wake);
    if (patience->for_answers && silence >= rendezvous_dead_time(settings_of(handler))) return RDZV_E_TIMEOUT;
    const int result = flag_poll(patience->cancel, fds, 1, wake < until ? wake : until);
    if (result != RDZV_E_TIMEOUT) return result;
    if (deadline_left(until) > 0) continue;
    if (handler->base.farewell_ms > 0 || !store_answers(handler)) return result;
    until = deadline_after(GRACE_MS);
  }
}

/* Waits for the answer. On failure what was asked is not waited for any more. */
static int end_ask(struct dynamic *handler, const char *what, const struct patience *patience, rdzv_error *error) {
  int result = await_answer(handler, patience);
  const int errnum = errno;
  pthread_mutex_lock(&handler->lock);
  const bool answered = handler->answering == 0;
  handler->answering = 0;
  if (answered) {
    result = handler->outcome;
    if (result < 0 && error) *error = handler->error;
  } else if (result == RDZV_E_CANCELED) {
    error_set(error, result, "cannot %s: canceled", what);
  } else if (result == RDZV_E_IO) {
    poll_failed(what, errnum, error);
  } else {
    result = silent(handler, what, error);
    if (patience->for_answers) result = lost(result, error);
  }
  pthread_mutex_unlock(&handler->lock);
  return result;
}

/* A wait for the store, which has only to answer. */
static void begin_waiting(struct dynamic *handler, struct waiting *waiting, const char *what, deadline until) {
  waiting_begin(waiting, &handler->base.log, until);
  waiting_about(waiting, "waiting to %s: no answer yet from %s", what, handler->ops.describe(handler->backend));
}

static int ask(struct dynamic *handler, unsigned what, const char *name, rdzv_error *error) {
  struct waiting waiting;
  pthread_mutex_lock(&handler->call);
  begin_ask(handler, what);
  const int64_t farewell = handler->base.farewell_ms, usual = settings_of(handler)->close_timeout + GRACE_MS;
  const deadline until = deadline_after(farewell > 0 && farewell < usual ? farewell : usual);
  begin_waiting(handler, &waiting, name, until);
  const struct flag telling = flag_with(NULL, &waiting);
  const int result = end_ask(handler, name, &(struct patience){.until = until, .cancel = &telling}, error);
  pthread_mutex_unlock(&handler->call);
  return result;
}

/* ---- joining -------------------------------------------------------------------------------------------------- */

/* Whatever the thread is still at, the node is to be out. */
static void give_up(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  handler->asks &= ~(unsigned)DYNAMIC_JOIN;
  handler->member = false;
  dynamic_drop_joined(handler);
  dynamic_ask(handler, DYNAMIC_LEAVE);
  pthread_mutex_unlock(&handler->lock);
}

static struct round_result *take_joined(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  struct round_result *result = handler->joined;
  handler->joined = NULL;
  pthread_mutex_unlock(&handler->lock);
  return result;
}

char *dynamic_round_prefix(const struct dynamic *handler, int64_t round) {
  char *prefix;
  return asprintf(&prefix, "torch.rendezvous.%s.%" PRId64, handler->base.run_id, round) < 0 ? NULL : prefix;
}

static int complete_result(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  if (!handler->store) return 0;
  char *prefix = dynamic_round_prefix(handler, result->base.round);
  if (!prefix) return error_no_memory(error);
  int outcome = result_open_store(result, handler->store, prefix, &handler->base.cancel, error);
  free(prefix);
  const bool later = handler->base.master_later && result->base.rank != 0;
  if (outcome == 0 && !later) outcome = dynamic_find_master(handler, result, error);
  if (outcome == 0) result_forget_cancel(result);
  return outcome;
}

/* Where the reason for closing is, beside the state. NULL: no memory. */
static char *reason_key(const struct dynamic *handler) {
  char *key;
  return asprintf(&key, "torch.rendezvous.%s.reason", handler->base.run_id) < 0 ? NULL : key;
}

/* Gets the reason for closing, on a connection of its own: the thread may hold the handler's. */
static bool get_reason(struct dynamic *handler, const char *key, rdzv_value *out) {
  const rdzv_bytes bytes = rdzv_str(key);
  rdzv_store *store;
  bool there = false;
  if (!handler->store || rdzv_store_clone(handler->store, &store, NULL) < 0) return false;
  const bool found =
      rdzv_store_check(store, &bytes, 1, &there, NULL) == 0 && there && rdzv_store_get(store, bytes, out, NULL) == 0;
  rdzv_store_free(store);
  return found;
}

/* To be freed; NULL: none is known. */
static char *find_reason(struct dynamic *handler) {
  char *key = reason_key(handler);
  rdzv_value reason;
  const bool found = key && get_reason(handler, key, &reason);
  free(key);
  return found ? reason.data : NULL;
}

/* Puts the reason for closing, if there is one, behind the sentence. */
static void add_reason(struct dynamic *handler, rdzv_error *error) {
  char *reason = error ? find_reason(handler) : NULL;
  if (!reason) return;
  error_append(error, ": %s", bytes_quote(rdzv_str(reason)).text);
  free(reason);
}

/* Waits until a round is complete with us in it. A node that has been in a round gives the store up as a member does:
 * it is silent for all who were in it. One that joins first may come before the store does. */
/* Who is there, and who is not; the time of a spare does not pass. */
static void tell_of_nodes(struct waiting *waiting, void *user) {
  struct dynamic *handler = user;
  const struct engine *engine = &handler->engine;
  pthread_mutex_lock(&handler->lock);
  const struct state_node *own = state_find(&engine->state, &handler->node);
  const bool is_spare = own && (own->kinds & NODE_SPARE);
  waiting->until = is_spare || engine->wish == WISH_NOTHING ? INT64_MAX : engine->wish_deadline;
  if (own) waiting_about(waiting, "%s", summary_waiting(&engine->state, settings_of(handler), &handler->node).text);
  pthread_mutex_unlock(&handler->lock);
}

static int await_round(struct dynamic *handler, struct round_result **out, rdzv_error *error) {
  struct waiting waiting;
  const struct flag telling = flag_with(&handler->base.cancel, &waiting);
  struct patience patience = {.until = deadline_after(settings_of(handler)->join_timeout + GRACE_MS),
                              .cancel = &telling};
  begin_waiting(handler, &waiting, "join", patience.until - GRACE_MS);
  waiting.refresh = tell_of_nodes;
  waiting.user = handler;
  pthread_mutex_lock(&handler->lock);
  patience.for_answers = handler->been_member;
  pthread_mutex_unlock(&handler->lock);
  events_note(&handler->events, RDZV_NODE_STATE_INIT, -1, -1, "attempts to join the next round");
  events_flush(&handler->events);
  begin_ask(handler, DYNAMIC_JOIN);
  const int result = end_ask(handler, "join the rendezvous", &patience, error);
  if (result == RDZV_E_CLOSED || result == RDZV_E_GRACEFUL_EXIT) add_reason(handler, error);
  if (result == 0) *out = take_joined(handler);
  return result;
}

enum { ROUND_OVER = 1 };

/* Connects to the round's store, and finds rank 0. ROUND_OVER: it went before we could. Else a failure frees the round.
 */
static int enter(struct dynamic *handler, struct round_result *joined, rdzv_error *error) {
  int result = complete_result(handler, joined, error);
  if (result == 0) return 0;
  if (result == RDZV_E_CANCELED && flag_raised(&handler->base.cancel)) {
    error_set(error, result, "cannot join the rendezvous: canceled");
  } else if (result == RDZV_E_CANCELED) {
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, joined->base.round, joined->base.rank,
                "round %" PRId64 " is over before rank 0 has published where it can be reached", joined->base.round);
    result = ROUND_OVER;
  } else {
    events_note(&handler->events, RDZV_NODE_STATE_FAILED, joined->base.round, joined->base.rank,
                "the store of the round cannot be used");
  }
  events_flush(&handler->events);
  rdzv_result_free(&joined->base);
  return result;
}

static int join(struct dynamic *handler, rdzv_result **out, rdzv_error *error) {
  const deadline until = deadline_after(settings_of(handler)->join_timeout);
  struct round_result *joined = NULL;
  int result;
  do {
    result = await_round(handler, &joined, error);
    if (result == 0) result = enter(handler, joined, error);
  } while (result == ROUND_OVER && deadline_left(until) > 0);
  if (result == ROUND_OVER)
    result = error_set(error, RDZV_E_TIMEOUT, "the time to join is over: rank 0 goes before it says where it is");
  if (result < 0) {
    give_up(handler);
    return result;
  }
  *out = &joined->base;
  return 0;
}

static int dynamic_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error) {
  struct dynamic *handler = self(base);
  if (flag_raised(&base->cancel)) return error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: canceled");
  pthread_mutex_lock(&handler->call);
  const int result = join(handler, out, error);
  pthread_mutex_unlock(&handler->call);
  return result;
}

/* ---- hearing of changes --------------------------------------------------------------------------------------- */

/* Takes what has happened. RDZV_E_TIMEOUT: nothing yet; *wake is when to look at the store's silence again. */
static int take_change(struct dynamic *handler, rdzv_change **out, int64_t *wake, rdzv_error *error) {
  int result = RDZV_E_TIMEOUT;
  pthread_mutex_lock(&handler->lock);
  const int64_t silence = silence_look(&handler->silence, settings_of(handler), clock_now_ms());
  *wake = silence_wake(&handler->silence, settings_of(handler));
  if (handler->change.what) {
    result = change_take(&handler->change, out, error);
    if (result == 0) flag_lower(&handler->changed);
  } else if (!handler->member) {
    result = error_set(error, RDZV_E_INVALID, "this node is in no round");
  } else if (silence >= rendezvous_dead_time(settings_of(handler))) {
    result = lost(silent(handler, "stay in the round", error), error);
    handler->told_silent = true;
  }
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static int dynamic_wait_change(rdzv_handler *base, int64_t timeout_ms, rdzv_change **out, rdzv_error *error) {
  struct dynamic *handler = self(base);
  const deadline until = deadline_after(timeout_ms);
  for (;;) {
    int64_t wake;
    int result = take_change(handler, out, &wake, error);
    if (result != RDZV_E_TIMEOUT) return result;
    struct pollfd fds[2] = {{.fd = handler->changed.fd, .events = POLLIN}};
    result = flag_poll(&base->cancel, fds, 1, wake < until ? wake : until);
    if (result == RDZV_E_CANCELED) return error_set(error, result, "waiting for changes of the round: canceled");
    if (result == RDZV_E_IO) return poll_failed("hear of changes of the round", errno, error);
    if (result == RDZV_E_TIMEOUT && deadline_left(until) == 0)
      return error_set(error, result, "nothing happened in %" PRId64 " ms", timeout_ms);
  }
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

/* Waits for the thread to show a state. `cancel` may be NULL. */
static int await_look(struct dynamic *handler, int64_t timeout_ms, const struct flag *cancel) {
  struct pollfd fds[2] = {{.fd = handler->looked.fd, .events = POLLIN}};
  return flag_poll(cancel, fds, 1, deadline_after(timeout_ms));
}

/* Asks the thread to read. */
static int look(struct dynamic *handler, int64_t wait_ms, const struct flag *cancel, rdzv_error *error) {
  pthread_mutex_lock(&handler->lock);
  flag_lower(&handler->looked);
  handler->look_known = handler->view_token;
  handler->look_until = deadline_after(wait_ms);
  dynamic_ask(handler, DYNAMIC_LOOK);
  pthread_mutex_unlock(&handler->lock);
  const int64_t most = wait_ms + settings_of(handler)->close_timeout;
  struct waiting waiting; /* for the answer; a change is waited for in peace */
  begin_waiting(handler, &waiting, "look at the rendezvous", deadline_after(most));
  const struct flag telling = flag_with(cancel, wait_ms > 0 ? NULL : &waiting);
  int result = await_look(handler, most, &telling);
  pthread_mutex_lock(&handler->lock);
  const bool done = !(handler->asks & DYNAMIC_LOOK);
  handler->asks &= ~(unsigned)DYNAMIC_LOOK;
  if (done) {
    result = handler->look_outcome;
    if (result < 0 && error) *error = handler->look_error;
  } else if (result == RDZV_E_CANCELED) {
    error_set(error, result, "cannot look at the rendezvous: canceled");
  } else {
    result = silent(handler, "look at the rendezvous", error);
  }
  pthread_mutex_unlock(&handler->lock);
  return result;
}

/* A thread that is busy with a round reads all the time: so it only has to be overheard. Gives for how long the thread
 * is to be asked to wait: not at all, where it was busy. */
static int64_t overhear(struct dynamic *handler, int64_t wait_ms, const struct flag *cancel) {
  pthread_mutex_lock(&handler->lock);
  const bool busy = handler->engine.in_round || handler->engine.wish != WISH_NOTHING;
  if (busy) {
    flag_lower(&handler->looked);
    handler->look_known = handler->view_token;
    handler->watching = true;
  }
  pthread_mutex_unlock(&handler->lock);
  if (!busy) return wait_ms;
  await_look(handler, wait_ms, cancel);
  pthread_mutex_lock(&handler->lock);
  handler->watching = false;
  pthread_mutex_unlock(&handler->lock);
  return 0;
}

static int read_status(struct dynamic *handler, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                       rdzv_error *error) {
  pthread_mutex_lock(&handler->look);
  const int64_t left = wait_ms > 0 ? overhear(handler, wait_ms < LONGEST_MS ? wait_ms : LONGEST_MS, cancel) : 0;
  int result = look(handler, left, cancel, error);
  if (result == 0) {
    pthread_mutex_lock(&handler->lock);
    *out = dynamic_status(handler);
    pthread_mutex_unlock(&handler->lock);
    if (!*out) result = error_no_memory(error);
  }
  pthread_mutex_unlock(&handler->look);
  return result;
}

static int dynamic_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  const int result = read_status(self(base), wait_ms, &base->cancel, out, error);
  if (result == 0 && *out && (*out)->closed) status_set_reason(*out, find_reason(self(base)));
  return result;
}

/* What the thread knows, if it is not old; else asks. */
static int dynamic_facts(struct dynamic *handler, bool *closed, int64_t *waiting, rdzv_error *error) {
  const struct engine *engine = &handler->engine;
  pthread_mutex_lock(&handler->lock);
  const bool fresh = engine->known && clock_now_ms() - engine->read_ms < VIEW_MS;
  *closed = engine->state.closed;
  *waiting = (int64_t)engine->state.num_waiting;
  pthread_mutex_unlock(&handler->lock);
  if (fresh) return 0;
  rdzv_status *status = NULL;
  const int result = read_status(handler, 0, NULL, &status, error);
  if (result < 0 || !status) return result;
  *closed = status->closed;
  *waiting = (int64_t)status->waiting;
  rdzv_status_free(status);
  return 0;
}

static int dynamic_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error) {
  bool now;
  int64_t waiting;
  const int result = dynamic_facts(self(base), &now, &waiting, error);
  if (result == 0) *closed = now;
  return result;
}

static int dynamic_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error) {
  bool closed;
  int64_t now;
  const int result = dynamic_facts(self(base), &closed, &now, error);
  if (result == 0) *count = now;
  return result;
}

/* ---- saying farewell ------------------------------------------------------------------------------------------ */

/* The first reason stays: what closes it once more, as a job that is done, does not know better. */
static bool has_reason(struct dynamic *handler) {
  int64_t waiting;
  pthread_mutex_lock(&handler->lock);
  const bool is_told =
      handler->member || handler->base.farewell_ms > 0; /* and does not wait for a store that is gone */
  bool closed = handler->engine.state.closed;
  pthread_mutex_unlock(&handler->lock);
  if (!is_told && dynamic_facts(handler, &closed, &waiting, NULL) < 0) return false;
  if (!closed) return false;
  char *reason = find_reason(handler);
  free(reason);
  return reason != NULL;
}

/* Without the reason it is closed all the same. */
static void leave_reason(struct dynamic *handler, const char *reason) {
  char *key = reason_key(handler);
  rdzv_store *store = NULL;
  rdzv_error error = {0};
  int result = key ? rdzv_store_clone(handler->store, &store, &error) : error_no_memory(&error);
  if (result == 0 && key) result = rdzv_store_set(store, rdzv_str(key), rdzv_str(reason), &error);
  if (result < 0) log_line(&handler->base.log, RDZV_LOG_WARNING, "the reason for closing is lost: %s", error.message);
  rdzv_store_free(store);
  free(key);
}

static int dynamic_set_closed(rdzv_handler *base, const char *reason, rdzv_error *error) {
  struct dynamic *handler = self(base);
  if (reason && *reason && handler->store) {
    if (base->farewell_ms > 0) rdzv_store_set_request_timeout(handler->store, base->farewell_ms / 2, NULL);
    if (!has_reason(handler)) leave_reason(handler, reason);
  }
  return ask(self(base), DYNAMIC_CLOSE, "close the rendezvous", error);
}

static int dynamic_leave(rdzv_handler *base, rdzv_error *error) {
  return ask(self(base), DYNAMIC_LEAVE, "leave the rendezvous", error);
}

static int dynamic_shutdown(rdzv_handler *base, rdzv_error *error) {
  struct dynamic *handler = self(base);
  const int result = dynamic_set_closed(base, NULL, error);
  pthread_mutex_lock(&handler->lock);
  handler->member = false;
  dynamic_ask(handler, DYNAMIC_STOP);
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static const char *dynamic_describe(rdzv_handler *base) { return self(base)->ops.describe(self(base)->backend); }

static int find_master_now(rdzv_handler *base, rdzv_result *result, rdzv_error *error) {
  return result->rank == 0 ? 0 : dynamic_find_master((struct dynamic *)base, (struct round_result *)result, error);
}

static int dynamic_change_fd(const rdzv_handler *base) { return ((const struct dynamic *)base)->changed.fd; }
static int dynamic_ended_fd(const rdzv_handler *base) { return ((const struct dynamic *)base)->ended.fd; }

const struct handler_ops dynamic_ops = {
    .next = dynamic_next,
    .wait_change = dynamic_wait_change,
    .is_closed = dynamic_is_closed,
    .num_waiting = dynamic_num_waiting,
    .set_closed = dynamic_set_closed,
    .leave = dynamic_leave,
    .shutdown = dynamic_shutdown,
    .status_read = dynamic_status_read,
    .describe = dynamic_describe,
    .find_master = find_master_now,
    .change_fd = dynamic_change_fd,
    .ended_fd = dynamic_ended_fd,
    .close = dynamic_close,
    .abandon = dynamic_abandon,
};
