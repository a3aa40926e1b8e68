/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/leased/machine.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CROWD = 128, CROWD_MS = 2, LAST_CROWD_MS = 2000 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void leased_init(struct leased *node, const struct leased_config *config) {
  *node = (struct leased){.config = *config,
                          .pace = {.random = config->seed, .trip_ms = 1},
                          .self = {.desc = config->node},
                          .world = LEASED_WORLD_NONE,
                          .call_ends = INT64_MAX};
}

void leased_free(struct leased *node) {
  leased_seats_clear(node);
  leased_world_free(&node->world);
  free(node->gone);
  free(node->self.master_addr);
  free(node->reason);
  free(node->closed_reason);
  free(node->value);
  free(node->world_text);
}

/* ---- endings -------------------------------------------------------------------------------------------------- */

static const char *wish_name(enum leased_event_kind asked) {
  return asked == LEASED_EV_ASK_CLOSE ? "close" : asked == LEASED_EV_ASK_LEAVE ? "leave" : "join";
}

/* What was asked for has failed. After a join the node still has to go. */
static void fail(struct leased *node, enum leased_event_kind asked, struct leased_update *update) {
  update->news |= ENGINE_NEWS_FAILED;
  update->failed = asked;
  if (asked == LEASED_EV_ASK_CLOSE) {
    node->closing = false;
    return;
  }
  node->wish = asked == LEASED_EV_ASK_JOIN ? WISH_LEAVE : WISH_NOTHING;
  node->answered = true;
  node->deadline = node->now.mono_ms + RENDEZVOUS_ROLLBACK_MS;
}

static void fail_late(struct leased *node, enum leased_event_kind asked, struct leased_update *update) {
  if (node->trouble.code) /* it is not for want of nodes */
    error_set(&update->error, node->trouble.code, "cannot %s the rendezvous in time: %s", wish_name(asked),
              node->trouble.message);
  else
    error_set(&update->error, RDZV_E_TIMEOUT, "%s timed out: %s", wish_name(asked), leased_waiting(node).text);
  fail(node, asked, update);
}

static void fail_closed(struct leased *node, struct leased_update *update) {
  const char *reason = node->closed_reason ? node->closed_reason : "";
  error_set(&update->error, node->spare ? RDZV_E_GRACEFUL_EXIT : RDZV_E_CLOSED, "%s%s%s",
            node->spare ? "the rendezvous was closed while this node was a spare" : "the rendezvous is closed",
            *reason ? ": " : "", reason);
  fail(node, LEASED_EV_ASK_JOIN, update);
}

static void fail_clash(struct leased *node, struct leased_update *update) {
  error_set(&update->error, RDZV_E_LIMIT, "cannot join the rendezvous: %s", node->clash.text);
  fail(node, LEASED_EV_ASK_JOIN, update);
}

static bool is_passing(int code) {
  const rdzv_error_class class = rdzv_error_class_of(code);
  return class == RDZV_ERROR_CLASS_RETRYABLE || class == RDZV_ERROR_CLASS_UNCERTAIN || code == RDZV_E_DATA_LOST;
}

static void fail_by_etcd(struct leased *node, struct leased_update *update) {
  const bool passing = is_passing(node->trouble.code);
  const enum leased_event_kind asked = node->wish == WISH_LEAVE ? LEASED_EV_ASK_LEAVE : LEASED_EV_ASK_JOIN;
  if (node->closing && (!passing || node->now.mono_ms > node->close_deadline)) {
    error_set(&update->error, node->trouble.code, "cannot close the rendezvous: %s", node->trouble.message);
    fail(node, LEASED_EV_ASK_CLOSE, update);
    return;
  }
  if (node->wish == WISH_NOTHING || (passing && node->now.mono_ms <= node->deadline)) return;
  if (node->answered) {
    node->wish = WISH_NOTHING; /* no caller waits for it: the lease lapses */
    node->lease = node->dropped = 0;
    node->phase = LEASED_OUT;
    return;
  }
  if (passing && asked == LEASED_EV_ASK_JOIN) {
    fail_late(node, asked, update);
    return;
  }
  error_set(&update->error, node->trouble.code, "cannot %s the rendezvous: %s", wish_name(asked),
            node->trouble.message);
  fail(node, asked, update);
}

