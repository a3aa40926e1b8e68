/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user's calls ask of the thread, and what the thread tells: answers, and changes of the round. */
#include "base/error.h"
#include "base/log.h"
#include "handler/leased/leased_handler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- asking --------------------------------------------------------------------------------------------------- */

/* This node is in no round, and nothing has happened to it; with the lock held. */
static void forget_round(struct leased_handler *handler) {
  handler->in_round = false;
  change_clear(&handler->change);
  flag_lower(&handler->changed);
  flag_lower(&handler->ended);
}

static void drop_joined(struct leased_handler *handler) {
  if (handler->joined) rdzv_result_free(&handler->joined->base);
  handler->joined = NULL;
}

/* A join and a leave that is not taken yet replace each other. */
static void begin(struct leased_handler *handler, enum leased_ask what) {
  pthread_mutex_lock(&handler->lock);
  drop_joined(handler);
  flag_lower(&handler->answered);
  memset(handler->awaited, 0, sizeof handler->awaited);
  if (what != LEASED_CLOSE) {
    forget_round(handler);
    handler->asked[LEASED_JOIN] = handler->asked[LEASED_LEAVE] = false;
  }
  handler->asked[what] = handler->awaited[what] = true;
  flag_raise(&handler->wake);
  pthread_mutex_unlock(&handler->lock);
}

void leased_give_up(struct leased_handler *handler) {
  pthread_mutex_lock(&handler->lock);
  forget_round(handler);
  drop_joined(handler);
  memset(handler->awaited, 0, sizeof handler->awaited);
  handler->asked[LEASED_JOIN] = false;
  handler->asked[LEASED_LEAVE] = true;
  flag_raise(&handler->wake);
  pthread_mutex_unlock(&handler->lock);
}

static int await(struct leased_handler *handler, deadline until, const struct flag *cancel) {
  for (;;) {
    const int result = flag_await(&handler->answered, cancel, until);
    if (result != RDZV_E_CANCELED || cancel != &handler->base.hurry) return result;
    until = deadline_sooner(until, deadline_after(handler_farewell(&handler->base, INT64_MAX)));
  }
}

/* Takes the answer. False: there is none, and the wait is over. */
static bool take_answer(struct leased_handler *handler, enum leased_ask what, int *outcome, rdzv_error *error) {
  pthread_mutex_lock(&handler->lock);
  const bool is_there = !handler->awaited[what];
  handler->awaited[what] = false;
  if (is_there) *outcome = handler->outcome;
  if (is_there && *outcome < 0 && error) *error = handler->error;
  if (!is_there && handler->trouble.code && error) *error = handler->trouble;
  pthread_mutex_unlock(&handler->lock);
  return is_there;
}

int leased_ask(struct leased_handler *handler, enum leased_ask what, const char *name, deadline until,
               const struct flag *cancel, rdzv_error *error) {
  rdzv_error own = {0};
  int result = leased_start(handler, &own);
  if (result == 0) {
    begin(handler, what);
    result = await(handler, until, cancel);
    if (take_answer(handler, what, &result, &own)) {
      if (result < 0 && error) *error = own;
      return result;
    }
  }
  if (result == RDZV_E_CANCELED) return error_set(error, result, "cannot %s the rendezvous: canceled", name);
  if (result == RDZV_E_TIMEOUT && own.code == 0)
    return error_set(error, result, "cannot %s the rendezvous in time: no answer from %.300s", name, handler->text);
  if (error) *error = own;
  return error_prefix(error, own.code ? own.code : result, "cannot %s the rendezvous", name);
}

/* ---- what the thread tells: with the lock held ---------------------------------------------------------------- */

static void answer(struct leased_handler *handler, enum leased_ask what, int outcome, const rdzv_error *error) {
  if (!handler->awaited[what]) return;
  handler->awaited[what] = false;
  handler->outcome = outcome;
  if (error) handler->error = *error;
  flag_raise(&handler->answered);
}

static bool add_participants(struct round_result *result, const struct leased_world *world) {
  result->participants = calloc(world->count + 1, sizeof *result->participants);
  result->all_ours = result->master_is_ours = true;
  for (size_t i = 0; result->participants && i < world->count; i++) {
    const struct node_desc *desc = &world->members[i].desc;
    char *node = strdup(node_text(desc).text), *addr = strdup(desc->addr);
    result->participants[result->participant_count++] =
        (rdzv_participant){node, addr, desc->pid, desc->local_id, (int64_t)i};
    if (!node || !addr) return false;
  }
  return result->participants && result_set_master(result, world->master_addr, (int)world->master_port);
}

