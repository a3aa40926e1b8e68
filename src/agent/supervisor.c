/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/supervisor.h"

void supervisor_init(struct supervisor *supervisor, int64_t max_restarts) {
  *supervisor = (struct supervisor){.request = SUPERVISOR_DO_JOIN, .max_restarts = max_restarts};
}

static bool ask(struct supervisor *supervisor, enum supervisor_request request) {
  supervisor->request = request;
  return true;
}

static bool end(struct supervisor *supervisor, enum supervisor_outcome outcome) {
  supervisor->outcome = outcome;
  return ask(supervisor, SUPERVISOR_DO_END);
}

static bool stop(struct supervisor *supervisor, enum supervisor_request then) {
  supervisor->then = then;
  return ask(supervisor, SUPERVISOR_DO_STOP);
}

static int64_t delay_of(int64_t row) {
  int64_t delay = row > 1 ? SUPERVISOR_FIRST_DELAY_MS : 0;
  for (int64_t i = 2; i < row && delay < SUPERVISOR_LONGEST_DELAY_MS; i++) delay *= 2;
  return delay < SUPERVISOR_LONGEST_DELAY_MS ? delay : SUPERVISOR_LONGEST_DELAY_MS;
}

/* An attempt has failed. */
static bool fail(struct supervisor *supervisor) {
  if (supervisor->restarts >= supervisor->max_restarts) {
    supervisor->outcome = SUPERVISOR_OUTCOME_FAILED;
    return stop(supervisor, SUPERVISOR_DO_CLOSE);
  }
  supervisor->restarts++;
  supervisor->row++;
  supervisor->delay_ms = delay_of(supervisor->row);
  return stop(supervisor, supervisor->delay_ms > 0 ? SUPERVISOR_DO_BACK_OFF : SUPERVISOR_DO_JOIN);
}

static bool in_join(struct supervisor *supervisor, const struct supervisor_event *event) {
  switch (event->kind) {
    case SUPERVISOR_EV_AGREED:
      if (supervisor->restarts < event->restarts) supervisor->restarts = event->restarts;
      return false;
    case SUPERVISOR_EV_STARTED:
      supervisor->has_started = true;
      supervisor->started_ms = event->now_ms;
      return ask(supervisor, SUPERVISOR_DO_MONITOR);
    case SUPERVISOR_EV_START_FAILED:
      return supervisor->has_started ? fail(supervisor) : end(supervisor, SUPERVISOR_OUTCOME_NOT_JOINED);
    case SUPERVISOR_EV_ROUND_OVER: return ask(supervisor, SUPERVISOR_DO_JOIN);
    case SUPERVISOR_EV_JOIN_FAILED: return end(supervisor, SUPERVISOR_OUTCOME_NOT_JOINED);
    default: return false;
  }
}

static bool in_monitor(struct supervisor *supervisor, const struct supervisor_event *event) {
  if (event->now_ms - supervisor->started_ms >= SUPERVISOR_STEADY_MS) supervisor->row = 0;
  switch (event->kind) {
    case SUPERVISOR_EV_WORKERS_DONE: return ask(supervisor, SUPERVISOR_DO_EXIT_BARRIER);
    case SUPERVISOR_EV_CLOSED:
      supervisor->outcome = SUPERVISOR_OUTCOME_CLOSED_ON_US;
      return stop(supervisor, SUPERVISOR_DO_END);
    case SUPERVISOR_EV_STORE_LOST:
      supervisor->outcome = SUPERVISOR_OUTCOME_NOT_JOINED;
      return stop(supervisor, SUPERVISOR_DO_END);
    case SUPERVISOR_EV_EVICTED: return stop(supervisor, SUPERVISOR_DO_JOIN);
    case SUPERVISOR_EV_NODES: return !event->others_done && stop(supervisor, SUPERVISOR_DO_JOIN);
    case SUPERVISOR_EV_WORKER_FAILED: return fail(supervisor);
    default: return false;
  }
}

static bool in_stop(struct supervisor *supervisor, const struct supervisor_event *event) {
  return event->kind == SUPERVISOR_EV_STOPPED && ask(supervisor, supervisor->then);
}

/* Told to stop: once, and then without patience. A job that is done, or is ending, does so. */
static bool on_signal(struct supervisor *supervisor, const struct supervisor_event *event) {
  const enum supervisor_request now = supervisor->request;
  const bool again = supervisor->signal != 0;
  const bool restarts = supervisor->then == SUPERVISOR_DO_JOIN || supervisor->then == SUPERVISOR_DO_BACK_OFF;
  const bool ending = now == SUPERVISOR_DO_END || now == SUPERVISOR_DO_CLOSE;
  supervisor->signal = event->signal;
  if (again) return (now == SUPERVISOR_DO_STOP || now == SUPERVISOR_DO_LEAVE) && ask(supervisor, SUPERVISOR_DO_KILL);
  if (ending || (now == SUPERVISOR_DO_STOP && !restarts)) return false;
  supervisor->outcome = SUPERVISOR_OUTCOME_LEFT;
  supervisor->then = SUPERVISOR_DO_END;
  return ask(supervisor, SUPERVISOR_DO_LEAVE);
}

bool supervisor_step(struct supervisor *supervisor, const struct supervisor_event *event) {
  if (event->kind == SUPERVISOR_EV_SIGNAL) return on_signal(supervisor, event);
  switch (supervisor->request) {
    case SUPERVISOR_DO_JOIN: return in_join(supervisor, event);
    case SUPERVISOR_DO_MONITOR: return in_monitor(supervisor, event);
    case SUPERVISOR_DO_STOP:
    case SUPERVISOR_DO_KILL: return in_stop(supervisor, event);
    case SUPERVISOR_DO_BACK_OFF: return event->kind == SUPERVISOR_EV_DONE && ask(supervisor, SUPERVISOR_DO_JOIN);
    case SUPERVISOR_DO_EXIT_BARRIER:
      if (event->kind == SUPERVISOR_EV_CLOSED) return end(supervisor, SUPERVISOR_OUTCOME_CLOSED_ON_US);
      supervisor->outcome = SUPERVISOR_OUTCOME_SUCCEEDED;
      return event->kind == SUPERVISOR_EV_DONE && ask(supervisor, SUPERVISOR_DO_CLOSE);
    case SUPERVISOR_DO_LEAVE: return event->kind == SUPERVISOR_EV_DONE && stop(supervisor, SUPERVISOR_DO_END);
    case SUPERVISOR_DO_CLOSE: return event->kind == SUPERVISOR_EV_DONE && ask(supervisor, SUPERVISOR_DO_END);
    case SUPERVISOR_DO_END: return false;
  }
  return false;
}
