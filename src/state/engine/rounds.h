/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rounds never go back. The state can get lost: the server was restarted, or the key was deleted. A state that starts
 * at round 0 again would use numbers a second time, with other participants, while keys of the first are in the store
 * and workers of the first are still alive. So each node knows the first round that it may take part in. When it
 * becomes a participant of an earlier round, it gives the round that number, whether the state is new or another
 * node's. A round that gathers has been given to no node yet, so its number may change; PyTorch takes any number.
 *
 * A node knows every complete round that it saw, and the one that it has entered, which other nodes may have completed
 * before the state got lost. A number that no participant knows can be used again: the nodes that knew it are gone, or
 * they are late and not in the round.
 */
#ifndef RDZV_STATE_ENGINE_ROUNDS_H
#define RDZV_STATE_ENGINE_ROUNDS_H

#include "state/rendezvous.h"

struct rounds {
  int64_t first;    /* that we may take part in */
  int64_t joined;   /* the last that was reported as joined; -1: none */
  int64_t entered;  /* that we are a participant of, as far as we know, and that gathers; -1: none */
  bool doubtful;    /* we may be: the write was not answered */
  int64_t entering; /* what `entered` will be, if the write that is under way takes effect */
  uint64_t token;   /* of the version that the write is for */
};
#define ROUNDS_NONE ((struct rounds){.joined = -1, .entered = -1, .entering = -1})

/* The state that we are about to write in the place of the version with that token. */
void rounds_write(struct rounds *rounds, const struct rendezvous_state *state, const struct node_desc *self,
                  uint64_t token);

/* It was written; it was not; or it is unknown, and it may be written yet. */
void rounds_written(struct rounds *rounds);
void rounds_not_written(struct rounds *rounds);
void rounds_maybe_written(struct rounds *rounds);

/* A state that is in the store, an empty one where there is none, and its token. */
void rounds_observe(struct rounds *rounds, const struct rendezvous_state *state, const struct node_desc *self,
                    uint64_t token);

#endif
