/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/event_log.h"
#include "cli/run/run.h"

#include <string.h>
#include <unistd.h>

/* ---- log lines ------------------------------------------------------------------------------------------------ */

rdzv_log run_log_lines(struct run_log *log, int level) {
  if (log->json) write_messages_as_json();
  return *stderr_log(log->command, level);
}

/* ---- the event log -------------------------------------------------------------------------------------------- */

int run_log_open_events(struct run_log *log, const char *path) {
  return path ? event_log_open(log->command, path, &log->event_fd) : EXIT_YES;
}

void run_log_event(void *user, const rdzv_event *event) {
  struct run_log *log = user;
  json_t *object = event_object(event);
  if (object) json_object_set_new(object, "source", json_string("RENDEZVOUS"));
  event_log_write(log->command, log->event_fd, object);
}

/* What the events of the agent and of workers have in common. */
#define COMMON_OBJECT(event, source, state)                                                             \
  common_object((event)->time_us, source, (event)->run_id, (event)->role, (event)->pid, (event)->round, \
                (event)->group_rank, (event)->group_world_size, (event)->restart_count, state, (event)->message)

static json_t *common_object(int64_t time_us, const char *source, const char *run_id, const char *role, int64_t pid,
                             int64_t round, int64_t group_rank, int64_t group_world_size, int64_t restart_count,
                             const char *state, const char *message) {
  char time_text[40], host[256] = "";
  format_time(time_us, time_text);
  gethostname(host, sizeof host - 1);
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "time", time_text, "source", source,
                   "run_id", run_id, "host", host, "role", role, "pid", (json_int_t)pid, "round", (json_int_t)round,
                   "group_rank", (json_int_t)group_rank, "group_world_size", (json_int_t)group_world_size,
                   "restart_count", (json_int_t)restart_count, "state", state, "message", message);
}

void run_log_worker_event(void *user, const rdzv_worker_event *event) {
  const struct run_log *log = user;
  if (log->event_fd < 0) return;
  json_t *object = COMMON_OBJECT(event, "WORKER", rdzv_worker_state_name(event->state));
  if (object) {
    json_object_set_new(object, "local_rank", json_integer(event->local_rank));
    json_object_set_new(object, "rank", json_integer(event->rank));
    json_object_set_new(object, "exit_code", json_integer(event->exit_code));
  }
  event_log_write(log->command, log->event_fd, object);
}

/* While a round is waited for, a terminal shows the nodes. */
void run_log_agent_event(void *user, const rdzv_agent_event *event) {
  struct run_log *log = user;
  const bool joins = event->state == RDZV_AGENT_RENDEZVOUS;
  if (log->event_fd >= 0)
    event_log_write(log->command, log->event_fd, COMMON_OBJECT(event, "AGENT", rdzv_agent_state_name(event->state)));
  log->ran |= event->state == RDZV_AGENT_RUNNING;
  progress_end(log->progress, NULL);
  log->progress = joins && log->agent && !log->json ? progress_begin(rdzv_agent_handler(log->agent)) : NULL;
}

void run_log_close(struct run_log *log) {
  progress_end(log->progress, NULL);
  if (log->event_fd >= 0) close(log->event_fd);
}
