/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast to go when many nodes want to write the one cell. Every change of the rendezvous is one swap of the whole
 * state, and of several swaps at once one wins. A node that lost waits for a random time out of a window, so that there
 * is about one try in the time that a swap takes, and reads again before its next try. The window quadruples with each
 * loss in a row, up to one round trip for each node that may be trying, and is reset by a win. Where many nodes may
 * join, they do not all begin at once.
 */
#ifndef RDZV_STATE_ENGINE_PACE_H
#define RDZV_STATE_ENGINE_PACE_H

#include "state/rendezvous.h"

struct pace {
  uint64_t random; /* the seed, then the state of a generator */
  int64_t trip_ms; /* a request and its answer, on average; at least 1 */
  unsigned losses; /* swaps, in a row */
  unsigned errors; /* of the store, in a row */
};

uint64_t pace_random(struct pace *pace);

/* A random time from 0 to below `window_ms`. */
int64_t pace_jitter(struct pace *pace, int64_t window_ms);

/* A request took so long. */
void pace_measure(struct pace *pace, int64_t took_ms);

/* How long to wait before a join begins. */
int64_t pace_before_join(struct pace *pace, const struct rendezvous_settings *settings);

/* How long to wait after a swap was lost to that state. A node with a heartbeat to renew goes before nodes without. */
int64_t pace_after_loss(struct pace *pace, const struct rendezvous_settings *settings,
                        const struct rendezvous_state *state, bool has_heartbeat);

/* How long to wait for the permit to write, where the backend has one, before we write without. A node that has no
 * heartbeat to renew waits longer, so that it does not make those lose that have. */
int64_t pace_permit(const struct rendezvous_settings *settings, bool has_heartbeat);

/* How long to wait after the store failed. */
int64_t pace_after_error(struct pace *pace);

/* How often to renew our heartbeat. Each is a swap of the whole state, so that the work of n nodes grows with n * n: a
 * large crowd beats less often, as far as the dead time leaves room. */
int64_t pace_keep_alive(const struct rendezvous_settings *settings, const struct rendezvous_state *state);

/* How long not to listen for changes. Each heartbeat of n nodes is a change, and telling all n nodes of each would cost
 * n * n. A node that gathers listens soon; where nodes race for swaps (swap_ms > 0), when all missing nodes can have
 * had theirs. */
int64_t pace_rest(const struct rendezvous_settings *settings, const struct rendezvous_state *state, int64_t swap_ms);

#endif
