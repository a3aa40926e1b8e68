/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared state of the first-generation rendezvous: the JSON object that etcd has under /rdzv/active_version.
 *
 *   setup --> joinable --> frozen --> final          any --> closed, for good
 *     (5 s)     (10 s once there are enough)  (10 s)         any --> gone: expired, or a member of a final one is dead
 *
 * joinable: nodes add themselves, and their rank is the place in which they did. frozen: each confirms, with a key of
 * its own that expires. final: all have. Swaps compare the whole value as text, so the text that was read is kept;
 * members that are not known survive.
 *
 * Three members are ours, and PyTorch carries them along. Two tell a node whose swap was not answered whether it was
 * done: rdzv_setup, the nonce of the node that set it up; rdzv_joins, until it is final, the ranks by the nonces of the
 * nodes that joined. rdzv_reason is why it was closed.
 */
#ifndef RDZV_STATE_GEN1_ACTIVE_VERSION_H
#define RDZV_STATE_GEN1_ACTIVE_VERSION_H

#include "base/buf.h"
#include "state/phase.h"

#include <rdzv/error.h>
#include <stdbool.h>
#include <stdint.h>

enum {
  ACTIVE_MAX_BYTES = 8 << 20,
  ACTIVE_SETUP_TTL = 5, /* seconds, as all of these */
  ACTIVE_JOINABLE_TTL = 10,
  ACTIVE_FROZEN_TTL = 10,
  ACTIVE_KEEP_ALIVE_TTL = 10,
  ACTIVE_RUN_TTL = 7200,
};

enum active_status { ACTIVE_SETUP, ACTIVE_JOINABLE, ACTIVE_FROZEN, ACTIVE_FINAL, ACTIVE_CLOSED };

const char *active_status_name(enum active_status status);

/* What was read. */
struct active_version {
  enum active_status status;
  char version[24]; /* decimal digits; "" in setup */
  size_t participants;
  size_t keep_alives;
  int64_t waiting;
  char *text;          /* as it was read */
  struct json_t *json; /* private; jansson's */
};

/* *out is not looked at. RDZV_E_CORRUPT: the sentence says why; RDZV_E_NO_MEMORY. Then *out is empty. */
int active_read(const char *text, struct active_version *out, rdzv_error *error);
void active_free(struct active_version *active);

/* The phase as every kind of rendezvous has it, for a node that needs `min`. The last call begins with the first
 * `min` participants and ends when all have confirmed. */
enum rendezvous_phase active_phase(const struct active_version *active, int64_t min);

/* The key of one of those who confirmed. Owned by `active`. */
const char *active_keep_alive(const struct active_version *active, size_t at);

/* Why it was closed; NULL: nobody has said. Owned by `active`. */
const char *active_reason(const struct active_version *active);

/* Did the node with that nonce set it up? */
bool active_is_set_up_by(const struct active_version *active, const char *nonce);

/* The rank that the node with that nonce has taken; -1: none. */
int64_t active_rank_of(const struct active_version *active, const char *nonce);

/* New texts, to be freed; NULL: no memory. None changes `active`. */
char *active_setup(const char *nonce);
char *active_joinable(const char *version);

/* One more participant, whose rank is the number of those before; the round is frozen when it is full. */
char *active_join(const struct active_version *active, int64_t max, const char *nonce, bool *frozen);
char *active_freeze(const struct active_version *active);

/* One more who confirmed, by that key; final when all have. */
char *active_confirm(const struct active_version *active, const char *key, bool *final);
char *active_announce(const struct active_version *active); /* one more who waits */

/* Closed, for a reason that those who find it so are told; NULL: none. NULL as active: of nothing. */
char *active_close(const struct active_version *active, const char *reason);

#endif
