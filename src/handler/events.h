/* SPDX-License-Identifier: BSD-3-Clause */
/* What is told to the user's event callback. */
#ifndef RDZV_HANDLER_EVENTS_H
#define RDZV_HANDLER_EVENTS_H

#include "base/host.h"

#include <pthread.h>
#include <rdzv/params.h>

/* Who tells. The texts are borrowed. */
struct events {
  rdzv_on_event *on_event;
  void *user;
  rdzv_log log;
  const char *run_id, *node;
  char host[HOST_NAME_SIZE];
  int64_t local_id;
  pthread_mutex_t lock; /* one event at a time */
};

void events_init(struct events *events, const rdzv_params *params, const char *node, int64_t local_id);
void events_free(struct events *events);

/* Also a log line: an error where the node failed, else information. */
void events_tell(struct events *events, rdzv_node_state state, int64_t round, int64_t rank, const char *format, ...)
    RDZV_PRINTF(5, 6);

#endif
