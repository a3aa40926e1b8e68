/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run does for its native nodes: for each, what the engine of a swap node would do (state/engine/decide.c). */
#include "state/native/run.h"

#include "base/error.h"
#include "state/ending.h"
#include "state/join.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_DECISIONS = 16, /* for one node at a time; there are rarely more than four */
  MOST_PASSES = 16,    /* in one step; the rest comes with the next timer */
  FEW_PENDING = 64,    /* so few are decided on again for every change after the last call */
};

struct coordinator_run *run_new(struct coordinator *coordinator, const char *id, enum torch_layout layout) {
  const size_t len = strlen(id);
  struct coordinator_run *run = calloc(1, sizeof *run + len + 1);
  if (!run) return NULL;
  memcpy(run->id, id, len + 1);
  run->coordinator = coordinator;
  run->serial = ++coordinator->serials;
  run->state = run->world.state = STATE_EMPTY;
  run->world.round = -1;
  run->layout = layout;
  run->settings = RENDEZVOUS_SETTINGS_DEFAULT;
  run->last_call = LAST_CALL_NONE;
  run->due = run->deadline_ms = run->look_ms = INT64_MAX;
  run->too_late_ms = INT64_MIN;
  run->stale = true;
  HASH_ADD_KEYPTR(hh, coordinator->runs, run->id, len, run);
  if (run->hh.tbl) {
    run_touch(run);
    return run;
  }
  free(run);
  return NULL;
}

void run_free(struct coordinator_run *run) {
  struct native_node *node, *next;
  HASH_ITER(by_node, run->nodes, node, next) native_end(node);
  HASH_DELETE(hh, run->coordinator->runs, run);
  run_touch(run);
  state_free(&run->state);
  world_free(&run->world);
  liveness_free(&run->liveness);
  free(run);
}

/* ---- changes -------------------------------------------------------------------------------------------------- */

int64_t run_call_end(const struct coordinator_run *run) {
  if (run->state.complete || run->state.deadline == DATETIME_NONE) return INT64_MAX;
  return last_call_end(&run->last_call, &run->state, &run->settings);
}

void run_note_change(struct coordinator_run *run, const struct rendezvous_state *before) {
  const struct rendezvous_state *state = &run->state;
  run->changed = run->stale = true;
  run_touch(run);
  const bool turned =
      state->complete != before->complete || state->closed != before->closed || state->round != before->round;
  const bool place = run->blocked && (state->complete ? state->num_participants < before->num_participants
                                                      : state->num_participants != before->num_participants);
  if (turned || place) run->pass = true;
  if (state->complete && state->round >= run->first_round) run->first_round = state->round + 1;
  if (state->closed && !before->closed) run->tell = true;
}

/* Nodes came into the wait list of a complete round, and its participants are to hear of it. */
static void note_waiting(struct coordinator_run *run) {
  if (run->state.complete && run->state.num_waiting > run->waiting) {
    run->waits++;
    run->tell = true;
  }
  run->waiting = run->state.num_waiting;
}

/* ---- one node ------------------------------------------------------------------------------------------------- */

/* Was it heard since the other one came? A connection that is open says nothing. */
static bool lives(const void *argument, const struct node_desc *desc) {
  const struct native_node *other = argument, *node = native_find(other->run, desc);
  return node ? node->link && node->heard > other->asked : liveness_saw_change(&other->run->liveness, desc);
}

static enum rendezvous_clash find_clash(const struct native_node *node, struct summary *out) {
  const struct coordinator_run *run = node->run;
  if (node->wish != NATIVE_JOIN || node->joined >= 0 || differences_count(&run->state) == 0) return CLASH_NONE;
  return differences_clash(&run->state, &node->settings, lives, node, out);
}

static struct rendezvous_context context_of(struct native_node *node, struct moment now) {
  struct coordinator_run *run = node->run;
  return (struct rendezvous_context){
      .node = &node->node,
      .state = &run->state,
      .settings = &node->settings,
      .now = now,
      .deadline_ms = node->deadline_ms,
      .last_call_over = now.mono_ms > last_call_end(&run->last_call, &run->state, &run->settings),
      .first_round = node->first_round > run->first_round ? node->first_round : run->first_round,
      .clash = find_clash(node, &(struct summary){""})};
}

