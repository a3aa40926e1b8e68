/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of a store: keys, values, versions, queues, and who waits for what. Pure: no locks, no clock, no I/O; the
 * hash store, the file store and the server put those around it. The semantics are PyTorch's, see rdzv/store.h.
 *
 * Every operation costs what its own keys and waiters cost, never what all keys or all waiters do.
 */
#ifndef RDZV_STORE_KEYSPACE_KEYSPACE_H
#define RDZV_STORE_KEYSPACE_KEYSPACE_H

#include "base/blob.h"
#include "base/budget.h"
#include "base/siphash.h"

#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stdint.h>

struct keyspace;
struct ks_link;
struct entry;

enum ks_change { KS_UPDATED = 0, KS_CREATED = 1, KS_DELETED = 2 }; /* the numbers are those of V1's WATCH_KEY */

/*
 * Somebody who waits, part of the owner's own struct. All zero: waits for nothing. One waiter has one wait at a time:
 *   ks_wait          until each of some keys has been there, or has had a value, or its queue an item
 *   ks_wait_change   until the next change of a key
 *   ks_wait_barrier  until the next write of a key, or its barrier is full
 *   ks_watch         for every change of a key, until ks_cancel
 */
struct ks_waiter {
  struct ks_link *links; /* one for each key it is listed under */
  size_t links_count;
  size_t listed;  /* of links, those in use */
  size_t missing; /* keys that have not been there yet */
  bool watching;  /* ks_watch */
};

/* A change of a key, as a watcher is told of it. The blobs are the keyspace's; NULL: no value. */
struct ks_news {
  enum ks_change change;
  rdzv_bytes key;
  struct blob *before, *after;
};

/* Called in the middle of an operation or by ks_settle, with the keyspace already changed. They may read it but not
 * change it. */
struct ks_events {
  void (*wake)(void *user, struct ks_waiter *waiter); /* its wait is over; it waits for nothing now */
  void (*changed)(void *user, struct ks_waiter *waiter, const struct ks_news *news); /* NULL: some could not be kept */
};

/* NULL: no memory. budget must outlive it. */
struct keyspace *ks_new(struct budget *budget, const struct ks_events *events, void *user);

/* Makes the places of keys in its table unpredictable, where keys come from strangers. Before the first key. */
void ks_seed(struct keyspace *ks, struct siphash_seed seed);

/* From here on the operations only note who is to be woken and told, which costs the same for a million of them as for
 * one; ks_settle does it. A queue's item still wakes its one waiter at once. */
void ks_defer(struct keyspace *ks);

/* Wakes waiters and tells watchers, at most `most` of them, and returns how many. Alternates between their keys. */
size_t ks_settle(struct keyspace *ks, size_t most);
bool ks_is_busy(const struct keyspace *ks);

/* Frees it; waiters still listed are forgotten without a call. NULL is fine. */
void ks_free(struct keyspace *ks);

/* The operations that change something return 0, RDZV_E_NO_MEMORY or RDZV_E_LIMIT (budget) and, where said,
 * RDZV_E_NOT_A_NUMBER; on an error nothing is changed. Bytes that are given out are valid until the next change. */
int ks_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value);

/* Sets all or none. */
int ks_multi_set(struct keyspace *ks, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count);

/* The same in steps: all that can fail and takes long is done by ks_stage, a pair each; ks_commit sets them all at
 * once; ks_unstage is called for each afterwards, or instead. */
struct ks_stage {
  struct entry *entry;
  struct blob *value;
};
int ks_stage(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value, struct ks_stage *out);
void ks_commit(struct keyspace *ks, struct ks_stage *stages, size_t count);
void ks_unstage(struct keyspace *ks, struct ks_stage *stage);

int ks_append(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value);
int ks_add(struct keyspace *ks, rdzv_bytes key, int64_t delta, int64_t *sum); /* RDZV_E_NOT_A_NUMBER */

/* *now is the value that then holds, or `expected` itself where the key is absent and stays so. */
int ks_compare_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_bytes *now);

