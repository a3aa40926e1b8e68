/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One node of the first-generation rendezvous as a machine, as state/engine/engine.h is for the dynamic one: PyTorch's
 * EtcdRendezvous, whose entry is rendezvous_barrier. It reads no clock, waits for nothing and knows no etcd.
 *
 *   LOOK         no state -> SETUP; joinable -> join it; final -> announce that we wait, FREE; else wait for a change
 *   SETUP        create the state, count the round, create its directory, publish it as joinable -> LOOK
 *   PEERS        we joined: put our keep-alive there, and wait until the round is frozen. The node that made it enough
 *                waits for the last call, and freezes
 *   CONFIRM      add our keep-alive to the state
 *   FINAL        wait until all have confirmed -> joined
 *   FREE         a final round without us: wait until it is gone; if one of its participants is dead, delete it
 *   PARTICIPANT  of a final round: hear of waiting nodes, of keep-alives that are gone, of the end of the round
 *
 * A node accepts no round with fewer nodes than its minimum or more than its maximum: it fails, and confirms nothing.
 * Nodes that differ are in state/gen1/differ.c.
 *
 * Anything else found on the way (another round, no state) means LOOK again, at once. A lost swap means reading again
 * after a random time that grows with each loss in a row. A swap without an answer also means reading: what we write
 * has our nonce in it, by which LOOK finds what we have done already. Nothing is watched for long without reading, so
 * an etcd that has gone silent, or counts from the beginning again, is noticed.
 */
#ifndef RDZV_STATE_GEN1_MACHINE_H
#define RDZV_STATE_GEN1_MACHINE_H

#include "state/differences.h"
#include "state/engine/pace.h"
#include "state/gen1/state.h"

enum gen1_phase {
  GEN1_PHASE_OUTSIDE,
  GEN1_PHASE_LOOK,
  GEN1_PHASE_SETUP,
  GEN1_PHASE_PEERS,
  GEN1_PHASE_CONFIRM,
  GEN1_PHASE_FINAL,
  GEN1_PHASE_FREE,
  GEN1_PHASE_PARTICIPANT,
};

enum gen1_event_kind {
  GEN1_EV_ASK_JOIN,
  GEN1_EV_ASK_CLOSE, /* text: the reason, or NULL */
  GEN1_EV_ASK_STOP,
  GEN1_EV_STATE,   /* READ: text, or NULL: there is none; index */
  GEN1_EV_DONE,    /* CREATE, MAKE_DIR, SWAP, LEASE, DROP: index. COUNT: round */
  GEN1_EV_REFUSED, /* CREATE, MAKE_DIR: it is there. SWAP, DROP: another node wrote */
  GEN1_EV_LISTED,  /* LIST: keys, which the step puts in order */
  GEN1_EV_TIMER,   /* WATCH: something happened, or its time is over. PAUSE: its time is over */
  GEN1_EV_ERROR,   /* the request failed, or its outcome is unknown */
};

struct gen1_event {
  enum gen1_event_kind kind;
  int64_t now_ms;
  const char *text;
  uint64_t index;
  const char *round;
  const char **keys;
  size_t key_count;
  const rdzv_error *error;
};

enum gen1_request {
  GEN1_DO_IDLE,
  GEN1_DO_READ,     /* the state */
  GEN1_DO_CREATE,   /* it, as `text` with `ttl`, if there is none */
  GEN1_DO_COUNT,    /* add one to the version counter */
  GEN1_DO_MAKE_DIR, /* of `round` */
  GEN1_DO_SWAP,     /* `expected` for `text` with `ttl` */
  GEN1_DO_LEASE,    /* our keep-alive of `round` and `rank`, with `ttl`, and from here on renewed */
  GEN1_DO_LIST,     /* what is in the directory of `round` */
  GEN1_DO_DROP,     /* take the state away if it is `expected` */
  GEN1_DO_WATCH,    /* from `from_index` until until_ms: the state, or, if `whole`, everything */
  GEN1_DO_PAUSE,    /* until until_ms */
};

