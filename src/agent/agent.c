/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/agent.h"

#include "agent/guard/orphans.h"
#include "agent/place.h"
#include "agent/worker/devices.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/descriptors.h"
#include "base/text/options.h"
#include "base/text/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { SHUTDOWN_MS = 30000, EXIT_BARRIER_MS = 300000 };

const char *rdzv_agent_state_name(rdzv_agent_state state) {
  static const char *const names[] = {"RENDEZVOUS", "STARTING",  "RUNNING", "STOPPING",
                                      "BARRIER",    "SUCCEEDED", "FAILED",  "LEFT"};
  return state <= RDZV_AGENT_LEFT ? names[state] : "UNKNOWN";
}

const char *rdzv_worker_state_name(rdzv_worker_state state) {
  static const char *const names[] = {"STARTED", "SUCCEEDED", "FAILED", "STOPPED"};
  return state <= RDZV_WORKER_STOPPED ? names[state] : "UNKNOWN";
}

/* ---- events --------------------------------------------------------------------------------------------------- */

void agent_note(rdzv_agent *agent, rdzv_agent_state state, const char *format, ...) {
  char text[1200];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  log_line(&agent->log,
           state == RDZV_AGENT_STOPPING ? RDZV_LOG_WARNING
           : state == RDZV_AGENT_FAILED ? RDZV_LOG_DEBUG /* the caller reports it */
                                        : RDZV_LOG_INFO,
           "%s", text);
  if (!agent->on_agent) return;
  const rdzv_result *round = agent->round;
  const rdzv_agent_event event = {.time_us = clock_wall_us(),
                                  .state = state,
                                  .run_id = agent->run_id,
                                  .role = agent->role,
                                  .round = round ? round->round : -1,
                                  .group_rank = round ? round->rank : -1,
                                  .group_world_size = round ? round->world_size : -1,
                                  .restart_count = agent->supervisor.restarts,
                                  .pid = getpid(),
                                  .message = text};
  agent->on_agent(agent->event_user, &event);
}

void agent_note_worker(rdzv_agent *agent, rdzv_worker_state state, const struct worker *worker, const char *text) {
  log_line(&agent->log, state == RDZV_WORKER_FAILED ? RDZV_LOG_ERROR : RDZV_LOG_DEBUG,
           "rank %" PRId64 " (local rank %" PRId64 ", pid %ld): %s", worker->rank, worker->local_rank,
           (long)worker->pid, text);
  if (!agent->on_worker) return;
  const rdzv_result *round = agent->round;
  const rdzv_worker_event event = {.time_us = clock_wall_us(),
                                   .state = state,
                                   .run_id = agent->run_id,
                                   .role = agent->role,
                                   .round = round ? round->round : -1,
                                   .group_rank = round ? round->rank : -1,
                                   .group_world_size = round ? round->world_size : -1,
                                   .restart_count = agent->supervisor.restarts,
                                   .local_rank = worker->local_rank,
                                   .rank = worker->rank,
                                   .pid = worker->pid,
                                   .exit_code = worker->exit_code,
                                   .message = text};
  agent->on_worker(agent->event_user, &event);
}

void agent_because(rdzv_agent *agent, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(agent->reason, sizeof agent->reason, format, args);
  va_end(args);
}

/* ---- options -------------------------------------------------------------------------------------------------- */

static char **copy_list(const char *const *list) {
  size_t count = 0;
  while (list[count]) count++;
  char **copy = calloc(count + 1, sizeof *copy);
  for (size_t i = 0; copy && i < count; i++) {
    copy[i] = strdup(list[i]);
    if (copy[i]) continue;
    list_free(copy);
    return NULL;
  }
  return copy;
}

static int64_t or_default(int64_t value, int64_t usual) { return value > 0 ? value : usual; }

static int take_numbers(rdzv_agent *agent, const rdzv_agent_options *options, rdzv_error *error) {
  if (options->max_restarts < 0)
    return error_set(error, RDZV_E_INVALID, "invalid value '%" PRId64 "' for max_restarts: expected 0 or more",
                     options->max_restarts);
  agent->max_restarts = options->max_restarts;
  agent->shutdown_timeout = or_default(options->shutdown_timeout_ms, SHUTDOWN_MS);
  agent->exit_barrier_timeout = or_default(options->exit_barrier_timeout_ms, EXIT_BARRIER_MS);
  supervisor_init(&agent->supervisor, agent->max_restarts);
  const char *nproc = options->nproc_per_node && *options->nproc_per_node ? options->nproc_per_node : "1";
  return devices_nproc(nproc, &agent->local_world_size, error);
}

bool agent_has_output(const rdzv_agent *agent) {
  return std_map_any(&agent->streams.redirects) || std_map_any(&agent->streams.tee);
}

