/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic/dynamic.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"
#include "handler/status.h"
#include "store/run_keys.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dynamic *self(rdzv_handler *handler) { return (struct dynamic *)handler; }

/* ---- hearing of changes --------------------------------------------------------------------------------------- */

/* Takes what has happened. RDZV_E_TIMEOUT: nothing yet; *wake is when to look at the store's silence again. */
static int take_change(struct dynamic *handler, rdzv_change **out, int64_t *wake, rdzv_error *error) {
  const struct rendezvous_settings *settings = driver_settings(handler->driver);
  int result = RDZV_E_TIMEOUT;
  pthread_mutex_lock(&handler->lock);
  const int64_t silence = driver_silence(handler->driver, wake);
  if (handler->change.what) {
    result = change_take(&handler->change, out, error);
    if (result == 0) flag_lower(&handler->changed);
  } else if (!handler->in_round) {
    result = error_set(error, RDZV_E_INVALID, "this node is not in a round");
  } else if (silence >= rendezvous_dead_time(settings)) {
    result = dynamic_fail_lost(handler, "stay in the round", error);
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
    result = flag_await(&handler->changed, &base->cancel, wake < until ? wake : until);
    if (result == RDZV_E_CANCELED) return error_set(error, result, "waiting for changes of the round: canceled");
    if (result == RDZV_E_IO) return dynamic_fail_poll("hear of changes of the round", errno, error);
    if (result == RDZV_E_TIMEOUT && deadline_left(until) == 0)
      return error_set(error, result, "nothing happened in %" PRId64 " ms", timeout_ms);
  }
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

/* Gets the reason for closing, on another connection: the driver may be using the handler's. */
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
  char *key = run_key(handler->base.run_id, RUN_PART_REASON);
  rdzv_value reason;
  const bool found = key && get_reason(handler, key, &reason);
  free(key);
  return found ? reason.data : NULL;
}

void dynamic_add_reason(struct dynamic *handler, rdzv_error *error) {
  char *reason = error ? find_reason(handler) : NULL;
  if (!reason) return;
  error_append(error, ": %s", bytes_quote(rdzv_str(reason)).text);
  free(reason);
}

static int dynamic_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  const int result = driver_look(self(base)->driver, wait_ms, &base->cancel, out, error);
  if (result == 0 && (*out)->closed && !*(*out)->reason) status_set_reason(*out, find_reason(self(base)));
  return result;
}

/* What the driver knows, if it is fresh; else asks. */
static int get_facts(struct dynamic *handler, struct driver_facts *facts, rdzv_error *error) {
  rdzv_status *status;
  *facts = driver_facts(handler->driver);
  if (facts->is_fresh) return 0;
  const int result = driver_look(handler->driver, DRIVER_LOOK_ASIDE, NULL, &status, error);
  if (result < 0) return result;
  facts->closed = status->closed;
  facts->waiting = status->waiting;
  rdzv_status_free(status);
  return 0;
}

static int dynamic_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error) {
  struct driver_facts facts;
  const int result = get_facts(self(base), &facts, error);
  if (result == 0) *closed = facts.closed;
  return result;
}

static int dynamic_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error) {
  struct driver_facts facts;
  const int result = get_facts(self(base), &facts, error);
  if (result == 0) *count = (int64_t)facts.waiting;
  return result;
}

/* ---- leaving and closing -------------------------------------------------------------------------------------- */

static int ask(struct dynamic *handler, enum driver_ask what, const struct driver_words *words, const char *name,
               rdzv_error *error) {
  struct waiting waiting;
  pthread_mutex_lock(&handler->call);
  const int64_t usual = driver_settings(handler->driver)->close_timeout + DYNAMIC_GRACE_MS;
  const struct flag telling = flag_with(&handler->base.hurry, &waiting);
  const struct patience patience = {
      .until = deadline_after(handler_farewell(&handler->base, usual)), .cancel = &telling, .is_farewell = true};
  driver_begin_waiting(handler->driver, &waiting, name, patience.until);
  const int result = dynamic_ask(handler, what, words, name, &patience, error);
  pthread_mutex_unlock(&handler->call);
  return result;
}

/* The first reason stays: a later one, as that of a job that is done, does not know better. A participant, which is
 * told of a close, and a farewell, which does not wait for a store that is gone, take what the driver knows. */
static bool has_reason(struct dynamic *handler) {
  struct driver_facts facts = driver_facts(handler->driver);
  pthread_mutex_lock(&handler->lock);
  const bool is_told = handler->in_round || handler->base.farewell_ms > 0;
  pthread_mutex_unlock(&handler->lock);
  if (!is_told && get_facts(handler, &facts, NULL) < 0) return false;
  if (!facts.closed) return false;
  char *reason = find_reason(handler);
  free(reason);
  return reason != NULL;
}

