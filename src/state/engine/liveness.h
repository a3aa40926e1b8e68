/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which nodes are dead. PyTorch compares the wall clocks of other nodes with its own, so a wrong clock evicts the
 * living. Here a node is dead when its heartbeat has not *changed* for keep_alive_interval × keep_alive_max_attempt
 * (the dead time) by our own monotonic clock, counted from when we saw it change last, or first saw it, whatever its
 * value is. A PyTorch node, which beats every 5 s whatever the options are, has a dead time of 15 s at least.
 *
 * Time in which we did not look does not count: of the time between two looks at the state at most two fifths of the
 * dead time are credited. So if we were stopped, or the store was away, the other nodes get the chance to show that
 * they live before we judge them. A node that looks at least every liveness_look_interval(), a third of the dead time,
 * loses nothing.
 *
 * One exception lets a node that has just arrived find the dead as quickly as the others do. For nodes that were there
 * at our very first look and have not changed since, the timestamp is believed where there is a clock to compare it
 * with: a later heartbeat of the same host (by addr), or our own clock if the host is ours. A node that is behind that
 * by more than the dead time is dead at once. When our own clock jumps, no timestamp is believed from then on. This can
 * be fooled by a host whose clock jumped within the last keep-alive interval before our first look, and by two hosts
 * with one name.
 */
#ifndef RDZV_STATE_ENGINE_LIVENESS_H
#define RDZV_STATE_ENGINE_LIVENESS_H

#include "state/rendezvous.h"

struct observed_node {
  struct node_desc desc; /* the address is our own copy */
  int64_t heartbeat;
  int64_t changed;  /* on the clock of `looked` */
  bool ours;        /* a node of this library: state_node.ours */
  bool at_first;    /* was there at our first look, and has not changed since */
  bool long_silent; /* by its host's own clock */
  bool kept;        /* private */
};

/* What one node has seen of the others' heartbeats. All zero: nothing yet. */
struct liveness {
  struct observed_node *nodes; /* in node order: those of the last look */
  size_t count;
  bool started;
  int64_t looked;     /* milliseconds that were credited up to the last look */
  struct moment last; /* the moment of the last look */
};

void liveness_free(struct liveness *liveness);

/* Takes a look at a state that was as it is at that moment. RDZV_E_NO_MEMORY: it is as if we had not looked. */
int liveness_observe(struct liveness *liveness, const struct rendezvous_settings *settings,
                     const struct node_desc *self, const struct rendezvous_state *state, struct moment now,
                     rdzv_error *error);

/* For how long a node's heartbeat has not changed, in milliseconds as above; -1: the last look did not see the node. */
int64_t liveness_age(const struct liveness *liveness, const struct rendezvous_settings *settings,
                     const struct node_desc *node, int64_t now_ms);

/* Had it been silent for most of its dead time? Then a node that is gone from the state was evicted, else it left. */
bool liveness_was_silent(const struct liveness *liveness, const struct rendezvous_settings *settings,
                         const struct node_desc *node, int64_t now_ms);

/* Have we seen that heartbeat change? Else it may be older than we know. */
bool liveness_saw_change(const struct liveness *liveness, const struct node_desc *node);

/* When to look again at the latest, on the monotonic clock: a node may be dead then. INT64_MAX: we are the only node.
 */
int64_t liveness_wake(const struct liveness *liveness, const struct rendezvous_settings *settings,
                      const struct node_desc *self);

/* Removes the dead, but never ourselves, from the state of the last look. Gives their number. */
size_t liveness_sanitize(const struct liveness *liveness, const struct rendezvous_settings *settings,
                         const struct node_desc *self, struct rendezvous_state *state, int64_t now_ms);

static inline int64_t liveness_look_interval(const struct rendezvous_settings *settings) {
  return rendezvous_dead_time(settings) / 3;
}

/* ---- the store ---- */

/*
 * For how long the store has not answered. A node whose store was silent for the dead time is dead to the others, and
 * gives up.
 *
 * As above, time in which we did not look does not count: of the time between two looks at most a
 * third of the dead time is credited. A process that was stopped, or a machine that was suspended, finds at most
 * that much silence when it goes on, and the store has the rest of the dead time to answer. Look at least every
 * silence_look_interval(), and nothing is lost.
 */
/* All zero: the store has answered just now, at time 0. */
struct silence {
  int64_t lasted_ms; /* credited up to the last look */
  int64_t looked_ms; /* the last look, on the monotonic clock */
};

/* The store has answered, or was not asked anything before: silence begins again. */
void silence_end(struct silence *silence, int64_t now_ms);

/* Looks, and gives how long it has lasted. */
int64_t silence_look(struct silence *silence, const struct rendezvous_settings *settings, int64_t now_ms);

static inline int64_t silence_look_interval(const struct rendezvous_settings *settings) {
  return 1 + rendezvous_dead_time(settings) / 3;
}

/* When to look again, on the monotonic clock: the silence may have lasted for the dead time then. Always later than the
 * last look. */
int64_t silence_wake(const struct silence *silence, const struct rendezvous_settings *settings);

#endif
