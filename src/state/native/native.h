/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a native node and its server tell each other. A native node sends the server one join and gets one answer when
 * the round is complete: the server forms the rounds (state/native/coordinator.h), and the node follows
 * (state/native/member.h). wire/native.h is the form of these on the wire.
 *
 * A session is what lives and dies, not a connection: the node draws a token and proves with it, on each new
 * connection, that it is the same node. Of the connections of one session the one with the highest epoch counts.
 */
#ifndef RDZV_STATE_NATIVE_NATIVE_H
#define RDZV_STATE_NATIVE_NATIVE_H

#include "state/pickle/layout.h"
#include "state/rendezvous.h"

enum {
  NATIVE_TOKEN_BYTES = 16,
  NATIVE_MAX_RUN_ID = 512, /* bytes, as in each of these */
  NATIVE_MAX_ROLE = 63,
  NATIVE_MAX_REASON = 512,
  NATIVE_MAX_WARNING = 512,
  NATIVE_MAX_MASTER = 255,
  NATIVE_MOST_NAMED = 32,          /* nodes in one native_news */
  NATIVE_LEAST_KEEP_ALIVE_MS = 50, /* a shorter interval is taken for this */
  NATIVE_SILENT_INTERVALS = 3,     /* a node that is silent for so many keep-alive intervals is dead */
};

/* Of a session: how often its node speaks, and how long it may be without a connection. */
struct native_times {
  int64_t keep_alive_ms; /* default 2000 */
  int64_t grace_ms;      /* default 300 */
};
#define NATIVE_TIMES_DEFAULT ((struct native_times){.keep_alive_ms = 2000, .grace_ms = 300})

struct native_session {
  struct node_desc node;
  uint8_t token[NATIVE_TOKEN_BYTES]; /* random, drawn by the node; another one for each place that it gets */
  uint64_t epoch;                    /* 1 for the first connection of the session, higher for each later one */
};

/* The workers of an agent: its role and their number; restarts of before. None: local_world_size 0. */
struct native_workers {
  const char *role; /* at most NATIVE_MAX_ROLE */
  int64_t local_world_size;
  int64_t restart_count;
};

/* Asks for the next round; a participant leaves its round first. The same number again is the same join, sent again
 * because its answer may be lost. */
struct native_join {
  const char *run_id;
  struct native_session session;
  uint64_t number; /* of the joins of this node: 1, 2, 3 …, whatever the session */
  struct native_times times;
  struct rendezvous_settings settings;
  enum torch_layout layout; /* of a state that this node would write first */
  int64_t first_round;      /* it takes part in none before that: state/engine/rounds.h */
  const char *master_addr;  /* where others reach this node, should it be rank 0; "": it does not say */
  int master_port;          /* kept by this node for this round */
  struct native_workers workers;
};

/* The ranks of an agent's workers, as in agent/roles.h, and the most restarts that an agent has used. */
struct native_ranks {
  int64_t base, world_size;
  int64_t role_base, role_world_size;
  int64_t restart_count;
};

/* The one answer to a join. */
struct native_joined {
  uint64_t number; /* of the join */
  int64_t round, rank, world_size;
  bool all_native; /* no participant is in by the blob: `ranks` are set if all have workers */
  bool all_ours;   /* all participants are of this library, native or not */
  bool master_is_ours;
  const char *master_node; /* the name of rank 0 */
  const char *master_addr; /* "" if rank 0 is not native */
  int master_port;
  bool has_ranks;
  struct native_ranks ranks;
};

/* What the server reports about a round or a run, unasked. */
struct native_news {
  unsigned what; /* ENGINE_NEWS_SOMEONE_WAITS, …_LEFT, …_DIED, …_IS_CLOSED, …_EVICTED of state/engine/engine.h; or
                    …_WARNING alone, in a round or not */
  int64_t round;
  int64_t waiting; /* nodes in the wait list */
  size_t gone;     /* participants that left or died since the last news */
  size_t named;    /* of these: */
  struct node_desc nodes[NATIVE_MOST_NAMED];
  const char *warning; /* NULL, "": none */
};

/* By which way a node is in. */
enum native_way {
  NATIVE_WAY_TORCH,  /* a PyTorch node, by the blob */
  NATIVE_WAY_SWAP,   /* a node of this library, by the blob */
  NATIVE_WAY_NATIVE, /* by its session */
};

#endif
