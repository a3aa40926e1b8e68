/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/gen1/barrier.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  REFRESH_MS = ACTIVE_JOINABLE_TTL * 1000 / 2,
  FIRST_NOISE_MS = 10,
  LAST_NOISE_MS = 1000,
  LOSS_MS = 2,
  LOSS_MOST_MS = 150,
  MOST_LOSSES = 12,
  WATCH_MS = 10000, /* at most without reading anew */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void barrier_init(struct barrier *barrier, const struct barrier_settings *settings, uint64_t seed,
                  void (*keep_alive_key)(void *argument, const char *version, int64_t rank, char out[512]),
                  void *argument) {
  *barrier = (struct barrier){
      .settings = *settings, .keep_alive_key = keep_alive_key, .argument = argument, .pace = {.random = seed}};
  snprintf(barrier->nonce, sizeof barrier->nonce, "%016" PRIx64, pace_random(&barrier->pace));
}

static void drop_texts(struct barrier *barrier) {
  free(barrier->text);
  free(barrier->expected);
  barrier->text = barrier->expected = NULL;
}

void barrier_free(struct barrier *barrier) {
  active_free(&barrier->active);
  drop_texts(barrier);
  free(barrier->reason);
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static int want(struct barrier *barrier, enum barrier_request request, struct barrier_update *update) {
  update->request = barrier->asked = request;
  update->version = barrier->version;
  update->rank = barrier->rank;
  return 0;
}

static int pause_until(struct barrier *barrier, int64_t until_ms, struct barrier_update *update) {
  barrier->known = false; /* it is read anew then */
  update->until_ms = until_ms;
  return want(barrier, BARRIER_PAUSE, update);
}

/* Those who heard of the same change do not all read again at the same time. */
static int watch(struct barrier *barrier, bool whole, int64_t until_ms, struct barrier_update *update) {
  const int64_t longest = WATCH_MS - pace_jitter(&barrier->pace, WATCH_MS / 4);
  barrier->known = false;
  barrier->watch_ends = least(until_ms, barrier->now + longest);
  update->whole = whole;
  update->from_index = barrier->index + 1;
  update->until_ms = barrier->watch_ends;
  return want(barrier, BARRIER_WATCH, update);
}

/* Takes over the text. */
static int swap(struct barrier *barrier, char *text, int64_t ttl, struct barrier_update *update, rdzv_error *error) {
  drop_texts(barrier);
  barrier->text = text;
  barrier->expected = strdup(barrier->active.text);
  if (!text || !barrier->expected) return error_no_memory(error);
  update->text = barrier->text;
  update->expected = barrier->expected;
  update->ttl = ttl;
  return want(barrier, BARRIER_SWAP, update);
}

static int create(struct barrier *barrier, char *text, int64_t ttl, struct barrier_update *update, rdzv_error *error) {
  drop_texts(barrier);
  barrier->text = text;
  if (!text) return error_no_memory(error);
  update->text = text;
  update->ttl = ttl;
  update->unique = !barrier->closing;
  return want(barrier, BARRIER_CREATE, update);
}

/* ---- endings -------------------------------------------------------------------------------------------------- */

static void fail(struct barrier *barrier, enum barrier_event_kind asked, struct barrier_update *update) {
  update->happened |= BARRIER_FAILED;
  update->failed = asked;
  if (asked == BARRIER_ASK_CLOSE)
    barrier->closing = false;
  else
    barrier->phase = BARRIER_OUTSIDE;
}

static void time_out(struct barrier *barrier, struct barrier_update *update) {
  const struct active_version *active = &barrier->active;
  if (barrier->absent || !active->text)
    error_set(&update->error, RDZV_E_TIMEOUT, "the time to join is over: there is no rendezvous yet");
  else
    error_set(&update->error, RDZV_E_TIMEOUT,
              "the time to join is over: %zu of at least %" PRId64 " nodes joined, %zu confirmed, version '%s' is %s",
              active->participants, barrier->settings.min_nodes, active->keep_alives, active->version,
              active_status_name(active->status));
  fail(barrier, BARRIER_ASK_JOIN, update);
}

static void closed(struct barrier *barrier, struct barrier_update *update) {
  const char *reason = active_reason(&barrier->active);
  error_set(&update->error, RDZV_E_CLOSED, "the rendezvous is closed%s%s", reason ? ": " : "",
            reason ? bytes_quote(rdzv_str(reason)).text : "");
  fail(barrier, BARRIER_ASK_JOIN, update);
}

/* ---- what a state means --------------------------------------------------------------------------------------- */

static bool is(const struct barrier *barrier, enum active_status status) {
  return !barrier->absent && barrier->active.status == status;
}

static bool is_gathering(const struct barrier *barrier) {
  return is(barrier, ACTIVE_JOINABLE) || is(barrier, ACTIVE_FROZEN);
}

/* The version, and we in it: an etcd that lost its data gives the same numbers again. */
static bool is_ours(const struct barrier *barrier) {
  if (barrier->absent || strcmp(barrier->active.version, barrier->version) != 0) return false;
  return !is_gathering(barrier) || active_rank_of(&barrier->active, barrier->nonce) == barrier->rank;
}

/* We are in the version that is there. */
static void enter(struct barrier *barrier, int64_t rank) {
  barrier->phase = BARRIER_PEERS;
  barrier->rank = rank;
  memcpy(barrier->version, barrier->active.version, sizeof barrier->version);
  barrier->calls_last = is(barrier, ACTIVE_JOINABLE) && rank == barrier->settings.min_nodes - 1;
  barrier->call_ends = barrier->now + barrier->settings.last_call_timeout;
}

/* What we did without knowing it. */
static bool take_up(struct barrier *barrier, struct barrier_update *update, bool *again) {
  const int64_t rank = is_gathering(barrier) ? active_rank_of(&barrier->active, barrier->nonce) : -1;
  if (active_is_set_up_by(&barrier->active, barrier->nonce)) {
    barrier->phase = BARRIER_SETUP;
    want(barrier, BARRIER_COUNT, update);
    return true;
  }
  if (rank < 0) return false;
  enter(barrier, rank);
  barrier->refreshed = barrier->now - REFRESH_MS; /* it may be about to expire */
  *again = true;
  return true;
}

static int join(struct barrier *barrier, struct barrier_update *update, rdzv_error *error) {
  const struct active_version *active = &barrier->active;
  bool frozen;
  char *text = active_join(active, barrier->settings.max_nodes, barrier->nonce, &frozen);
  const bool enough = (int64_t)active->participants + 1 >= barrier->settings.min_nodes;
  update->unique = true;
  return swap(barrier, text, frozen ? ACTIVE_FROZEN_TTL : enough ? ACTIVE_JOINABLE_TTL : 0, update, error);
}

/* `again`: what is known is to be looked at once more, in another phase. */
static int look(struct barrier *barrier, struct barrier_update *update, bool *again, rdzv_error *error) {
  const struct active_version *active = &barrier->active;
  if (barrier->absent) {
    barrier->phase = BARRIER_SETUP;
    return create(barrier, active_setup(barrier->nonce), ACTIVE_SETUP_TTL, update, error);
  }
  if (active->status == ACTIVE_CLOSED) {
    closed(barrier, update);
    return 0;
  }
  if (take_up(barrier, update, again)) return 0;
  const bool room = (int64_t)active->participants < barrier->settings.max_nodes;
  if (active->status == ACTIVE_JOINABLE && room) return join(barrier, update, error);
  if (active->status == ACTIVE_FINAL) return swap(barrier, active_announce(active), 0, update, error);
  return watch(barrier, false, barrier->deadline + 1, update);
}

static int wait_for_peers(struct barrier *barrier, struct barrier_update *update, bool *again, rdzv_error *error) {
  if (is(barrier, ACTIVE_FROZEN) && is_ours(barrier)) {
    barrier->phase = BARRIER_CONFIRM;
    update->ttl = ACTIVE_KEEP_ALIVE_TTL;
    return want(barrier, BARRIER_LEASE, update);
  }
  if (!is(barrier, ACTIVE_JOINABLE) || !is_ours(barrier)) {
    barrier->phase = BARRIER_LOOK;
    *again = true;
    return 0;
  }
  if (!barrier->calls_last) return watch(barrier, false, barrier->deadline + 1, update);
  if (barrier->now >= barrier->call_ends)
    return swap(barrier, active_freeze(&barrier->active), ACTIVE_FROZEN_TTL, update, error);
  if (barrier->now >= barrier->refreshed + REFRESH_MS)
    return swap(barrier, strdup(barrier->active.text), ACTIVE_JOINABLE_TTL, update, error);
  return watch(barrier, false, least(barrier->call_ends, barrier->refreshed + REFRESH_MS), update);
}

static bool has_confirmed(const struct barrier *barrier, const char *key) {
  for (size_t i = 0; is_ours(barrier) && i < barrier->active.keep_alives; i++)
    if (strcmp(active_keep_alive(&barrier->active, i), key) == 0) return true;
  return false;
}

static int confirm(struct barrier *barrier, struct barrier_update *update, bool *again, rdzv_error *error) {
  char key[512];
  bool final;
  barrier->keep_alive_key(barrier->argument, barrier->version, barrier->rank, key);
  const bool confirmed = has_confirmed(barrier, key); /* by a swap whose answer got lost */
  if (confirmed || !is(barrier, ACTIVE_FROZEN) || !is_ours(barrier)) {
    barrier->phase = confirmed ? BARRIER_FINAL : BARRIER_LOOK;
    *again = true;
    return 0;
  }
  char *text = active_confirm(&barrier->active, key, &final);
  update->unique = true;
  return swap(barrier, text, final ? 0 : ACTIVE_FROZEN_TTL, update, error);
}

static int wait_for_final(struct barrier *barrier, struct barrier_update *update, bool *again) {
  if (is(barrier, ACTIVE_FROZEN) && is_ours(barrier)) return watch(barrier, false, barrier->deadline + 1, update);
  if (!is(barrier, ACTIVE_FINAL) || !is_ours(barrier)) {
    barrier->phase = BARRIER_LOOK;
    *again = true;
    return 0;
  }
  barrier->phase = BARRIER_MEMBER;
  barrier->pause = 0;
  barrier->told_waiting = 0;
  barrier->who[0] = '\0';
  update->happened |= BARRIER_JOINED;
  update->version = barrier->version;
  update->rank = barrier->rank;
  update->world_size = (int64_t)barrier->active.participants;
  *again = true;
  return 0;
}

static int wait_until_free(struct barrier *barrier, struct barrier_update *update, bool *again) {
  const bool announced = barrier->active.waiting > 0; /* else it is another one, of the same number */
  if (is(barrier, ACTIVE_FINAL) && is_ours(barrier) && announced) return want(barrier, BARRIER_LIST, update);
  barrier->phase = BARRIER_LOOK;
  *again = true;
  return 0;
}

static int stay(struct barrier *barrier, struct barrier_update *update) {
  if (is(barrier, ACTIVE_FINAL) && is_ours(barrier)) {
    const bool room = (int64_t)barrier->active.participants < barrier->settings.max_nodes;
    if (room && barrier->active.waiting > barrier->told_waiting) update->happened |= BARRIER_SOMEONE_WAITS;
    barrier->told_waiting = barrier->active.waiting;
    return want(barrier, BARRIER_LIST, update);
  }
  update->happened |= is(barrier, ACTIVE_CLOSED) ? BARRIER_IS_CLOSED : BARRIER_EVICTED;
  barrier->phase = BARRIER_OUTSIDE;
  return want(barrier, BARRIER_IDLE, update);
}

static int close_it(struct barrier *barrier, struct barrier_update *update, rdzv_error *error) {
  if (!is(barrier, ACTIVE_CLOSED)) {
    char *text = active_close(barrier->absent ? NULL : &barrier->active, barrier->reason);
    return barrier->absent ? create(barrier, text, 0, update, error) : swap(barrier, text, 0, update, error);
  }
  barrier->closing = false;
  update->happened |= BARRIER_CLOSED;
  return 0;
}

/* ---- deciding ------------------------------------------------------------------------------------------------- */

static bool is_joining(const struct barrier *barrier) {
  return barrier->phase != BARRIER_OUTSIDE && barrier->phase != BARRIER_MEMBER;
}

int64_t barrier_deadline(const struct barrier *barrier) {
  if (barrier->closing) return barrier->close_deadline;
  return is_joining(barrier) ? barrier->deadline : INT64_MAX;
}

static bool is_late(struct barrier *barrier, struct barrier_update *update) {
  if (barrier->closing && barrier->now > barrier->close_deadline) {
    error_set(&update->error, RDZV_E_TIMEOUT, "the time to close the rendezvous is over");
    fail(barrier, BARRIER_ASK_CLOSE, update);
  }
  if (is_joining(barrier) && barrier->now > barrier->deadline) time_out(barrier, update);
  return barrier->phase == BARRIER_OUTSIDE && !barrier->closing;
}

static int decide_once(struct barrier *barrier, struct barrier_update *update, bool *again, rdzv_error *error) {
  if (barrier->closing) {
    *again = is(barrier, ACTIVE_CLOSED);
    return close_it(barrier, update, error);
  }
  switch (barrier->phase) {
    case BARRIER_LOOK: return look(barrier, update, again, error);
    case BARRIER_PEERS: return wait_for_peers(barrier, update, again, error);
    case BARRIER_CONFIRM: return confirm(barrier, update, again, error);
    case BARRIER_FINAL: return wait_for_final(barrier, update, again);
    case BARRIER_FREE: return wait_until_free(barrier, update, again);
    case BARRIER_MEMBER: return stay(barrier, update);
    default: barrier->phase = BARRIER_LOOK; return want(barrier, BARRIER_READ, update);
  }
}

static int decide(struct barrier *barrier, struct barrier_update *update, rdzv_error *error) {
  for (bool again = true; again;) {
    again = false;
    if (is_late(barrier, update)) return want(barrier, BARRIER_IDLE, update);
    if (!barrier->known) return want(barrier, BARRIER_READ, update);
    if (barrier->leased && barrier->phase == BARRIER_LOOK) { /* back from a version that came to nothing */
      barrier->leased = false;
      update->happened |= BARRIER_LEASE_OVER;
    }
    const int result = decide_once(barrier, update, &again, error);
    if (result < 0) return result;
    if (barrier->phase == BARRIER_OUTSIDE && !barrier->closing) return want(barrier, BARRIER_IDLE, update);
  }
  return 0;
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static int take_state(struct barrier *barrier, const char *text, uint64_t index, rdzv_error *error) {
  struct active_version active = {0};
  if (text) {
    const int result = active_read(text, &active, error);
    if (result < 0) return result;
  }
  active_free(&barrier->active);
  barrier->active = active;
  barrier->absent = !text;
  barrier->index = index;
  barrier->known = true;
  return 0;
}

/* A swap of ours is done: what it was for depends on the phase. */
static int swapped(struct barrier *barrier, const struct barrier_event *event, rdzv_error *error) {
  const size_t before = barrier->active.participants;
  const enum active_status was = barrier->active.status;
  const int result = take_state(barrier, barrier->text, event->index, error);
  if (result < 0) return result;
  barrier->pace.losses = 0;
  if (barrier->closing && is(barrier, ACTIVE_CLOSED)) return 0;
  if (barrier->phase == BARRIER_LOOK && was == ACTIVE_FINAL) {
    barrier->phase = BARRIER_FREE;
    barrier->pause = 0;
    memcpy(barrier->version, barrier->active.version, sizeof barrier->version);
  } else if (barrier->phase == BARRIER_LOOK) {
    enter(barrier, (int64_t)before);
  } else if (barrier->phase == BARRIER_CONFIRM) {
    barrier->phase = BARRIER_FINAL;
  } else if (barrier->phase == BARRIER_SETUP) {
    barrier->phase = BARRIER_LOOK;
  }
  barrier->refreshed = barrier->now;
  return 0;
}

static int done(struct barrier *barrier, const struct barrier_event *event, struct barrier_update *update,
                bool *decided, rdzv_error *error) {
  switch (barrier->asked) {
    case BARRIER_SWAP: return swapped(barrier, event, error);
    case BARRIER_CREATE:
      if (barrier->closing) return swapped(barrier, event, error);
      *decided = true;
      if (take_state(barrier, barrier->text, event->index, error) < 0) return RDZV_E_NO_MEMORY;
      return want(barrier, BARRIER_COUNT, update);
    case BARRIER_COUNT:
      *decided = true;
      snprintf(barrier->version, sizeof barrier->version, "%s", event->version);
      return want(barrier, BARRIER_MAKE_DIR, update);
    case BARRIER_MAKE_DIR: *decided = true; return swap(barrier, active_joinable(barrier->version), 0, update, error);
    case BARRIER_DROP: barrier->known = false; return 0;
    case BARRIER_LEASE: barrier->leased = true; return 0;
    default: return 0; /* LEASE: the state is still known, or is read */
  }
}

/* Somebody else was faster. */
static int refused(struct barrier *barrier, struct barrier_update *update, bool *decided) {
  *decided = true;
  if (barrier->asked == BARRIER_MAKE_DIR)
    return want(barrier, BARRIER_COUNT, update); /* of a counter that began anew */
  if (barrier->phase == BARRIER_SETUP) barrier->phase = BARRIER_LOOK;
  if (barrier->asked != BARRIER_SWAP) return pause_until(barrier, barrier->now, update);
  if (barrier->pace.losses < MOST_LOSSES) barrier->pace.losses++;
  const int64_t window = least((int64_t)LOSS_MS << barrier->pace.losses, LOSS_MOST_MS);
  return pause_until(barrier, barrier->now + pace_jitter(&barrier->pace, window), update);
}

static bool is_listed(const struct barrier_event *event, const char *key) {
  for (size_t i = 0; i < event->key_count; i++)
    if (strcmp(event->keys[i], key) == 0) return true;
  return false;
}

/* Is a member's keep-alive gone? */
static const char *find_dead(const struct barrier *barrier, const struct barrier_event *event) {
  for (size_t i = 0; i < barrier->active.keep_alives; i++) {
    const char *key = active_keep_alive(&barrier->active, i);
    if (!is_listed(event, key)) return key;
  }
  return NULL;
}

/* Everything below a version is watched, and its store may be busy: so not every event is looked at. */
static int watch_all(struct barrier *barrier, int64_t until_ms, struct barrier_update *update) {
  return watch(barrier, true, until_ms, update);
}

/* In our own round. Without our keep-alive the others take us for dead. */
static int count_members(struct barrier *barrier, const struct barrier_event *event, struct barrier_update *update) {
  const char *dead = find_dead(barrier, event);
  char own[512];
  barrier->keep_alive_key(barrier->argument, barrier->version, barrier->rank, own);
  if (!is_listed(event, own)) {
    update->happened |= BARRIER_EVICTED;
    barrier->phase = BARRIER_OUTSIDE;
    return want(barrier, BARRIER_IDLE, update);
  }
  if (dead && strcmp(dead, barrier->who) != 0) {
    snprintf(barrier->who, sizeof barrier->who, "%s", dead);
    update->happened |= BARRIER_MEMBER_DIED;
    update->who = barrier->who;
  }
  return watch_all(barrier, INT64_MAX, update);
}

static int listed(struct barrier *barrier, const struct barrier_event *event, struct barrier_update *update,
                  bool *decided) {
  const char *dead = find_dead(barrier, event);
  *decided = true;
  if (barrier->phase == BARRIER_MEMBER) return count_members(barrier, event, update);
  if (!dead) return watch_all(barrier, barrier->deadline + 1, update);
  free(barrier->expected);
  barrier->expected = strdup(barrier->active.text);
  if (!barrier->expected) return pause_until(barrier, barrier->now + FIRST_NOISE_MS, update);
  update->expected = barrier->expected;
  return want(barrier, BARRIER_DROP, update);
}

/* How long not to look after an event. Of the whole tree: the more of them come, the longer; a quiet time makes up for
 * it. Of the state: each who joins or confirms wakes all who wait for the last. */
static int64_t rest(struct barrier *barrier) {
  const bool whole = barrier->phase == BARRIER_FREE || barrier->phase == BARRIER_MEMBER;
  if (!whole) return pace_jitter(&barrier->pace, (int64_t)barrier->active.participants);
  barrier->pause = barrier->pause == 0 ? FIRST_NOISE_MS : least(2 * barrier->pause, LAST_NOISE_MS);
  return pace_jitter(&barrier->pace, barrier->pause);
}

static int timer(struct barrier *barrier, struct barrier_update *update, bool *decided) {
  if (barrier->asked != BARRIER_WATCH) return 0;
  if (barrier->now >= barrier->watch_ends) {
    barrier->pause = 0;
    return 0;
  }
  *decided = true;
  return pause_until(barrier, barrier->now + rest(barrier), update);
}

static bool is_passing(int code) {
  return rdzv_error_class_of(code) == RDZV_ERROR_CLASS_RETRYABLE || code == RDZV_E_OUTCOME_UNKNOWN;
}

/* Whatever was under way may have been done; we look. */
static int store_error(struct barrier *barrier, const struct barrier_event *event, struct barrier_update *update,
                       bool *decided) {
  const bool passing = is_passing(event->error->code);
  if (barrier->phase == BARRIER_SETUP) barrier->phase = BARRIER_LOOK;
  if (barrier->asked == BARRIER_LEASE) barrier->phase = BARRIER_PEERS; /* no confirmation without it */
  barrier->known = false;
  if (!passing && barrier->closing) {
    update->error = *event->error;
    fail(barrier, BARRIER_ASK_CLOSE, update);
  }
  if (!passing && barrier->phase != BARRIER_OUTSIDE) {
    update->error = *event->error;
    fail(barrier, BARRIER_ASK_JOIN, update);
  }
  if (barrier->phase == BARRIER_OUTSIDE && !barrier->closing) return 0;
  *decided = true;
  return pause_until(barrier, barrier->now + pace_after_error(&barrier->pace), update);
}

static void ask_join(struct barrier *barrier) {
  barrier->phase = BARRIER_LOOK;
  barrier->deadline = barrier->now + barrier->settings.join_timeout;
  barrier->known = false;
}

static int ask_close(struct barrier *barrier, const char *reason, rdzv_error *error) {
  char *copy = reason ? strdup(reason) : NULL;
  if (reason && !copy) return error_no_memory(error);
  free(barrier->reason);
  barrier->reason = copy;
  barrier->closing = true;
  barrier->close_deadline = barrier->now + barrier->settings.close_timeout;
  return 0;
}

static int absorb(struct barrier *barrier, const struct barrier_event *event, struct barrier_update *update,
                  bool *decided, rdzv_error *error) {
  switch (event->kind) {
    case BARRIER_ASK_JOIN: ask_join(barrier); return 0;
    case BARRIER_ASK_CLOSE: return ask_close(barrier, event->text, error);
    case BARRIER_ASK_STOP:
      barrier->phase = BARRIER_OUTSIDE;
      barrier->closing = false;
      return 0;
    case BARRIER_STATE: barrier->pace.errors = 0; return take_state(barrier, event->text, event->index, error);
    case BARRIER_DONE: return done(barrier, event, update, decided, error);
    case BARRIER_REFUSED: return refused(barrier, update, decided);
    case BARRIER_LISTED: return listed(barrier, event, update, decided);
    case BARRIER_TIMER: return timer(barrier, update, decided);
    case BARRIER_ERROR: return store_error(barrier, event, update, decided);
  }
  return 0;
}

int barrier_step(struct barrier *barrier, const struct barrier_event *event, struct barrier_update *update,
                 rdzv_error *error) {
  *update = (struct barrier_update){.request = BARRIER_IDLE};
  bool decided = false;
  barrier->now = event->now_ms;
  int result = absorb(barrier, event, update, &decided, error);
  if (result == 0 && !decided) result = decide(barrier, update, error);
  if (result < 0) barrier->known = false;
  return result;
}
