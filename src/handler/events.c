/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/events.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct noted_event {
  struct noted_event *next;
  rdzv_event event;
  char message[RDZV_MESSAGE_SIZE + 256];
};

const char *rdzv_node_state_name(rdzv_node_state state) {
  static const char *const names[] = {"INIT", "RUNNING", "SUCCEEDED", "FAILED"};
  return state <= RDZV_NODE_STATE_FAILED ? names[state] : "UNKNOWN";
}

void events_init(struct events *events, const rdzv_params *params, const char *node, int64_t local_id) {
  *events = (struct events){.on_event = params->on_event,
                            .user = params->event_user,
                            .log = params->log ? *params->log : (rdzv_log){0},
                            .run_id = params->run_id,
                            .node = node,
                            .local_id = local_id};
  events->last = &events->first;
  host_name(events->host);
  pthread_mutex_init(&events->lock, NULL);
  pthread_mutex_init(&events->telling, NULL);
}

void events_free(struct events *events) {
  events_flush(events);
  pthread_mutex_destroy(&events->lock);
  pthread_mutex_destroy(&events->telling);
}

void events_abandon(struct events *events) {
  if (pthread_mutex_trylock(&events->lock) != 0) return;
  while (events->first) {
    struct noted_event *noted = events->first;
    events->first = noted->next;
    free(noted);
  }
}

/* Without memory for it, it is not told. */
void events_note(struct events *events, rdzv_node_state state, int64_t round, int64_t rank, const char *format, ...) {
  if (!events->on_event && !log_on(&events->log, RDZV_LOG_INFO)) return;
  struct noted_event *noted = calloc(1, sizeof *noted);
  if (!noted) return;
  va_list args;
  va_start(args, format);
  vsnprintf(noted->message, sizeof noted->message, format, args);
  va_end(args);
  noted->event = (rdzv_event){.time_us = clock_wall_us(),
                              .run_id = events->run_id,
                              .node = events->node,
                              .host = events->host,
                              .pid = getpid(),
                              .local_id = events->local_id,
                              .round = round,
                              .rank = rank,
                              .state = state,
                              .message = noted->message};
  pthread_mutex_lock(&events->lock);
  *events->last = noted;
  events->last = &noted->next;
  pthread_mutex_unlock(&events->lock);
}

static struct noted_event *take_first(struct events *events) {
  pthread_mutex_lock(&events->lock);
  struct noted_event *noted = events->first;
  if (noted) events->first = noted->next;
  if (!events->first) events->last = &events->first;
  pthread_mutex_unlock(&events->lock);
  return noted;
}

void events_flush(struct events *events) {
  struct noted_event *noted;
  pthread_mutex_lock(&events->telling);
  while ((noted = take_first(events))) {
    log_line(&events->log, RDZV_LOG_INFO, "%s: %s", events->node, noted->message);
    if (events->on_event) events->on_event(events->user, &noted->event);
    free(noted);
  }
  pthread_mutex_unlock(&events->telling);
}