static void trace(const struct coordinator_run *run, const struct rendezvous_context *context,
                  enum rendezvous_action action) {
  if (!run->coordinator->trace) return;
  coordinator_trace(run->coordinator, run, "'%s': %s -> %s", node_text(context->node).text,
                    summary_condition(context).text, rendezvous_action_name(action));
}

static int apply(struct coordinator_run *run, struct rendezvous_context *context, enum rendezvous_action action,
                 rdzv_error *error) {
  const struct rendezvous_state before = run->state;
  trace(run, context, action);
  const int result = rendezvous_apply(context, action, error);
  if (result < 0) return result;
  if (action == ACTION_REMOVE_FROM_PARTICIPANTS && before.complete && before.round == run->world.round)
    world_lose(run, context->node, NATIVE_LEFT_IT);
  last_call_observe(&run->last_call, &run->state, context->settings, context->now, true, 0);
  run_note_change(run, &before);
  if (differences_count(&run->state) > 1 && differences_is_last(&run->state, context->node)) warn_nodes(run);
  return 0;
}

struct seen {
  const struct coordinator_run *run;
  struct moment now;
};

static int64_t age_seen(const void *argument, const struct state_node *node) {
  const struct seen *seen = argument;
  return coordinator_see(seen->run, node, seen->now).heard_ms;
}

/* Thousands of joins may be too late at the same time, and all for the same reason. */
static const struct summary *too_late(struct coordinator_run *run, const struct rendezvous_context *context) {
  const int64_t now_ms = context->now.mono_ms;
  if (run->too_late_ms != now_ms || run->too_late_min != context->settings->min_nodes) {
    run->too_late = summary_joined_by(&run->state, context->settings, age_seen, &(struct seen){run, context->now});
    run->too_late_ms = now_ms;
    run->too_late_min = context->settings->min_nodes;
  }
  return &run->too_late;
}

static int64_t set_deadline(struct native_node *node, struct moment now) {
  node->deadline_ms = now.mono_ms + node->settings.join_timeout;
  node->over_us = now.wall_us + 1000 * node->settings.join_timeout;
  run_touch(node->run);
  if (node->deadline_ms < node->run->deadline_ms) node->run->deadline_ms = node->deadline_ms;
  return node->deadline_ms;
}

/* Out of one collection and into another at once. On failure, the node may be out of the first. */
static int act(struct native_node *node, struct rendezvous_context *context, enum rendezvous_action action,
               rdzv_error *error) {
  struct coordinator_run *run = node->run;
  const bool removes = action_removes(action);
  if (removes && context->now.mono_ms > node->deadline_ms) too_late(run, context);
  const int result = apply(run, context, action, error);
  if (result < 0 || !removes) return result;
  node->wish = NATIVE_JOIN;
  if (action == ACTION_REMOVE_FROM_REDUNDANCY_LIST) context->deadline_ms = set_deadline(node, context->now);
  const enum rendezvous_action back = join_come_back(context);
  return back != ACTION_SYNC ? apply(run, context, back, error) : 0;
}

static void stop_pending(struct native_node *node) {
  if (node->wish == NATIVE_NOTHING) return;
  DL_DELETE(node->run->pending, node);
  node->run->pending_count--;
  node->wish = NATIVE_NOTHING;
  run_touch(node->run);
}

/* Takes it out of all lists of the state. */
static void remove_from_state(struct native_node *node, struct moment now) {
  struct rendezvous_context context = context_of(node, now);
  context.deadline_ms = INT64_MAX;
  for (;;) {
    const enum rendezvous_action action = decide_leave(&context);
    if (action == ACTION_FINISH) break;
    apply(node->run, &context, action, NULL); /* a removal needs no memory */
  }
}

void run_leave(struct native_node *node, struct moment now) {
  remove_from_state(node, now);
  stop_pending(node);
  native_end(node);
}

static void fail_join(struct native_node *node, const rdzv_error *error, struct moment now) {
  struct coordinator_run *run = node->run;
  coordinator_trace(run->coordinator, run, "'%s' cannot join: %s", node_text(&node->node).text, error->message);
  native_emit(node, (struct coordinator_effect){.kind = COORDINATOR_DO_FAIL,
                                                .asked = COORDINATOR_EV_JOIN,
                                                .number = node->number,
                                                .error = error,
                                                .run = run});
  run_leave(node, now);
}

