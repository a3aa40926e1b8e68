/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/native/coordinator.h"

#include "base/error.h"
#include "state/native/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  AFTER_PAUSE_MS = 100,    /* in which nodes are heard again before they are judged */
  LONGEST_MERCY_MS = 1000, /* a server that is slow all the time still finds the dead */
};

/* ---- life ----------------------------------------------------------------------------------------------------- */

struct coordinator *coordinator_new(coordinator_carry_out *carry_out, void *user,
                                    void (*trace)(void *user, const char *line)) {
  struct coordinator *coordinator = calloc(1, sizeof *coordinator);
  if (!coordinator) return NULL;
  coordinator->carry_out = carry_out;
  coordinator->user = user;
  coordinator->trace = trace;
  coordinator->wake_ms = INT64_MAX;
  return coordinator;
}

void coordinator_free(struct coordinator *coordinator) {
  if (!coordinator) return;
  struct coordinator_run *run, *next;
  HASH_ITER(hh, coordinator->runs, run, next) run_free(run);
  free(coordinator);
}

void coordinator_trace(const struct coordinator *coordinator, const struct coordinator_run *run, const char *format,
                       ...) {
  if (!coordinator->trace) return;
  char line[1800];
  const int len = run ? snprintf(line, sizeof line, "run '%s': ", run->id) : 0;
  va_list args;
  va_start(args, format);
  vsnprintf(line + len, sizeof line - (size_t)len, format, args);
  va_end(args);
  coordinator->trace(coordinator->user, line);
}

void coordinator_emit(struct coordinator *coordinator, struct coordinator_effect effect) {
  coordinator->carry_out(coordinator->user, &effect);
}

