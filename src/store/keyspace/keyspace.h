/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of a store: keys, values, versions, queues, and the waiters of keys. Pure: no locks, no clock, no I/O; the
 * hash store, the file store and the server add those. The semantics are PyTorch's, see rdzv/store.h.
 *
 * The cost of an operation depends on its own keys and their waiters only, never on the number of all keys or waiters.
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

enum ks_change {
  KS_CHANGE_UPDATED = 0,
  KS_CHANGE_CREATED = 1,
  KS_CHANGE_DELETED = 2
}; /* the numbers are those of V1's WATCH_KEY */

/*
 * A waiter, embedded in a struct of its owner. All zero: it does not wait. A waiter has one wait at a time:
 *   ks_wait          until each of some keys has been there, or has had a value, or its queue an item
 *   ks_wait_change   until the next change of a key
 *   ks_wait_barrier  until the next write of a key, or until its barrier is full
 *   ks_watch         for each change of a key, until ks_cancel
 */
struct ks_waiter {
  struct ks_link *links; /* one for each key that it waits for */
  size_t links_count;
  size_t listed;  /* of links, those in use */
  size_t missing; /* keys that have not been there yet */
  bool watching;  /* ks_watch */
};

/* A change of a key, for a watcher. The keyspace owns the blobs; NULL: no value. */
struct ks_news {
  enum ks_change change;
  rdzv_bytes key;
  struct blob *before, *after;
};

/* Keys that belong together, with a budget of their own; embedded in a struct of its maker, which outlives its keys and
 * values: it may be freed when `first` is NULL and nothing is used of the budget. */
struct ks_owner {
  struct budget budget; /* its parent is the budget of the keyspace */
  struct entry *first;  /* its entries */
};

/* Called during an operation or by ks_settle, after the keyspace has changed. They may read the keyspace, but not
 * change it. */
struct ks_events {
  void (*wake)(void *user, struct ks_waiter *waiter);                                /* its wait has ended */
  void (*changed)(void *user, struct ks_waiter *waiter, const struct ks_news *news); /* NULL: changes were lost */

  /* The owner of a key that is new; NULL: none. False: there must be no such key (RDZV_E_LIMIT). May be NULL. */
  bool (*owner)(void *user, rdzv_bytes key, struct ks_owner **owner);
};

/* NULL: no memory. The budget must outlive the keyspace. */
struct keyspace *ks_new(struct budget *budget, const struct ks_events *events, void *user);

/* Seeds the hash of keys, so that strangers cannot choose keys that collide. Before the first key. */
void ks_seed(struct keyspace *ks, struct siphash_seed seed);

/* From now on operations only note which waiters to wake and tell, which costs the same for a million of them as for
 * one, and ks_settle does it. An item of a queue still wakes its one waiter at once. */
void ks_defer(struct keyspace *ks);

/* Wakes waiters and tells watchers, at most `most` of them, and returns how many. Alternates between their keys. */
size_t ks_settle(struct keyspace *ks, size_t most);
bool ks_is_busy(const struct keyspace *ks);

/* Frees the keyspace. Waiters are dropped without a call. NULL is ignored. */
void ks_free(struct keyspace *ks);

/* Operations that change something return 0, RDZV_E_NO_MEMORY, RDZV_E_LIMIT (budget) and, where noted,
 * RDZV_E_NOT_A_NUMBER. On failure nothing has changed. Returned bytes are valid until the next change. */
int ks_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value);

/* Sets all or none. */
int ks_multi_set(struct keyspace *ks, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count);

/* The same in steps: ks_stage prepares one pair, and does all that can fail or takes long; ks_commit sets all pairs at
 * once; ks_unstage must follow for each pair, also without a ks_commit. */
struct ks_stage {
  struct entry *entry;
  struct blob *value;
};
int ks_stage(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value, struct ks_stage *out);
void ks_commit(struct keyspace *ks, struct ks_stage *stages, size_t count);
void ks_unstage(struct keyspace *ks, struct ks_stage *stage);

int ks_append(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value);
int ks_add(struct keyspace *ks, rdzv_bytes key, int64_t delta, int64_t *sum); /* RDZV_E_NOT_A_NUMBER */

/* *now is the value afterwards, or `expected` where the key is absent and stays absent. */
int ks_compare_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_bytes *now);