static void fail_by_action(struct native_node *node, const struct rendezvous_context *context,
                           enum rendezvous_action action) {
  rdzv_error error = {0};
  struct summary clash = {""};
  const struct summary *summary = action == ACTION_ERROR_TIMEOUT ? too_late(node->run, context) : &clash;
  if (action == ACTION_ERROR_CLASH) find_clash(node, &clash);
  join_fail(&error, action, "join", summary);
  fail_join(node, &error, context->now);
}

/* The node is a participant of the complete round. False: it does not enter it, and has to exit. */
static bool enter(struct native_node *node) {
  struct coordinator_run *run = node->run;
  const bool made = world_make(run);
  if (!made && run->retry) return true; /* no memory: later */
  const bool is_in = made && state_find(&run->world.state, &node->node);
  const char *obstacle = join_obstacle(&run->state, node->joined, is_in && run->world.gone_count == 0);
  if (obstacle) {
    coordinator_trace(run->coordinator, run, "'%s': round %" PRId64 " %s -> exit, wait for the next",
                      node_text(&node->node).text, run->state.round, obstacle);
    return false;
  }
  stop_pending(node);
  node->joined = run->state.round;
  node->in_round = true;
  node->told_gone = node->told_waits = 0;
  node->told_closed = false;
  run_touch(run);
  tell_joined(node);
  return true;
}

/* The node waits. Is it for a place that may become free? PyTorch's rules also keep a spare, while a round gathers, by
 * the number of participants. */
static void note_wait(struct native_node *node) {
  const struct state_node *self = state_find(&node->run->state, &node->node);
  if (!self || (self->kinds & NODE_SPARE)) node->run->blocked = true;
}

/* Does for a node that joins all that can be done now. RDZV_E_NO_MEMORY, RDZV_E_LIMIT: a later try goes on from there.
 * The node may be gone afterwards. */
static int advance(struct native_node *node, struct moment now, rdzv_error *error) {
  for (int decisions = 0; decisions < MOST_DECISIONS; decisions++) {
    struct rendezvous_context context = context_of(node, now);
    const bool exits = node->wish == NATIVE_EXIT;
    const enum rendezvous_action action = exits ? decide_exit(&context) : join_decide(&context);
    if (action_writes(action)) {
      const int result = act(node, &context, action, error);
      if (result < 0) return result;
    } else if (action == ACTION_SYNC) {
      note_wait(node);
      return 0;
    } else if (action == ACTION_FINISH && exits) {
      node->wish = NATIVE_JOIN;
    } else if (action == ACTION_FINISH) {
      if (enter(node)) return 0;
      node->wish = NATIVE_EXIT;
    } else {
      fail_by_action(node, &context, action);
      return 0;
    }
  }
  node->run->retry = true;
  return 0;
}

static void advance_or_retry(struct native_node *node, struct moment now) {
  struct coordinator_run *run = node->run;
  rdzv_error error;
  const int result = advance(node, now, &error);
  if (result == RDZV_E_NO_MEMORY)
    run->retry = true;
  else if (result < 0)
    fail_join(node, &error, now);
}

void run_begin_join(struct native_node *node, struct moment now) {
  struct coordinator_run *run = node->run;
  stop_pending(node); /* one of before is given up */
  node->in_round = node->unanswered = false;
  node->missed = 0;
  node->wish = NATIVE_EXIT;
  node->order = ++run->coordinator->orders;
  node->asked = run->coordinator->credit;
  set_deadline(node, now);
  DL_APPEND(run->pending, node);
  run->pending_count++;
  warn_node(node);
  advance_or_retry(node, now);
}

/* ---- all nodes ------------------------------------------------------------------------------------------------ */

void run_close(struct coordinator_run *run, const struct native_node *node, struct moment now) {
  const struct node_desc nobody = {"", 0, 0};
  struct rendezvous_context context = {.node = node ? &node->node : &nobody,
                                       .state = &run->state,
                                       .settings = &run->settings,
                                       .now = now,
                                       .deadline_ms = INT64_MAX};
  if (decide_close(&context) == ACTION_MARK_RENDEZVOUS_CLOSED)
    apply(run, &context, ACTION_MARK_RENDEZVOUS_CLOSED, NULL);
}