/* What happened in a step, in any number. */
enum gen1_happened {
  GEN1_HAPPENED_JOINED = 1 << 0, /* round, rank, world_size */
  GEN1_HAPPENED_CLOSED = 1 << 1, /* what was asked for */
  GEN1_HAPPENED_FAILED = 1 << 2, /* what was asked for: failed, error */
  GEN1_HAPPENED_SOMEONE_WAITS = 1 << 3,
  GEN1_HAPPENED_PARTICIPANT_DIED = 1 << 4, /* who */
  GEN1_HAPPENED_IS_CLOSED = 1 << 5,
  GEN1_HAPPENED_EVICTED = 1 << 6,    /* our round is over */
  GEN1_HAPPENED_LEASE_OVER = 1 << 7, /* stop renewing our keep-alive */
  GEN1_HAPPENED_WARNING = 1 << 8,    /* warning: another node has other settings */
};

struct gen1_update {
  enum gen1_request request;
  const char *text, *expected; /* the machine's, until the next step */
  bool unique;                 /* no other node writes that text, and we write it once */
  int64_t ttl;                 /* seconds; 0: none */
  const char *round;
  int64_t rank, world_size;
  uint64_t from_index;
  bool whole;
  int64_t until_ms;
  unsigned happened;
  enum gen1_event_kind failed; /* GEN1_EV_ASK_… */
  const char *who;
  rdzv_error error;
  struct summary warning;
};

/* Times in milliseconds. */
struct gen1_settings {
  int64_t min_nodes, max_nodes;
  int64_t join_timeout, last_call_timeout, close_timeout;
  enum launcher launcher;
  int64_t max_restarts; /* of an agent */
  const char *name;     /* of the node, for others; NULL: it has no entry in the state */
};

/* All private. */
struct gen1_node {
  struct gen1_settings settings;
  void (*keep_alive_key)(void *argument, const char *round, int64_t rank, char out[512]);
  void *argument;
  struct pace pace;
  char nonce[17];
  int64_t now; /* of the step */

  enum gen1_phase phase;
  int64_t deadline;
  bool closing;
  int64_t close_deadline;
  char *reason; /* to close for, or NULL */

  bool known; /* `state` is what is in etcd, as of `index`; or there is nothing, if `absent` */
  bool absent;
  struct gen1_state state;
  uint64_t index;

  char *text;     /* of the request under way */
  char *expected; /* the same */
  char round[24];
  int64_t rank;
  bool leased;     /* our keep-alive is renewed */
  bool calls_last; /* the last call is ours */
  int64_t call_ends, refreshed;
  enum gen1_request asked; /* under way */
  int64_t watch_ends;
  int64_t pause; /* after noise */
  int64_t told_waiting;
  char who[512];

  struct differences differences; /* that were told */
  char clash_round[24];           /* the round in which the node of a clash had no keep-alive */
  int64_t clash_over;             /* from then on that node counts as dead */
};

void gen1_node_init(struct gen1_node *node, const struct gen1_settings *settings, uint64_t seed,
                    void (*keep_alive_key)(void *argument, const char *round, int64_t rank, char out[512]),
                    void *argument);
void gen1_node_free(struct gen1_node *node);

/* *update is not looked at. RDZV_E_NO_MEMORY, RDZV_E_CORRUPT: nothing is under way then; a later timer event reads
 * again. */
int gen1_step(struct gen1_node *node, const struct gen1_event *event, struct gen1_update *update, rdzv_error *error);

/* When the last call ends. INT64_MAX: there is none, or another node ends it. */
int64_t gen1_last_call_ends(const struct gen1_node *node);

/* When what was asked for is given up; INT64_MAX: nothing is. */
int64_t gen1_deadline(const struct gen1_node *node);

/* ---- differ.c ---- */

/* Warns of one entry of the state that was not told yet. */
void gen1_warn(struct gen1_node *node, struct gen1_update *update);

/* The first entry with which no round can have this node. False: there is none, or its node counts as dead. */
bool gen1_find_clash(const struct gen1_node *node, struct gen1_entry *out);

/* The entry's node has no keep-alive. It may just be about to put it: so it counts as dead after a while only, whose
 * end is given. */
int64_t gen1_doubt_clash(struct gen1_node *node);

/* The errors of a clash, and of a round that is too small or too large; false: the round is neither. */
void gen1_error_clash(const struct gen1_node *node, const struct gen1_entry *clash, rdzv_error *error);
bool gen1_error_size(const struct gen1_node *node, rdzv_error *error);

struct differences_settings gen1_differences_settings(const struct gen1_settings *settings);

#endif