/* *until: when there may be something to do. */
static int lead(struct leased *node, int64_t *until, bool *asked, struct leased_update *update, rdzv_error *error) {
  struct leased_world world;
  bool is_complete;
  int result = leased_lead(node, &is_complete, &world, until, error);
  if (result == 0 && is_complete) {
    *asked = true;
    result = leased_do_complete(node, &world, update, error);
  }
  leased_world_free(&world);
  return result;
}

/* ---- deciding ------------------------------------------------------------------------------------------------- */

/* The world is of our round, with us in it and all others still there. */
static bool is_joined(const struct leased *node) {
  if (!node->placed || !node->world_mod || node->world.round != node->at || node->at < node->first) return false;
  if (leased_world_rank(&node->world, node->lease) < 0) return false;
  for (size_t i = 0; i < node->gone_count; i++)
    if (leased_world_rank(&node->world, node->gone[i]) >= 0) return false;
  return true;
}

static void finish_join(struct leased *node, struct leased_update *update) {
  leased_seats_clear(node);
  node->phase = LEASED_IN;
  node->wish = WISH_NOTHING;
  node->first = node->at + 1;
  node->been_in_round = true;
  node->spare = false;
  node->told_want = 0;
  update->news |= ENGINE_NEWS_JOINED;
  update->round = node->at;
  update->rank = leased_world_rank(&node->world, node->lease);
  update->world_size = (int64_t)node->world.count;
  update->world = &node->world;
}

static int64_t run_due(const struct leased *node) {
  const int64_t offset = (int64_t)(node->config.seed % (LEASED_RUN_MS / 6));
  return node->run_lease ? node->run_kept_ms + LEASED_RUN_MS / 3 + offset : INT64_MAX;
}

static int64_t lease_due(const struct leased *node) {
  return node->lease ? node->kept_ms + node->config.lease_ms / 3 : INT64_MAX;
}

/* Listens until something changes, or is due. */
static int listen(struct leased *node, int64_t until, struct leased_update *update) {
  if (run_due(node) <= node->now.mono_ms) return leased_do_keep(node, LEASED_STEP_KEEP_RUN, node->run_lease, update);
  until = least(until, least(run_due(node), lease_due(node)));
  if (node->wish == WISH_JOIN && !node->spare) until = least(until, node->deadline + 1);
  if (node->wish == WISH_JOIN && node->clash_lease) until = least(until, node->clash_ms + 1);
  return leased_do_watch(node, until > node->now.mono_ms ? until : node->now.mono_ms + 1, update);
}

static int decide_gather(struct leased *node, struct leased_update *update, rdzv_error *error) {
  int64_t until = INT64_MAX;
  bool asked = false;
  if (is_joined(node)) {
    finish_join(node, update);
    return listen(node, INT64_MAX, update);
  }
  if (!node->synced || (node->older <= 0 && !node->leads))
    return leased_do(node, LEASED_STEP_READ, LEASED_DO_READ, update);
  if (node->at != leased_next_round(node)) {
    if (node->first <= node->world.round) node->first = node->world.round + 1;
    return leased_must_mark(node) ? leased_do_mark(node, update, error) : leased_do_join(node, update, error);
  }
  if (node->leads) leased_meet_seats(node, update);
  if (node->clash_lease && node->now.mono_ms > node->clash_ms)
    return leased_do(node, LEASED_STEP_READ, LEASED_DO_READ, update);
  if (!node->clash_lease && leased_must_want(node)) return leased_do_announce(node, update, error);
  const int result = node->leads ? lead(node, &until, &asked, update, error) : 0;
  return result < 0 || asked ? result : listen(node, until, update);
}

static int decide_join_wish(struct leased *node, struct leased_update *update, bool *again, rdzv_error *error) {
  *again = true; /* where it fails, the node has to go */
  if (node->closed && !is_joined(node)) {
    fail_closed(node, update);
    return 0;
  }
  if (node->now.mono_ms > node->deadline && !node->spare && !is_joined(node)) {
    fail_late(node, LEASED_EV_ASK_JOIN, update);
    return 0;
  }
  if (node->clash_lease && node->clash_known && !is_joined(node)) {
    fail_clash(node, update);
    return 0;
  }
  *again = false;
  if (!node->lease) return leased_do_grant(node, LEASED_STEP_LEASE, node->config.lease_ms, update);
  if (node->phase != LEASED_OUT) return decide_gather(node, update, error);
  if (!node->synced && node->board_seen > 0) return leased_do(node, LEASED_STEP_READ, LEASED_DO_READ, update);
  return leased_do_join(node, update, error);
}

