/* SPDX-License-Identifier: BSD-3-Clause */
/* While the node is a member, a thread runs the machine between the user's calls. What it hears, and what the leases'
 * thread tells, is kept in the news until the user asks. */
#include "base/error.h"
#include "base/wait/thread.h"
#include "handler/gen1/gen1.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gen1 *self(rdzv_handler *handler) { return (struct gen1 *)handler; }

/* ---- the news ------------------------------------------------------------------------------------------------- */

static bool has_ended(const struct gen1_news *news) {
  const bool more = news->change.what & ~(unsigned)RDZV_CHANGE_WAITING;
  return more || news->failure.code || (news->member && news->lease != ETCD_LEASE_STATE_HELD);
}

static void set(struct flag *flag, bool up) { up ? flag_raise(flag) : flag_lower(flag); }

/* With the lock held, as what follows. */
static void show(struct gen1_news *news) {
  set(&news->changed, news->change.what || has_ended(news));
  set(&news->ended, has_ended(news));
  set(&news->outside, !news->member);
}

static void add(struct gen1 *handler, unsigned what, const char *text, const char *who) {
  struct gen1_news *news = &handler->news;
  news->change.what |= what;
  if (!news->change.who[0]) snprintf(news->change.who, sizeof news->change.who, "%s", who);
  if (what & (RDZV_CHANGE_CLOSED | RDZV_CHANGE_EVICTED)) news->member = false;
  events_note(&handler->events, RDZV_NODE_STATE_RUNNING, strtoll(news->round, NULL, 10), handler->rank, "%s%s", text,
              who);
}

static void add_changes(struct gen1 *handler, unsigned happened) {
  if (happened & GEN1_HAPPENED_SOMEONE_WAITS)
    add(handler, RDZV_CHANGE_WAITING, "somebody waits for the next round", "");
  if (happened & GEN1_HAPPENED_PARTICIPANT_DIED) {
    const char *name = strrchr(handler->machine.who, '/');
    char who[256];
    snprintf(who, sizeof who, "%.250s", name ? name + 1 : "");
    add(handler, RDZV_CHANGE_DIED, "a member died: ", who);
  }
  if (happened & GEN1_HAPPENED_IS_CLOSED) add(handler, RDZV_CHANGE_CLOSED, "the rendezvous is closed", "");
  if (happened & GEN1_HAPPENED_EVICTED) add(handler, RDZV_CHANGE_EVICTED, "this node's place in the round is lost", "");
}

void gen1_tell(struct gen1 *handler, unsigned happened) {
  struct gen1_news *news = &handler->news;
  const bool failed = (happened & GEN1_HAPPENED_FAILED) && handler->machine.phase == GEN1_PHASE_OUTSIDE;
  if (failed || (happened & (GEN1_HAPPENED_IS_CLOSED | GEN1_HAPPENED_EVICTED))) handler->listens = false;
  pthread_mutex_lock(&news->lock);
  if (news->member) add_changes(handler, happened);
  if (news->member && failed) {
    gen1_failure(handler, &news->failure);
    news->member = false;
  }
  show(news);
  pthread_mutex_unlock(&news->lock);
}

void gen1_lease_told(void *user, int slot, enum etcd_lease_state state, int64_t since_ms, const rdzv_error *cause) {
  struct gen1 *handler = user;
  struct gen1_news *news = &handler->news;
  if (slot != ETCD_LEASE_RANK) return;
  pthread_mutex_lock(&news->lock);
  news->lease = state;
  news->held_ms = since_ms;
  if (state == ETCD_LEASE_STATE_SILENT) news->cause = *cause;
  show(news);
  pthread_mutex_unlock(&news->lock);
}

static void forget_lease(struct gen1_news *news) {
  pthread_mutex_lock(&news->lock);
  news->lease = ETCD_LEASE_STATE_HELD;
  show(news);
  pthread_mutex_unlock(&news->lock);
}

bool gen1_hold_rank(struct gen1 *handler, const char *key, int64_t ttl, int64_t asked_ms) {
  const struct etcd_lease lease = {.key = key, .value = handler->mark, .ttl_s = ttl, .asked_ms = asked_ms};
  gen1_drop_rank(handler);
  return etcd_leases_set(handler->leases, ETCD_LEASE_RANK, &lease);
}

void gen1_drop_rank(struct gen1 *handler) {
  etcd_leases_set(handler->leases, ETCD_LEASE_RANK, NULL);
  forget_lease(&handler->news);
}

/* ---- the thread ----------------------------------------------------------------------------------------------- */

/* Begins and ends in our turn, which others have in between. */
static void listen_once(struct gen1 *handler) {
  unsigned happened;
  if (gen1_carry_out(handler, &handler->wake, &happened, NULL) == 0) gen1_tell(handler, happened);
  pthread_mutex_unlock(&handler->call);
  events_flush(&handler->events);
  pthread_mutex_lock(&handler->call);
}

