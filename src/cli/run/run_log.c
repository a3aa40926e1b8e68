/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/event_log.h"
#include "cli/run/run.h"

#include <string.h>
#include <unistd.h>

/* ---- log lines ------------------------------------------------------------------------------------------------ */

static void write_json_line(void *user, rdzv_log_level level, const char *line) {
  char time_text[40], host[256] = "";
  (void)user;
  format_time(now_us(), time_text);
  gethostname(host, sizeof host - 1);
  write_object(STDERR_FILENO, json_pack("{s:s, s:s, s:i, s:s, s:s}", "time", time_text, "host", host, "pid",
                                        (int)getpid(), "level", rdzv_log_level_name(level), "message", line));
}

rdzv_log run_log_lines(struct run_log *log, int level) {
  if (!log->json) return *stderr_log(log->command, level);
  return (rdzv_log){.size = sizeof(rdzv_log), .write = write_json_line, .level = (rdzv_log_level)level};
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

static void write_agent_event(struct run_log *log, const rdzv_agent_event *event) {
  char time_text[40], host[256] = "";
  const bool of_worker = event->local_rank >= 0;
  const char *state = rdzv_agent_state_name(event->state);
  format_time(event->time_us, time_text);
  gethostname(host, sizeof host - 1);
  json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "time", time_text,
                             "source", of_worker ? "WORKER" : "AGENT", "run_id", event->run_id, "host", host, "role",
                             event->role, "pid", (json_int_t)event->pid, "round", (json_int_t)event->round,
                             "group_rank", (json_int_t)event->group_rank, "group_world_size",
                             (json_int_t)event->group_world_size, "restart_count", (json_int_t)event->restart_count,
                             "state", of_worker ? state + strlen("WORKER_") : state, "message", event->message);
  if (of_worker && object) {
    json_object_set_new(object, "local_rank", json_integer(event->local_rank));
    json_object_set_new(object, "rank", json_integer(event->rank));
    json_object_set_new(object, "exit_code", json_integer(event->exit_code));
  }
  event_log_write(log->command, log->event_fd, object);
}

/* While a round is waited for, a terminal shows who is there. */
void run_log_agent_event(void *user, const rdzv_agent_event *event) {
  struct run_log *log = user;
  const bool joins = event->state == RDZV_AGENT_RENDEZVOUS;
  if (log->event_fd >= 0) write_agent_event(log, event);
  log->ran |= event->state == RDZV_AGENT_RUNNING;
  if (event->local_rank >= 0) return;
  progress_end(log->progress, NULL);
  log->progress = joins && log->agent && !log->json ? progress_begin(rdzv_agent_handler(log->agent)) : NULL;
}

void run_log_close(struct run_log *log) {
  progress_end(log->progress, NULL);
  if (log->event_fd >= 0) close(log->event_fd);
}
