/* SPDX-License-Identifier: BSD-3-Clause */
/* Events for the user's log and callback. An event is noted where it happens, often under a lock, and delivered where
 * no lock is held: the user may wait for a lock of its own there. */
#ifndef RDZV_HANDLER_EVENTS_H
#define RDZV_HANDLER_EVENTS_H

#include "base/net/host.h"

#include <pthread.h>
#include <rdzv/params.h>

struct noted_event;

/* The source of the events. The texts are borrowed. */
struct events {
  rdzv_on_event *on_event;
  void *user;
  rdzv_log log;
  const char *run_id, *node;
  char host[HOST_NAME_SIZE];
  int64_t local_id;
  pthread_mutex_t lock; /* guards the list */
  struct noted_event *first, **last;
  pthread_mutex_t telling; /* one at a time, in order */
};

void events_init(struct events *events, const rdzv_params *params, const char *node, int64_t local_id);
void events_free(struct events *events);

/* The same in a child of the process: what is noted is the parent's to tell. */
void events_abandon(struct events *events);

/* Notes an event, and a log line, for information: the error of a call is returned by the call. */
void events_note(struct events *events, rdzv_node_state state, int64_t round, int64_t rank, const char *format, ...)
    RDZV_PRINTF(5, 6);

/* Tells what is noted; with no lock held. */
void events_flush(struct events *events);

#endif