static int take_numa(rdzv_agent *agent, const char *text, rdzv_error *error) {
  int mode;
  if (!text || !*text) return 0;
  if (!parse_choice(NUMA_MODES, text, &mode))
    return error_set(error, RDZV_E_INVALID, "invalid value '%s' for numa_binding: expected " NUMA_MODES, text);
  agent->numa = (enum numa_mode)(NUMA_NONE + 1 + mode);
  return 0;
}

static int take_filters(rdzv_agent *agent, const rdzv_agent_options *options, rdzv_error *error) {
  const char *texts[] = {options->duplicate_stdout_filters, options->duplicate_stderr_filters};
  for (size_t i = 0; i < 2; i++) {
    if (!texts[i] || !*texts[i]) continue;
    agent->streams.needles[i] = needles_parse(texts[i]);
    if (!agent->streams.needles[i]) return error_no_memory(error);
  }
  return 0;
}

static int take_texts(rdzv_agent *agent, const rdzv_agent_options *options, rdzv_error *error) {
  if (!options->argv || !options->argv[0] || !*options->argv[0])
    return error_set(error, RDZV_E_INVALID, "no program given");
  const char *role = options->role && *options->role ? options->role : "default";
  if (strlen(role) >= sizeof((struct role_info *)NULL)->role)
    return error_set(error, RDZV_E_INVALID, "invalid value '%.20s…' for role: it is too long", role);
  agent->argv = copy_list(options->argv);
  agent->role = strdup(role);
  if (options->line_prefix) agent->line_prefix = strdup(options->line_prefix);
  if (!agent->argv || !agent->role || (options->line_prefix && !agent->line_prefix)) return error_no_memory(error);
  agent->streams.role = agent->role;
  agent->streams.line_prefix = agent->line_prefix;
  int result = take_numa(agent, options->numa_binding, error);
  if (result == 0) result = take_filters(agent, options, error);
  if (result == 0) result = std_map_parse("redirects", options->redirects, &agent->streams.redirects, error);
  if (result == 0) result = std_map_parse("tee", options->tee, &agent->streams.tee, error);
  if (result == 0)
    result = rank_list_parse("local_ranks_filter", options->local_ranks_filter, &agent->streams.filter, error);
  return result < 0 ? result : log_dir_init(&agent->log_dir, options->log_dir, agent_has_output(agent), error);
}

/* ---- the rendezvous ------------------------------------------------------------------------------------------- */

/* The store of a static rendezvous is the workers', too: it cannot be protected for agents and not for workers. */
static int check_direct(const rdzv_agent *agent, const char *backend, rdzv_error *error) {
  const rdzv_protection *protection = rdzv_handler_protection(agent->handler);
  const bool is_protected = *protection->secret_file || *protection->tls_ca || *protection->tls_cert;
  if (!agent->direct_master || !is_protected || !backend || strcmp(backend, "static") != 0) return 0;
  return error_set(error, RDZV_E_INVALID,
                   "workers cannot reach the protected store of a static rendezvous directly (choose backend c10d, or "
                   "leave direct_master out)");
}

