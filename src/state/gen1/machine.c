/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/gen1/machine.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  REFRESH_MS = GEN1_TTL_JOINABLE * 1000 / 2,
  FIRST_NOISE_MS = 10,
  LAST_NOISE_MS = 1000,
  LOSS_MS = 2,
  LOSS_MOST_MS = 150,
  MOST_LOSSES = 12,
  WATCH_MS = 10000, /* at most without reading */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void gen1_node_init(struct gen1_node *node, const struct gen1_settings *settings, uint64_t seed,
                    void (*keep_alive_key)(void *argument, const char *round, int64_t rank, char out[512]),
                    void *argument) {
  *node = (struct gen1_node){
      .settings = *settings, .keep_alive_key = keep_alive_key, .argument = argument, .pace = {.random = seed}};
  snprintf(node->nonce, sizeof node->nonce, "%016" PRIx64, pace_random(&node->pace));
}

static void drop_texts(struct gen1_node *node) {
  free(node->text);
  free(node->expected);
  node->text = node->expected = NULL;
}

void gen1_node_free(struct gen1_node *node) {
  gen1_state_free(&node->state);
  drop_texts(node);
  free(node->reason);
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static int want(struct gen1_node *node, enum gen1_request request, struct gen1_update *update) {
  update->request = node->asked = request;
  update->round = node->round;
  update->rank = node->rank;
  return 0;
}

static int pause_until(struct gen1_node *node, int64_t until_ms, struct gen1_update *update) {
  node->known = false; /* it is read again then */
  update->until_ms = until_ms;
  return want(node, GEN1_DO_PAUSE, update);
}

/* Nodes that heard of the same change do not all read again at the same time. */
static int watch(struct gen1_node *node, bool whole, int64_t until_ms, struct gen1_update *update) {
  const int64_t longest = WATCH_MS - pace_jitter(&node->pace, WATCH_MS / 4);
  node->known = false;
  node->watch_ends = least(until_ms, node->now + longest);
  update->whole = whole;
  update->from_index = node->index + 1;
  update->until_ms = node->watch_ends;
  return want(node, GEN1_DO_WATCH, update);
}

/* Takes over the text. */
static int swap(struct gen1_node *node, char *text, int64_t ttl, struct gen1_update *update, rdzv_error *error) {
  drop_texts(node);
  node->text = text;
  node->expected = strdup(node->state.text);
  if (!text || !node->expected) return error_no_memory(error);
  update->text = node->text;
  update->expected = node->expected;
  update->ttl = ttl;
  return want(node, GEN1_DO_SWAP, update);
}

static int create(struct gen1_node *node, char *text, int64_t ttl, struct gen1_update *update, rdzv_error *error) {
  drop_texts(node);
  node->text = text;
  if (!text) return error_no_memory(error);
  update->text = text;
  update->ttl = ttl;
  update->unique = !node->closing;
  return want(node, GEN1_DO_CREATE, update);
}

/* ---- endings -------------------------------------------------------------------------------------------------- */

static void fail(struct gen1_node *node, enum gen1_event_kind asked, struct gen1_update *update) {
  update->happened |= GEN1_HAPPENED_FAILED;
  update->failed = asked;
  if (asked == GEN1_EV_ASK_CLOSE)
    node->closing = false;
  else
    node->phase = GEN1_PHASE_OUTSIDE;
}

static void fail_late(struct gen1_node *node, struct gen1_update *update) {
  const struct gen1_state *state = &node->state;
  if (node->absent || !state->text)
    error_set(&update->error, RDZV_E_TIMEOUT, "join timed out: the rendezvous does not exist yet");
  else
    error_set(&update->error, RDZV_E_TIMEOUT,
              "join timed out: %zu of at least %" PRId64 " nodes joined, %zu confirmed, round '%s' is %s",
              state->participants, node->settings.min_nodes, state->keep_alives, state->round,
              gen1_status_name(state->status));
  fail(node, GEN1_EV_ASK_JOIN, update);
}

static void fail_closed(struct gen1_node *node, struct gen1_update *update) {
  const char *reason = gen1_state_reason(&node->state);
  error_set(&update->error, RDZV_E_CLOSED, "the rendezvous is closed%s%s", reason ? ": " : "",
            reason ? bytes_quote(rdzv_str(reason)).text : "");
  fail(node, GEN1_EV_ASK_JOIN, update);
}

/* ---- what a state means --------------------------------------------------------------------------------------- */

static bool is(const struct gen1_node *node, enum gen1_status status) {
  return !node->absent && node->state.status == status;
}

static bool is_gathering(const struct gen1_node *node) {
  return is(node, GEN1_STATUS_JOINABLE) || is(node, GEN1_STATUS_FROZEN);
}

/* The round, and we in it: an etcd that lost its data gives the same numbers again. */
static bool is_ours(const struct gen1_node *node) {
  if (node->absent || strcmp(node->state.round, node->round) != 0) return false;
  return !is_gathering(node) || gen1_state_rank_of(&node->state, node->nonce) == node->rank;
}

/* We are in the round that is there. */
static void enter(struct gen1_node *node, int64_t rank) {
  node->phase = GEN1_PHASE_PEERS;
  node->rank = rank;
  memcpy(node->round, node->state.round, sizeof node->round);
  node->calls_last = is(node, GEN1_STATUS_JOINABLE) && rank == node->settings.min_nodes - 1;
  node->call_ends = node->now + node->settings.last_call_timeout;
}

/* What we did without knowing it. */
static bool take_up(struct gen1_node *node, struct gen1_update *update, bool *again) {
  const int64_t rank = is_gathering(node) ? gen1_state_rank_of(&node->state, node->nonce) : -1;
  if (gen1_state_is_set_up_by(&node->state, node->nonce)) {
    node->phase = GEN1_PHASE_SETUP;
    want(node, GEN1_DO_COUNT, update);
    return true;
  }
  if (rank < 0) return false;
  enter(node, rank);
  node->refreshed = node->now - REFRESH_MS; /* it may be about to expire */
  *again = true;
  return true;
}

static int join(struct gen1_node *node, struct gen1_update *update, rdzv_error *error) {
  const struct gen1_state *state = &node->state;
  bool frozen;
  const struct differences_settings own = gen1_differences_settings(&node->settings);
  const struct gen1_joiner joiner = {node->nonce, node->settings.max_nodes, node->settings.name ? own.text : NULL,
                                     node->settings.name};
  char *text = gen1_state_join(state, &joiner, &frozen);
  const bool enough = (int64_t)state->participants + 1 >= node->settings.min_nodes;
  update->unique = true;
  return swap(node, text, frozen ? GEN1_TTL_FROZEN : enough ? GEN1_TTL_JOINABLE : 0, update, error);
}

/* `again`: what is known is to be looked at once more, in another phase. */
static int look(struct gen1_node *node, struct gen1_update *update, bool *again, rdzv_error *error) {
  const struct gen1_state *state = &node->state;
  struct gen1_entry clash;
  if (node->absent) {
    node->phase = GEN1_PHASE_SETUP;
    return create(node, gen1_state_setup(node->nonce), GEN1_TTL_SETUP, update, error);
  }
  if (state->status == GEN1_STATUS_CLOSED) {
    fail_closed(node, update);
    return 0;
  }
  if (take_up(node, update, again)) return 0;
  gen1_warn(node, update);
  if (gen1_find_clash(node, &clash)) {
    memcpy(node->round, state->round, sizeof node->round);
    return want(node, GEN1_DO_LIST, update);
  }
  const bool room = (int64_t)state->participants < node->settings.max_nodes;
  if (state->status == GEN1_STATUS_JOINABLE && room) return join(node, update, error);
  if (state->status == GEN1_STATUS_FINAL) return swap(node, gen1_state_announce(state), 0, update, error);
  return watch(node, false, node->deadline + 1, update);
}

/* What is known is not our round, or not what we wait for. */
static int look_again(struct gen1_node *node, bool *again) {
  node->phase = GEN1_PHASE_LOOK;
  *again = true;
  return 0;
}

/* The last call of a joinable round. */
static int call_last(struct gen1_node *node, struct gen1_update *update, rdzv_error *error) {
  if (node->now >= node->call_ends) return swap(node, gen1_state_freeze(&node->state), GEN1_TTL_FROZEN, update, error);
  if (node->now >= node->refreshed + REFRESH_MS)
    return swap(node, strdup(node->state.text), GEN1_TTL_JOINABLE, update, error);
  return watch(node, false, least(node->call_ends, node->refreshed + REFRESH_MS), update);
}

static int wait_for_peers(struct gen1_node *node, struct gen1_update *update, bool *again, rdzv_error *error) {
  if (!is_gathering(node) || !is_ours(node)) return look_again(node, again);
  gen1_warn(node, update);
  if (gen1_error_size(node, &update->error)) {
    fail(node, GEN1_EV_ASK_JOIN, update);
    return 0;
  }
  if (!node->leased) {
    update->ttl = GEN1_TTL_KEEP_ALIVE;
    return want(node, GEN1_DO_LEASE, update);
  }
  if (is(node, GEN1_STATUS_FROZEN)) {
    node->phase = GEN1_PHASE_CONFIRM;
    *again = true;
    return 0;
  }
  return node->calls_last ? call_last(node, update, error) : watch(node, false, node->deadline + 1, update);
}

int64_t gen1_last_call_ends(const struct gen1_node *node) {
  const bool calls = node->phase == GEN1_PHASE_PEERS && node->calls_last && is(node, GEN1_STATUS_JOINABLE);
  return calls ? node->call_ends : INT64_MAX;
}

static bool has_confirmed(const struct gen1_node *node, const char *key) {
  for (size_t i = 0; is_ours(node) && i < node->state.keep_alives; i++)
    if (strcmp(gen1_state_keep_alive(&node->state, i), key) == 0) return true;
  return false;
}

static int confirm(struct gen1_node *node, struct gen1_update *update, bool *again, rdzv_error *error) {
  char key[512];
  bool final;
  node->keep_alive_key(node->argument, node->round, node->rank, key);
  const bool confirmed = has_confirmed(node, key); /* by a swap whose answer got lost */
  if (confirmed || !is(node, GEN1_STATUS_FROZEN) || !is_ours(node)) {
    node->phase = confirmed ? GEN1_PHASE_FINAL : GEN1_PHASE_LOOK;
    *again = true;
    return 0;
  }
  char *text = gen1_state_confirm(&node->state, key, &final);
  update->unique = true;
  return swap(node, text, final ? 0 : GEN1_TTL_FROZEN, update, error);
}

static int wait_for_final(struct gen1_node *node, struct gen1_update *update, bool *again) {
  if (is(node, GEN1_STATUS_FROZEN) && is_ours(node)) return watch(node, false, node->deadline + 1, update);
  if (!is(node, GEN1_STATUS_FINAL) || !is_ours(node)) return look_again(node, again);
  node->phase = GEN1_PHASE_PARTICIPANT;
  node->pause = 0;
  node->told_waiting = 0;
  node->who[0] = '\0';
  update->happened |= GEN1_HAPPENED_JOINED;
  update->round = node->round;
  update->rank = node->rank;
  update->world_size = (int64_t)node->state.participants;
  *again = true;
  return 0;
}

static int wait_until_free(struct gen1_node *node, struct gen1_update *update, bool *again) {
  const bool announced = node->state.waiting > 0; /* else it is another one, of the same number */
  if (is(node, GEN1_STATUS_FINAL) && is_ours(node) && announced) return want(node, GEN1_DO_LIST, update);
  return look_again(node, again);
}

static int stay(struct gen1_node *node, struct gen1_update *update) {
  if (is(node, GEN1_STATUS_FINAL) && is_ours(node)) {
    const bool room = (int64_t)node->state.participants < node->settings.max_nodes;
    if (room && node->state.waiting > node->told_waiting) update->happened |= GEN1_HAPPENED_SOMEONE_WAITS;
    node->told_waiting = node->state.waiting;
    return want(node, GEN1_DO_LIST, update);
  }
  update->happened |= is(node, GEN1_STATUS_CLOSED) ? GEN1_HAPPENED_IS_CLOSED : GEN1_HAPPENED_EVICTED;
  node->phase = GEN1_PHASE_OUTSIDE;
  return want(node, GEN1_DO_IDLE, update);
}

static int close_it(struct gen1_node *node, struct gen1_update *update, rdzv_error *error) {
  if (!is(node, GEN1_STATUS_CLOSED)) {
    char *text = gen1_state_close(node->absent ? NULL : &node->state, node->reason);
    return node->absent ? create(node, text, 0, update, error) : swap(node, text, 0, update, error);
  }
  node->closing = false;
  update->happened |= GEN1_HAPPENED_CLOSED;
  return 0;
}

/* ---- deciding ------------------------------------------------------------------------------------------------- */

static bool is_joining(const struct gen1_node *node) {
  return node->phase != GEN1_PHASE_OUTSIDE && node->phase != GEN1_PHASE_PARTICIPANT;
}

int64_t gen1_deadline(const struct gen1_node *node) {
  if (node->closing) return node->close_deadline;
  return is_joining(node) ? node->deadline : INT64_MAX;
}

static bool is_late(struct gen1_node *node, struct gen1_update *update) {
  if (node->closing && node->now > node->close_deadline) {
    error_set(&update->error, RDZV_E_TIMEOUT, "close timed out");
    fail(node, GEN1_EV_ASK_CLOSE, update);
  }
  if (is_joining(node) && node->now > node->deadline) fail_late(node, update);
  return node->phase == GEN1_PHASE_OUTSIDE && !node->closing;
}

static int decide_once(struct gen1_node *node, struct gen1_update *update, bool *again, rdzv_error *error) {
  if (node->closing) {
    *again = is(node, GEN1_STATUS_CLOSED);
    return close_it(node, update, error);
  }
  switch (node->phase) {
    case GEN1_PHASE_LOOK: return look(node, update, again, error);
    case GEN1_PHASE_PEERS: return wait_for_peers(node, update, again, error);
    case GEN1_PHASE_CONFIRM: return confirm(node, update, again, error);
    case GEN1_PHASE_FINAL: return wait_for_final(node, update, again);
    case GEN1_PHASE_FREE: return wait_until_free(node, update, again);
    case GEN1_PHASE_PARTICIPANT: return stay(node, update);
    default: node->phase = GEN1_PHASE_LOOK; return want(node, GEN1_DO_READ, update);
  }
}

static int decide(struct gen1_node *node, struct gen1_update *update, rdzv_error *error) {
  for (bool again = true; again;) {
    again = false;
    if (is_late(node, update)) return want(node, GEN1_DO_IDLE, update);
    if (!node->known) return want(node, GEN1_DO_READ, update);
    if (node->leased && node->phase == GEN1_PHASE_LOOK) { /* back from a round that came to nothing */
      node->leased = false;
      update->happened |= GEN1_HAPPENED_LEASE_OVER;
    }
    const int result = decide_once(node, update, &again, error);
    if (result < 0) return result;
    if (node->phase == GEN1_PHASE_OUTSIDE && !node->closing) return want(node, GEN1_DO_IDLE, update);
  }
  return 0;
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static int take_state(struct gen1_node *node, const char *text, uint64_t index, rdzv_error *error) {
  struct gen1_state state = {0};
  if (text) {
    const int result = gen1_state_read(text, &state, error);
    if (result < 0) return result;
  }
  gen1_state_free(&node->state);
  node->state = state;
  node->absent = !text;
  node->index = index;
  node->known = true;
  return 0;
}

/* Our swap is done: what it was for depends on the phase. */
static int swapped(struct gen1_node *node, const struct gen1_event *event, rdzv_error *error) {
  const size_t before = node->state.participants;
  const enum gen1_status was = node->state.status;
  const int result = take_state(node, node->text, event->index, error);
  if (result < 0) return result;
  node->pace.losses = 0;
  if (node->closing && is(node, GEN1_STATUS_CLOSED)) return 0;
  if (node->phase == GEN1_PHASE_LOOK && was == GEN1_STATUS_FINAL) {
    node->phase = GEN1_PHASE_FREE;
    node->pause = 0;
    memcpy(node->round, node->state.round, sizeof node->round);
  } else if (node->phase == GEN1_PHASE_LOOK) {
    enter(node, (int64_t)before);
  } else if (node->phase == GEN1_PHASE_CONFIRM) {
    node->phase = GEN1_PHASE_FINAL;
  } else if (node->phase == GEN1_PHASE_SETUP) {
    node->phase = GEN1_PHASE_LOOK;
  }
  node->refreshed = node->now;
  return 0;
}

static int done(struct gen1_node *node, const struct gen1_event *event, struct gen1_update *update, bool *decided,
                rdzv_error *error) {
  switch (node->asked) {
    case GEN1_DO_SWAP: return swapped(node, event, error);
    case GEN1_DO_CREATE:
      if (node->closing) return swapped(node, event, error);
      *decided = true;
      if (take_state(node, node->text, event->index, error) < 0) return RDZV_E_NO_MEMORY;
      return want(node, GEN1_DO_COUNT, update);
    case GEN1_DO_COUNT:
      *decided = true;
      snprintf(node->round, sizeof node->round, "%s", event->round);
      return want(node, GEN1_DO_MAKE_DIR, update);
    case GEN1_DO_MAKE_DIR: *decided = true; return swap(node, gen1_state_joinable(node->round), 0, update, error);
    case GEN1_DO_DROP: node->known = false; return 0;
    case GEN1_DO_LEASE: node->leased = true; return 0;
    default: return 0; /* LEASE: the state is still known, or is read */
  }
}

/* Another node was faster. */
static int refused(struct gen1_node *node, struct gen1_update *update, bool *decided) {
  *decided = true;
  if (node->asked == GEN1_DO_MAKE_DIR) return want(node, GEN1_DO_COUNT, update); /* the counter has begun again */
  if (node->phase == GEN1_PHASE_SETUP) node->phase = GEN1_PHASE_LOOK;
  if (node->asked != GEN1_DO_SWAP) return pause_until(node, node->now, update);
  if (node->pace.losses < MOST_LOSSES) node->pace.losses++;
  const int64_t window = least((int64_t)LOSS_MS << node->pace.losses, LOSS_MOST_MS);
  return pause_until(node, node->now + pace_jitter(&node->pace, window), update);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The keys are in order. */
static bool is_listed(const struct gen1_event *event, const char *key) {
  return event->key_count > 0 && bsearch(&key, event->keys, event->key_count, sizeof *event->keys, by_text);
}

/* The keep-alive of a participant that is gone; NULL: none. */
static const char *find_dead(const struct gen1_node *node, const struct gen1_event *event) {
  for (size_t i = 0; i < node->state.keep_alives; i++) {
    const char *key = gen1_state_keep_alive(&node->state, i);
    if (!is_listed(event, key)) return key;
  }
  return NULL;
}

/* Everything below a round is watched, and its store may be busy: so not every event is looked at. */
static int watch_all(struct gen1_node *node, int64_t until_ms, struct gen1_update *update) {
  return watch(node, true, until_ms, update);
}

/* In our own round. Without our keep-alive the others take us for dead. */
static int count_participants(struct gen1_node *node, const struct gen1_event *event, const char *dead,
                              struct gen1_update *update) {
  char own[512];
  node->keep_alive_key(node->argument, node->round, node->rank, own);
  if (!is_listed(event, own)) {
    update->happened |= GEN1_HAPPENED_EVICTED;
    node->phase = GEN1_PHASE_OUTSIDE;
    return want(node, GEN1_DO_IDLE, update);
  }
  if (dead && strcmp(dead, node->who) != 0) {
    snprintf(node->who, sizeof node->who, "%s", dead);
    update->happened |= GEN1_HAPPENED_PARTICIPANT_DIED;
    update->who = node->who;
  }
  return watch_all(node, INT64_MAX, update);
}

/* Of the round of a node with which we clash: does that node live? */
static int judge_clash(struct gen1_node *node, const struct gen1_event *event, struct gen1_update *update,
                       bool *decided) {
  struct gen1_entry clash;
  char key[512];
  *decided = false;
  if (!gen1_find_clash(node, &clash)) return 0;
  node->keep_alive_key(node->argument, node->round, clash.rank, key);
  if (is_listed(event, key)) {
    gen1_error_clash(node, &clash, &update->error);
    fail(node, GEN1_EV_ASK_JOIN, update);
    return 0;
  }
  const int64_t until = gen1_doubt_clash(node);
  *decided = until > node->now;
  return *decided ? pause_until(node, until, update) : 0;
}

static int listed(struct gen1_node *node, const struct gen1_event *event, struct gen1_update *update, bool *decided) {
  if (event->key_count > 0) qsort(event->keys, event->key_count, sizeof *event->keys, by_text);
  if (node->phase == GEN1_PHASE_LOOK) return judge_clash(node, event, update, decided);
  const char *dead = find_dead(node, event);
  *decided = true;
  if (node->phase == GEN1_PHASE_PARTICIPANT) return count_participants(node, event, dead, update);
  if (!dead) return watch_all(node, node->deadline + 1, update);
  free(node->expected);
  node->expected = strdup(node->state.text);
  if (!node->expected) return pause_until(node, node->now + FIRST_NOISE_MS, update);
  update->expected = node->expected;
  return want(node, GEN1_DO_DROP, update);
}

/* How long not to look after an event. Of the whole tree: the more of them come, the longer; a quiet time makes up for
 * it. Of the state: each who joins or confirms wakes all who wait for the last. */
static int64_t rest(struct gen1_node *node) {
  const bool whole = node->phase == GEN1_PHASE_FREE || node->phase == GEN1_PHASE_PARTICIPANT;
  if (!whole) return pace_jitter(&node->pace, (int64_t)node->state.participants);
  node->pause = node->pause == 0 ? FIRST_NOISE_MS : least(2 * node->pause, LAST_NOISE_MS);
  return pace_jitter(&node->pace, node->pause);
}

static int timer(struct gen1_node *node, struct gen1_update *update, bool *decided) {
  if (node->asked != GEN1_DO_WATCH) return 0;
  if (node->now >= node->watch_ends) {
    node->pause = 0;
    return 0;
  }
  *decided = true;
  return pause_until(node, node->now + rest(node), update);
}

static bool is_passing(int code) {
  return rdzv_error_class_of(code) == RDZV_ERROR_CLASS_RETRYABLE || code == RDZV_E_OUTCOME_UNKNOWN;
}

/* Whatever was under way may have been done; we look. */
static int store_error(struct gen1_node *node, const struct gen1_event *event, struct gen1_update *update,
                       bool *decided) {
  const bool passing = is_passing(event->error->code);
  if (node->phase == GEN1_PHASE_SETUP) node->phase = GEN1_PHASE_LOOK;
  node->known = false;
  if (!passing && node->closing) {
    update->error = *event->error;
    fail(node, GEN1_EV_ASK_CLOSE, update);
  }
  if (!passing && node->phase != GEN1_PHASE_OUTSIDE) {
    update->error = *event->error;
    fail(node, GEN1_EV_ASK_JOIN, update);
  }
  if (node->phase == GEN1_PHASE_OUTSIDE && !node->closing) return 0;
  *decided = true;
  return pause_until(node, node->now + pace_after_error(&node->pace), update);
}

static void ask_join(struct gen1_node *node) {
  node->phase = GEN1_PHASE_LOOK;
  node->deadline = node->now + node->settings.join_timeout;
  node->known = false;
}

static int ask_close(struct gen1_node *node, const char *reason, rdzv_error *error) {
  char *copy = reason ? strdup(reason) : NULL;
  if (reason && !copy) return error_no_memory(error);
  free(node->reason);
  node->reason = copy;
  node->closing = true;
  node->close_deadline = node->now + node->settings.close_timeout;
  return 0;
}

static int absorb(struct gen1_node *node, const struct gen1_event *event, struct gen1_update *update, bool *decided,
                  rdzv_error *error) {
  switch (event->kind) {
    case GEN1_EV_ASK_JOIN: ask_join(node); return 0;
    case GEN1_EV_ASK_CLOSE: return ask_close(node, event->text, error);
    case GEN1_EV_ASK_STOP:
      node->phase = GEN1_PHASE_OUTSIDE;
      node->closing = node->leased = false;
      return 0;
    case GEN1_EV_STATE: node->pace.errors = 0; return take_state(node, event->text, event->index, error);
    case GEN1_EV_DONE: return done(node, event, update, decided, error);
    case GEN1_EV_REFUSED: return refused(node, update, decided);
    case GEN1_EV_LISTED: return listed(node, event, update, decided);
    case GEN1_EV_TIMER: return timer(node, update, decided);
    case GEN1_EV_ERROR: return store_error(node, event, update, decided);
  }
  return 0;
}

int gen1_step(struct gen1_node *node, const struct gen1_event *event, struct gen1_update *update, rdzv_error *error) {
  *update = (struct gen1_update){.request = GEN1_DO_IDLE};
  bool decided = false;
  node->now = event->now_ms;
  int result = absorb(node, event, update, &decided, error);
  if (result == 0 && !decided) result = decide(node, update, error);
  if (result < 0) node->known = false;
  return result;
}
