/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to state/native: what the coordinator keeps of a run and of its native nodes. */
#ifndef RDZV_STATE_NATIVE_RUN_H
#define RDZV_STATE_NATIVE_RUN_H

#define HASH_NONFATAL_OOM 1 /* the handle's tbl is NULL where there was no memory */

#include "state/differences.h"
#include "state/engine/last_call.h"
#include "state/engine/liveness.h"
#include "state/native/snapshot.h"
#include "state/summary.h"

#include <uthash.h>
#include <utlist.h>

/* What a native node wants; as enum engine_wish. */
enum native_wish { NATIVE_NOTHING, NATIVE_EXIT /* the first half of a join */, NATIVE_JOIN };

/* A session. Times are on the credited clock of the coordinator, but for the deadline. */
struct native_node {
  UT_hash_handle by_node;                    /* in run->nodes; the key is pid, local_id and addr, at the end */
  UT_hash_handle by_link;                    /* in coordinator->links, while it has one */
  struct native_node *prev, *next;           /* in run->pending, while it joins */
  struct native_node *lost_prev, *lost_next; /* in run->lost, while it has no connection */
  struct coordinator_run *run;
  void *link; /* NULL: no connection */
  uint8_t token[NATIVE_TOKEN_BYTES];
  uint64_t epoch;
  uint64_t serial;
  uint64_t order;  /* of its last join among all joins */
  uint64_t number; /* of the last join */
  struct native_times times;
  int64_t heard, lost;
  int64_t asked; /* when its last join came */
  int64_t trip_us;
  bool dying;

  struct rendezvous_settings settings;
  int64_t first_round;
  enum native_wish wish;
  int64_t deadline_ms;
  int64_t over_us; /* the same by the wall clock, for a server that is restarted */
  struct native_workers workers;
  char *texts; /* role and master_addr, behind each other */
  const char *master_addr;
  int master_port;

  int64_t joined;  /* the last round that it got as joined; -1: none */
  bool in_round;   /* it is a participant of a complete round */
  bool unanswered; /* it has not been told that, for lack of a connection */
  bool told_closed;
  unsigned missed;     /* ENGINE_NEWS_EVICTED: for lack of a connection */
  uint32_t told_gone;  /* so many of world.gone */
  uint32_t told_waits; /* run->waits */
  struct native_ranks ranks;
  struct differences differences; /* that it was warned of */

  struct node_desc node;
  int64_t pid, local_id; /* the key */
  char addr[];
};

/* The round that was completed last. */
struct native_world {
  struct rendezvous_state state; /* its participants only */
  int64_t round;                 /* -1: none */
  uint32_t *gone;                /* which of them are gone, in the order they went: indices */
  uint8_t *how;                  /* of each participant: enum native_gone */
  uint32_t gone_count;
  struct native_joined answer; /* what is the same for all */
  char master_addr[NATIVE_MAX_MASTER + 1];
  struct node_text master_node;
};
enum native_gone { NATIVE_HERE, NATIVE_LEFT_IT, NATIVE_DIED };

struct coordinator_run {
  UT_hash_handle hh;
  struct coordinator *coordinator;
  void *user;
  uint64_t serial;
  bool touched; /* since coordinator_kept */
  struct rendezvous_state state;
  enum torch_layout layout;
  struct rendezvous_settings settings; /* of the last join: for what is not a matter of one node */
  struct native_node *nodes;           /* by_node */
  struct native_node *pending;         /* joins under way, first come first */
  struct native_node *lost;
  size_t pending_count;
  int64_t first_round; /* none before that is given again */

  struct last_call last_call;
  struct liveness liveness; /* of nodes that are not native */
  bool has_torch;           /* some of them are PyTorch nodes, as of the last look */

  bool changed;            /* in this step */
  bool pass;               /* those that join are to be decided on again, in this step */
  bool retry;              /* or with the next timer, when there may be memory */
  bool blocked;            /* some of them wait for a free place */
  struct summary too_late; /* the last one, and what it is of */
  int64_t too_late_ms, too_late_min;

  int64_t due;         /* on the credited clock: when the first of `lost` is dead, at the earliest */
  int64_t deadline_ms; /* of the first join that is over, at the earliest */
  int64_t look_ms;     /* at the nodes that are not native */

  bool stale;      /* the blob that was written last is not the state */
  bool beats;      /* beat_ms is set */
  int64_t beat_ms; /* when the heartbeats in the blob were renewed */

  struct native_world world;
  uint32_t waits;   /* how often nodes came into the wait list of the complete round */
  size_t waiting;   /* in the wait list, as of the last step */
  bool tell;        /* there is news */
  int64_t quiet_ms; /* none is sent before that */

  char id[];
};

/* Between two looks for silent nodes: a timer that is a little late loses no credit. */
enum { LOOK_MS = COORDINATOR_MOST_CREDIT_MS * 3 / 4 };

