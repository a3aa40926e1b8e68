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

static bool in_join(struct supervisor *supervisor, const struct supervisor_event *event) {
  switch (event->kind) {
    case SUPERVISOR_EV_AGREED:
      if (supervisor->restarts < event->restarts) supervisor->restarts = event->restarts;
      return false;
    case SUPERVISOR_EV_STARTED: return ask(supervisor, SUPERVISOR_DO_MONITOR);
    case SUPERVISOR_EV_ROUND_OVER: return ask(supervisor, SUPERVISOR_DO_JOIN);
    case SUPERVISOR_EV_JOIN_FAILED: return end(supervisor, SUPERVISOR_OUTCOME_NOT_JOINED);
    default: return false;
  }
}

static bool in_monitor(struct supervisor *supervisor, const struct supervisor_event *event) {
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
    case SUPERVISOR_EV_WORKER_FAILED:
      if (supervisor->restarts < supervisor->max_restarts) {
        supervisor->restarts++;
        return stop(supervisor, SUPERVISOR_DO_JOIN);
      }
      supervisor->outcome = SUPERVISOR_OUTCOME_FAILED;
      return stop(supervisor, SUPERVISOR_DO_CLOSE);
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
  const bool ending = now == SUPERVISOR_DO_END || now == SUPERVISOR_DO_CLOSE;
  supervisor->signal = event->signal;
  if (again) return (now == SUPERVISOR_DO_STOP || now == SUPERVISOR_DO_LEAVE) && ask(supervisor, SUPERVISOR_DO_KILL);
  if (ending || (now == SUPERVISOR_DO_STOP && supervisor->then != SUPERVISOR_DO_JOIN)) return false;
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
