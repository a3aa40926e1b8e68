/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/agent.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/signal_name.h"
#include "base/wait/waiting.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  LOOK_MS = 1000,    /* between two looks whether the store still answers */
  KILL_MS = 5000,    /* for a killed process to be gone */
  CLOSED_MS = 10000, /* for the others to be done, where the rendezvous was closed */
  LEAVE_MS = 2000,   /* for leaving, while the workers do not yet know */
  CLOSE_MS = 6000,
  LINGER_MS = 10000, /* for the others to leave the store that we serve */
};

/* ---- the loop while workers run ------------------------------------------------------------------------------- */

/* The descriptors that are looked at while workers run. */
struct watch {
  rdzv_agent *agent;
  uv_poll_t changes, told, guard;
  uv_timer_t timer, reaper;
  bool has_changes;
  bool changed; /* the supervisor wants something else */
  bool late;    /* the timer's time is over */
  deadline until;
  struct waiting waiting;
  int open; /* handles */
};

static void step(struct watch *watch, struct supervisor_event event) {
  if (supervisor_step(&watch->agent->supervisor, &event)) {
    watch->changed = true;
    uv_stop(&watch->agent->loop);
  }
}

static void because(rdzv_agent *agent, const char *format, ...) RDZV_PRINTF(2, 3);

static void because(rdzv_agent *agent, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(agent->reason, sizeof agent->reason, format, args);
  va_end(args);
}

static void on_told(uv_poll_t *handle, int status, int events) {
  struct watch *watch = handle->data;
  uint64_t times;
  (void)status, (void)events;
  if (read(watch->agent->told_fd, &times, sizeof times) < 0) return;
  const int number = atomic_load(&watch->agent->signal);
  for (uint64_t i = 0; i < times && i < 2; i++)
    step(watch, (struct supervisor_event){.kind = SUPERVISOR_EV_SIGNAL, .signal = number});
  if (watch->agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT)
    because(watch->agent, "told to stop by %s", signal_name(number).text);
}

/* By rdzv close, or by an agent that does not tell of a failure. */
static void tell_closed(rdzv_agent *agent) {
  rdzv_status *status = NULL;
  const bool known = rdzv_handler_status(agent->handler, 0, &status, NULL) == 0 && status->reason[0];
  log_line(&agent->log, RDZV_LOG_WARNING, "the rendezvous was closed%s%s: the workers go on, but cannot be restarted",
           known ? ": " : ", and nobody has said why", known ? bytes_quote(rdzv_str(status->reason)).text : "");
  rdzv_status_free(status);
}

static void on_closed_by_others(struct watch *watch) {
  rdzv_agent *agent = watch->agent;
  char *failure = exchange_failure(&agent->exchange);
  if (!failure) {
    tell_closed(agent);
    return;
  }
  failures_add_told(&agent->failures, failure);
  free(failure);
  because(agent, "another node has closed the rendezvous");
  step(watch, (struct supervisor_event){.kind = SUPERVISOR_EV_CLOSED});
}

static void on_members(struct watch *watch, const rdzv_change *change) {
  rdzv_agent *agent = watch->agent;
  const char *what = rdzv_change_what(change) & RDZV_CHANGE_DIED ? "died" : "left";
  const bool waiting = rdzv_change_what(change) & RDZV_CHANGE_WAITING;
  const size_t gone = rdzv_change_node_count(change);
  const struct supervisor_event event = {.kind = SUPERVISOR_EV_NODES,
                                         .others_done = exchange_any_done(&agent->exchange)};
  if (gone > 1)
    because(agent, "%s and %zu more %s", rdzv_change_node(change, 0), gone - 1, what);
  else if (gone == 1)
    because(agent, "%s %s", rdzv_change_node(change, 0), what);
  else
    because(agent, waiting ? "a node waits to come in" : "a member %s", what);
  if (event.others_done)
    log_line(&agent->log, RDZV_LOG_INFO, "%s; the workers go on, for those of others are done already", agent->reason);
  step(watch, event);
}

