/* SPDX-License-Identifier: BSD-3-Clause */
/* What rdzv_handler_next gives. */
#ifndef RDZV_HANDLER_RESULT_H
#define RDZV_HANDLER_RESULT_H

#include "base/wait/flag.h"
#include "state/native/native.h"

#include <pthread.h>
#include <rdzv/handler.h>

/* A result with everything of its own; the rest is its private part. */
struct round_result {
  rdzv_result base;
  char *run_id, *backend, *node, *master_addr;
  rdzv_store *store;              /* below the view */
  rdzv_participant *participants; /* by rank; NULL: not known, or not loaded yet */
  size_t participant_count;

  /* Of dynamic rounds only. */
  char *rank0, *rank0_addr; /* the name of rank 0, and the address in it */
  bool master_is_ours;      /* rank 0 is a node of this library, not PyTorch's */
  bool all_ours;            /* so are all */
  bool all_native;          /* and the server has formed the round of them: the master is known */
  bool has_ranks;           /* of workers: */
  rdzv_worker_ranks ranks;

  /* Loads the participants when they are asked for; NULL: they are loaded, or not known. */
  int (*load)(struct round_result *result, rdzv_error *error);
  pthread_mutex_t loading;
};

/* Without participants, store and master yet. NULL: no memory. */
struct round_result *result_new(const char *run_id, const char *backend, const char *node);

/* Fills in the participants of a complete round. False: no memory. */
bool result_add_participants(struct round_result *result, const struct rendezvous_state *state);

/* Whether they are nodes of this library, as their marks in the state say. */
void result_note_ours(struct round_result *result, const struct rendezvous_state *state);

/* Takes what a server has answered to a join. False: no memory. */
bool result_set_native(struct round_result *result, const struct native_joined *joined);

/* Opens the view with that prefix on a clone of `store`. The user's flag cancels that, and every call on it until
 * result_forget_cancel. */
int result_open_store(struct round_result *result, rdzv_store *store, const char *prefix, const struct flag *cancel,
                      rdzv_error *error);
void result_forget_cancel(struct round_result *result);

/* The same on that handle, which is taken over. */
int result_take_store(struct round_result *result, rdzv_store *store, const char *prefix, rdzv_error *error);

/* False: no memory. */
bool result_set_master(struct round_result *result, const char *addr, int port);

#endif
