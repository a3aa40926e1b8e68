/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One node of the rendezvous made for etcd v3 as a machine, as state/engine/engine.h is for the dynamic one. It reads
 * no clock, waits for nothing and knows no etcd: a step takes what happened, and says what to do next. docs/etcd-v3.md
 * has the protocol and why it is safe; record.h has the keys.
 *
 *   OUT     no place. To join: GRANT a lease, then a TXN puts our key into the round after the world's
 *   GATHER  our key is there. The node whose key is the oldest leads: it READs all keys, WATCHes them, and when the
 * rules say so (state/rendezvous.h) writes the world, in a TXN that holds only if the world is still the one that it
 *           knew and its own key is still there. The others WATCH the board, and keys that go
 *   IN      a participant of the world: WATCHes the same, and gets the news
 *
 * A world without us, or another world than we knew, means putting our key into the next round, in one TXN with the end
 * of our old one. What is unknown (no answer, changes missed) is read again. Leases are renewed here, too: before
 * anything else once their time has come, so that a node that slept learns first that its place is lost.
 *
 * One request at a time; a step that asks for anything but CONTINUE ends a WATCH or PAUSE of before.
 */
#ifndef RDZV_STATE_LEASED_MACHINE_H
#define RDZV_STATE_LEASED_MACHINE_H

#include "state/engine/engine.h"
#include "state/leased/record.h"

enum leased_event_kind {
  LEASED_EV_ASK_JOIN,   /* master_addr, master_port: where we can be reached as rank 0 */
  LEASED_EV_ASK_LEAVE,  /* also gives up a join */
  LEASED_EV_ASK_CLOSE,  /* text: the reason, or NULL */
  LEASED_EV_ASK_STOP,   /* nothing more is done: our lease lapses */
  LEASED_EV_GRANTED,    /* GRANT: lease */
  LEASED_EV_KEPT,       /* KEEP_ALIVE, REVOKE: done */
  LEASED_EV_GONE,       /* KEEP_ALIVE, TXN: there is no such lease */
  LEASED_EV_DONE,       /* TXN: its compares held; revision, count */
  LEASED_EV_REFUSED,    /* TXN: they did not; revision, and the board in kvs */
  LEASED_EV_FOUND,      /* READ: all keys of the run, revision */
  LEASED_EV_CHANGED,    /* WATCH: what changed since, in order for each of the two ranges */
  LEASED_EV_WATCH_LOST, /* WATCH: changes may be missing */
  LEASED_EV_TIMER,      /* WATCH, PAUSE: the time is over */
  LEASED_EV_ERROR,      /* the request failed, or its outcome is unknown */
};

/* Keys are those below the run. Of a deleted key, `value` and `create` are those of before; NULL and 0: unknown. */
struct leased_kv {
  const char *key, *value;
  int64_t create, mod, lease;
  bool deleted;
};

struct leased_event {
  enum leased_event_kind kind;
  struct moment now;
  const char *text, *master_addr;
  int64_t master_port;
  int64_t lease, revision, count;
  const struct leased_kv *kvs;
  size_t kv_count;
  const rdzv_error *error;
};

enum leased_request {
  LEASED_DO_IDLE,
  LEASED_DO_CONTINUE,
  LEASED_DO_GRANT,      /* a lease of `ttl_ms` */
  LEASED_DO_KEEP_ALIVE, /* `lease` */
  LEASED_DO_REVOKE,     /* `lease` */
  LEASED_DO_TXN,        /* `txn` */
  LEASED_DO_READ,       /* all keys of the run */
  LEASED_DO_WATCH,      /* `watch`, until until_ms */
  LEASED_DO_PAUSE,      /* until until_ms */
};

/* "The revision that created, or last changed, `key` is `number`"; 0: the key does not exist. */
struct leased_compare {
  const char *key;
  bool mod;
  int64_t number;
};

struct leased_put {
  const char *key, *value;
  int64_t lease;
};

/* If all compares hold: counts the keys below `counted` (NULL: none), gives one of them, then puts and deletes. Else
 * reads the board. Once it is done, its compares never hold again. */
struct leased_txn {
  struct leased_compare compares[4];
  size_t compare_count;
  const char *counted;
  struct leased_put puts[2];
  size_t put_count;
  const char *deletes[2];
  size_t delete_count;
};

