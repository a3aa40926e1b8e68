/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop while workers run: over their process descriptors, the changes of the round, the signal to stop and the
 * guard. What happens goes to the supervisor as an event; the loop ends when the supervisor wants something else.
 */
#include "agent/agent.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/text/signal_name.h"
#include "base/wait/waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LOOK_MS = 1000 /* between two looks whether the store still answers */ };

/* The descriptors that are looked at while workers run. */
struct monitor {
  rdzv_agent *agent;
  uv_poll_t changes, told, guard;
  uv_timer_t timer, reaper;
  bool changed; /* the supervisor wants something else */
  bool late;    /* the timer's time is over */
  deadline until;
  struct waiting waiting;
  int open; /* handles */
};

static void step(struct monitor *monitor, struct supervisor_event event) {
  event.now_ms = clock_now_ms();
  if (supervisor_step(&monitor->agent->supervisor, &event)) {
    monitor->changed = true;
    uv_stop(&monitor->agent->loop);
  }
}

static void on_told(uv_poll_t *handle, int status, int events) {
  struct monitor *monitor = handle->data;
  uint64_t times;
  (void)status, (void)events;
  if (read(monitor->agent->told_fd, &times, sizeof times) < 0) return;
  const int number = atomic_load(&monitor->agent->signal);
  for (uint64_t i = 0; i < times && i < 2; i++)
    step(monitor, (struct supervisor_event){.kind = SUPERVISOR_EV_SIGNAL, .signal = number});
  if (monitor->agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT)
    agent_because(monitor->agent, "stopped by %s", signal_name(number).text);
}

/* By rdzv close, or by an agent that does not tell of a failure. */
static void tell_closed(rdzv_agent *agent) {
  rdzv_status *status = NULL;
  const bool known = rdzv_handler_status(agent->handler, 0, &status, NULL) == 0 && status->reason[0];
  log_line(&agent->log, RDZV_LOG_WARNING, "the rendezvous was closed%s%s: the workers go on, but cannot be restarted",
           known ? ": " : ", without a reason", known ? bytes_quote(rdzv_str(status->reason)).text : "");
  rdzv_status_free(status);
}

static void on_closed_by_others(struct monitor *monitor) {
  rdzv_agent *agent = monitor->agent;
  char *failure = exchange_failure(&agent->exchange);
  if (!failure) {
    tell_closed(agent);
    return;
  }
  failures_add_told(&agent->failures, failure, agent->exchange.attempt);
  agent_because(agent, "another node has closed the rendezvous");
  failure_sentence(failure, agent->reason, sizeof agent->reason);
  free(failure);
  step(monitor, (struct supervisor_event){.kind = SUPERVISOR_EV_CLOSED});
}

/* A failed worker that another agent has told of in this round is the reason for what its node does. */
static void because_of_failure(rdzv_agent *agent) {
  char *failure = exchange_failure(&agent->exchange);
  if (failure) failure_sentence(failure, agent->reason, sizeof agent->reason);
  free(failure);
}

static void on_nodes(struct monitor *monitor, const rdzv_change *change) {
  rdzv_agent *agent = monitor->agent;
  const bool died = rdzv_change_what(change) & RDZV_CHANGE_DIED, left = rdzv_change_what(change) & RDZV_CHANGE_LEFT;
  const char *what = died && left ? "died or left" : died ? "died" : "left";
  const bool waiting = rdzv_change_what(change) & RDZV_CHANGE_WAITING;
  const size_t gone = rdzv_change_node_count(change);
  const struct supervisor_event event = {.kind = SUPERVISOR_EV_NODES,
                                         .others_done = exchange_any_done(&agent->exchange)};
  if (gone > 1)
    agent_because(agent, "%s and %zu more %s", rdzv_change_node(change, 0), gone - 1, what);
  else if (gone == 1)
    agent_because(agent, "%s %s", rdzv_change_node(change, 0), what);
  else
    agent_because(agent, waiting ? "a node waits to join" : "a participant %s", what);
  because_of_failure(agent);
  if (event.others_done)
    log_line(&agent->log, RDZV_LOG_INFO, "%s; the workers go on, because the workers of other nodes are done",
             agent->reason);
  step(monitor, event);
}