static void look(struct watch *watch) {
  rdzv_agent *agent = watch->agent;
  rdzv_change *change = NULL;
  rdzv_error error;
  const int result = rdzv_handler_wait_change(agent->handler, 0, &change, &error);
  if (result == RDZV_E_TIMEOUT || result == RDZV_E_CANCELED) return; /* told to stop: on_told hears of it */
  if (result < 0) {                                                  /* there is no more to hear */
    uv_poll_stop(&watch->changes);
    uv_timer_stop(&watch->timer);
  }
  if (result == RDZV_E_INVALID) return; /* a round that was closed under us: told before */
  if (result < 0) {
    agent->error = error;
    because(agent, "%s", error.message);
    step(watch, (struct supervisor_event){.kind = SUPERVISOR_EV_STORE_LOST});
  } else if (rdzv_change_what(change) & RDZV_CHANGE_CLOSED) {
    on_closed_by_others(watch);
  } else if (rdzv_change_what(change) & RDZV_CHANGE_EVICTED) {
    because(agent, "this node's place in the round is lost");
    step(watch, (struct supervisor_event){.kind = SUPERVISOR_EV_EVICTED});
  } else {
    on_members(watch, change);
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
  struct watch *watch = timer->data;
  const int64_t left = deadline_left(watch->until);
  watch->late = left == 0;
  if (watch->late) {
    uv_stop(timer->loop);
  } else {
    waiting_tick(&watch->waiting);
    uv_timer_start(timer, on_time, (uint64_t)(left < LOOK_MS ? left : LOOK_MS), 0);
  }
}

static void tell_of_workers(struct waiting *waiting, void *user) {
  const struct group *group = user;
  waiting_about(waiting, "waiting for %zu worker%s to end", group->running, group->running == 1 ? "" : "s");
}

/* ---- what workers leave behind -------------------------------------------------------------------------------- */

static void on_reap(uv_timer_t *timer) { group_reap_orphans(&((struct watch *)timer->data)->agent->group); }

/* It never says anything: it is dead. */
static void on_guard(uv_poll_t *handle, int status, int events) {
  rdzv_agent *agent = ((struct watch *)handle->data)->agent;
  rdzv_error error;
  (void)status, (void)events;
  uv_poll_stop(handle); /* while it has the old socket */
  if (guard_renew(&agent->guard, &error) < 0) {
    log_line(&agent->log, RDZV_LOG_ERROR, "the workers' guard was killed, and there is no other: %s", error.message);
    return;
  }
  log_line(&agent->log, RDZV_LOG_WARNING, "the workers' guard was killed: another one is process %ld",
           (long)agent->guard.pid);
  uv_poll_start(handle, UV_READABLE | UV_DISCONNECT, on_guard);
}

/* ---- workers that end ----------------------------------------------------------------------------------------- */

static void tell_failure(rdzv_agent *agent, const struct worker *worker) {
  struct group one = {.workers = (struct worker *)worker, .count = 1};
  struct failures failures = {0};
  if (failures_collect(&failures, &one) && failures.count > 0) {
    char *text = failure_write(&failures.list[0]);
    if (text) exchange_tell_failure(&agent->exchange, text, NULL);
    free(text);
  }
  failures_free(&failures);
}

static void on_worker_end(void *user, struct worker *worker) {
  struct watch *watch = user;
  rdzv_agent *agent = watch->agent;
  char text[64];
  end_text(worker->exit_code, worker->signal, text);
  const rdzv_worker_state states[] = {[WORKER_SUCCEEDED] = RDZV_WORKER_SUCCEEDED,
                                      [WORKER_FAILED] = RDZV_WORKER_FAILED,
                                      [WORKER_STOPPED] = RDZV_WORKER_STOPPED};
  agent_note_worker(agent, states[worker->end], worker, text);
  if (worker->end == WORKER_FAILED) {
    if (agent->supervisor.request == SUPERVISOR_DO_MONITOR) { /* the first one */
      tell_failure(agent, worker);
      because(agent, "rank %" PRId64 " (pid %ld) failed: %s", worker->rank, (long)worker->pid, text);
    }
    step(watch, (struct supervisor_event){.kind = SUPERVISOR_EV_WORKER_FAILED});
  }
  if (agent->group.running > 0) return;
  if (agent->group.stopping)
    uv_stop(&agent->loop);
  else
    step(watch, (struct supervisor_event){.kind = SUPERVISOR_EV_WORKERS_DONE});
}

/* ---- running the loop ----------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) { ((struct watch *)handle->data)->open--; }

static void adopt(struct watch *watch, uv_handle_t *handle) {
  handle->data = watch;
  watch->open++;
}

static void watch_open(struct watch *watch, rdzv_agent *agent, bool changes) {
  const int change_fd = changes ? rdzv_handler_change_fd(agent->handler) : -1;
  *watch = (struct watch){.agent = agent};
  agent->group.user = watch;
  uv_timer_init(&agent->loop, &watch->timer);
  adopt(watch, (uv_handle_t *)&watch->timer);
  if (uv_poll_init(&agent->loop, &watch->told, agent->told_fd) == 0) {
    adopt(watch, (uv_handle_t *)&watch->told);
    uv_poll_start(&watch->told, UV_READABLE, on_told);
  }
  uv_timer_init(&agent->loop, &watch->reaper);
  adopt(watch, (uv_handle_t *)&watch->reaper);
  if (agent->group.adopts) uv_timer_start(&watch->reaper, on_reap, LOOK_MS, LOOK_MS);
  if (uv_poll_init(&agent->loop, &watch->guard, agent->guard.fd) == 0) {
    adopt(watch, (uv_handle_t *)&watch->guard);
    uv_poll_start(&watch->guard, UV_READABLE | UV_DISCONNECT, on_guard);
  }
  if (change_fd >= 0 && uv_poll_init(&agent->loop, &watch->changes, change_fd) == 0) {
    adopt(watch, (uv_handle_t *)&watch->changes);
    uv_poll_start(&watch->changes, UV_READABLE, on_change);
    watch->has_changes = true;
  }
}

static void watch_close(struct watch *watch) {
  uv_close((uv_handle_t *)&watch->timer, on_closed);
  uv_close((uv_handle_t *)&watch->reaper, on_closed);
  if (watch->guard.data) uv_close((uv_handle_t *)&watch->guard, on_closed);
  if (watch->told.data) uv_close((uv_handle_t *)&watch->told, on_closed);
  if (watch->has_changes) uv_close((uv_handle_t *)&watch->changes, on_closed);
  while (watch->open > 0) uv_run(&watch->agent->loop, UV_RUN_NOWAIT);
  watch->agent->group.user = NULL;
}

/* Until the supervisor wants something else. */
static void watch_workers(rdzv_agent *agent) {
  struct watch watch;
  agent_note(agent, RDZV_AGENT_RUNNING, "%zu worker%s", agent->group.running,
             agent->group.running == 1 ? " runs" : "s run");
  watch_open(&watch, agent, true);
  if (watch.has_changes) uv_timer_start(&watch.timer, on_look, LOOK_MS, LOOK_MS);
  while (!watch.changed) uv_run(&agent->loop, UV_RUN_DEFAULT);
  group_sweep(&agent->group);
  watch_close(&watch);
}

/* Until all workers have ended, or the time is over, or, where they have a choice, we are told to stop once more. */
static void await_end(rdzv_agent *agent, int64_t timeout_ms, bool killed) {
  struct watch watch;
  watch_open(&watch, agent, false);
  watch.until = deadline_after(timeout_ms);
  waiting_begin(&watch.waiting, &agent->log, watch.until);
  watch.waiting.refresh = tell_of_workers;
  watch.waiting.user = &agent->group;
  on_time(&watch.timer);
  while (agent->group.running > 0 && !watch.late && (killed || agent->supervisor.request != SUPERVISOR_DO_KILL))
    uv_run(&agent->loop, UV_RUN_DEFAULT);
  watch_close(&watch);
}

/* ---- carrying out --------------------------------------------------------------------------------------------- */

static void done(rdzv_agent *agent, enum supervisor_event_kind kind) {
  supervisor_step(&agent->supervisor, &(struct supervisor_event){.kind = kind});
}

static void end_group(rdzv_agent *agent, size_t *left) {
  const size_t daemons = group_end(&agent->group, left);
  if (daemons > 0)
    log_line(&agent->log, RDZV_LOG_INFO, "%zu process%s that workers had left behind %s killed", daemons,
             daemons == 1 ? "" : "es", daemons == 1 ? "was" : "were");
}

/* The workers, by the signal and then by force; and what is to be known of their ends. */
static void stop_workers(rdzv_agent *agent, int number) {
  size_t left;
  if (agent->group.running > 0) {
    const bool told = agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT && number != SIGKILL;
    agent_note(agent, RDZV_AGENT_STOPPING, "%s: %zu worker%s stopped%s", agent->reason, agent->group.running,
               agent->group.running == 1 ? " is" : "s are", told ? "; a second signal kills at once" : "");
    group_signal(&agent->group, number);
    if (number != SIGKILL) await_end(agent, agent->shutdown_timeout, false);
  }
  if (agent->group.running > 0) {
    if (number != SIGKILL && agent->supervisor.request != SUPERVISOR_DO_KILL)
      log_line(&agent->log, RDZV_LOG_WARNING, "%zu workers have not ended: they are killed", agent->group.running);
    group_signal(&agent->group, SIGKILL);
    await_end(agent, KILL_MS, true);
  }
  end_group(agent, &left);
  if (left > 0) log_line(&agent->log, RDZV_LOG_ERROR, "%zu workers cannot be killed and are left behind", left);
}

static void collect(rdzv_agent *agent) {
  struct failures told = agent->failures; /* by another agent, before */
  agent->failures = (struct failures){0};
  failures_collect(&agent->failures, &agent->group);
  const bool asks = agent->round && !agent->has_left && agent->error.code == 0;
  char *first = asks ? exchange_failure(&agent->exchange) : NULL;
  failures_add_told(&agent->failures, first);
  free(first);
  if (agent->failures.count == 0) {
    failures_free(&agent->failures);
    agent->failures = told;
  } else {
    failures_free(&told);
  }
}

static void carry_stop(rdzv_agent *agent) {
  const bool kill = agent->supervisor.request == SUPERVISOR_DO_KILL;
  const int number = kill ? SIGKILL : agent->supervisor.signal ? agent->supervisor.signal : SIGTERM;
  stop_workers(agent, number);
  collect(agent);
  group_free(&agent->group);
  done(agent, SUPERVISOR_EV_STOPPED);
  if (agent->supervisor.request == SUPERVISOR_DO_JOIN) round_end(agent);
}

/* Out of a round that we cannot be in. */
static void leave(rdzv_agent *agent) {
  rdzv_error error;
  if (agent->has_left) return;
  agent->has_left = true;
  rdzv_handler_set_close_timeout(agent->handler, LEAVE_MS, NULL);
  if (rdzv_handler_leave(agent->handler, &error) < 0) log_line(&agent->log, RDZV_LOG_WARNING, "%s", error.message);
}

/* What was under way was given up, for we are told to stop: the supervisor hears of it. */
static void take_signal(rdzv_agent *agent) {
  struct watch watch;
  watch_open(&watch, agent, false);
  while (!watch.changed) uv_run(&agent->loop, UV_RUN_ONCE);
  watch_close(&watch);
}

static void carry_join(rdzv_agent *agent) {
  rdzv_error error = {0};
  const int result = round_begin(agent, &error);
  if (result == 0) {
    done(agent, SUPERVISOR_EV_STARTED);
    return;
  }
  if (agent->group.count > 0) { /* some could not be started */
    because(agent, "%s", error.message);
    stop_workers(agent, SIGKILL);
    group_free(&agent->group);
  }
  if (result < 0) leave(agent);
  round_end(agent);
  if (result == RDZV_E_CANCELED && flag_raised(&agent->stop)) {
    take_signal(agent);
    return;
  }
  if (result < 0) {
    agent->error = error;
    because(agent, "%s", error.message);
  }
  done(agent, result < 0 ? SUPERVISOR_EV_JOIN_FAILED : SUPERVISOR_EV_ROUND_OVER);
}

/* While others' workers run: has one of them failed, so that the job is over? `until` is when the others are not waited
 * for any longer, which is soon where the rendezvous was closed without a word. */
static bool hears_of_failure(rdzv_agent *agent, deadline *until) {
  rdzv_change *change = NULL;
  const bool heard = rdzv_handler_wait_change(agent->handler, 0, &change, NULL) == 0;
  const bool closed = heard && (rdzv_change_what(change) & RDZV_CHANGE_CLOSED);
  const deadline soon = deadline_after(CLOSED_MS);
  rdzv_change_free(change);
  if (!closed) return false;
  if (soon < *until) *until = soon;
  char *failure = exchange_failure(&agent->exchange);
  if (!failure) return false;
  failures_add_told(&agent->failures, failure);
  free(failure);
  because(agent, "the workers of this node were done, but another node has closed the rendezvous");
  done(agent, SUPERVISOR_EV_CLOSED);
  return true;
}

/* 0 also where the others are not waited for any longer. 1: there is something else to do. */
static int await_others(rdzv_agent *agent) {
  deadline until = deadline_after(agent->exit_barrier_timeout);
  rdzv_error error = {0};
  agent->exchange.timeout_ms = agent->exit_barrier_timeout;
  int result = exchange_tell_exit(&agent->exchange, &error);
  while (result == 0 || result == RDZV_E_CANCELED) {
    result = exchange_await_exit(&agent->exchange, until, &error);
    if (result == 0) return 0;
    if (result == RDZV_E_CANCELED && flag_raised(&agent->stop)) {
      take_signal(agent);
      return 1;
    }
    if (result == RDZV_E_CANCELED && hears_of_failure(agent, &until)) return 1;
    if (result == RDZV_E_CANCELED && deadline_left(until) == 0) break;
  }
  log_line(&agent->log, RDZV_LOG_WARNING, "%s", error.message);
  because(agent, "the workers of this node are done, those of others were not waited for any longer");
  return 0;
}

static void carry_barrier(rdzv_agent *agent) {
  size_t left;
  end_group(agent, &left);
  group_free(&agent->group);
  const char *others = agent->round->world_size > 1 ? ", waiting for those of the others" : "";
  agent_note(agent, RDZV_AGENT_BARRIER, "the workers of this node are done%s", others);
  because(agent, "all workers are done");
  if (agent->round->world_size == 1 && agent->workers_store)
    rdzv_server_stop(agent->workers_store); /* ends meanwhile */
  if (agent->round->world_size > 1 && await_others(agent) != 0) return;
  done(agent, SUPERVISOR_EV_DONE);
}

static void carry_leave(rdzv_agent *agent) {
  leave(agent);
  done(agent, SUPERVISOR_EV_DONE);
}

/* After success one agent closes for all; after a failure, the agent that has it. */
static void close_for_all(rdzv_agent *agent) {
  rdzv_error error;
  const bool failed = agent->supervisor.outcome == SUPERVISOR_OUTCOME_FAILED,
             closes = failed || agent->round->rank == 0;
  rdzv_handler_set_close_timeout(agent->handler, CLOSE_MS, NULL);
  const int closed =
      closes ? rdzv_handler_set_closed(agent->handler, failed ? agent->reason : "the job is done", &error) : 0;
  if (closed < 0) log_line(&agent->log, RDZV_LOG_WARNING, "%s", error.message);
  round_end(agent);
  rdzv_handler_set_linger(agent->handler, LINGER_MS, NULL);
  if (closed == 0 && rdzv_handler_leave(agent->handler, &error) < 0)
    log_line(&agent->log, RDZV_LOG_DEBUG, "%s", error.message);
}

/* A standalone rendezvous has no other node to tell, and ends with us. */
static void carry_close(rdzv_agent *agent) {
  if (agent->standalone)
    round_end(agent);
  else
    close_for_all(agent);
  done(agent, SUPERVISOR_EV_DONE);
}

static void carry_out(rdzv_agent *agent) {
  switch (agent->supervisor.request) {
    case SUPERVISOR_DO_JOIN: carry_join(agent); break;
    case SUPERVISOR_DO_MONITOR: watch_workers(agent); break;
    case SUPERVISOR_DO_STOP:
    case SUPERVISOR_DO_KILL: carry_stop(agent); break;
    case SUPERVISOR_DO_EXIT_BARRIER: carry_barrier(agent); break;
    case SUPERVISOR_DO_LEAVE: carry_leave(agent); break;
    case SUPERVISOR_DO_CLOSE: carry_close(agent); break;
    case SUPERVISOR_DO_END: break;
  }
}

/* ---- how it went ---------------------------------------------------------------------------------------------- */

struct agent_outcome {
  rdzv_agent_result base; /* first */
  struct failures failures;
  char *reason, *log_dir;
};

static rdzv_agent_state state_of(const rdzv_agent *agent) {
  switch (agent->supervisor.outcome) {
    case SUPERVISOR_OUTCOME_SUCCEEDED: return RDZV_AGENT_SUCCEEDED;
    case SUPERVISOR_OUTCOME_LEFT: return RDZV_AGENT_LEFT;
    default: return RDZV_AGENT_FAILED;
  }
}

static int exit_code_of(const rdzv_agent *agent) {
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_SUCCEEDED) return 0;
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT) return 128 + agent->supervisor.signal;
  const int code = agent->failures.count > 0 ? agent->failures.list[0].exit_code & 255 : 0;
  return code ? code : 1;
}