/* What is watched. A watch of another `id` is another watch, from those revisions on. */
struct leased_watch {
  uint64_t id;
  bool all; /* all keys of the run, from `nodes_from`; else the board, and those keys of nodes that go */
  int64_t board_from, nodes_from;
};

struct leased_update {
  enum leased_request request;
  int64_t ttl_ms, lease, until_ms;
  struct leased_txn txn; /* its texts are the machine's, until the next step */
  struct leased_watch watch;
  unsigned news;                    /* enum engine_news */
  int64_t rank, world_size, round;  /* JOINED; `round` of a participant's news, too */
  const struct leased_world *world; /* JOINED */
  enum leased_event_kind failed;    /* LEASED_EV_ASK_… */
  rdzv_error error;
  struct summary warning;
};

/* Keys of nodes, as the one that leads knows them. */
struct leased_seat {
  int64_t round, lease, create;
  bool differs; /* it has other settings than ours; and can never be in one round with us: */
  bool clashes;
  struct leased_node node;
};

struct leased_config {
  struct node_desc node; /* the address must outlive the machine */
  struct rendezvous_settings settings;
  int64_t lease_ms; /* of a node */
  uint64_t seed;
};

enum {
  LEASED_RUN_MS = 60000,      /* the lease of the world: renewed by all nodes, now and then */
  LEASED_CLOSED_MS = 3600000, /* of `closed`: it is never renewed */
};

enum leased_phase { LEASED_OUT, LEASED_GATHER, LEASED_IN };

/* Why a request is under way. */
enum leased_step {
  LEASED_STEP_NONE,
  LEASED_STEP_LEASE,
  LEASED_STEP_RUN_LEASE,
  LEASED_STEP_CLOSED_LEASE,
  LEASED_STEP_KEEP,
  LEASED_STEP_KEEP_RUN,
  LEASED_STEP_JOIN,
  LEASED_STEP_WANT,
  LEASED_STEP_COMPLETE,
  LEASED_STEP_MARK,
  LEASED_STEP_CLOSE,
  LEASED_STEP_REVOKE,
  LEASED_STEP_READ,
  LEASED_STEP_WATCH,
  LEASED_STEP_PAUSE,
};

/* All private. */
struct leased {
  struct leased_config config;
  struct pace pace;
  uint64_t steps;
  struct moment now; /* of the step */

  enum engine_wish wish; /* NOTHING, JOIN, LEAVE */
  int64_t deadline;
  bool answered; /* the wish is answered already: the node only has to go */
  bool closing;
  int64_t close_deadline;
  char *reason; /* to close for */

  enum leased_step under_way;
  int64_t compared; /* the world that the transaction under way is about */
  int64_t sent_ms, back_off_ms;
  rdzv_error trouble; /* code 0: the last request was answered */

  int64_t lease;   /* ours; 0: none */
  int64_t dropped; /* one that was ours, to be revoked; 0: none */
  int64_t kept_ms; /* when it was asked for, or its renewal that was answered last */
  int64_t run_lease, run_kept_ms, closed_lease;
  struct leased_node self;

  enum leased_phase phase;
  bool placed; /* we have a key, in round `at`, made at revision `born`; phase IN or GATHER */
  int64_t at, born;
  bool marked;   /* that key says that we leave */
  int64_t first; /* we take part in no round before that */

  /* The board, as of `board_seen`. */
  int64_t world_mod; /* 0: there is no world */
  struct leased_world world;
  bool closed, want;
  char *closed_reason;
  int64_t board_seen;

  /* Keys of nodes, as of `nodes_seen`. */
  bool synced; /* no change is missed */
  int64_t nodes_seen;
  int64_t older; /* keys in our round that are older than ours */
  bool leads;    /* all keys are known, in `seats` */
  struct leased_seat *seats;
  size_t seat_count, seat_cap;
  int64_t call_ends; /* of the last call; INT64_MAX: there is none */
  int64_t *gone;     /* leases of keys of our round that went */
  size_t gone_count, gone_cap;
  uint64_t watch_id;
  bool watches, watches_all; /* that watch goes on */
  bool spare;
  int64_t told_want; /* the revision of the last want that we told of */

