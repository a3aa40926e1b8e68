/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_HANDLER_STATUS_H
#define RDZV_HANDLER_STATUS_H

#include "state/state.h"

#include <rdzv/handler.h>

/* What rdzv_handler_status gives, with its private part. */
struct status {
  rdzv_status base;
  rdzv_node_status *nodes;
  char *reason; /* NULL: none */
  struct node_text ended_by;
};

/* What a node of these kinds (enum node_kind) is called. */
rdzv_node_kind status_kind(unsigned kinds);

/* One more node of that kind. */
void status_count(rdzv_status *status, rdzv_node_kind kind);

/* Puts the nodes, all of which were counted, in order. */
void status_sort(struct status *status);

/* Sets which node ended the rendezvous, and when. */
void status_set_end(rdzv_status *status, const char *node, int64_t at_us);

/* For how long a state was not written. A node that lives writes its heartbeat, every 5 s by default. */
struct status_still {
  uint64_t token;
  int64_t since_ms;
};
enum { STATUS_STILL_MS = 5500 };
void status_look(struct status_still *still, uint64_t token);

/* All nodes are silent by their clocks, this one for the shortest time. If the state was not written for a while,
 * either, they are dead, and the run has ended. */
void status_set_silent(rdzv_status *status, const struct status_still *still, const char *node, int64_t at_us);

/* Takes the text over as the reason for closing; NULL is fine. */
void status_set_reason(rdzv_status *status, char *reason);

#endif