static int make_result(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error) {
  struct agent_outcome *result = calloc(1, sizeof *result);
  if (!result) return error_no_memory(error);
  const bool succeeded = agent->supervisor.outcome == SUPERVISOR_OUTCOME_SUCCEEDED;
  result->reason = strdup(agent->reason);
  result->log_dir = strdup(agent->log_dir.run);
  result->base.exit_code = exit_code_of(agent);
  if (!succeeded) {
    result->failures = agent->failures;
    agent->failures = (struct failures){0};
  }
  result->base.state = state_of(agent);
  result->base.restarts = agent->supervisor.restarts;
  result->base.reason = result->reason;
  result->base.log_dir = result->log_dir;
  *out = &result->base;
  if (result->reason && result->log_dir) return 0;
  rdzv_agent_result_free(*out);
  return error_no_memory(error);
}

size_t rdzv_agent_result_failure_count(const rdzv_agent_result *base) {
  return ((const struct agent_outcome *)base)->failures.count;
}

const rdzv_worker_failure *rdzv_agent_result_failure(const rdzv_agent_result *base, size_t index) {
  const struct failures *failures = &((const struct agent_outcome *)base)->failures;
  return index < failures->count ? &failures->list[index] : NULL;
}

void rdzv_agent_result_free(rdzv_agent_result *base) {
  struct agent_outcome *result = (struct agent_outcome *)base;
  if (!result) return;
  failures_free(&result->failures);
  free(result->reason);
  free(result->log_dir);
  free(result);
}

