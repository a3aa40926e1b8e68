/* SPDX-License-Identifier: BSD-3-Clause */
/* Carries out what the supervisor requests, one request after the other. */
#include "agent/agent.h"
#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  KILL_MS = 5000,    /* for a killed process to be gone */
  CLOSED_MS = 10000, /* for the others to be done, where the rendezvous was closed */
  CLOSE_MS = 6000,
  LINGER_MS = 10000, /* for the others to leave the store that we serve */
};

static void done(rdzv_agent *agent, enum supervisor_event_kind kind) {
  supervisor_step(&agent->supervisor, &(struct supervisor_event){.kind = kind, .now_ms = clock_now_ms()});
}

static void end_group(rdzv_agent *agent, size_t *left) {
  const size_t daemons = group_end(&agent->group, left);
  if (daemons > 0)
    log_line(&agent->log, RDZV_LOG_INFO, "killed %zu process%s that workers left behind", daemons,
             daemons == 1 ? "" : "es");
}

/* The workers, by the signal and then by force; and what is to be known of their ends. */
static void stop_workers(rdzv_agent *agent, int number) {
  size_t left;
  if (agent->group.running > 0) {
    const bool told = agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT && number != SIGKILL;
    agent_note(agent, RDZV_AGENT_STOPPING, "%s: stopping %zu worker%s%s", agent->reason, agent->group.running,
               agent->group.running == 1 ? "" : "s", told ? "; a second signal kills at once" : "");
    group_signal(&agent->group, number);
    if (number != SIGKILL) monitor_until_ended(agent, agent->shutdown_timeout, false);
  }
  if (agent->group.running > 0) {
    if (number != SIGKILL && agent->supervisor.request != SUPERVISOR_DO_KILL)
      log_line(&agent->log, RDZV_LOG_WARNING, "killing %zu worker%s not ended", agent->group.running,
               agent->group.running == 1 ? " that has" : "s that have");
    group_signal(&agent->group, SIGKILL);
    monitor_until_ended(agent, KILL_MS, true);
  }
  end_group(agent, &left);
  if (left > 0)
    log_line(&agent->log, RDZV_LOG_ERROR, "%zu worker%s left behind", left,
             left == 1 ? " cannot be killed and is" : "s cannot be killed and are");
}

/* The last lines are known once the output has ended. The others read them before they hear that this node restarts or
 * closes. */
static void tell_last_lines(rdzv_agent *agent) {
  const rdzv_worker_failure *first = agent->failures.count > 0 ? &agent->failures.list[0] : NULL;
  if (!agent->published || !first || !*first->log) return;
  char *text = failure_write(first, rdzv_handler_node(agent->handler));
  if (text) exchange_tell_more(&agent->exchange, agent->published, text, NULL);
  free(text);
}

static void collect(rdzv_agent *agent) {
  struct failures told = agent->failures; /* by another agent, before */
  agent->failures = (struct failures){0};
  const int64_t attempt = agent->exchange.attempt;
  failures_collect(&agent->failures, &agent->group, attempt);
  const bool asks = agent->round && !agent->has_left && agent->error.code == 0;
  if (asks) tell_last_lines(agent);
  char *first = asks ? exchange_failure(&agent->exchange) : NULL;
  failures_add_told(&agent->failures, first, attempt);
  free(first);
  if (agent->failures.count == 0) {
    failures_free(&agent->failures);
    agent->failures = told;
  } else {
    failures_free(&told);
    history_add(&agent->history, &agent->failures.list[0]);
  }
}

static void carry_stop(rdzv_agent *agent) {
  const bool kill = agent->supervisor.request == SUPERVISOR_DO_KILL;
  const int number = kill ? SIGKILL : agent->supervisor.signal ? agent->supervisor.signal : SIGTERM;
  stop_workers(agent, number);
  collect(agent);
  group_free(&agent->group);
  done(agent, SUPERVISOR_EV_STOPPED);
  const enum supervisor_request next = agent->supervisor.request;
  if (next == SUPERVISOR_DO_JOIN || next == SUPERVISOR_DO_BACK_OFF) round_end(agent);
}

static void carry_back_off(rdzv_agent *agent) {
  const struct supervisor *supervisor = &agent->supervisor;
  log_line(&agent->log, RDZV_LOG_WARNING,
           "restart %" PRId64 " of %" PRId64 " in %.1f s: workers failed %" PRId64
           " times in a row, each within %d s of their start",
           supervisor->restarts, supervisor->max_restarts, (double)supervisor->delay_ms / 1000, supervisor->row,
           SUPERVISOR_STEADY_MS / 1000);
  monitor_pause(agent, supervisor->delay_ms);
  if (supervisor->request == SUPERVISOR_DO_BACK_OFF) done(agent, SUPERVISOR_EV_DONE);
}

/* Out of a round that we cannot be in. */
static void leave(rdzv_agent *agent) {
  rdzv_error error;
  if (agent->has_left) return;
  agent->has_left = true;
  rdzv_handler_set_close_timeout(agent->handler, AGENT_LEAVE_MS, NULL);
  if (rdzv_handler_leave(agent->handler, &error) < 0) log_line(&agent->log, RDZV_LOG_WARNING, "%s", error.message);
}

/* Some workers could not be started. True: that is a failed attempt; its workers are still to be stopped. */
static bool fails_to_start(rdzv_agent *agent, const rdzv_error *error) {
  agent_because(agent, "%s", error->message);
  done(agent, SUPERVISOR_EV_START_FAILED);
  if (agent->supervisor.request == SUPERVISOR_DO_STOP) {
    for (size_t i = 0; i < agent->group.count; i++)
      if (agent->group.workers[i].start_error) monitor_failure(agent, &agent->group.workers[i], error->message);
    return true;
  }
  stop_workers(agent, SIGKILL);
  group_free(&agent->group);
  return false;
}