static int open_rendezvous(rdzv_agent *agent, const rdzv_agent_options *options, rdzv_error *error) {
  rdzv_params params = *options->rendezvous;
  char run_id[40], *conf = NULL;
  uint64_t random[2] = {0};
  int result = 0;
  params.cancel_fd = flag_fd(&agent->stop);
  params.launcher = RDZV_LAUNCHER_AGENT;
  params.max_restarts = options->max_restarts;
  params.find_master_later = true; /* some agents of PyTorch publish it only when they have heard from all others */
  if (options->standalone) {
    if (getrandom(random, sizeof random, 0) < 0) random[0] = (uint64_t)clock_wall_us();
    snprintf(run_id, sizeof run_id, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    params.backend = "c10d";
    params.endpoint = "127.0.0.1:0";
    if (asprintf(&conf, "%s%sstore_type=tcp,is_host=true", params.conf ? params.conf : "",
                 params.conf && *params.conf ? "," : "") < 0)
      return error_no_memory(error);
    params.conf = conf;
    params.run_id = run_id;
    params.min_nodes = params.max_nodes = 1;
  }
  if (result == 0) result = (agent->run_id = strdup(params.run_id ? params.run_id : "")) ? 0 : error_no_memory(error);
  if (result == 0) result = rdzv_handler_open(&params, &agent->handler, error);
  free(conf);
  if (result == 0) result = check_direct(agent, params.backend, error);
  if (result < 0) return result;
  log_line(&agent->log, RDZV_LOG_INFO, "rendezvous '%s' at %s; this node is '%s'", agent->run_id,
           rdzv_handler_describe(agent->handler), rdzv_handler_node(agent->handler));
  if (options->rendezvous->cancel_fd > 0) flag_forget(&agent->stop, options->rendezvous->cancel_fd);
  return result;
}

/* ---- opening and closing -------------------------------------------------------------------------------------- */

static int open_parts(rdzv_agent *agent, const rdzv_agent_options *options, rdzv_error *error) {
  int result = take_numbers(agent, options, error);
  if (result == 0) result = take_texts(agent, options, error);
  if (result == 0 && !options->standalone) result = place_check(options->rendezvous, &agent->log, error);
  if (result == 0) result = guard_open(&agent->guard, error); /* before there are threads */
  if (result == 0) result = flag_open_with(&agent->stop, options->rendezvous->cancel_fd, error);
  if (result < 0) return result;
  agent->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (agent->told_fd < 0) return error_errno(error, RDZV_E_IO, errno, "cannot create an event descriptor");
  result = descriptors_for_loop(error);
  if (result < 0) return result;
  const int code = uv_loop_init(&agent->loop);
  if (code < 0) return error_errno(error, RDZV_E_IO, -code, "cannot create an event loop");
  agent->loop_made = true;
  result = pump_open(&agent->streams.pump, &agent->log, error);
  agent->group = (struct worker_group){.loop = &agent->loop,
                                       .guard = &agent->guard,
                                       .stop = &agent->stop,
                                       .streams = &agent->streams,
                                       .adopts = options->adopt_orphans,
                                       .descriptors = options->worker_descriptors,
                                       .lock = PTHREAD_MUTEX_INITIALIZER};
  if (options->adopt_orphans) agent->adopted_before = orphans_adopt(true);
  return result < 0 ? result : open_rendezvous(agent, options, error);
}

int rdzv_agent_open(const rdzv_agent_options *given, rdzv_agent **out, rdzv_error *error) {
  if (!given || !out) return error_null(error, "rdzv_agent_open", given ? "out" : "options");
  rdzv_agent_options options;
  rdzv_params rendezvous;
  int result = options_take(&options, sizeof options, given, "rdzv_agent_options", error);
  if (result == 0) result = options_take(&rendezvous, sizeof rendezvous, options.rendezvous, "rdzv_params", error);
  if (result < 0) return result;
  options.rendezvous = &rendezvous;
  rdzv_agent *agent = calloc(1, sizeof *agent);
  if (!agent) return error_no_memory(error);
  agent->born = fork_mark_here();
  agent->virtual_local_rank = options.virtual_local_rank;
  agent->direct_master = options.direct_master;
  agent->standalone = options.standalone;
  agent->on_agent = options.on_agent;
  agent->on_worker = options.on_worker;
  agent->event_user = options.event_user;
  agent->guard = GUARD_NONE;
  agent->stop = FLAG_NONE;
  agent->told_fd = agent->port_fd = -1;
  result = log_take(&options.log, &agent->log, error);
  if (result == 0) result = log_take(&rendezvous.log, &agent->server_log, error);
  if (result == 0) result = open_parts(agent, &options, error);
  if (result < 0)
    rdzv_agent_free(agent);
  else
    *out = agent;
  return result;
}

void rdzv_agent_stop(rdzv_agent *agent, int signal) {
  const uint64_t one = 1;
  if (fork_crossed(agent->born)) return;
  const bool again = atomic_exchange(&agent->signal, signal) != 0;
  flag_raise(&agent->stop);
  rdzv_handler_set_close_timeout(agent->handler, again ? 1 : AGENT_LEAVE_MS, NULL); /* also where it closes just now */
  if (write(agent->told_fd, &one, sizeof one) < 0) {                                /* it has been told often enough */
  }
}

void rdzv_agent_suspend(rdzv_agent *agent, bool suspended) {
  if (!fork_crossed(agent->born)) group_suspend(&agent->group, suspended);
}

rdzv_handler *rdzv_agent_handler(rdzv_agent *agent) { return agent->handler; }

void rdzv_agent_free(rdzv_agent *agent) {
  if (!agent) return;
  const bool ours = !fork_crossed(agent->born); /* else workers, guard and output are the parent's */
  if (ours) {                                   /* no worker is left: both end meanwhile */
    guard_quit(&agent->guard);
    pump_quit(agent->streams.pump);
  }
  rdzv_result_free(agent->failed_round);
  leftovers_free(&agent->leftovers);
  rdzv_handler_free(agent->handler);
  if (ours) {
    pump_close(agent->streams.pump);
    guard_close(&agent->guard);
    if (agent->group.adopts && !agent->adopted_before) orphans_adopt(false);
    if (agent->loop_made) uv_loop_close(&agent->loop);
  }
  flag_close(&agent->stop);
  if (agent->told_fd >= 0) close(agent->told_fd);
  if (agent->port_fd >= 0) close(agent->port_fd);
  std_map_free(&agent->streams.redirects);
  std_map_free(&agent->streams.tee);
  std_map_free(&agent->streams.filter);
  free(agent->streams.needles[0]);
  free(agent->streams.needles[1]);
  failures_free(&agent->failures);
  history_free(&agent->history);
  free(agent->published);
  list_free(agent->argv);
  free(agent->role);
  free(agent->run_id);
  free(agent->line_prefix);
  free(agent);
}