/* Sets it if its version is `expected`; *swapped tells. */
int ks_compare_set_version(struct keyspace *ks, rdzv_bytes key, uint64_t expected, rdzv_bytes value, bool *swapped);
bool ks_delete(struct keyspace *ks, rdzv_bytes key);

/* Value and version; version 0: absent. */
uint64_t ks_get(const struct keyspace *ks, rdzv_bytes key, rdzv_bytes *value);

/* The value of a key that has one, for the caller to hold. It is not written to as long as the caller does. */
struct blob *ks_share(const struct keyspace *ks, rdzv_bytes key);

/* There, as a key or as a queue that is not empty. */
bool ks_present(const struct keyspace *ks, rdzv_bytes key);
size_t ks_count(const struct keyspace *ks);

/* The bytes of all keys, 8 for each added; a number that changes when a key comes or goes. */
size_t ks_keys_bytes(const struct keyspace *ks);
uint64_t ks_keys_version(const struct keyspace *ks);

/* Goes through the keys in the order in which they came: NULL gives the first, a key the next one; *key is what was
 * found. */
const void *ks_next(const struct keyspace *ks, const void *at, rdzv_bytes *key);

/* Goes through the keys that are there at the start, while keys come and go. A key that is deleted before the walk
 * reaches it is left out. There is one walk at a time: a start ends the one before. */
void ks_walk_start(struct keyspace *ks);
bool ks_walk(struct keyspace *ks, rdzv_bytes *key);

/* Copies of all keys, to be freed with rdzv_values_free(*out, *count). RDZV_E_NO_MEMORY. */
int ks_copy_keys(const struct keyspace *ks, rdzv_value **out, size_t *count);

int ks_queue_push(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value);
size_t ks_queue_len(const struct keyspace *ks, rdzv_bytes key);

/* The oldest value of a queue that is not empty; ks_queue_drop takes it off. */
rdzv_bytes ks_queue_front(const struct keyspace *ks, rdzv_bytes key);
void ks_queue_drop(struct keyspace *ks, rdzv_bytes key);

/* Wakes who is next, where somebody who was woken for an item of this queue left without taking it. */
void ks_queue_pass_on(struct keyspace *ks, rdzv_bytes key);

/* Adds 1 to the key's number; *full tells whether it has reached `size`, and then wakes who waits for the key. */
int ks_barrier(struct keyspace *ks, rdzv_bytes key, int64_t size, bool *full); /* RDZV_E_NOT_A_NUMBER */

/* What a wait wants of a key. A push to a queue wakes one waiter, the oldest: of those that want the queue if there
 * are any, else of those that want the key to be there. */
enum ks_want { KS_WANT_PRESENT, KS_WANT_VALUE, KS_WANT_QUEUE };

/* Lists the waiter under those keys that are not yet as it wants them. waiter->missing is 0 if there are none: then it
 * does not wait. */
int ks_wait(struct keyspace *ks, struct ks_waiter *waiter, enum ks_want want, const rdzv_bytes *keys, size_t count);

/* The same in steps, key by key; it is not woken before the last one. ks_wait_close gives whether it waits. */
int ks_wait_open(struct keyspace *ks, struct ks_waiter *waiter, size_t count);
int ks_wait_add(struct keyspace *ks, struct ks_waiter *waiter, enum ks_want want, rdzv_bytes key);
bool ks_wait_close(struct keyspace *ks, struct ks_waiter *waiter);

int ks_wait_change(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key);
int ks_wait_barrier(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key);
int ks_watch(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key);

/* Ends whatever it waits for, without a call. */
void ks_cancel(struct keyspace *ks, struct ks_waiter *waiter);

/* The same in steps of at most so many keys; gives how many it were. It is over when links is NULL. */
size_t ks_cancel_some(struct keyspace *ks, struct ks_waiter *waiter, size_t most);

/* A number in decimal text, read as ks_add reads it; `text` ends with a zero byte behind its len. */
int ks_parse_number(rdzv_bytes text, int64_t *number);

#endif