static void carry_join(rdzv_agent *agent) {
  rdzv_error error = {0};
  const int result = round_begin(agent, &error);
  if (result == 0) {
    round_begun(agent);
    done(agent, SUPERVISOR_EV_STARTED);
    return;
  }
  if (agent->group.count > 0 && fails_to_start(agent, &error)) return;
  if (result < 0) leave(agent);
  round_end(agent);
  if (result == RDZV_E_CANCELED && flag_raised(&agent->stop)) {
    monitor_signal(agent);
    return;
  }
  if (result < 0) {
    agent->error = error;
    agent_because(agent, "%s", error.message);
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
  char why[256] = "another node has closed the rendezvous";
  failure_sentence(failure, why, sizeof why);
  failures_add_told(&agent->failures, failure, agent->exchange.attempt);
  free(failure);
  if (agent->failures.count > 0) history_add(&agent->history, &agent->failures.list[0]);
  agent_because(agent, "the workers of this node were done, but %s", why);
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
      monitor_signal(agent);
      return 1;
    }
    if (result == RDZV_E_CANCELED && hears_of_failure(agent, &until)) return 1;
    if (result == RDZV_E_CANCELED && deadline_left(until) == 0) break;
  }
  log_line(&agent->log, RDZV_LOG_WARNING, "%s", error.message);
  agent_because(agent, "the workers of this node are done; stopped waiting for other nodes");
  return 0;
}

static void carry_exit_barrier(rdzv_agent *agent) {
  size_t left;
  end_group(agent, &left);
  group_free(&agent->group);
  const char *others = agent->round->world_size > 1 ? ", waiting for those of the others" : "";
  agent_note(agent, RDZV_AGENT_BARRIER, "the workers of this node are done%s", others);
  agent_because(agent, "all workers are done");
  if (agent->round->world_size == 1 && agent->workers_store)
    rdzv_server_stop(agent->workers_store); /* ends meanwhile */
  if (agent->round->world_size > 1 && await_others(agent) != 0) return;
  done(agent, SUPERVISOR_EV_DONE);
}

static void carry_leave(rdzv_agent *agent) {
  leave(agent);
  done(agent, SUPERVISOR_EV_DONE);
}

/* A static rendezvous cannot be closed, and the others would wait for this node at the exit barrier. A torchrun agent
 * that failed comes to it, too. */
static void tell_failed_exit(rdzv_agent *agent) {
  rdzv_error error;
  if (strcmp(agent->round->backend, "static") != 0 || agent->round->world_size == 1) return;
  if (exchange_tell_exit(&agent->exchange, &error) < 0) log_line(&agent->log, RDZV_LOG_DEBUG, "%s", error.message);
}

/* After success one agent closes for all; after a failure, the agent that has it. */
static void close_for_all(rdzv_agent *agent) {
  rdzv_error error;
  const bool failed = agent->supervisor.outcome == SUPERVISOR_OUTCOME_FAILED,
             closes = failed || agent->round->rank == 0;
  rdzv_handler_set_close_timeout(agent->handler, CLOSE_MS, NULL);
  if (flag_raised(&agent->stop)) rdzv_handler_set_close_timeout(agent->handler, AGENT_LEAVE_MS, NULL);
  const int closed =
      closes ? rdzv_handler_set_closed(agent->handler, failed ? agent->reason : "the job is done", &error) : 0;
  if (closed < 0) log_line(&agent->log, RDZV_LOG_WARNING, "%s", error.message);
  if (failed) tell_failed_exit(agent);
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
    case SUPERVISOR_DO_MONITOR: monitor_workers(agent); break;
    case SUPERVISOR_DO_STOP:
    case SUPERVISOR_DO_KILL: carry_stop(agent); break;
    case SUPERVISOR_DO_BACK_OFF: carry_back_off(agent); break;
    case SUPERVISOR_DO_EXIT_BARRIER: carry_exit_barrier(agent); break;
    case SUPERVISOR_DO_LEAVE: carry_leave(agent); break;
    case SUPERVISOR_DO_CLOSE: carry_close(agent); break;
    case SUPERVISOR_DO_END: break;
  }
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

/* Files that were asked for stay, and so do those that tell of a failure. The report of a failure names them. */
static void end_files(rdzv_agent *agent) {
  const bool asked = agent_has_output(agent);
  const bool failed = outcome_state(agent) == RDZV_AGENT_FAILED && agent->failures.count > 0;
  guard_set_folder(&agent->guard, "");
  log_dir_end(&agent->log_dir, asked || failed);
  if (!failed && asked && agent->log_dir.run[0])
    log_line(&agent->log, RDZV_LOG_INFO, "the workers' output is in '%s'", agent->log_dir.run);
}

int rdzv_agent_run(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error) {
  if (!out) return error_null(error, "rdzv_agent_run", "out");
  if (fork_crossed(agent->born)) return fork_fail("the agent", error);
  while (agent->supervisor.request != SUPERVISOR_DO_END) carry_out(agent);
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT) leave(agent); /* where there was no time for it before */
  round_end(agent);
  agent_note(agent, outcome_state(agent), "%s", agent->reason);
  end_files(agent);
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_NOT_JOINED) {
    if (agent->failures.count > 0 && agent->log_dir.run[0])
      log_line(&agent->log, RDZV_LOG_ERROR, "files of this run: %s", agent->log_dir.run);
    if (error) *error = agent->error;
    return agent->error.code;
  }
  return outcome_make(agent, out, error);
}
