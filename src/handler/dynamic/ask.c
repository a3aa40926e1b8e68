/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user's calls ask of the driver, and what the driver tells: answers, and changes of the round. */
#include "base/error.h"
#include "base/log.h"
#include "handler/dynamic/dynamic.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- asking --------------------------------------------------------------------------------------------------- */

void dynamic_drop_joined(struct dynamic *handler) {
  if (handler->joined) rdzv_result_free(&handler->joined->base);
  handler->joined = NULL;
}

/* This node is in no round, and nothing has happened to it; with the lock held. */
static void forget_round(struct dynamic *handler) {
  handler->in_round = false;
  change_clear(&handler->change);
  flag_lower(&handler->changed);
  flag_lower(&handler->ended);
}

static void begin(struct dynamic *handler, enum driver_ask what, const struct driver_words *words) {
  pthread_mutex_lock(&handler->lock);
  dynamic_drop_joined(handler);
  flag_lower(&handler->answered);
  /* A store that was not asked anything before, or whose silence the user knows of, gets its chance. */
  if (!handler->in_round || handler->told_silent) driver_forgive_silence(handler->driver);
  handler->told_silent = false;
  if (what == DRIVER_JOIN || what == DRIVER_LEAVE) forget_round(handler);
  handler->awaited = driver_ask(handler->driver, what, words);
  pthread_mutex_unlock(&handler->lock);
}

/* Waits until the driver has answered; RDZV_E_TIMEOUT: it has not, and the wait is over. While the store
 * answers, the driver knows best when the time is over: that of a spare does not pass. */
static int await(struct dynamic *handler, const struct patience *patience) {
  struct driver *driver = handler->driver;
  for (deadline until = patience->until;;) {
    int64_t wake;
    const int64_t silence = driver_silence(driver, &wake);
    if (patience->for_answers && silence >= rendezvous_dead_time(driver_settings(driver))) return RDZV_E_TIMEOUT;
    const int result = flag_await(&handler->answered, patience->cancel, wake < until ? wake : until);
    if (result == RDZV_E_CANCELED && patience->is_farewell) {
      until = deadline_sooner(until, deadline_after(handler_farewell(&handler->base, INT64_MAX)));
      continue;
    }
    if (result != RDZV_E_TIMEOUT) return result;
    if (deadline_left(until) > 0) continue;
    if (handler->base.farewell_ms > 0 || !driver_hears(driver)) return result;
    until = deadline_after(DYNAMIC_GRACE_MS);
  }
}

int dynamic_fail_lost(struct dynamic *handler, const char *what, rdzv_error *error) {
  const int result = driver_fail_silent(handler->driver, what, error);
  if (rdzv_error_class_of(result) == RDZV_ERROR_CLASS_DEFINITE) return result;
  if (error) error->code = RDZV_E_CONNECTION;
  return RDZV_E_CONNECTION;
}

int dynamic_fail_poll(const char *what, int errnum, rdzv_error *error) {
  return error_errno(error, RDZV_E_IO, errnum, "cannot %s: waiting failed", what);
}

/* Takes the answer. False: there is none, and the wait is over. */
static bool take_answer(struct dynamic *handler, int *outcome, rdzv_error *error) {
  pthread_mutex_lock(&handler->lock);
  const bool is_there = handler->awaited == 0;
  handler->awaited = 0;
  if (is_there) *outcome = handler->outcome;
  if (is_there && *outcome < 0 && error) *error = handler->error;
  pthread_mutex_unlock(&handler->lock);
  return is_there;
}

int dynamic_ask(struct dynamic *handler, enum driver_ask what, const struct driver_words *words, const char *name,
                const struct patience *patience, rdzv_error *error) {
  begin(handler, what, words);
  int result = await(handler, patience);
  const int errnum = errno;
  if (take_answer(handler, &result, error)) return result;
  if (result == RDZV_E_CANCELED) return error_set(error, result, "cannot %s: canceled", name);
  if (result == RDZV_E_IO) return dynamic_fail_poll(name, errnum, error);
  return patience->for_answers ? dynamic_fail_lost(handler, name, error)
                               : driver_fail_silent(handler->driver, name, error);
}

void dynamic_give_up(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  handler->in_round = false;
  dynamic_drop_joined(handler);
  driver_ask(handler->driver, DRIVER_LEAVE, NULL);
  pthread_mutex_unlock(&handler->lock);
}

/* ---- what the driver tells: in its thread, with the lock held ------------------------------------------------- */

static bool is_awaited(const struct dynamic *handler, enum driver_ask what) {
  return handler->awaited != 0 && handler->awaited == driver_taken(handler->driver, what);
}

static void answer(struct dynamic *handler, enum driver_ask what, int outcome, const rdzv_error *error) {
  if (!is_awaited(handler, what)) return;
  handler->awaited = 0;
  handler->outcome = outcome;
  if (error) handler->error = *error;
  flag_raise(&handler->answered);
}