static bool is_dying(void *argument, const struct state_node *node) {
  struct coordinator_run *run = argument;
  const struct native_node *native = native_find(run, &node->desc);
  if (!native || !native->dying) return false;
  const bool in_world = run->state.complete && run->state.round == run->world.round;
  if (in_world && (node->kinds & NODE_PARTICIPANT)) world_lose(run, &node->desc, NATIVE_DIED);
  return true;
}

/* Without the last one the run has ended. */
static void note_death(struct coordinator_run *run, struct moment now) {
  const struct native_node *last = NULL;
  for (const struct native_node *node = run->nodes; node; node = node->by_node.next)
    if (node->dying && (!last || node->heard > last->heard)) last = node;
  if (last && run->state.count == 0 && !run->state.closed && last->settings.marks)
    ending_note(&run->state, &last->node, true, now.wall_us);
}

void run_bury(struct coordinator_run *run, struct moment now) {
  const struct rendezvous_state before = run->state;
  if (rendezvous_sanitize(&run->state, &run->settings, is_dying, run) > 0) {
    note_death(run, now);
    last_call_observe(&run->last_call, &run->state, &run->settings, now, true, 0);
    run_note_change(run, &before);
  }
  struct native_node *node, *next;
  HASH_ITER(by_node, run->nodes, node, next) {
    if (!node->dying) continue;
    coordinator_trace(run->coordinator, run, "'%s' is dead", node_text(&node->node).text);
    native_emit(node, (struct coordinator_effect){.kind = COORDINATOR_DO_DROP, .run = run});
    stop_pending(node);
    native_end(node);
  }
}

void run_check_deadlines(struct coordinator_run *run, struct moment now) {
  if (now.mono_ms <= run->deadline_ms) return;
  struct native_node *node, *next;
  run->deadline_ms = INT64_MAX;
  DL_FOREACH_SAFE(run->pending, node, next) {
    const int64_t deadline = node->deadline_ms;
    if (now.mono_ms > deadline) {
      const struct state_node *self = state_find(&run->state, &node->node);
      if (!self || !(self->kinds & NODE_SPARE)) advance_or_retry(node, now); /* a spare has no deadline */
    } else if (deadline < run->deadline_ms) {
      run->deadline_ms = deadline;
    }
  }
}

static void pass(struct coordinator_run *run, struct moment now) {
  struct native_node *node, *next;
  run->pass = run->blocked = false;
  DL_FOREACH_SAFE(run->pending, node, next) {
    advance_or_retry(node, now);
    if (run->retry) return;
  }
}

/* After the last call a round is complete as soon as one of its nodes finds it large enough. */
static bool call_is_over(const struct coordinator_run *run, struct moment now) {
  return run->pending_count <= FEW_PENDING && now.mono_ms > run_call_end(run);
}

static void wake_run(struct coordinator_run *run, struct moment now) {
  struct coordinator *coordinator = run->coordinator;
  const int64_t call_end = run_call_end(run);
  if (run->due != INT64_MAX) {
    const int64_t dead_ms = now.mono_ms + 1 + run->due - coordinator->credit;
    coordinator_wake_by(coordinator, dead_ms > coordinator->judge_ms ? dead_ms : coordinator->judge_ms);
  }
  if (run->deadline_ms != INT64_MAX) coordinator_wake_by(coordinator, run->deadline_ms + 1);
  if (call_end != INT64_MAX && call_end >= now.mono_ms) coordinator_wake_by(coordinator, call_end + 1);
  if (run->look_ms != INT64_MAX) coordinator_wake_by(coordinator, run->look_ms);
  if (run->tell) coordinator_wake_by(coordinator, run->quiet_ms);
}

void run_end_step(struct coordinator_run *run, struct moment now) {
  struct coordinator *coordinator = run->coordinator;
  if (run->changed && call_is_over(run, now)) run->pass = true;
  for (int passes = 0; run->pass && !run->retry && passes < MOST_PASSES; passes++) pass(run, now);
  run->retry |= run->pass;
  note_waiting(run);
  if (run->tell) tell_news(run, now);
  if (run->changed)
    coordinator_emit(coordinator, (struct coordinator_effect){.kind = COORDINATOR_DO_CHANGED, .run = run});
  if (run->changed || run->pass) run_touch(run);
  run->changed = false;
  if (run->nodes) {
    wake_run(run, now);
    return;
  }
  coordinator_emit(coordinator, (struct coordinator_effect){.kind = COORDINATOR_DO_SAVE, .run = run});
  run_free(run);
}