static void *listen(void *argument) {
  struct gen1 *handler = argument;
  pthread_mutex_lock(&handler->call);
  while (!handler->over) {
    if (atomic_load(&handler->callers) > 0 || !handler->listens)
      pthread_cond_wait(&handler->turn, &handler->call);
    else
      listen_once(handler);
  }
  pthread_mutex_unlock(&handler->call);
  return NULL;
}

void gen1_listen_begin(struct gen1 *handler) {
  struct gen1_news *news = &handler->news;
  handler->listens = true;
  pthread_mutex_lock(&news->lock);
  news->member = true;
  memcpy(news->round, handler->round, sizeof news->round);
  show(news);
  pthread_mutex_unlock(&news->lock);
}

void gen1_listen_end(struct gen1 *handler) {
  struct gen1_news *news = &handler->news;
  handler->listens = false;
  pthread_mutex_lock(&news->lock);
  news->member = false;
  news->round[0] = '\0';
  news->change = (rdzv_change){0};
  news->failure.code = 0;
  show(news);
  pthread_mutex_unlock(&news->lock);
}

int gen1_listen_open(struct gen1 *handler, rdzv_error *error) {
  int result = flag_open(&handler->news.changed, error);
  if (result == 0) result = flag_open(&handler->news.outside, error);
  if (result == 0) result = flag_open(&handler->news.ended, error);
  if (result < 0) return result;
  flag_raise(&handler->news.outside);
  const int errnum = thread_start(&handler->thread, listen, handler);
  handler->started = errnum == 0;
  return errnum == 0 ? 0 : error_errno(error, RDZV_E_IO, errnum, "cannot start the thread that hears of changes");
}

void gen1_listen_close(struct gen1 *handler) {
  if (handler->started) {
    gen1_take_turn(handler);
    handler->over = true;
    gen1_end_turn(handler);
    pthread_join(handler->thread, NULL);
  }
  flag_close(&handler->news.changed);
  flag_close(&handler->news.outside);
  flag_close(&handler->news.ended);
}

/* ---- for the user --------------------------------------------------------------------------------------------- */

static int say_silent(const struct gen1 *handler, rdzv_error *error) {
  const double silence = (double)(clock_now_ms() - handler->news.held_ms) / 1000;
  return error_set(error, RDZV_E_CONNECTION, "cannot stay in the round: no answer for %.1f s from %.200s: %s", silence,
                   handler->text, handler->news.cause.message);
}

/* What there is, with the lock held. RDZV_E_TIMEOUT: nothing. */
static int take(struct gen1 *handler, rdzv_change *out, rdzv_error *error) {
  struct gen1_news *news = &handler->news;
  if (news->member && news->lease == ETCD_LEASE_STATE_LOST) add_changes(handler, GEN1_HAPPENED_EVICTED);
  if (news->change.what) {
    *out = news->change;
    news->change = (rdzv_change){0};
    return 0;
  }
  if (news->failure.code) {
    const int code = news->failure.code;
    if (error) *error = news->failure;
    news->failure.code = 0;
    return code;
  }
  if (!news->member) return error_set(error, RDZV_E_INVALID, "this node is in no round");
  return news->lease == ETCD_LEASE_STATE_SILENT ? say_silent(handler, error) : RDZV_E_TIMEOUT;
}

static int take_news(struct gen1 *handler, rdzv_change *out, rdzv_error *error) {
  pthread_mutex_lock(&handler->news.lock);
  const int result = take(handler, out, error);
  show(&handler->news);
  pthread_mutex_unlock(&handler->news.lock);
  events_flush(&handler->events);
  return result;
}

int gen1_wait_event(rdzv_handler *base, int64_t timeout_ms, rdzv_change *out, rdzv_error *error) {
  struct gen1 *handler = self(base);
  const deadline until = deadline_after(timeout_ms);
  struct pollfd fds[3] = {{.fd = handler->news.changed.fd, .events = POLLIN},
                          {.fd = handler->news.outside.fd, .events = POLLIN}};
  for (;;) {
    int result = take_news(handler, out, error);
    if (result != RDZV_E_TIMEOUT) return result;
    result = flag_poll(&base->cancel, fds, 2, until);
    if (result == RDZV_E_CANCELED) return error_set(error, result, "waiting for changes of the round: canceled");
    if (result < 0) return error_set(error, result, "nothing happened in %" PRId64 " ms", timeout_ms);
  }
}

int gen1_change_fd(const rdzv_handler *base) { return ((const struct gen1 *)base)->news.changed.fd; }
int gen1_ended_fd(const rdzv_handler *base) { return ((const struct gen1 *)base)->news.ended.fd; }

int gen1_round_path(struct gen1 *handler, const char *name, char out[GEN1_PATH], rdzv_error *error) {
  pthread_mutex_lock(&handler->news.lock);
  const int result = handler->news.round[0] ? 0 : error_set(error, RDZV_E_INVALID, "this node is in no round");
  gen1_path(handler, out, "/rdzv/v_%s/%s", handler->news.round, name);
  pthread_mutex_unlock(&handler->news.lock);
  return result;
}