/* What the server, or the state that all share, says of the round. False: no memory. */
static bool fill_result(struct round_result *result, const struct driver_news *news) {
  const struct engine_update *update = news->update;
  result->base.round = update->round;
  result->base.rank = update->rank;
  result->base.world_size = update->world_size;
  if (news->joined) return result_set_native(result, news->joined);
  result_note_ours(result, update->state);
  return result_add_participants(result, update->state);
}

static void told_joined(struct dynamic *handler, const struct driver_news *news) {
  const struct engine_update *update = news->update;
  events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, update->round, update->rank,
              "joined round %" PRId64 " as rank %" PRId64 " in a world of %" PRId64, update->round, update->rank,
              update->world_size);
  if (!is_awaited(handler, DRIVER_JOIN)) return;
  struct round_result *result = result_new(handler->base.run_id, handler->driver->ops->backend, handler->base.node);
  if (!result || !fill_result(result, news)) {
    answer(handler, DRIVER_JOIN, error_no_memory(&handler->error), NULL);
    rdzv_result_free(result ? &result->base : NULL);
    return;
  }
  forget_round(handler);
  handler->joined = result;
  handler->in_round = handler->been_in_round = true;
  answer(handler, DRIVER_JOIN, 0, NULL);
}

static void told_failed(struct dynamic *handler, const struct engine_update *update) {
  const enum driver_ask what = update->failed == ENGINE_EV_ASK_JOIN    ? DRIVER_JOIN
                               : update->failed == ENGINE_EV_ASK_LEAVE ? DRIVER_LEAVE
                                                                       : DRIVER_CLOSE;
  rdzv_error error = update->error;
  if (error.code == RDZV_E_TIMEOUT) error_append(&error, "; at %s", driver_describe(handler->driver));
  events_note(&handler->events, RDZV_NODE_STATE_FAILED, -1, -1, "%s", error.message);
  answer(handler, what, error.code, &error);
}

/* A server tells again what may have been lost with a connection. */
static bool is_named(const struct rdzv_change *change, const char *node) {
  size_t at = 0;
  while (at < change->count && strcmp(change->nodes[at], node) != 0) at++;
  return at < change->count;
}

/* Names the participants that left or died. */
static void name_gone(struct dynamic *handler, const struct driver_news *news) {
  if (news->engine)
    for (const struct engine_peer *peer = NULL; (peer = engine_gone(news->engine, news->update, peer));)
      change_add_node(&handler->change, node_text(&peer->desc).text);
  for (size_t i = 0; news->native && i < news->native->named; i++) {
    const struct node_text name = node_text(&news->native->nodes[i]);
    if (!is_named(&handler->change, name.text)) change_add_node(&handler->change, name.text);
  }
}

static void told_changes(struct dynamic *handler, const struct driver_news *news) {
  const struct engine_update *update = news->update;
  static const struct {
    unsigned news, what;
    const char *text;
  } changes[] = {{ENGINE_NEWS_SOMEONE_WAITS, RDZV_CHANGE_WAITING, "a node waits for the next round"},
                 {ENGINE_NEWS_PARTICIPANT_LEFT, RDZV_CHANGE_LEFT, "a participant left the round"},
                 {ENGINE_NEWS_PARTICIPANT_DIED, RDZV_CHANGE_DIED, "a participant died"},
                 {ENGINE_NEWS_IS_CLOSED, RDZV_CHANGE_CLOSED, "the rendezvous was closed"},
                 {ENGINE_NEWS_EVICTED, RDZV_CHANGE_EVICTED, "the round goes on without this node"}};
  unsigned what = 0;
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    const unsigned one = update->news & changes[i].news;
    if (!one) continue;
    what |= changes[i].what;
    const char *name = one == ENGINE_NEWS_PARTICIPANT_LEFT   ? update->left.text
                       : one == ENGINE_NEWS_PARTICIPANT_DIED ? update->dead.text
                                                             : "";
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, update->round, -1, "%s%s%s", changes[i].text,
                *name ? ": " : "", name);
  }
  if (what == 0) return;
  name_gone(handler, news);
  handler->change.what |= what;
  if (what & RDZV_CHANGE_EVICTED) handler->in_round = false;
  flag_raise(&handler->changed);
  if (what & ~(unsigned)RDZV_CHANGE_WAITING) flag_raise(&handler->ended);
}

void dynamic_told(void *user, const struct driver_news *news) {
  struct dynamic *handler = user;
  const struct engine_update *update = news->update;
  if (update->news == 0) return;
  pthread_mutex_lock(&handler->lock);
  if (update->news & ENGINE_NEWS_JOINED) told_joined(handler, news);
  if (update->news & ENGINE_NEWS_LEFT) {
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, -1, -1, "left the rendezvous");
    answer(handler, DRIVER_LEAVE, 0, NULL);
  }
  if (update->news & ENGINE_NEWS_CLOSE_DONE) {
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, -1, -1, "closed the rendezvous");
    answer(handler, DRIVER_CLOSE, 0, NULL);
  }
  if (update->news & ENGINE_NEWS_FAILED) told_failed(handler, update);
  if (update->news & ENGINE_NEWS_WARNING) log_line(&handler->base.log, RDZV_LOG_WARNING, "%s", update->warning.text);
  told_changes(handler, news);
  pthread_mutex_unlock(&handler->lock);
}
