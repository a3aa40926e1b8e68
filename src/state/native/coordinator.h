/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All rendezvous of a server that have native nodes, as one machine: coordinator_step(event with its moment) gives
 * effects. It reads no clock and knows no socket; the server (server/native.h), the simulator and the explorer
 * (tests/sim, tests/explore) drive it.
 *
 * For each run it keeps the state that PyTorch nodes share (state/state.h), and acts on it for every native node as the
 * engine of a swap node does, by the same rules: decide_*, rendezvous_apply, ranks, last call, liveness, rounds. What N
 * native nodes do to a round costs O(N log N) in all: a join is decided once when it arrives, and again when the round
 * is complete, closed or over, when a place is free, or when a deadline passes.
 *
 * The blob. PyTorch nodes read and swap the state as one value. coordinator_write_blob makes it when it is read;
 * a swap by a PyTorch node comes back as COORDINATOR_EV_SWAPPED. Heartbeats of native nodes are set when the blob is
 * made, and renewed in it at most every half keep_alive_interval, so that the value stays the same for a node that
 * swaps (PyTorch's token is the value).
 *
 * Dead is a native node whose session has been without a connection for its grace, or silent for
 * NATIVE_SILENT_INTERVALS keep-alive intervals; any other node, if its heartbeat has not changed for the dead time
 * (state/engine/liveness.h). Time in which the server did not run does not count: between two steps at most
 * COORDINATOR_MOST_CREDIT_MS are credited, so a pause of the server kills no node.
 *
 * A session begins with its first JOIN, and ends when its node leaves, when a join fails, or with death. Then the node
 * is in no list of the state. A join with the name of another session is refused with RDZV_E_IN_USE, one with a number
 * that is over with RDZV_E_STALE; a connection whose epoch is not higher than the last is dropped without an answer.
 * A node that reconnects gets what it has missed: first the answer to its join, then news. What was sent on the old
 * connection may not have arrived, so the news of its round is sent again.
 *
 * The first news of a round comes at once; more of it waits until a time has passed that grows with the number of
 * nodes, up to 250 ms, and comes together.
 *
 * A run lives while it has a native node. With the last one it goes: what it was is left in the blob
 * (COORDINATOR_DO_SAVE), which is then a plain key again.
 */
#ifndef RDZV_STATE_NATIVE_COORDINATOR_H
#define RDZV_STATE_NATIVE_COORDINATOR_H

#include "base/buf.h"
#include "state/native/native.h"

enum { COORDINATOR_MOST_CREDIT_MS = 200 };

struct coordinator;
struct coordinator_run;

enum coordinator_event_kind {
  COORDINATOR_EV_JOIN,    /* link, join */
  COORDINATOR_EV_RESUME,  /* link, run_id, session: a new connection of the session, without anything asked */
  COORDINATOR_EV_LEAVE,   /* link: its node leaves, without closing */
  COORDINATOR_EV_CLOSE,   /* run_id: the rendezvous is closed for all. The run need not have native nodes */
  COORDINATOR_EV_HEARD,   /* link, trip_us: a keep-alive */
  COORDINATOR_EV_LOST,    /* link: that connection is gone */
  COORDINATOR_EV_SWAPPED, /* run_id, state, layout: a node has written the blob; NULL: it was deleted */
  COORDINATOR_EV_TIMER,   /* the time of coordinator_wake has come */
};

struct coordinator_event {
  enum coordinator_event_kind kind;
  struct moment now;
  void *link; /* the connection: the caller's name for it, not looked into; never NULL */
  const char *run_id;
  const struct native_join *join;
  const struct native_session *session;
  int64_t trip_us;                /* round-trip time of the last keep-alive; -1: not known */
  struct rendezvous_state *state; /* SWAPPED: taken over, STATE_EMPTY is left there */
  enum torch_layout layout;
};

enum coordinator_effect_kind {
  COORDINATOR_DO_JOINED,  /* answer the join: joined */
  COORDINATOR_DO_RESUMED, /* answer the RESUME: the session goes on, with the number of its last join: number */
  COORDINATOR_DO_LEFT,    /* answer the LEAVE */
  COORDINATOR_DO_CLOSED,  /* answer the CLOSE */
  COORDINATOR_DO_FAIL,    /* answer what was asked (asked: EV_JOIN, EV_RESUME, EV_LEAVE, EV_CLOSE; number): error */
  COORDINATOR_DO_TELL,    /* news */
  COORDINATOR_DO_DROP,    /* close that connection: the session has moved to another one, or is over */
  COORDINATOR_DO_CHANGED, /* the state of the run has changed: wake the clients that wait for a change of the blob */
  COORDINATOR_DO_SAVE,    /* the run is about to go: write its blob, if it was ever read or if it is closed or has
                             nodes */
};

/* Valid during the call. */
struct coordinator_effect {
  enum coordinator_effect_kind kind;
  void *link;                  /* NULL for CHANGED and SAVE */
  struct coordinator_run *run; /* NULL where there is none */
  uint64_t number;             /* RESUMED; FAIL: of the join, the epoch of a RESUME, else 0 */
  const struct native_joined *joined;
  const struct native_news *news;
  enum coordinator_event_kind asked;
  const rdzv_error *error;
};

/* Must not call the coordinator, except coordinator_run_*, coordinator_write_blob (in SAVE and CHANGED). */
typedef void coordinator_carry_out(void *user, const struct coordinator_effect *effect);

/* NULL: no memory. `trace` may be NULL: a line for each decision. */
struct coordinator *coordinator_new(coordinator_carry_out *carry_out, void *user,
                                    void (*trace)(void *user, const char *line));
void coordinator_free(struct coordinator *coordinator);

/* RDZV_E_NO_MEMORY: the event had no effect; a DO_FAIL answers the asker if it has a link. Where an event took effect
 * and there is no memory for what follows from it, that comes with a later timer. */
int coordinator_step(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error);

/* When a TIMER event is due, on the monotonic clock of the moments; INT64_MAX: never. While there are sessions it is
 * never further away than COORDINATOR_MOST_CREDIT_MS, or the credit would be lost. */
int64_t coordinator_wake(const struct coordinator *coordinator);

/* How many runs and native nodes there are. */
size_t coordinator_runs(const struct coordinator *coordinator);
size_t coordinator_nodes(const struct coordinator *coordinator);

/* The bytes that the coordinator holds, about, for the budget of the server. */
size_t coordinator_bytes(const struct coordinator *coordinator);

/* ---- a run ---- */

/* NULL: it has no native nodes. */
struct coordinator_run *coordinator_find(const struct coordinator *coordinator, const char *run_id, size_t len);
const char *coordinator_run_id(const struct coordinator_run *run);

/* The caller's, for what it keeps of a run; NULL at first. */
void **coordinator_run_user(struct coordinator_run *run);

/* May a node that swaps write that state? RDZV_E_CORRUPT: no rule leads to its round, or the round is so far beyond
 * ours that no node can have been there. */
int coordinator_check_swap(const struct coordinator_run *run, const struct rendezvous_state *state, rdzv_error *error);

/* The run begins with the state of a blob that was there before: the first JOIN of a run asks for it with this, before
 * the event. Else it begins with STATE_EMPTY. Taken over as in SWAPPED. RDZV_E_NO_MEMORY,
 * RDZV_E_CORRUPT. */
int coordinator_adopt(struct coordinator *coordinator, const char *run_id, struct rendezvous_state *state,
                      enum torch_layout layout, struct moment now, rdzv_error *error);

/* Is the blob that was written last still the state? Else it has to be written again. */
bool coordinator_blob_is_fresh(const struct coordinator_run *run, struct moment now);

/* Appends the pickle of the state, in the layout of the run, with fresh heartbeats of the native nodes. */
int coordinator_write_blob(struct coordinator_run *run, struct moment now, struct buf *out, rdzv_error *error);

/* What the run is at this moment, for queries. */
const struct rendezvous_state *coordinator_run_state(const struct coordinator_run *run);
enum torch_layout coordinator_run_layout(const struct coordinator_run *run);

/* Time left of the last call; -1: there is none. */
int64_t coordinator_run_call_left(const struct coordinator_run *run, struct moment now);

/* Of a node of that state. */
struct coordinator_sight {
  enum native_way way;
  int64_t heard_ms; /* ago */
  int64_t trip_us;  /* -1: not known */
};
struct coordinator_sight coordinator_see(const struct coordinator_run *run, const struct state_node *node,
                                         struct moment now);

/* The participants of the round that was completed last, with their ranks, also those that have left since. NULL: no
 * round was completed here with that number. */
const struct rendezvous_state *coordinator_world(const struct coordinator_run *run, int64_t round);

#endif