static void look(struct monitor *monitor) {
  rdzv_agent *agent = monitor->agent;
  rdzv_change *change = NULL;
  rdzv_error error;
  const int result = rdzv_handler_wait_change(agent->handler, 0, &change, &error);
  if (result == RDZV_E_TIMEOUT || result == RDZV_E_CANCELED) return; /* told to stop: on_told hears of it */
  if (result < 0) {                                                  /* nothing else follows */
    uv_poll_stop(&monitor->changes);
    uv_timer_stop(&monitor->timer);
  }
  if (result == RDZV_E_INVALID) return; /* a round that was closed under us: told before */
  if (result < 0) {
    agent->error = error;
    agent_because(agent, "%s", error.message);
    step(monitor, (struct supervisor_event){.kind = SUPERVISOR_EV_STORE_LOST});
  } else if (rdzv_change_what(change) & RDZV_CHANGE_CLOSED) {
    on_closed_by_others(monitor);
  } else if (rdzv_change_what(change) & RDZV_CHANGE_EVICTED) {
    agent_because(agent, "this node's place in the round is lost");
    step(monitor, (struct supervisor_event){.kind = SUPERVISOR_EV_EVICTED});
  } else {
    on_nodes(monitor, change);
  }
  rdzv_change_free(change);
}

static void on_change(uv_poll_t *handle, int status, int events) {
  (void)status, (void)events;
  look(handle->data);
}

/* A store that says nothing makes no descriptor readable. */
static void on_look(uv_timer_t *timer) { look(timer->data); }

/* The time is over, or it is time to say what is waited for. */
static void on_time(uv_timer_t *timer) {
  struct monitor *monitor = timer->data;
  const int64_t left = deadline_left(monitor->until);
  monitor->late = left == 0;
  if (monitor->late) {
    uv_stop(timer->loop);
  } else {
    waiting_tick(&monitor->waiting);
    uv_timer_start(timer, on_time, (uint64_t)(left < LOOK_MS ? left : LOOK_MS), 0);
  }
}

static void tell_of_workers(struct waiting *waiting, void *user) {
  const struct worker_group *group = user;
  waiting_about(waiting, "waiting for %zu worker%s to end", group->running, group->running == 1 ? "" : "s");
}

/* ---- what workers leave behind -------------------------------------------------------------------------------- */

static void on_reap(uv_timer_t *timer) { group_reap_orphans(&((struct monitor *)timer->data)->agent->group); }

/* It never says anything: it is dead. */
static void on_guard(uv_poll_t *handle, int status, int events) {
  rdzv_agent *agent = ((struct monitor *)handle->data)->agent;
  rdzv_error error;
  (void)status, (void)events;
  uv_poll_stop(handle); /* while it has the old socket */
  if (guard_renew(&agent->guard, &error) < 0) {
    log_line(&agent->log, RDZV_LOG_ERROR, "the workers' guard was killed and cannot be replaced: %s", error.message);
    return;
  }
  log_line(&agent->log, RDZV_LOG_WARNING, "the workers' guard was killed and is replaced by process %ld",
           (long)agent->guard.pid);
  uv_poll_start(handle, UV_READABLE | UV_DISCONNECT, on_guard);
}

/* ---- workers that end ----------------------------------------------------------------------------------------- */

static void publish_failure(rdzv_agent *agent, const struct worker *worker) {
  struct worker_group one = {.workers = (struct worker *)worker, .count = 1};
  struct failures failures = {0};
  if (failures_collect(&failures, &one, agent->exchange.attempt) && failures.count > 0) {
    char *text = failure_write(&failures.list[0], rdzv_handler_node(agent->handler));
    const bool told = text && exchange_tell_failure(&agent->exchange, text, NULL) == 0;
    free(told ? agent->published : text);
    if (told) agent->published = text;
  }
  failures_free(&failures);
}

void monitor_failure(rdzv_agent *agent, const struct worker *worker, const char *text) {
  agent_note_worker(agent, RDZV_WORKER_FAILED, worker, text);
  publish_failure(agent, worker);
}

static void on_worker_end(void *user, struct worker *worker) {
  struct monitor *monitor = user;
  rdzv_agent *agent = monitor->agent;
  char text[64];
  end_text(worker->exit_code, worker->signal, text);
  const rdzv_worker_state states[] = {[WORKER_SUCCEEDED] = RDZV_WORKER_SUCCEEDED,
                                      [WORKER_FAILED] = RDZV_WORKER_FAILED,
                                      [WORKER_STOPPED] = RDZV_WORKER_STOPPED};
  const bool first = worker->end == WORKER_FAILED && agent->supervisor.request == SUPERVISOR_DO_MONITOR;
  if (first)
    monitor_failure(agent, worker, text);
  else
    agent_note_worker(agent, states[worker->end], worker, text);
  if (worker->end == WORKER_FAILED) {
    if (first) agent_because(agent, "rank %" PRId64 " (pid %ld) failed: %s", worker->rank, (long)worker->pid, text);
    step(monitor, (struct supervisor_event){.kind = SUPERVISOR_EV_WORKER_FAILED});
  }
  if (agent->group.running > 0) return;
  if (agent->group.stopping)
    uv_stop(&agent->loop);
  else
    step(monitor, (struct supervisor_event){.kind = SUPERVISOR_EV_WORKERS_DONE});
}