/* Files that were asked for stay, and so do those that tell of a failure. The report of a failure names them. */
static void end_files(rdzv_agent *agent) {
  const bool asked = agent_has_output(agent);
  const bool failed = state_of(agent) == RDZV_AGENT_FAILED && agent->failures.count > 0;
  log_dir_end(&agent->log_dir, asked || failed);
  if (!failed && asked && agent->log_dir.run[0])
    log_line(&agent->log, RDZV_LOG_INFO, "the workers' output is in '%s'", agent->log_dir.run);
}

int rdzv_agent_run(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error) {
  if (!out) return error_null(error, "rdzv_agent_run", "out");
  if (fork_crossed(agent->born)) return fork_fail("the agent", error);
  agent->group.on_end = on_worker_end;
  while (agent->supervisor.request != SUPERVISOR_DO_END) carry_out(agent);
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT) leave(agent); /* where there was no time for it before */
  round_end(agent);
  agent_note(agent, state_of(agent), "%s", agent->reason);
  end_files(agent);
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_NOT_JOINED) {
    if (agent->failures.count > 0)
      log_line(&agent->log, RDZV_LOG_ERROR, "what went before: rank %" PRId64 " on %s failed: %s%s%s",
               agent->failures.list[0].rank, agent->failures.list[0].host, agent->failures.list[0].message,
               agent->log_dir.run[0] ? "; files of this run: " : "", agent->log_dir.run);
    if (error) *error = agent->error;
    return agent->error.code;
  }
  return make_result(agent, out, error);
}
