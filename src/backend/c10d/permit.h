/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The permit to write a cell, of which there is one for all nodes, at a store with versions and queues. Permits only
 * save lost swaps: that nothing is overwritten, the swap alone guarantees. Two keys are beside the cell
 * (store/run_keys.h):
 *   permit  a queue with one value in it, the permit to write. A node takes it, writes, and puts it back.
 *   move    is set whenever the permit is given back. If that has not happened for a while, the permit got lost with
 * the node that had it, and the first of the waiting nodes to set this key replaces it. The value in the queue is the
 * version of this key, so that a slow node that was replaced does not put back a second one.
 */
#ifndef RDZV_BACKEND_C10D_PERMIT_H
#define RDZV_BACKEND_C10D_PERMIT_H

#include "base/wait/flag.h"

#include <rdzv/log.h>
#include <rdzv/store.h>

struct permit {
  rdzv_store *store; /* borrowed, as what follows */
  const struct flag *wake;
  const rdzv_log *log;
  char *queue, *move; /* the keys */
  uint64_t moved;     /* the version of the move key, when we took the permit */
  uint64_t waits_for; /* the version of the move key, when we began to wait for the permit */
  deadline is_lost;   /* if it is still that then; 0: we do not wait */
};

/* RDZV_E_NO_MEMORY. */
int permit_init(struct permit *permit, const char *run_id, rdzv_error *error);
void permit_free(struct permit *permit);

/* As rdzv_backend_ops' calls. */
int permit_take(struct permit *permit, int64_t timeout_ms, rdzv_error *error);
void permit_give(struct permit *permit);

#endif
