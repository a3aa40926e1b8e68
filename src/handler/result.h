/* SPDX-License-Identifier: BSD-3-Clause */
/* What rdzv_handler_next gives. */
#ifndef RDZV_HANDLER_RESULT_H
#define RDZV_HANDLER_RESULT_H

#include "base/wait/flag.h"
#include "state/state.h"

#include <rdzv/handler.h>

/* A result with everything of its own; the rest is its private part. */
struct round_result {
  rdzv_result base;
  char *run_id, *backend, *node, *master_addr;
  rdzv_store *store;              /* below the view */
  rdzv_participant *participants; /* by rank; NULL: nobody knows them */
  size_t participant_count;
  bool master_is_ours; /* rank 0 is a node of this library, not PyTorch's; of dynamic rounds only */
  bool all_ours;       /* so are all */
};

/* Without participants, store and master yet. NULL: no memory. */
struct round_result *result_new(const char *run_id, const char *backend, const char *node);

/* Fills in the participants of a complete round. False: no memory. */
bool result_add_participants(struct round_result *result, const struct rendezvous_state *state);

/* Opens the view with that prefix on a clone of `store`. The user's flag cancels that, and every call on it until
 * result_forget_cancel. */
int result_open_store(struct round_result *result, rdzv_store *store, const char *prefix, const struct flag *cancel,
                      rdzv_error *error);
void result_forget_cancel(struct round_result *result);

/* False: no memory. */
bool result_set_master(struct round_result *result, const char *addr, int port);

#endif
