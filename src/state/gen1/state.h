/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared state of the first-generation rendezvous: the JSON object that etcd has under /rdzv/active_version.
 *
 *   setup --> joinable --> frozen --> final          any --> closed, for good
 *     (5 s)     (10 s once there are enough)  (10 s)         any --> gone: expired, or a participant of a final one
 * died
 *
 * joinable: nodes add themselves; the rank of a node is its place in that list. frozen: each confirms, with a key of
 * its own that expires. final: all have confirmed. Swaps compare the whole value as text, so the text that was read is
 * kept. Unknown fields survive.
 *
 * Four fields are those of rdzv, and PyTorch carries them along. Two tell a node whose swap was not answered whether it
 * was done: rdzv_setup, the nonce of the node that set it up; rdzv_joins, until it is final, the ranks by the nonces of
 * the nodes that joined. rdzv_settings has the settings that must be the same on all nodes, one entry for all nodes
 * that have the same, with the name and the rank of the last of them: {"nnodes=2:4": {"node": "host_12", "rank": 1}}.
 * rdzv_reason is why it was closed.
 */
#ifndef RDZV_STATE_GEN1_STATE_H
#define RDZV_STATE_GEN1_STATE_H

#include "base/buf.h"
#include "state/rendezvous.h"

#include <rdzv/error.h>
#include <stdbool.h>
#include <stdint.h>

enum {
  GEN1_STATE_MAX_BYTES = 8 << 20,
  GEN1_TTL_SETUP = 5, /* seconds, as all of these */
  GEN1_TTL_JOINABLE = 10,
  GEN1_TTL_FROZEN = 10,
  GEN1_TTL_KEEP_ALIVE = 10,
  GEN1_TTL_RUN = 7200,
};

enum gen1_status { GEN1_STATUS_SETUP, GEN1_STATUS_JOINABLE, GEN1_STATUS_FROZEN, GEN1_STATUS_FINAL, GEN1_STATUS_CLOSED };

const char *gen1_status_name(enum gen1_status status);

/* What was read. */
struct gen1_state {
  enum gen1_status status;
  char round[24]; /* decimal digits; "" in setup */
  size_t participants;
  size_t keep_alives;
  int64_t waiting;
  char *text;          /* as it was read */
  struct json_t *json; /* private; jansson's */
};

/* *out is not looked at. RDZV_E_CORRUPT: the sentence says why; RDZV_E_NO_MEMORY. Then *out is empty. */
int gen1_state_read(const char *text, struct gen1_state *out, rdzv_error *error);
void gen1_state_free(struct gen1_state *state);

/* The phase as every kind of rendezvous has it if a round needs `min`; 0: that is not known. The last call begins with
 * the first `min` participants and ends when all have confirmed. */
enum rendezvous_phase gen1_state_phase(const struct gen1_state *state, int64_t min);

/* The keep-alive of a node that confirmed. Owned by `state`. */
const char *gen1_state_keep_alive(const struct gen1_state *state, size_t at);

/* The reason for which it was closed; NULL: none is known. Owned by `state`. */
const char *gen1_state_reason(const struct gen1_state *state);

/* Did the node with that nonce set it up? */
bool gen1_state_is_set_up_by(const struct gen1_state *state, const char *nonce);

/* The rank that the node with that nonce has taken; -1: none. */
int64_t gen1_state_rank_of(const struct gen1_state *state, const char *nonce);

/* An entry of rdzv_settings. The texts are owned by `state`. */
struct gen1_entry {
  const char *settings, *node;
  int64_t rank;
};

/* The entries, in the order in which the first nodes with them came, up to DIFFERENCES_MOST. Malformed ones are left
 * out. */
size_t gen1_state_entries(const struct gen1_state *state, struct gen1_entry out[]);

/* The number of nodes that the first entry has. False: none is known, as where all nodes are PyTorch's. */
bool gen1_state_nnodes(const struct gen1_state *state, int64_t *min_nodes, int64_t *max_nodes);

/* New texts, to be freed; NULL: no memory. None changes `state`. */
char *gen1_state_setup(const char *nonce);
char *gen1_state_joinable(const char *round);

/* One more participant, whose rank is the number of those before; the round is frozen when it is full. */
struct gen1_joiner {
  const char *nonce;
  int64_t max_nodes;
  const char *settings, *node; /* of its entry; NULL: none */
};
char *gen1_state_join(const struct gen1_state *state, const struct gen1_joiner *joiner, bool *frozen);
char *gen1_state_freeze(const struct gen1_state *state);

/* One more who confirmed, by that key; final when all have. */
char *gen1_state_confirm(const struct gen1_state *state, const char *key, bool *final);
char *gen1_state_announce(const struct gen1_state *state); /* one more who waits */

/* Closed, for that reason; NULL: none. NULL as state: there was none. */
char *gen1_state_close(const struct gen1_state *state, const char *reason);

#endif
