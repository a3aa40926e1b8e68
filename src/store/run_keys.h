/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The names of a run's keys in a store. Two are PyTorch's:
 *
 *   torch.rendezvous.ID          the state
 *   torch.rendezvous.ID.N/KEY    a key of round N
 *
 * The others are parts of rdzv, beside the state. Their word comes before the id, so no id makes one of them the key of
 * another run:
 *
 *   rdzv.WORD.ID                 as rdzv.reason.ID
 */
#ifndef RDZV_STORE_RUN_KEYS_H
#define RDZV_STORE_RUN_KEYS_H

#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_STATE_PREFIX "torch.rendezvous."

enum run_part {
  RUN_PART_STATE,
  RUN_PART_BELL,    /* counts changes of the state */
  RUN_PART_PERMIT,  /* a queue with the permit to write the state */
  RUN_PART_MOVE,    /* is set when the permit is given back */
  RUN_PART_REASON,  /* for closing */
  RUN_PART_PROGRAM, /* that uses the run without a name */
  RUN_PARTS
};

enum { RUN_KEY_PREFIX_SIZE = 24 }; /* of what is before an id, with its end */

/* What the key of that part has before the id. */
const char *run_key_prefix(enum run_part part);

/* The key, and the prefix of the keys of a round, without its slash. To be freed; NULL: no memory. */
char *run_key(const char *run_id, enum run_part part);
char *run_round_prefix(const char *run_id, int64_t round);

/* Is it what the key of a round has behind the key of the state: ".3/MASTER_ADDR"? */
bool run_key_is_round(rdzv_bytes rest);

/* The id in a key; empty: it is not of a run. An id may look like the key of a round: the first that does counts. */
rdzv_bytes run_key_id(rdzv_bytes key);

#endif