/* A rendezvous is closed even if its reason cannot be written, or the time for it is over. */
static void leave_reason(struct dynamic *handler, const char *reason) {
  char *key = run_key(handler->base.run_id, RUN_PART_REASON);
  const int hurry = flag_fd(&handler->base.hurry);
  rdzv_store *store = NULL;
  rdzv_error error = {0};
  int result =
      key ? rdzv_store_clone_with(handler->store, hurry > 0 ? hurry : 0, &store, &error) : error_no_memory(&error);
  if (result == 0 && key) result = rdzv_store_set(store, rdzv_str(key), rdzv_str(reason), &error);
  if (result < 0) log_line(&handler->base.log, RDZV_LOG_WARNING, "the reason for closing is lost: %s", error.message);
  rdzv_store_free(store);
  free(key);
}

/* A server that forms the rounds takes the reason with the close, and keeps the first one. */
static int close_native(struct dynamic *handler, const char *reason, rdzv_error *error) {
  struct driver_words words = {0};
  snprintf(words.reason, sizeof words.reason, "%s", reason ? reason : "");
  return ask(handler, DRIVER_CLOSE, &words, "close the rendezvous", error);
}

static int dynamic_set_closed(rdzv_handler *base, const char *reason, rdzv_error *error) {
  struct dynamic *handler = self(base);
  if (handler->driver->ops->native) return close_native(handler, reason, error);
  if (reason && *reason && handler->store) {
    const int64_t within_ms = handler_farewell(base, INT64_MAX);
    if (within_ms < INT64_MAX) rdzv_store_set_request_timeout(handler->store, within_ms / 2, NULL);
    if (!has_reason(handler)) leave_reason(handler, reason);
  }
  return ask(self(base), DRIVER_CLOSE, NULL, "close the rendezvous", error);
}

static int dynamic_leave(rdzv_handler *base, rdzv_error *error) {
  return ask(self(base), DRIVER_LEAVE, NULL, "leave the rendezvous", error);
}

/* The driver stops between two calls: a stop ends what another thread asked for, without an answer. */
static int dynamic_shutdown(rdzv_handler *base, rdzv_error *error) {
  struct dynamic *handler = self(base);
  const int result = dynamic_set_closed(base, NULL, error);
  pthread_mutex_lock(&handler->call);
  pthread_mutex_lock(&handler->lock);
  handler->in_round = false;
  driver_ask(handler->driver, DRIVER_STOP, NULL);
  pthread_mutex_unlock(&handler->lock);
  pthread_mutex_unlock(&handler->call);
  return result;
}

static const char *dynamic_describe(rdzv_handler *base) { return driver_describe(self(base)->driver); }

static int find_master_now(rdzv_handler *base, rdzv_result *result, rdzv_error *error) {
  struct round_result *round = (struct round_result *)result;
  const bool known = result->rank == 0 || round->all_native;
  return known ? 0 : dynamic_find_master((struct dynamic *)base, round, error);
}

static int dynamic_set_workers(rdzv_handler *base, const char *role, int64_t local_world_size, int64_t restarts,
                               rdzv_error *error) {
  struct dynamic *handler = self(base);
  (void)error;
  pthread_mutex_lock(&handler->lock);
  snprintf(handler->workers.role, sizeof handler->workers.role, "%s", role);
  handler->workers.local_world_size = local_world_size;
  handler->workers.restart_count = restarts;
  pthread_mutex_unlock(&handler->lock);
  return 0;
}

/* The driver may raise or lower the flag meanwhile. */
static int fd_of(const rdzv_handler *base, const struct flag *flag) {
  struct dynamic *handler = (struct dynamic *)base;
  pthread_mutex_lock(&handler->lock);
  const int fd = flag_fd(flag);
  pthread_mutex_unlock(&handler->lock);
  return fd;
}

static int dynamic_change_fd(const rdzv_handler *base) { return fd_of(base, &((const struct dynamic *)base)->changed); }
static int dynamic_ended_fd(const rdzv_handler *base) { return fd_of(base, &((const struct dynamic *)base)->ended); }

const struct handler_ops dynamic_ops = {
    .next = dynamic_next,
    .wait_change = dynamic_wait_change,
    .is_closed = dynamic_is_closed,
    .num_waiting = dynamic_num_waiting,
    .set_closed = dynamic_set_closed,
    .leave = dynamic_leave,
    .shutdown = dynamic_shutdown,
    .status_read = dynamic_status_read,
    .set_workers = dynamic_set_workers,
    .describe = dynamic_describe,
    .find_master = find_master_now,
    .change_fd = dynamic_change_fd,
    .ended_fd = dynamic_ended_fd,
    .close = dynamic_close,
    .abandon = dynamic_abandon,
};
