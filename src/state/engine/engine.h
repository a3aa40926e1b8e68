/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One node of a dynamic rendezvous as a machine: engine_step(event with its moment) says what to do next. It reads no
 * clock, waits for nothing and knows no store; its driver does (handler/dynamic/driver.h, tests/sim). The order of
 * things:
 *
 *   ask join -> READ -> (state) -> SWAP -> (won) -> WAIT … (state: complete, with us) -> joined, and then, as a
 *   participant: WAIT until the heartbeat is due -> READ -> SWAP -> WAIT …, with a notice when the participants change
 *
 *   swap lost      -> BACK_OFF, read and decide again; a heartbeat that is overdue does not back off
 *   store error    -> BACK_OFF, read: the state itself tells whether a swap without an answer took effect
 *   nothing is due -> WAIT for a change of the state
 *
 * Beyond the rules (state/rendezvous.h, and what state/join.h adds to them) dead nodes are removed soon after they are
 * found, not only with the next heartbeat.
 *
 * At most one request is under way. A step that asks for anything but CONTINUE ends a WAIT or BACK_OFF of before.
 */
#ifndef RDZV_STATE_ENGINE_ENGINE_H
#define RDZV_STATE_ENGINE_ENGINE_H

#include "state/differences.h"
#include "state/engine/last_call.h"
#include "state/engine/liveness.h"
#include "state/engine/pace.h"
#include "state/engine/rounds.h"
#include "state/summary.h"

enum engine_event_kind {
  ENGINE_EV_ASK_JOIN,    /* join the next round; a participant leaves its round first */
  ENGINE_EV_ASK_LEAVE,   /* leave, without closing; a join under way is given up */
  ENGINE_EV_ASK_CLOSE,   /* close the rendezvous for all */
  ENGINE_EV_ASK_STOP,    /* stop heartbeats, wishes and notices: what is in the state lapses */
  ENGINE_EV_STATE_READ,  /* what a READ gave, or a WAIT; never older than what came before */
  ENGINE_EV_SWAP_WON,    /* the state is written */
  ENGINE_EV_SWAP_LOST,   /* another node wrote before; with what is there now */
  ENGINE_EV_TIMER,       /* the time of a WAIT or BACK_OFF has come */
  ENGINE_EV_PERMIT,      /* we have the permit to write, and need not back off any longer */
  ENGINE_EV_STORE_ERROR, /* the request failed, or its outcome is unknown */
};

struct engine_event {
  enum engine_event_kind kind;
  struct moment now;
  struct rendezvous_state *state; /* READ, LOST: taken over, STATE_EMPTY is left there; NULL: there is no state yet */
  uint64_t token;          /* READ, LOST, WON: the caller's name for this version of the state; 0: there is none */
  bool has_permit;         /* LOST: we still have the permit */
  const rdzv_error *error; /* STORE_ERROR */
};

enum engine_request {
  ENGINE_DO_NOTHING,  /* nothing to do until something is asked */
  ENGINE_DO_CONTINUE, /* the request that is under way goes on */
  ENGINE_DO_READ,     /* read the state */
  ENGINE_DO_SWAP,     /* write `state` if the version is still `token` (0: if there is none yet) */
  ENGINE_DO_WAIT,     /* from from_ms until until_ms, for a version that is not `token`; then a timer event */
  ENGINE_DO_BACK_OFF, /* do nothing until until_ms; then a timer event. Or, where the backend has permits, wait for one,
                      but no longer than permit_ms; then a permit event */
};

/* What a step tells: flags. */
enum engine_news {
  ENGINE_NEWS_JOINED = 1 << 0,        /* rank, world_size, round, and in `state` the participants */
  ENGINE_NEWS_LEFT = 1 << 1,          /* what was asked for */
  ENGINE_NEWS_CLOSE_DONE = 1 << 2,    /* what was asked for */
  ENGINE_NEWS_FAILED = 1 << 3,        /* what was asked for has failed: failed, error */
  ENGINE_NEWS_SOMEONE_WAITS = 1 << 4, /* from here on for a participant: more are in the wait list, and there is room */
  ENGINE_NEWS_PARTICIPANT_LEFT = 1 << 5,
  ENGINE_NEWS_PARTICIPANT_DIED = 1 << 6,
  ENGINE_NEWS_IS_CLOSED = 1 << 7,
  ENGINE_NEWS_EVICTED = 1 << 8, /* this node is no longer a participant of its round; the last news of a round */
  ENGINE_NEWS_WARNING = 1 << 9, /* in a round or not: `warning` */
};

