/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes the nodes of a state out of PyTorch's collections, in whatever order their nodes come: sorted once, and what
 * is said of one node in several places put together. For the codecs; costs O(n log n) whatever the order.
 */
#ifndef RDZV_STATE_PICKLE_BUILD_H
#define RDZV_STATE_PICKLE_BUILD_H

#include "state/state.h"

#include <rdzv/bytes.h>

struct state_entry {
  rdzv_bytes addr; /* borrowed, until the state is built */
  int64_t pid;
  int64_t local_id;
  int64_t rank;
  int64_t last_heartbeat;
  bool ours;
  unsigned kinds;
  unsigned number; /* in the order they came */
};

/* All zero is empty. */
struct state_builder {
  struct state_entry *entries;
  size_t count, cap;
  size_t next; /* the entry that the next node is expected to be */
};

/* Begins a collection: what one collection says of a node twice, the last time holds, as in Python. */
void state_builder_begin(struct state_builder *builder);

/* The entry to note on what a collection says of a node: a rank and NODE_PARTICIPANT, or another kind, or a
 * heartbeat; valid until the next one. NULL: *code is RDZV_E_CORRUPT, too many or no address, or RDZV_E_NO_MEMORY. */
struct state_entry *state_builder_add(struct state_builder *builder, rdzv_bytes addr, int64_t pid, int64_t local_id,
                                      int *code, rdzv_error *error);

/* Gives the nodes to a state that has none. RDZV_E_CORRUPT: too many; RDZV_E_NO_MEMORY. */
int state_builder_finish(struct state_builder *builder, struct rendezvous_state *state, rdzv_error *error);
void state_builder_free(struct state_builder *builder);

#endif
