/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What must be kept of the coordinator, so that another process can go on where it stopped: its runs and their nodes,
 * each as a value. Times are what is left of them: the clock of the next process is another one, and time in which no
 * server ran counts for nobody. Who is alive is not kept: every session has its whole grace when the server is back.
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
  bool is_private;      /* the caller's: of struct native_run in server/native */
  int64_t call_left_ms; /* of the last call; -1: there is none */
  rdzv_bytes state;     /* a pickle */

  int64_t world_round;         /* -1: no round was completed */
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
  uint64_t order;          /* of its last join among all joins of the run */
  unsigned wish;           /* below NATIVE_WISHES */
  int64_t left_ms;         /* until its join is over; 0 if it does not join */
  int64_t joined;          /* -1: none */
  bool in_round, unanswered, missed;
  struct native_ranks ranks;
};

#endif