static int decide_leave_wish(struct leased *node, struct leased_update *update, rdzv_error *error) {
  if (leased_must_mark(node)) return leased_do_mark(node, update, error);
  if (node->lease) {
    node->dropped = node->lease;
    node->lease = 0;
    node->phase = LEASED_OUT;
    node->placed = node->marked = node->synced = node->watches = false;
    leased_seats_clear(node);
    update->lease = node->dropped;
    return leased_do(node, LEASED_STEP_REVOKE, LEASED_DO_REVOKE, update);
  }
  if (!node->answered) update->news |= ENGINE_NEWS_LEFT;
  node->wish = WISH_NOTHING;
  return 0;
}

static int decide_close_wish(struct leased *node, struct leased_update *update, bool *again, rdzv_error *error) {
  *again = true;
  if (node->closed) {
    node->closing = false;
    update->news |= ENGINE_NEWS_CLOSE_DONE;
    return 0;
  }
  if (node->now.mono_ms > node->close_deadline) {
    fail_late(node, LEASED_EV_ASK_CLOSE, update);
    return 0;
  }
  *again = false;
  if (!node->closed_lease) return leased_do_grant(node, LEASED_STEP_CLOSED_LEASE, LEASED_CLOSED_MS, update);
  return leased_do_close(node, update, error);
}

static int decide_once(struct leased *node, struct leased_update *update, bool *again, rdzv_error *error) {
  *again = false;
  const bool idle = node->wish == WISH_NOTHING && node->phase == LEASED_OUT && !node->closing && !node->dropped;
  if (idle) return 0;
  if (node->back_off_ms > node->now.mono_ms) {
    update->until_ms = node->back_off_ms;
    return leased_do(node, LEASED_STEP_PAUSE, LEASED_DO_PAUSE, update);
  }
  if (node->lease && lease_due(node) <= node->now.mono_ms)
    return leased_do_keep(node, LEASED_STEP_KEEP, node->lease, update);
  if (node->closing) return decide_close_wish(node, update, again, error);
  if (node->dropped) {
    update->lease = node->dropped;
    return leased_do(node, LEASED_STEP_REVOKE, LEASED_DO_REVOKE, update);
  }
  if (node->wish == WISH_LEAVE) {
    *again = !node->lease;
    return decide_leave_wish(node, update, error);
  }
  if (node->wish == WISH_JOIN) return decide_join_wish(node, update, again, error);
  if (!node->synced) return leased_do(node, LEASED_STEP_READ, LEASED_DO_READ, update);
  return listen(node, INT64_MAX, update);
}

