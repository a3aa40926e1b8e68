/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One native node as a machine: member_step(event with its moment) says what to do next. It reads no clock, waits for
 * nothing and knows no socket; its driver does (handler/dynamic/native, tests/sim). The server forms the rounds
 * (state/native/coordinator.h). The order of things:
 *
 *   ask join -> CONNECT -> (connected) -> JOIN … (joined) -> and then, as a participant: BEAT from time to time, with a
 *   notice when the server tells of a change -> ask join -> JOIN on the same connection …
 *
 *   connection lost -> CONNECT again, at once the first time -> JOIN again with the same number, if the join was not
 *                      answered; else RESUME
 *   RESUME refused with RDZV_E_STALE -> the session is over, or the server was restarted and has forgotten it: a
 *                      participant is evicted
 *   JOIN refused with RDZV_E_STALE   -> another session, and the same wish
 *   no answer to a beat for two thirds of the dead time -> drop the connection and connect again
 *
 * A wish ends by its answer, or by its deadline where the server is not there to answer it: while it is, it knows best
 * when a join has to end (the time of a spare does not pass). A join says how much time it has left.
 *
 * What a step tells is what the engine of a swap node tells (state/engine/engine.h).
 */
#ifndef RDZV_STATE_NATIVE_MEMBER_H
#define RDZV_STATE_NATIVE_MEMBER_H

#include "base/siphash.h"
#include "state/engine/engine.h"
#include "state/native/native.h"

enum member_event_kind {
  MEMBER_EV_ASK_JOIN, /* master_addr, master_port, workers: join the next round; a participant leaves its round first */
  MEMBER_EV_ASK_LEAVE, /* leave, without closing; a join under way is given up */
  MEMBER_EV_ASK_CLOSE, /* reason: close the rendezvous for all */
  MEMBER_EV_ASK_STOP,  /* stop beats, wishes and notices: the session lapses */
  MEMBER_EV_CONNECTED, /* the CONNECT succeeded, greeting included: the server is native */
  MEMBER_EV_LOST,      /* error: the CONNECT failed, or the connection is gone */
  MEMBER_EV_JOINED,    /* from here on messages of the server: joined */
  MEMBER_EV_RESUMED,   /* number */
  MEMBER_EV_LEFT,
  MEMBER_EV_CLOSED,
  MEMBER_EV_BEAT,    /* trip_us: the answer to a beat, so long after it */
  MEMBER_EV_NEWS,    /* news */
  MEMBER_EV_REFUSED, /* refused, number (of the join, or the epoch of a RESUME; 0: it is not known), error */
  MEMBER_EV_HEARD,   /* anything else that shows that the server is there */
  MEMBER_EV_TIMER,   /* the time of `until_ms` has come */
};

/* What is done next: flags, carried out in this order. */
enum member_request {
  MEMBER_DO_DROP = 1 << 0,    /* close the connection, or give up connecting: no event comes of it */
  MEMBER_DO_CONNECT = 1 << 1, /* CONNECTED or LOST comes of it */
  MEMBER_DO_JOIN = 1 << 2,    /* send `join` */
  MEMBER_DO_RESUME = 1 << 3,  /* send `join.session` */
  MEMBER_DO_LEAVE = 1 << 4,
  MEMBER_DO_CLOSE = 1 << 5, /* send `reason` */
  MEMBER_DO_BEAT = 1 << 6,  /* send `wants_answer`, `trip_us` */
};

struct member_event {
  enum member_event_kind kind;
  struct moment now;
  const char *master_addr; /* NULL: "" */
  int master_port;
  struct native_workers workers; /* role may be NULL */
  const char *reason;            /* NULL: "" */
  const rdzv_error *error;
  const struct native_joined *joined;
  const struct native_news *news;
  uint64_t number;
  int64_t trip_us;
  enum member_request refused; /* JOIN, RESUME, LEAVE, CLOSE or BEAT */
};

/* The pointers are valid until the next step, those of the event as long as it. */
struct member_update {
  unsigned doing;     /* enum member_request */
  int64_t until_ms;   /* when a timer event is due; INT64_MAX: never */
  bool wants_answer;  /* BEAT, as what follows */
  int64_t trip_us;    /* the round-trip time of the last beat that was answered; -1: not known */
  const char *reason; /* CLOSE */
  struct native_join join;
  struct engine_update told;          /* news and what belongs to them; nothing else of it */
  const struct native_joined *joined; /* told.news has JOINED */
  const struct native_news *news;     /* participants have left or died: their names; or NULL */
};

struct member_config {
  const char *run_id;    /* must outlive the member, as the node's address */
  struct node_desc node; /* this one */
  struct rendezvous_settings settings;
  struct native_times times;
  enum torch_layout layout;
  struct siphash_seed secret;                      /* random: tokens are made of it */
  void (*trace)(void *argument, const char *line); /* or NULL; a line for each decision: "condition -> decision" */
  void *argument;
};

enum member_link { MEMBER_LINK_DOWN, MEMBER_LINK_CONNECTING, MEMBER_LINK_UP };

/* All private. */
struct member {
  struct member_config config;

  enum engine_wish wish; /* not WISH_EXIT, which is the server's */
  int64_t wish_deadline;
  int64_t again_ms; /* when a join that was refused for now is sent again; 0: it was not */
  bool closing;
  int64_t close_deadline;
  int64_t close_again_ms;
  char reason[NATIVE_MAX_REASON + 1];
  char master_addr[NATIVE_MAX_MASTER + 1];
  int master_port;
  char role[NATIVE_MAX_ROLE + 1];
  struct native_workers workers;

  enum member_link link;
  int64_t connect_ms; /* when to connect, while the link is down */
  rdzv_error trouble; /* why it is down, or why we were refused for now; code 0: all is well */
  struct pace pace;
  struct silence silence; /* of the server, while the link is up */

  bool in_session; /* the server may have the session */
  bool attached;   /* this connection is of the session */
  bool resuming;   /* and its RESUME has no answer yet */
  uint8_t token[NATIVE_TOKEN_BYTES];
  uint64_t tokens; /* drawn so far */
  uint64_t epoch, joins;
  bool sent_join, sent_leave, sent_close; /* on this connection, without an answer yet */

  int64_t beat_ms; /* when the next beat is due */
  int64_t heard_ms;
  int64_t trip_us; /* of the last beat that was answered; -1: not known */

  int64_t first_round;
  bool in_round; /* we are a participant of a complete round */
  int64_t round, world_size;
};

void member_init(struct member *member, const struct member_config *config);

/* *update is not looked at. There is nothing to free, and no memory that a step could lack. */
void member_step(struct member *member, const struct member_event *event, struct member_update *update);

/* The time by which a server that is there has answered: the longest silence that is usual. */
int64_t member_usual_silence(const struct member *member);

#endif