static void told_joined(struct leased_handler *handler) {
  const struct leased_update *update = &handler->update;
  handler->data_lost = false;
  events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, update->round, update->rank,
              "joined round %" PRId64 " as rank %" PRId64 " in a world of %" PRId64, update->round, update->rank,
              update->world_size);
  if (!handler->awaited[LEASED_JOIN]) return;
  struct round_result *result = result_new(handler->base.run_id, "etcd-v3", handler->base.node);
  if (!result || !add_participants(result, update->world)) {
    answer(handler, LEASED_JOIN, error_no_memory(&handler->error), NULL);
    if (result) rdzv_result_free(&result->base);
    return;
  }
  result->base.round = update->round;
  result->base.rank = update->rank;
  result->base.world_size = update->world_size;
  forget_round(handler);
  handler->joined = result;
  handler->in_round = true;
  answer(handler, LEASED_JOIN, 0, NULL);
}

static void told_failed(struct leased_handler *handler) {
  const struct leased_update *update = &handler->update;
  const enum leased_ask what = update->failed == LEASED_EV_ASK_JOIN    ? LEASED_JOIN
                               : update->failed == LEASED_EV_ASK_LEAVE ? LEASED_LEAVE
                                                                       : LEASED_CLOSE;
  rdzv_error error = update->error;
  if (error.code == RDZV_E_TIMEOUT) error_append(&error, "; at %.200s", handler->text);
  events_note(&handler->events, RDZV_NODE_STATE_FAILED, -1, -1, "%s", error.message);
  answer(handler, what, error.code, &error);
}

static void note_change(struct leased_handler *handler, const char *text, const char *name) {
  events_note(&handler->events, RDZV_NODE_STATE_RUNNING, handler->update.round, -1, "%s%s%s", text, *name ? ": " : "",
              name);
}

static void told_changes(struct leased_handler *handler) {
  static const struct {
    unsigned news, what;
    const char *text;
  } changes[] = {{ENGINE_NEWS_SOMEONE_WAITS, RDZV_CHANGE_WAITING, "a node waits for the next round"},
                 {ENGINE_NEWS_PARTICIPANT_LEFT, RDZV_CHANGE_LEFT, NULL},
                 {ENGINE_NEWS_PARTICIPANT_DIED, RDZV_CHANGE_DIED, NULL},
                 {ENGINE_NEWS_IS_CLOSED, RDZV_CHANGE_CLOSED, "the rendezvous was closed"},
                 {ENGINE_NEWS_EVICTED, RDZV_CHANGE_EVICTED, NULL}};
  unsigned what = 0;
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    if (!(handler->update.news & changes[i].news)) continue;
    what |= changes[i].what;
    if (changes[i].text) note_change(handler, changes[i].text, "");
  }
  if (what & RDZV_CHANGE_EVICTED)
    note_change(handler, "this node's place in the round is lost",
                handler->data_lost ? "etcd has lost its data" : "its lease ended");
  if (what == 0 || !handler->in_round) return;
  for (const struct leased_member *member = NULL; (member = leased_gone(&handler->machine, member));) {
    const struct node_text name = node_text(&member->desc);
    note_change(handler, member->died ? "a participant died" : "a participant left the round", name.text);
    change_add_node(&handler->change, name.text);
  }
  handler->change.what |= what;
  if (what & RDZV_CHANGE_EVICTED) handler->in_round = false;
  flag_raise(&handler->changed);
  if (what & ~(unsigned)RDZV_CHANGE_WAITING) flag_raise(&handler->ended);
}

void leased_told(struct leased_handler *handler) {
  const unsigned news = handler->update.news;
  if (news == 0) return;
  pthread_mutex_lock(&handler->lock);
  if (news & ENGINE_NEWS_WARNING) log_line(&handler->base.log, RDZV_LOG_WARNING, "%s", handler->update.warning.text);
  if (news & ENGINE_NEWS_JOINED) told_joined(handler);
  if (news & ENGINE_NEWS_LEFT) {
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, -1, -1, "left the rendezvous");
    answer(handler, LEASED_LEAVE, 0, NULL);
  }
  if (news & ENGINE_NEWS_CLOSE_DONE) {
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, -1, -1, "closed the rendezvous");
    answer(handler, LEASED_CLOSE, 0, NULL);
  }
  if (news & ENGINE_NEWS_FAILED) told_failed(handler);
  told_changes(handler);
  pthread_mutex_unlock(&handler->lock);
}