static int decide(struct leased *node, struct leased_update *update, rdzv_error *error) {
  if (node->trouble.code) fail_by_etcd(node, update);
  for (bool again = true; again;) {
    const int result = decide_once(node, update, &again, error);
    if (result < 0) return result;
  }
  return 0;
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static int ask_join(struct leased *node, const struct leased_event *event, rdzv_error *error) {
  char *addr = strdup(event->master_addr ? event->master_addr : "");
  if (!addr) return error_no_memory(error);
  free(node->self.master_addr);
  node->self.master_addr = addr;
  node->self.master_port = event->master_port;
  node->wish = WISH_JOIN;
  node->answered = node->spare = node->clash_known = false;
  node->clash_lease = 0;
  node->deadline = event->now.mono_ms + node->config.settings.join_timeout;
  if (node->phase == LEASED_IN) node->phase = LEASED_GATHER;     /* out of it, with the next transaction */
  if (!node->lease && node->config.settings.min_nodes > CROWD) { /* all come at once: etcd is not to be flooded */
    const int64_t window = least((node->config.settings.min_nodes - CROWD) * CROWD_MS, LAST_CROWD_MS);
    node->back_off_ms = event->now.mono_ms + pace_jitter(&node->pace, window);
  }
  return 0;
}

static int ask(struct leased *node, const struct leased_event *event, rdzv_error *error) {
  switch (event->kind) {
    case LEASED_EV_ASK_JOIN: return ask_join(node, event, error);
    case LEASED_EV_ASK_LEAVE:
      node->wish = WISH_LEAVE;
      node->answered = false;
      node->deadline = event->now.mono_ms + node->config.settings.close_timeout;
      break;
    case LEASED_EV_ASK_CLOSE:
      free(node->reason);
      node->reason = event->text ? strndup(event->text, LEASED_MAX_REASON) : NULL;
      node->closing = true;
      node->close_deadline = event->now.mono_ms + node->config.settings.close_timeout;
      break;
    default:
      node->wish = WISH_NOTHING;
      node->closing = false;
      node->lease = node->dropped = 0;
      node->phase = LEASED_OUT;
      break;
  }
  return 0;
}

static void take_lease(struct leased *node, const struct leased_event *event, enum leased_step step) {
  if (step == LEASED_STEP_LEASE) {
    node->lease = event->lease;
    node->kept_ms = node->sent_ms;
    node->placed = node->marked = false;
  } else if (step == LEASED_STEP_RUN_LEASE) {
    node->run_lease = event->lease;
    node->run_kept_ms = node->sent_ms;
  } else {
    node->closed_lease = event->lease;
  }
}

/* A lease is gone. Of a transaction it may be ours or the run's. */
static void take_gone_lease(struct leased *node, enum leased_step step, struct leased_update *update) {
  if (step == LEASED_STEP_KEEP) {
    leased_lose_place(node, update);
    node->lease = node->dropped = 0;
  } else if (step == LEASED_STEP_REVOKE) {
    node->dropped = 0;
  } else if (step == LEASED_STEP_CLOSE) {
    node->closed_lease = 0;
  } else {
    node->run_lease = 0;
    node->synced = false;
    if (step != LEASED_STEP_KEEP_RUN) node->kept_ms = node->now.mono_ms - node->config.lease_ms;
  }
}

static int take_done(struct leased *node, const struct leased_event *event, enum leased_step step,
                     struct leased_update *update, rdzv_error *error) {
  if (step == LEASED_STEP_JOIN) {
    const int result = leased_joined_key(node, event, error);
    return result == 0 && event->kv_count > 0 ? leased_meet(node, &event->kvs[0], update, error) : result;
  }
  if (step == LEASED_STEP_COMPLETE) return leased_completed(node, event, error);
  if (step == LEASED_STEP_WANT) node->want = true;
  if (step == LEASED_STEP_CLOSE) {
    node->closed = true;
    free(node->closed_reason);
    node->closed_reason = node->reason;
    node->reason = NULL;
    if (node->phase == LEASED_IN) update->news |= ENGINE_NEWS_IS_CLOSED;
  }
  return 0;
}

/* The world is not the one that it was compared with; or, where it is, our own key is not as we thought. */
static int take_refused(struct leased *node, const struct leased_event *event, enum leased_step step,
                        rdzv_error *error) {
  const bool had_want = node->want;
  const int64_t world = node->world_mod;
  const int result = leased_take_board(node, event->kvs, event->kv_count, event->revision, error);
  const bool told = node->world_mod != world || (step == LEASED_STEP_WANT && node->want != had_want);
  if (step == LEASED_STEP_CLOSE || step == LEASED_STEP_MARK) return result;
  if (!told && !node->closed) node->synced = false;
  return result;
}

static bool is_txn(enum leased_step step) { return step >= LEASED_STEP_JOIN && step <= LEASED_STEP_CLOSE; }

static void take_error(struct leased *node, const struct leased_event *event, enum leased_step step) {
  node->trouble = *event->error;
  if (is_txn(step) && step != LEASED_STEP_CLOSE) {
    node->synced = false;
    if (node->board_seen == 0) node->board_seen = 1; /* it is to be read first */
  }
  node->back_off_ms = node->now.mono_ms + pace_after_error(&node->pace);
}

static int take_answer(struct leased *node, const struct leased_event *event, struct leased_update *update,
                       rdzv_error *error) {
  const enum leased_step step = node->under_way;
  node->under_way = LEASED_STEP_NONE;
  if (event->kind == LEASED_EV_ERROR) {
    take_error(node, event, step);
    return 0;
  }
  if (event->kind != LEASED_EV_TIMER) {
    node->trouble.code = 0;
    node->pace.errors = 0;
  }
  switch (event->kind) {
    case LEASED_EV_GRANTED: take_lease(node, event, step); return 0;
    case LEASED_EV_KEPT:
      if (step == LEASED_STEP_KEEP) node->kept_ms = node->sent_ms;
      if (step == LEASED_STEP_KEEP_RUN) node->run_kept_ms = node->sent_ms;
      if (step == LEASED_STEP_REVOKE) node->dropped = 0;
      return 0;
    case LEASED_EV_GONE: take_gone_lease(node, step, update); return 0;
    case LEASED_EV_DONE: return take_done(node, event, step, update, error);
    case LEASED_EV_REFUSED: return take_refused(node, event, step, error);
    case LEASED_EV_FOUND: node->watches = false; return leased_take_all(node, event, update, error);
    case LEASED_EV_CHANGED: return leased_take_changes(node, event, update, error);
    case LEASED_EV_WATCH_LOST: node->synced = node->watches = false; return 0;
    default: return 0;
  }
}

/* A request that changes something, or whose answer is to come, is not given up for what is asked meanwhile. */
static bool can_stop(const struct leased *node) {
  return node->under_way == LEASED_STEP_NONE || node->under_way == LEASED_STEP_WATCH ||
         node->under_way == LEASED_STEP_PAUSE;
}

int leased_step(struct leased *node, const struct leased_event *event, struct leased_update *update,
                rdzv_error *error) {
  *update = (struct leased_update){.request = LEASED_DO_IDLE};
  node->now = event->now;
  node->steps++;
  int result;
  if (event->kind <= LEASED_EV_ASK_STOP) {
    result = ask(node, event, error);
    if (result == 0 && !can_stop(node)) {
      update->request = LEASED_DO_CONTINUE;
      return 0;
    }
    node->under_way = LEASED_STEP_NONE;
  } else {
    result = take_answer(node, event, update, error);
  }
  if (result == 0) result = decide(node, update, error);
  if (result < 0) {
    node->under_way = LEASED_STEP_NONE;
    node->synced = false;
    update->request = LEASED_DO_IDLE;
  }
  return result;
}

/* ---- for people ----------------------------------------------------------------------------------------------- */

const struct leased_member *leased_gone(const struct leased *node, const struct leased_member *after) {
  for (size_t i = after ? (size_t)(after - node->world.members) + 1 : 0; i < node->world.count; i++)
    if (node->world.members[i].gone == node->steps) return &node->world.members[i];
  return NULL;
}

/* Nodes that can be in one round with the one that leads. */
static int64_t count_seats(const struct leased *node) {
  int64_t count = 0;
  for (size_t i = 0; i < node->seat_count; i++) count += node->seats[i].round == node->at && !node->seats[i].clashes;
  return count;
}

/* Of a round that gathers. A node that does not lead knows of the nodes before it only. */
static void add_gathering(const struct leased *node, struct summary *out) {
  const struct rendezvous_settings *settings = &node->config.settings;
  const int64_t joined = node->leads ? count_seats(node) : node->older + 1;
  const char *least = node->leads ? "" : "at least ";
  const bool called = node->leads ? node->call_ends != INT64_MAX : joined >= settings->min_nodes;
  if (called)
    snprintf(out->text, sizeof out->text,
             "waiting for the end of the last call: %s%" PRId64 " of at most %" PRId64 " nodes have joined", least,
             joined, settings->max_nodes);
  else if (joined < settings->min_nodes)
    snprintf(out->text, sizeof out->text, "waiting for nodes: %s%" PRId64 " of at least %" PRId64 " have joined", least,
             joined, settings->min_nodes);
  else
    snprintf(out->text, sizeof out->text, "waiting for the last call to begin: %" PRId64 " nodes have joined", joined);
}

struct summary leased_waiting(const struct leased *node) {
  struct summary summary = {""};
  if (!node->placed)
    snprintf(summary.text, sizeof summary.text, "waiting to join: no place yet");
  else if (node->clash_lease)
    snprintf(summary.text, sizeof summary.text, "checking whether the node with conflicting settings is alive");
  else if (node->spare)
    snprintf(summary.text, sizeof summary.text, "waiting as a spare: round %" PRId64 " is full with %zu node%s",
             node->world.round, node->world.count, node->world.count == 1 ? "" : "s");
  else if (node->world_mod && node->world.count > 0)
    snprintf(summary.text, sizeof summary.text, "waiting for the next round: round %" PRId64 " goes on with %zu node%s",
             node->world.round, node->world.count, node->world.count == 1 ? "" : "s");
  else
    add_gathering(node, &summary);
  return summary;
}