void native_emit(const struct native_node *node, struct coordinator_effect effect) {
  if (!node->link) return;
  effect.link = node->link;
  coordinator_emit(node->run->coordinator, effect);
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

/* Credits a part of a long gap, and declares no node dead for it before all had a chance to be heard. */
void coordinator_advance(struct coordinator *coordinator, int64_t now_ms) {
  if (!coordinator->started) coordinator->last_ms = now_ms;
  coordinator->started = true;
  const int64_t gap = now_ms - coordinator->last_ms;
  const bool paused = gap > COORDINATOR_MOST_CREDIT_MS;
  if (gap <= 0) return;
  coordinator->last_ms = now_ms;
  coordinator->credit += paused ? COORDINATOR_MOST_CREDIT_MS : gap;
  if (paused && coordinator->credit - coordinator->judged < LONGEST_MERCY_MS)
    coordinator->judge_ms = now_ms + AFTER_PAUSE_MS;
}

static void time_passes(struct coordinator_run *run, struct moment now, bool judge, bool scan) {
  if (judge && sessions_judge(run, scan) > 0) run_bury(run, now);
  if (now.mono_ms >= run->look_ms) run_look(run, now);
  run_check_deadlines(run, now);
  if (run->retry || (run->pending && now.mono_ms > run_call_end(run))) run->pass = true;
  if (run->blocked && differences_count(&run->state) > 1) run->pass = true; /* until it is known whether a node lives */
  run->retry = false;
  run_end_step(run, now);
}

static void timer(struct coordinator *coordinator, struct moment now) {
  const bool judge = now.mono_ms >= coordinator->judge_ms, scan = judge && now.mono_ms >= coordinator->scan_ms;
  if (judge) coordinator->judged = coordinator->credit;
  if (scan) coordinator->scan_ms = now.mono_ms + LOOK_MS;
  if (!judge) coordinator->scan_ms = coordinator->judge_ms;
  coordinator->wake_ms = INT64_MAX;
  struct coordinator_run *run, *next;
  HASH_ITER(hh, coordinator->runs, run, next) time_passes(run, now, judge, scan);
  if (coordinator->wake_ms <= now.mono_ms) coordinator->wake_ms = now.mono_ms + 1;
}

int64_t coordinator_wake(const struct coordinator *coordinator) {
  if (coordinator->node_count == 0) return INT64_MAX;
  return coordinator->wake_ms < coordinator->scan_ms ? coordinator->wake_ms : coordinator->scan_ms;
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static void leave(struct coordinator *coordinator, const struct coordinator_event *event) {
  struct native_node *node = native_find_link(coordinator, event->link);
  struct coordinator_run *run = node ? node->run : NULL;
  if (node) run_leave(node, event->now);
  coordinator_emit(coordinator,
                   (struct coordinator_effect){.kind = COORDINATOR_DO_LEFT, .link = event->link, .run = run});
  if (run) run_end_step(run, event->now);
}

static int close_run(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error) {
  struct coordinator_run *run = coordinator_find(coordinator, event->run_id, strlen(event->run_id));
  if (!run) run = run_new(coordinator, event->run_id, TORCH_NEWEST);
  if (!run) {
    error_no_memory(error);
    coordinator_emit(coordinator,
                     (struct coordinator_effect){
                         .kind = COORDINATOR_DO_FAIL, .link = event->link, .asked = event->kind, .error = error});
    return RDZV_E_NO_MEMORY;
  }
  run_close(run, native_find_link(coordinator, event->link), event->now);
  coordinator_emit(coordinator,
                   (struct coordinator_effect){.kind = COORDINATOR_DO_CLOSED, .link = event->link, .run = run});
  run_end_step(run, event->now);
  return 0;
}

static void heard(struct coordinator *coordinator, const struct coordinator_event *event) {
  struct native_node *node = native_find_link(coordinator, event->link);
  if (!node) return;
  node->heard = coordinator->credit;
  if (event->trip_us >= 0) node->trip_us = event->trip_us;
}

static void swapped(struct coordinator *coordinator, const struct coordinator_event *event) {
  struct coordinator_run *run = coordinator_find(coordinator, event->run_id, strlen(event->run_id));
  struct rendezvous_state nothing = STATE_EMPTY, *state = event->state ? event->state : &nothing;
  if (!run) {
    state_free(state);
    return;
  }
  run_adopt(run, state, event->state ? event->layout : run->layout, event->now);
  if (!event->state) run->stale = run->changed = true; /* it is written again */
  run_end_step(run, event->now);
}

static int carry_out(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error) {
  struct native_node *node;
  switch (event->kind) {
    case COORDINATOR_EV_JOIN: return sessions_join(coordinator, event, error);
    case COORDINATOR_EV_RESUME: return sessions_resume(coordinator, event, error);
    case COORDINATOR_EV_CLOSE: return close_run(coordinator, event, error);
    case COORDINATOR_EV_LEAVE: leave(coordinator, event); break;
    case COORDINATOR_EV_HEARD: heard(coordinator, event); break;
    case COORDINATOR_EV_LOST:
      node = native_find_link(coordinator, event->link);
      if (node) sessions_lost(node, event->now);
      break;
    case COORDINATOR_EV_SWAPPED: swapped(coordinator, event); break;
    case COORDINATOR_EV_TIMER: timer(coordinator, event->now); break;
  }
  return 0;
}

int coordinator_step(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error) {
  coordinator_advance(coordinator, event->now.mono_ms);
  if (event->kind == COORDINATOR_EV_HEARD) {
    heard(coordinator, event);
    return 0;
  }
  rdzv_error own = {0};
  const int result = carry_out(coordinator, event, &own);
  if (result < 0 && error) *error = own;
  return result;
}

int coordinator_adopt(struct coordinator *coordinator, const char *run_id, struct rendezvous_state *state,
                      enum torch_layout layout, struct moment now, rdzv_error *error) {
  coordinator_advance(coordinator, now.mono_ms);
  if (state_check_round(state, error) < 0) return RDZV_E_CORRUPT;
  struct coordinator_run *run = coordinator_find(coordinator, run_id, strlen(run_id));
  if (!run) run = run_new(coordinator, run_id, layout);
  if (!run) return error_no_memory(error);
  run_adopt(run, state, layout, now);
  return 0;
}

/* ---- questions ------------------------------------------------------------------------------------------------ */

size_t coordinator_runs(const struct coordinator *coordinator) { return HASH_COUNT(coordinator->runs); }
size_t coordinator_nodes(const struct coordinator *coordinator) { return coordinator->node_count; }

size_t coordinator_bytes(const struct coordinator *coordinator) {
  enum { NAMES = 160 }; /* the address, three times, and the other texts */
  const size_t node = sizeof(struct native_node) + 3 * sizeof(struct state_node) + NAMES;
  return sizeof *coordinator + coordinator->node_count * node +
         coordinator_runs(coordinator) * (sizeof(struct coordinator_run) + NAMES);
}

struct coordinator_run *coordinator_find(const struct coordinator *coordinator, const char *run_id, size_t len) {
  struct coordinator_run *found;
  HASH_FIND(hh, coordinator->runs, run_id, len, found);
  return found;
}

const char *coordinator_run_id(const struct coordinator_run *run) { return run->id; }
void **coordinator_run_user(struct coordinator_run *run) { return &run->user; }
const struct rendezvous_state *coordinator_run_state(const struct coordinator_run *run) { return &run->state; }
enum torch_layout coordinator_run_layout(const struct coordinator_run *run) { return run->layout; }

int64_t coordinator_run_call_left(const struct coordinator_run *run, struct moment now) {
  const int64_t end = run_call_end(run);
  if (end == INT64_MAX) return -1;
  return end > now.mono_ms ? end - now.mono_ms : 0;
}

struct coordinator_sight coordinator_see(const struct coordinator_run *run, const struct state_node *node,
                                         struct moment now) {
  const struct native_node *native = native_find(run, &node->desc);
  if (native) {
    const struct coordinator *coordinator = run->coordinator;
    return (struct coordinator_sight){
        NATIVE_WAY_NATIVE, coordinator->credit - native->heard + now.mono_ms - coordinator->last_ms, native->trip_us};
  }
  const int64_t age = liveness_age(&run->liveness, &run->settings, &node->desc, now.mono_ms);
  return (struct coordinator_sight){node->ours ? NATIVE_WAY_SWAP : NATIVE_WAY_TORCH, age < 0 ? 0 : age, -1};
}

const struct rendezvous_state *coordinator_world(const struct coordinator_run *run, int64_t round) {
  return round >= 0 && run->world.round == round ? &run->world.state : NULL;
}
