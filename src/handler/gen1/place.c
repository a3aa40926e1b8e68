/* SPDX-License-Identifier: BSD-3-Clause */
/* Our place in the round, and what happened to it since: what the machine finds out and what the leases' thread reports
 * is kept here until the user asks. */
#include "base/error.h"
#include "handler/gen1/gen1.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_ended(const struct gen1_place *place) {
  const bool more = place->change.what & ~(unsigned)RDZV_CHANGE_WAITING;
  return more || place->failure.code || (place->in && place->lease != ETCD_LEASE_STATE_HELD);
}

static void set(struct flag *flag, bool up) { up ? flag_raise(flag) : flag_lower(flag); }

static void lock(struct gen1_place *place) { pthread_mutex_lock(&place->lock); }

/* Brings the flags up to date. */
static void unlock(struct gen1_place *place) {
  set(&place->changed, place->change.what || has_ended(place));
  set(&place->ended, has_ended(place));
  set(&place->outside, !place->in);
  pthread_mutex_unlock(&place->lock);
}

int gen1_place_open(struct gen1_place *place, rdzv_error *error) {
  int result = flag_open(&place->changed, error);
  if (result == 0) result = flag_open(&place->ended, error);
  if (result == 0) result = flag_open(&place->outside, error);
  if (result == 0) flag_raise(&place->outside);
  return result;
}

void gen1_place_close(struct gen1_place *place) {
  flag_close(&place->changed);
  flag_close(&place->ended);
  flag_close(&place->outside);
  change_clear(&place->change);
  pthread_mutex_destroy(&place->lock);
}

/* ---- having it ------------------------------------------------------------------------------------------------ */

void gen1_place_take(struct gen1 *handler) {
  struct gen1_place *place = &handler->place;
  lock(place);
  place->in = true;
  place->rank = handler->machine.rank;
  memcpy(place->round, handler->machine.round, sizeof place->round);
  unlock(place);
}

void gen1_place_leave(struct gen1 *handler) {
  struct gen1_place *place = &handler->place;
  gen1_drop_rank(handler);
  lock(place);
  place->in = false;
  place->round[0] = '\0';
  change_clear(&place->change);
  place->failure.code = 0;
  unlock(place);
}

bool gen1_place_is_in(struct gen1_place *place) {
  lock(place);
  const bool in = place->in;
  unlock(place);
  return in;
}

int gen1_round_path(struct gen1 *handler, const char *name, char out[GEN1_PATH], rdzv_error *error) {
  struct gen1_place *place = &handler->place;
  lock(place);
  const int result = place->round[0] ? 0 : error_set(error, RDZV_E_INVALID, "this node is not in a round");
  gen1_path(handler, out, "/rdzv/v_%s/%s", place->round, name);
  unlock(place);
  return result;
}

/* ---- its lease ------------------------------------------------------------------------------------------------ */

void gen1_lease_told(void *user, int slot, enum etcd_lease_state state, int64_t since_ms, const rdzv_error *cause) {
  struct gen1_place *place = &((struct gen1 *)user)->place;
  if (slot != GEN1_LEASE_RANK) return;
  lock(place);
  place->lease = state;
  place->held_ms = since_ms;
  if (state == ETCD_LEASE_STATE_SILENT) place->cause = *cause;
  unlock(place);
}

void gen1_lease_said(void *user, bool lost, const char *line) {
  struct gen1 *handler = user;
  events_note(&handler->events, lost ? RDZV_NODE_STATE_FAILED : RDZV_NODE_STATE_RUNNING, -1, -1, "%s", line);
  events_flush(&handler->events);
}

bool gen1_hold_rank(struct gen1 *handler, const char *key, int64_t ttl, int64_t asked_ms) {
  const struct etcd_lease lease = {.key = key, .value = handler->mark, .ttl_s = ttl, .asked_ms = asked_ms};
  gen1_drop_rank(handler);
  return etcd_leases_set(handler->leases, GEN1_LEASE_RANK, &lease);
}

void gen1_drop_rank(struct gen1 *handler) {
  etcd_leases_set(handler->leases, GEN1_LEASE_RANK, NULL);
  lock(&handler->place);
  handler->place.lease = ETCD_LEASE_STATE_HELD;
  unlock(&handler->place);
}

/* ---- what happened -------------------------------------------------------------------------------------------- */

/* With the lock held, as what follows. */
static void add(struct gen1 *handler, unsigned what, const char *text, const char *who) {
  struct gen1_place *place = &handler->place;
  place->change.what |= what;
  if (*who) change_add_node(&place->change, who);
  if (what & (RDZV_CHANGE_CLOSED | RDZV_CHANGE_EVICTED)) place->in = false;
  events_note(&handler->events, RDZV_NODE_STATE_RUNNING, strtoll(place->round, NULL, 10), place->rank, "%s%s", text,
              who);
}

static void add_changes(struct gen1 *handler, unsigned happened) {
  if (happened & GEN1_HAPPENED_SOMEONE_WAITS) add(handler, RDZV_CHANGE_WAITING, "a node waits for the next round", "");
  if (happened & GEN1_HAPPENED_PARTICIPANT_DIED) {
    const char *name = strrchr(handler->machine.who, '/');
    add(handler, RDZV_CHANGE_DIED, "a participant died: ", name ? name + 1 : "");
  }
  if (happened & GEN1_HAPPENED_IS_CLOSED) add(handler, RDZV_CHANGE_CLOSED, "the rendezvous is closed", "");
  if (happened & GEN1_HAPPENED_EVICTED) add(handler, RDZV_CHANGE_EVICTED, "this node's place in the round is lost", "");
}

void gen1_tell(struct gen1 *handler, unsigned happened) {
  struct gen1_place *place = &handler->place;
  const bool failed = (happened & GEN1_HAPPENED_FAILED) && handler->machine.phase == GEN1_PHASE_OUTSIDE;
  lock(place);
  if (place->in) add_changes(handler, happened);
  if (place->in && failed) {
    gen1_fail(handler, &place->failure);
    place->in = false;
  }
  unlock(place);
}

static int fail_silent(const struct gen1 *handler, rdzv_error *error) {
  const double silence = (double)(clock_now_ms() - handler->place.held_ms) / 1000;
  return error_set(error, RDZV_E_CONNECTION, "cannot stay in the round: no answer for %.1f s from %.200s: %s", silence,
                   handler->text, handler->place.cause.message);
}

/* With the lock held. */
static int take_change(struct gen1 *handler, rdzv_change **out, rdzv_error *error) {
  struct gen1_place *place = &handler->place;
  if (place->in && place->lease == ETCD_LEASE_STATE_LOST) add_changes(handler, GEN1_HAPPENED_EVICTED);
  if (place->change.what) return change_take(&place->change, out, error);
  if (place->failure.code) {
    const int code = place->failure.code;
    if (error) *error = place->failure;
    place->failure.code = 0;
    return code;
  }
  if (!place->in) return error_set(error, RDZV_E_INVALID, "this node is not in a round");
  return place->lease == ETCD_LEASE_STATE_SILENT ? fail_silent(handler, error) : RDZV_E_TIMEOUT;
}

int gen1_take_change(struct gen1 *handler, rdzv_change **out, rdzv_error *error) {
  lock(&handler->place);
  const int result = take_change(handler, out, error);
  unlock(&handler->place);
  events_flush(&handler->events);
  return result;
}