/* ---- running the loop ----------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) { ((struct monitor *)handle->data)->open--; }

static void adopt(struct monitor *monitor, uv_handle_t *handle) {
  handle->data = monitor;
  monitor->open++;
}

static void poll_fd(struct monitor *monitor, uv_poll_t *handle, int fd, int events, uv_poll_cb act) {
  if (fd < 0 || uv_poll_init(&monitor->agent->loop, handle, fd) < 0) return;
  adopt(monitor, (uv_handle_t *)handle);
  uv_poll_start(handle, events, act);
}

static void close_poll(uv_poll_t *handle) {
  if (handle->data) uv_close((uv_handle_t *)handle, on_closed);
}

static void monitor_open(struct monitor *monitor, rdzv_agent *agent, bool changes) {
  *monitor = (struct monitor){.agent = agent};
  agent->group.on_end = on_worker_end;
  agent->group.user = monitor;
  uv_timer_init(&agent->loop, &monitor->timer);
  adopt(monitor, (uv_handle_t *)&monitor->timer);
  uv_timer_init(&agent->loop, &monitor->reaper);
  adopt(monitor, (uv_handle_t *)&monitor->reaper);
  if (agent->group.adopts) uv_timer_start(&monitor->reaper, on_reap, LOOK_MS, LOOK_MS);
  poll_fd(monitor, &monitor->told, agent->told_fd, UV_READABLE, on_told);
  poll_fd(monitor, &monitor->guard, agent->guard.fd, UV_READABLE | UV_DISCONNECT, on_guard);
  if (changes) poll_fd(monitor, &monitor->changes, rdzv_handler_change_fd(agent->handler), UV_READABLE, on_change);
}

static void monitor_close(struct monitor *monitor) {
  uv_close((uv_handle_t *)&monitor->timer, on_closed);
  uv_close((uv_handle_t *)&monitor->reaper, on_closed);
  close_poll(&monitor->guard);
  close_poll(&monitor->told);
  close_poll(&monitor->changes);
  while (monitor->open > 0) uv_run(&monitor->agent->loop, UV_RUN_NOWAIT);
  monitor->agent->group.user = NULL;
}

void monitor_workers(rdzv_agent *agent) {
  struct monitor monitor;
  agent_note(agent, RDZV_AGENT_RUNNING, "started %zu worker%s", agent->group.running,
             agent->group.running == 1 ? "" : "s");
  monitor_open(&monitor, agent, true);
  if (monitor.changes.data) uv_timer_start(&monitor.timer, on_look, LOOK_MS, LOOK_MS);
  while (!monitor.changed) uv_run(&agent->loop, UV_RUN_DEFAULT);
  group_sweep(&agent->group);
  monitor_close(&monitor);
}

void monitor_until_ended(rdzv_agent *agent, int64_t timeout_ms, bool killed) {
  struct monitor monitor;
  monitor_open(&monitor, agent, false);
  monitor.until = deadline_after(timeout_ms);
  waiting_begin(&monitor.waiting, &agent->log, monitor.until);
  monitor.waiting.refresh = tell_of_workers;
  monitor.waiting.user = &agent->group;
  on_time(&monitor.timer);
  while (agent->group.running > 0 && !monitor.late && (killed || agent->supervisor.request != SUPERVISOR_DO_KILL))
    uv_run(&agent->loop, UV_RUN_DEFAULT);
  monitor_close(&monitor);
}

void monitor_pause(rdzv_agent *agent, int64_t ms) {
  struct monitor monitor;
  monitor_open(&monitor, agent, false);
  monitor.until = deadline_after(ms);
  waiting_begin(&monitor.waiting, &agent->log, monitor.until);
  waiting_about(&monitor.waiting, "waiting before the workers are restarted");
  on_time(&monitor.timer);
  while (!monitor.changed && !monitor.late) uv_run(&agent->loop, UV_RUN_DEFAULT);
  monitor_close(&monitor);
}

void monitor_signal(rdzv_agent *agent) {
  struct monitor monitor;
  monitor_open(&monitor, agent, false);
  while (!monitor.changed) uv_run(&agent->loop, UV_RUN_ONCE);
  monitor_close(&monitor);
}
