/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/events.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

const char *rdzv_node_state_name(rdzv_node_state state) {
  static const char *const names[] = {"INIT", "RUNNING", "SUCCEEDED", "FAILED"};
  return state <= RDZV_NODE_FAILED ? names[state] : "UNKNOWN";
}

void events_init(struct events *events, const rdzv_params *params, const char *node, int64_t local_id) {
  *events = (struct events){.on_event = params->on_event,
                            .user = params->event_user,
                            .log = params->log,
                            .run_id = params->run_id,
                            .node = node,
                            .local_id = local_id};
  host_name(events->host);
  pthread_mutex_init(&events->lock, NULL);
}

void events_free(struct events *events) { pthread_mutex_destroy(&events->lock); }

void events_tell(struct events *events, rdzv_node_state state, int64_t round, int64_t rank, const char *format, ...) {
  const rdzv_log_level level = state == RDZV_NODE_FAILED ? RDZV_LOG_WARNING : RDZV_LOG_INFO;
  if (!events->on_event && !log_on(&events->log, level)) return;
  char message[RDZV_MESSAGE_SIZE + 256];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  log_line(&events->log, level, "%s: %s", events->node, message);
  if (!events->on_event) return;
  const rdzv_event event = {.time_us = clock_wall_us(),
                            .run_id = events->run_id,
                            .node = events->node,
                            .host = events->host,
                            .pid = getpid(),
                            .local_id = events->local_id,
                            .round = round,
                            .rank = rank,
                            .state = state,
                            .message = message};
  pthread_mutex_lock(&events->lock);
  events->on_event(events->user, &event);
  pthread_mutex_unlock(&events->lock);
}