struct engine_update {
  enum engine_request request;
  const struct rendezvous_state *state; /* the engine's, until the next step */
  uint64_t token;
  int64_t from_ms, until_ms;
  int64_t permit_ms;             /* BACK_OFF; 0: a permit does not help */
  enum rendezvous_action action; /* SWAP: what it is for */
  bool urgent;                   /* SWAP: others want to hear of it soon */
  unsigned news;                 /* enum engine_news */
  int64_t rank, world_size;      /* JOINED */
  int64_t round;                 /* JOINED, and of a participant's news */
  enum engine_event_kind failed; /* ENGINE_EV_ASK_… */
  rdzv_error error;
  struct node_text left, dead; /* the first of those */
  struct summary warning;
};

struct engine_config {
  struct node_desc node; /* the address must outlive the engine */
  struct rendezvous_settings settings;
  uint64_t seed;                                   /* for jitter; another one for each node */
  int64_t swap_ms;                                 /* about what a swap takes, where all race for it; 0: they do not */
  void (*trace)(void *argument, const char *line); /* or NULL; a line for each decision: "condition -> decision" */
  void *argument;
};

enum engine_wish { WISH_NOTHING, WISH_EXIT /* the first half of a join */, WISH_JOIN, WISH_LEAVE };

/* A participant of our round, and in which step we saw that it is gone. */
struct engine_peer {
  struct node_desc desc; /* the address is our own copy */
  uint64_t gone;         /* 0: it is there */
};

/* All private. */
struct engine {
  struct engine_config config;

  enum engine_wish wish;
  int64_t wish_deadline;
  struct summary too_late; /* which nodes were there when the deadline passed; "" before */
  bool closing;
  int64_t close_deadline;

  uint64_t steps; /* so many have been done; the one under way counts */
  bool under_way; /* a request */
  int64_t sent_ms;

  bool known; /* `state` is that of version `token`, as of read_ms, but for what we did to it */
  struct rendezvous_state state;
  uint64_t token;
  int64_t read_ms;
  int64_t beat_ms;  /* when our heartbeat was renewed last */
  int64_t tried_us; /* the heartbeat that we tried to write last, and when: its answer may be lost */
  int64_t tried_ms;
  bool answers;           /* a node that clashes with us waits to see whether we live: a heartbeat is due */
  bool came_back;         /* that write takes us out of a round, and into the wait list or the next round */
  int64_t evict_ms;       /* when to write that nodes are dead; 0: none are */
  bool fresh;             /* the dead of this state have not been looked for yet */
  bool dropped;           /* the dead were taken out of this state */
  int64_t back_off_ms;    /* until then */
  int64_t permit_ms;      /* or, waiting for the permit, until then; 0: we do not back off from a race */
  rdzv_error store_error; /* code 0: the last request was answered */
  struct liveness liveness;
  struct last_call last_call;
  struct pace pace;
  struct rounds rounds;
  struct differences differences; /* that we have warned of */

  bool in_round; /* we are a participant of a complete round */
  int64_t round;
  struct engine_peer *peers; /* in node order */
  size_t peer_count;
  size_t waiting; /* that we have told of */
  bool told_closed;
};

void engine_init(struct engine *engine, const struct engine_config *config);
void engine_free(struct engine *engine);

/* Whether the state that is in the store, or is to be there, has a redundancy list: its layout tells. */
void engine_set_redundancy_list(struct engine *engine, bool has);

/* *update is not looked at. RDZV_E_NO_MEMORY, RDZV_E_LIMIT: nothing is under way then; a later timer event tries
 * again. */
int engine_step(struct engine *engine, const struct engine_event *event, struct engine_update *update,
                rdzv_error *error);

/* The participants that `update`, of the last step, tells to have left or died, one after the other: the first is after
 * NULL. NULL: the end. */
const struct engine_peer *engine_gone(const struct engine *engine, const struct engine_update *update,
                                      const struct engine_peer *after);

/* The difference to a node with which no round is possible, and which may be dead: the join waits to see. "": none. */
struct summary engine_clash(const struct engine *engine);

/* ---- private: between engine.c, engine_decide.c and engine_watch.c ---- */

void engine_trace(const struct engine *engine, const char *format, ...) RDZV_PRINTF(2, 3);

/* Says what to do next, when no request is under way. */
int engine_decide(struct engine *engine, struct moment now, struct engine_update *update, rdzv_error *error);

/* We are a participant of the state's round from here on. False: no memory. */
bool engine_watch_begin(struct engine *engine);
void engine_watch_end(struct engine *engine);

/* Compares the state, as it is in the store, with what we know of our round. */
void engine_watch(struct engine *engine, struct moment now, struct engine_update *update);

#endif
