/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What has changed in a keyspace, for a server that keeps it (keep/keep.h). A keyspace that tracks changes lists the
 * entries that have changed; ks_collect puts them, as they are then, into a batch. So a key that was written a hundred
 * times since the last collection is one record. An entry that is gone stays until its end is collected, too.
 */
#ifndef RDZV_STORE_KEYSPACE_CHANGES_H
#define RDZV_STORE_KEYSPACE_CHANGES_H

#include "keep/record.h"
#include "store/keyspace/keyspace.h"

/* Before the first key. */
void ks_track(struct keyspace *ks);

/* Has anything changed since the last collection? */
bool ks_has_changed(const struct keyspace *ks);

/* Puts all changes into the batch. If the batch can be sealed, ks_collected must follow, before the keyspace changes;
 * else nothing was collected. */
void ks_collect(struct keyspace *ks, struct batch *batch);
void ks_collected(struct keyspace *ks, uint64_t number); /* of the batch */

/* The number of the batch that a key, which is there, is in as it is now; UINT64_MAX: in none yet, or the key is
 * absent. */
uint64_t ks_batch_of(struct keyspace *ks, rdzv_bytes key);

/* The last version given out; a keyspace that is loaded goes on from there. */
uint64_t ks_version(const struct keyspace *ks);
void ks_set_version(struct keyspace *ks, uint64_t version);

/* Load a key, with ascending ids, and then items of queues, with ascending numbers for each. RDZV_E_CORRUPT: there is
 * such a key already, or no key of that id; RDZV_E_LIMIT, RDZV_E_NO_MEMORY. */
struct ks_loading {
  struct entry **entries; /* in the order of their ids */
  size_t count, cap;
};
int ks_load_key(struct keyspace *ks, struct ks_loading *loading, uint64_t id, const struct record_key *key,
                rdzv_bytes value, struct record_slot slot);
int ks_load_item(struct keyspace *ks, const struct ks_loading *loading, uint64_t id, uint64_t number, rdzv_bytes value,
                 struct record_slot slot);

/* All has come. RDZV_E_CORRUPT: a key has neither a value nor a queue. */
int ks_load_end(struct ks_loading *loading);
void ks_load_free(struct ks_loading *loading);

#endif