struct coordinator {
  coordinator_carry_out *carry_out;
  void *user;
  void (*trace)(void *user, const char *line);
  struct coordinator_run *runs;
  struct native_node *links; /* by_link */
  size_t node_count;
  uint64_t serials, orders; /* the last ones given */
  bool touched;             /* a run was, or is gone */
  bool started;
  int64_t last_ms;  /* of the last step */
  int64_t credit;   /* the credited clock */
  int64_t judge_ms; /* no node is declared dead before that */
  int64_t judged;   /* when the dead were looked for last, on the credited clock */
  int64_t scan_ms;  /* when to look for silent nodes */
  int64_t wake_ms;
};

/* ---- coordinator.c ---- */

void coordinator_trace(const struct coordinator *coordinator, const struct coordinator_run *run, const char *format,
                       ...) RDZV_PRINTF(3, 4);
void coordinator_emit(struct coordinator *coordinator, struct coordinator_effect effect);

/* To a node that has no connection nothing is said. */
void native_emit(const struct native_node *node, struct coordinator_effect effect);

/* A timer is due then, at the latest. */
static inline void coordinator_wake_by(struct coordinator *coordinator, int64_t ms) {
  if (ms < coordinator->wake_ms) coordinator->wake_ms = ms;
}

/* Something has changed that a durable server keeps: snapshot.h. */
static inline void run_touch(struct coordinator_run *run) { run->touched = run->coordinator->touched = true; }

/* Of a long gap only a part is credited. */
void coordinator_advance(struct coordinator *coordinator, int64_t now_ms);

/* ---- run.c ---- */

/* NULL: no memory. */
struct coordinator_run *run_new(struct coordinator *coordinator, const char *id, enum torch_layout layout);

/* The end of each step that touched the run: decides what there is to decide, tells what there is to tell, and lets a
 * run go that has no native node. */
void run_end_step(struct coordinator_run *run, struct moment now);
void run_free(struct coordinator_run *run);

/* Begins the join that the node has got. It may be over, and the session too, when this returns. */
void run_begin_join(struct native_node *node, struct moment now);

/* Takes the node out of the state, and ends its session. */
void run_leave(struct native_node *node, struct moment now);
/* `node` closes it; NULL: unknown. */
void run_close(struct coordinator_run *run, const struct native_node *node, struct moment now);

/* Takes out of the state all nodes that are `dying`, and ends their sessions. */
void run_bury(struct coordinator_run *run, struct moment now);

/* Decides again on the joins whose time is over. */
void run_check_deadlines(struct coordinator_run *run, struct moment now);

/* What a change of the state may bring with it. `before` is a plain copy of the struct. */
void run_note_change(struct coordinator_run *run, const struct rendezvous_state *before);
int64_t run_call_end(const struct coordinator_run *run);

/* ---- sessions.c ---- */

struct native_node *native_find(const struct coordinator_run *run, const struct node_desc *node);
struct native_node *native_find_link(const struct coordinator *coordinator, const void *link);

/* Forgets it: it has left the state. */
void native_end(struct native_node *node);

int sessions_join(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error);
int sessions_resume(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error);
void sessions_lost(struct native_node *node, struct moment now);

/* RDZV_E_CORRUPT, RDZV_E_NO_MEMORY. */
int sessions_restore(struct coordinator_run *run, uint64_t serial, const struct native_node_snapshot *snapshot,
                     struct moment now, rdzv_error *error);

/* Marks the dead of a run; gives their number. `all`: look for the silent, too. */
size_t sessions_judge(struct coordinator_run *run, bool all);

/* ---- tell.c ---- */

/* The state's round is complete: makes the world of it, if there is none yet. False: no memory, or it is not whole. */
bool world_make(struct coordinator_run *run);
void world_free(struct native_world *world);

/* A participant is gone from the state's complete round. */
void world_lose(struct coordinator_run *run, const struct node_desc *node, enum native_gone how);

/* Tells a node that its join has succeeded; as often as it asks. */
void tell_joined(struct native_node *node);
void tell_evicted(struct native_node *node);

/* Tells one, or all of the run, what they have not been told yet. */
void tell_missed(struct native_node *node);
void tell_news(struct coordinator_run *run, struct moment now);

/* Warns one, or all of the run, of settings in which other nodes differ. */
void warn_node(struct native_node *node);
void warn_nodes(struct coordinator_run *run);

/* ---- blob.c ---- */

/* The state becomes that one, which is taken over. */
/* Can a node know of that round? It may know of later ones than the run, whose state may have been lost. `run` may be
 * NULL. */
bool run_may_reach(const struct coordinator_run *run, int64_t round);

void run_adopt(struct coordinator_run *run, struct rendezvous_state *state, enum torch_layout layout,
               struct moment now);

/* Looks at the nodes that are not native, and removes the dead. */
void run_look(struct coordinator_run *run, struct moment now);

/* ---- roles.c ---- */

/* Gives the nodes, in the order of their ranks, the ranks of their workers. All have workers. False: no memory. */
bool roles_assign(struct native_node *const *nodes, size_t count);

#endif
