/* SPDX-License-Identifier: BSD-3-Clause */
/* A rendezvous as lines of text, for `rdzv status` and `rdzv list`. */
#ifndef RDZV_CLI_RENDEZVOUS_TABLE_H
#define RDZV_CLI_RENDEZVOUS_TABLE_H

#include "cli/rendezvous/rendezvous.h"

#include <stdio.h>

const char *kind_name(rdzv_node_kind kind);

/* NULL: it is not known. */
const char *way_name(rdzv_node_way way);

/* "2026-11-18T01:20:33Z". */
struct time_text {
  char text[32];
};
struct time_text time_text(int64_t us);

/* Without what changes all the time: ages, trips, the time that is left. */
bool status_differs(const rdzv_status *a, const rdzv_status *b);

/* Do all nodes seem to be dead? Their clocks may be wrong: a look after STATUS_NEXT_MS tells, as the next heartbeat has
 * come by then. */
bool status_is_doubtful(const rdzv_status *status);
enum { STATUS_NEXT_MS = 6000 };

/* Round, phase, how it ended; how many nodes there are. Without an end of line. */
void print_phase(FILE *out, const rdzv_status *status);
void print_counts(FILE *out, const rdzv_status *status);

/* All of it. `before` may be NULL; else a '*' marks what is not as in it, and a '-' a node that is gone. */
void print_table(FILE *out, const rdzv_status *status, const rdzv_status *before, const char *run_id);

/* The same in one line, with the nodes that came or changed ('+') and went ('-'). */
void print_changes(FILE *out, const rdzv_status *status, const rdzv_status *before);

#endif