/* Sets the value if the version is `expected`; *swapped: it was. */
int ks_compare_set_version(struct keyspace *ks, rdzv_bytes key, uint64_t expected, rdzv_bytes value, bool *swapped);
bool ks_delete(struct keyspace *ks, rdzv_bytes key);

/* Returns the version of a key and its value. Version 0: the key is absent. */
uint64_t ks_get(struct keyspace *ks, rdzv_bytes key, rdzv_bytes *value);

/* Returns the value of a key that has one, for blob_hold. The keyspace does not write to it while others hold it. */
struct blob *ks_share(struct keyspace *ks, rdzv_bytes key);

/* Is there such a key, or such a queue that is not empty? */
bool ks_present(struct keyspace *ks, rdzv_bytes key);
size_t ks_count(const struct keyspace *ks);

/* Does a client wait for the key, or watch it? */
bool ks_is_awaited(struct keyspace *ks, rdzv_bytes key);

/* Deletes keys of an owner with all they have, at most `most`, and returns how many. */
size_t ks_delete_owned(struct keyspace *ks, struct ks_owner *owner, size_t most);

/* The bytes of all keys plus 8 for each; a number that changes when a key is created or deleted. */
size_t ks_keys_bytes(const struct keyspace *ks);
uint64_t ks_keys_version(const struct keyspace *ks);

/* Iterates over the keys in the order of their creation: pass NULL for the first, then what the last call returned. */
const void *ks_next(const struct keyspace *ks, const void *at, rdzv_bytes *key);

/* Goes through the keys that are there at the start, while keys come and go. A key that is deleted before the walk
 * reaches it is left out. There is one walk at a time: a start ends the one before. */
void ks_walk_start(struct keyspace *ks);
bool ks_walk(struct keyspace *ks, rdzv_bytes *key);

/* Copies of all keys, to be freed with rdzv_values_free(*out, *count). RDZV_E_NO_MEMORY. */
int ks_copy_keys(const struct keyspace *ks, rdzv_value **out, size_t *count);

int ks_queue_push(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value);
size_t ks_queue_len(struct keyspace *ks, rdzv_bytes key);

/* The oldest value of a queue that is not empty; ks_queue_drop takes it off. */
rdzv_bytes ks_queue_front(struct keyspace *ks, rdzv_bytes key);
void ks_queue_drop(struct keyspace *ks, rdzv_bytes key);

/* Wakes the next waiter, after one that was woken for an item of this queue has not taken it. */
void ks_queue_pass_on(struct keyspace *ks, rdzv_bytes key);

/* Adds 1 to the number of the key. *full: it has reached `size`, and the waiters of the key are woken. */
int ks_barrier(struct keyspace *ks, rdzv_bytes key, int64_t size, bool *full); /* RDZV_E_NOT_A_NUMBER */

/* What a wait wants of a key. A push to a queue wakes one waiter: the oldest of those that want the queue, or if there
 * is none, the oldest of those that want the key to be present. */
enum ks_want { KS_WANT_PRESENT, KS_WANT_VALUE, KS_WANT_QUEUE };

/* Makes the waiter wait for those keys that are not yet as wanted. If all are, waiter->missing is 0, and it does not
 * wait. */
int ks_wait(struct keyspace *ks, struct ks_waiter *waiter, enum ks_want want, const rdzv_bytes *keys, size_t count);

/* The same in steps, key by key. The waiter is not woken before ks_wait_close, which returns whether it waits. */
int ks_wait_open(struct keyspace *ks, struct ks_waiter *waiter, size_t count);
int ks_wait_add(struct keyspace *ks, struct ks_waiter *waiter, enum ks_want want, rdzv_bytes key);
bool ks_wait_close(struct keyspace *ks, struct ks_waiter *waiter);

int ks_wait_change(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key);
int ks_wait_barrier(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key);
int ks_watch(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key);

/* Ends the wait, without a call. */
void ks_cancel(struct keyspace *ks, struct ks_waiter *waiter);

/* The same in steps of at most `most` keys; returns how many. The wait has ended when links is NULL. */
size_t ks_cancel_some(struct keyspace *ks, struct ks_waiter *waiter, size_t most);

/* Parses a number as ks_add does. A zero byte must follow the text. */
int ks_parse_number(rdzv_bytes text, int64_t *number);

#endif
