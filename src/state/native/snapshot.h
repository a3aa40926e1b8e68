/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What must be kept of the coordinator, so that another process can go on where it stopped: its runs and their nodes,
 * each as a value.
 *
 * Liveness is not kept. A session that is restored has no connection, and the time from then on counts: its grace,
 * and the longest time that its client waits between two tries to connect. Ends are by the wall clock, and bounded by
 * what the node has asked for, since the clock of the next process may be another one.
 */
#ifndef RDZV_STATE_NATIVE_SNAPSHOT_H
#define RDZV_STATE_NATIVE_SNAPSHOT_H

#include "state/native/coordinator.h"

/* A run without its nodes. */
struct native_run_snapshot {
  const char *id;
  enum torch_layout layout;
  int64_t first_round;
  uint32_t waits;
  bool is_private;  /* the caller's */
  rdzv_bytes state; /* a pickle */

  int64_t world_round;         /* -1: no round was completed, and what follows is not used */
  rdzv_bytes world;            /* a pickle of its participants */
  const uint32_t *gone;        /* which of them are gone, in the order they went: indices */
  const uint8_t *how;          /* of each of these */
  uint32_t gone_count;         /* at most STATE_MAX_NODES */
  struct native_joined answer; /* what is the same for all; number, rank and ranks are not used */
};

enum { NATIVE_WISHES = 3 };

/* A session. */
struct native_node_snapshot {
  struct native_join join; /* the last one, with the session and its epoch */
  uint64_t order;          /* of its last join among all joins */
  unsigned wish;           /* below NATIVE_WISHES */
  int64_t over_us;         /* when its last join is over */
  int64_t joined;          /* -1: none */
  bool in_round, unanswered, missed;
  struct native_ranks ranks;
};

/* ---- what has changed ---- */

/* Has anything changed that is to be kept, since coordinator_kept? */
bool coordinator_has_changed(const struct coordinator *coordinator);
void coordinator_kept(struct coordinator *coordinator);

/* All runs: NULL for the first one, and NULL at the end. A serial is never used again. */
struct coordinator_run *coordinator_next_run(const struct coordinator *coordinator, const struct coordinator_run *run);
uint64_t coordinator_run_serial(const struct coordinator_run *run);
bool coordinator_run_has_changed(const struct coordinator_run *run);

/* Memory that a snapshot points into. All zero: empty. */
struct native_scratch {
  struct buf state, world, how;
};
void native_scratch_free(struct native_scratch *scratch);

/* RDZV_E_NO_MEMORY. */
int coordinator_run_snapshot(const struct coordinator_run *run, struct native_scratch *scratch,
                             struct native_run_snapshot *out, rdzv_error *error);

/* Calls `visit` with each node of the run. The serial is that of the node. */
void coordinator_run_nodes(const struct coordinator_run *run,
                           void (*visit)(void *user, uint64_t serial, const struct native_node_snapshot *node),
                           void *user);

/* ---- restoring, into a new coordinator ---- */

/* The runs, then their nodes, then coordinator_restored. RDZV_E_CORRUPT, RDZV_E_NO_MEMORY. */
int coordinator_restore_run(struct coordinator *coordinator, uint64_t serial,
                            const struct native_run_snapshot *snapshot, struct moment now, rdzv_error *error);
int coordinator_restore_node(struct coordinator *coordinator, uint64_t serial,
                             const struct native_node_snapshot *snapshot, struct moment now, rdzv_error *error);

/* RDZV_E_CORRUPT: a run has no nodes. A timer event is due then. */
int coordinator_restored(struct coordinator *coordinator, struct moment now, rdzv_error *error);

#endif