  struct differences differences; /* that we have warned of */
  int64_t clash_lease;            /* of a node before us that can never be in one round with us; 0: none */
  int64_t clash_ms;               /* then it is not dead */
  bool clash_known;               /* and that is so, */
  bool been_in_round;             /* ever: then another node is the later one */
  struct summary clash;           /* with this difference */

  struct leased_key own_key, old_key, prefix; /* texts of the transaction under way */
  char *value, *world_text;
};

void leased_init(struct leased *node, const struct leased_config *config);
void leased_free(struct leased *node);

/* *update is not looked at. RDZV_E_NO_MEMORY, RDZV_E_CORRUPT: nothing is under way then; a later timer event reads
 * again.
 */
int leased_step(struct leased *node, const struct leased_event *event, struct leased_update *update, rdzv_error *error);

/* Participants that `update`, of the last step, tells to have left or died: the first is after NULL. NULL: the end. */
const struct leased_member *leased_gone(const struct leased *node, const struct leased_member *after);

/* What a node that joins waits for: "waiting for nodes: …" */
struct summary leased_waiting(const struct leased *node);

/* ---- private: request.c ---- */

/* A request is under way, for that reason. */
int leased_do(struct leased *node, enum leased_step step, enum leased_request request, struct leased_update *update);
int leased_do_grant(struct leased *node, enum leased_step step, int64_t ttl_ms, struct leased_update *update);
int leased_do_keep(struct leased *node, enum leased_step step, int64_t lease, struct leased_update *update);
int leased_do_watch(struct leased *node, int64_t until_ms, struct leased_update *update);
/* Puts our key into the next round, out of the one where it is; what is so then. */
int leased_do_join(struct leased *node, struct leased_update *update, rdzv_error *error);
int leased_joined_key(struct leased *node, const struct leased_event *event, rdzv_error *error);
/* Tells participants that we wait. */
int leased_do_announce(struct leased *node, struct leased_update *update, rdzv_error *error);
/* Says in our key that we leave. */
int leased_do_mark(struct leased *node, struct leased_update *update, rdzv_error *error);
/* Writes the world, which is ours then. */
int leased_do_complete(struct leased *node, const struct leased_world *world, struct leased_update *update,
                       rdzv_error *error);
int leased_completed(struct leased *node, const struct leased_event *event, rdzv_error *error);
/* The round that we gather in, or are to. */
int64_t leased_next_round(const struct leased *node);
/* Is there need to? */
bool leased_must_want(const struct leased *node);
bool leased_must_mark(const struct leased *node);
int leased_do_close(struct leased *node, struct leased_update *update, rdzv_error *error);

/* ---- private: lead.c, what the oldest node does ---- */

/* Brings the keys of nodes up to date with one that is there, or went. RDZV_E_NO_MEMORY. A key that cannot be read is
 * ignored. */
int leased_seat_put(struct leased *node, int64_t round, int64_t lease, const struct leased_kv *kv, rdzv_error *error);
void leased_seat_remove(struct leased *node, int64_t round, int64_t lease);
void leased_seats_clear(struct leased *node);

/* Is the round to be completed now? Then *world is what to write, to be freed. Else *until is when to look again, if no
 * key changes. */
int leased_lead(struct leased *node, bool *complete, struct leased_world *world, int64_t *until, rdzv_error *error);

/* ---- private: differ.c, nodes with other settings ---- */

/* Meets the node of a key that was there before ours; all nodes that the one that leads knows. */
int leased_meet(struct leased *node, const struct leased_kv *kv, struct leased_update *update, rdzv_error *error);
void leased_meet_seats(struct leased *node, struct leased_update *update);

/* All keys are known: is the oldest node the one with which we clash? */
void leased_check_clash(struct leased *node, const struct leased_event *event);

/* ---- private: read.c, what a machine learns ---- */

/* The board as it was read at that revision. */
int leased_take_board(struct leased *node, const struct leased_kv *kvs, size_t count, int64_t revision,
                      rdzv_error *error);
/* All keys of the run. */
int leased_take_all(struct leased *node, const struct leased_event *event, struct leased_update *update,
                    rdzv_error *error);
int leased_take_changes(struct leased *node, const struct leased_event *event, struct leased_update *update,
                        rdzv_error *error);

/* Our key is gone, with or without our lease. */
void leased_lose_place(struct leased *node, struct leased_update *update);
bool leased_is_gone(const struct leased *node, int64_t lease);

#endif
