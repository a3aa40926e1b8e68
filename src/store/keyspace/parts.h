/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the keyspace: keyspace.c has the values and queues, waits.c the waiters, table.c finds the entry of a key,
 * number.c parses and formats the numbers of ks_add, changes.c tells a keep what has changed. */
#ifndef RDZV_STORE_KEYSPACE_PARTS_H
#define RDZV_STORE_KEYSPACE_PARTS_H

#include "base/blob.h"
#include "keep/batch.h"
#include "store/keyspace/keyspace.h"
#include "store/keyspace/table.h"

/* The first three are those of enum ks_want. */
enum link_kind { LINK_PRESENT, LINK_VALUE, LINK_QUEUE, LINK_CHANGE, LINK_WATCH };
_Static_assert((int)LINK_QUEUE == (int)KS_WANT_QUEUE, "a want is a kind of link");

/* One waiter under one key. */
struct ks_link {
  struct ks_link *prev, *next; /* of the group, oldest first */
  struct wait_group *group;    /* NULL: it does not wait for the key */
  struct ks_waiter *waiter;
  uint64_t told; /* of a watch: the last change of the group that it knows */
};

/* A change that some watchers have not been told of yet. */
struct change {
  struct change *next;
  uint64_t number;
  enum ks_change what;
  struct blob *before, *after;
};

/*
 * The waiters of one kind of one key. When their wait ends, the group is removed from the key in one step, and
 * ks_settle wakes its waiters one after another. A group of watchers stays with its key; ks_settle tells each change to
 * all of them, by moving the head of `links` to the tail `untold` times.
 */
struct wait_group {
  struct wait_group *next; /* of the entry's groups */
  struct entry *entry;     /* NULL: woken */
  enum link_kind kind;
  bool busy; /* in keyspace.busy */
  bool lost; /* there was no memory for a change: the watchers will get an error */
  struct wait_group *busy_prev, *busy_next;
  struct ks_link *links;
  size_t count;                    /* of links */
  struct change *changes, *newest; /* oldest first */
  uint64_t number;                 /* of the newest change */
  size_t untold;                   /* links that have not been told of the oldest change */
};

struct item {
  struct item *prev, *next;
  uint64_t number;         /* in its queue; only if changes are tracked */
  struct record_slot slot; /* the same */
  size_t len;
  char data[];
};

/* What a keyspace that tracks changes knows of an entry: changes.c. */
struct entry_kept {
  uint64_t id;             /* of its records; 0: it has none yet */
  struct record_slot slot; /* of the key and its value */
  bool is_dirty;           /* in keyspace.dirty */
  bool is_value_dirty;     /* not only its queue has changed */
  uint64_t batch;          /* that it was collected into last; 0: none */
  struct entry *dirty_prev, *dirty_next;
  struct item *popped; /* items that have records, but have left the queue */
  uint64_t pushed;     /* number of the newest item */
};

/* Of an entry that has an owner. */
struct entry_owned {
  struct ks_owner *owner;
  struct entry *prev, *next; /* of owner->first */
};

/* A name with a value, a queue or waiters. It is freed when it has none of them. */
struct entry {
  struct table_node node;
  struct entry *prev, *next; /* of the entries with a value, in the order of their creation */
  struct blob *value;        /* NULL: none; a zero byte follows its len */
  uint64_t version;          /* 0: no value */
  struct item *queue;
  size_t queue_len;
  struct wait_group *groups; /* at most one of each kind */
  struct entry_kept *kept;   /* NULL: changes are not tracked */
  struct entry_owned *owned; /* NULL: it has no owner */
  uint32_t key_len;
  uint32_t pins; /* pointers that ks_stage has given out */
  char key[];
};

struct keyspace {
  struct table table;
  struct entry *last;  /* the entry found last, as the next request is often about the same key; may be NULL */
  struct entry *first; /* of the entries with a value, a list of utlist */
  size_t count;        /* of them */
  size_t keys_bytes;   /* of their keys, plus 8 for each */
  uint64_t keys_version;
  struct entry *walk_at, *walk_end; /* of ks_walk: the next entry and the last one */
  uint64_t version;                 /* the last one given out */
  struct siphash_seed seed;
  struct budget *budget;
  struct ks_events events;
  void *user;
  bool deferred;
  bool tracks;
  struct entry *dirty;     /* entries that have changed since the last collection */
  uint64_t ids;            /* the last one given to an entry */
  struct wait_group *busy; /* groups with waiters to wake or to tell */
};

/* ---- keyspace.c ---- */
struct entry *entry_find(struct keyspace *ks, rdzv_bytes key);
int entry_find_or_make(struct keyspace *ks, rdzv_bytes key, struct entry **out);
void entry_drop_if_unused(struct keyspace *ks, struct entry *entry);
bool entry_is_as_wanted(const struct entry *entry, enum ks_want want); /* NULL is fine */

/* What the memory of an entry, its value and its items is taken from. */
static inline struct budget *entry_budget(const struct keyspace *ks, const struct entry *entry) {
  return entry->owned ? &entry->owned->owner->budget : ks->budget;
}

/* Takes the oldest item off the queue, and frees it or keeps it for changes.c. */
void entry_pop_item(struct keyspace *ks, struct entry *entry);
void item_free(struct budget *budget, struct item *item);

/* The entry has got its first value. */
void entry_appear(struct keyspace *ks, struct entry *entry);

/* ---- changes.c ---- */

/* False: no memory. */
bool kept_make(struct keyspace *ks, struct entry *entry);
void kept_free(struct keyspace *ks, struct entry *entry);
size_t kept_size(const struct keyspace *ks);

/* The entry has changed: its value, too, or only its queue. */
void kept_touch(struct keyspace *ks, struct entry *entry, bool value);

static inline void entry_touch(struct keyspace *ks, struct entry *entry, bool value) {
  if (ks->tracks) kept_touch(ks, entry, value);
}

/* ---- number.c ---- */
enum { NUMBER_BYTES = 20 }; /* of the longest, -9223372036854775808 */

/* The number in decimal text, without a zero byte behind it. */
rdzv_bytes number_text(int64_t number, char out[NUMBER_BYTES]);

/* ---- waits.c ---- */
bool entry_is_watched(const struct entry *entry);

/* Wakes all waiters of a kind, now or in ks_settle. */
void waits_wake(struct keyspace *ks, struct entry *entry, enum link_kind kind);

/* Wakes the next waiter that gets an item of the queue. */
void waits_wake_for_item(struct keyspace *ks, struct entry *entry);

/* Tells the watchers of the key, now or in ks_settle. */
void waits_tell(struct keyspace *ks, struct entry *entry, enum ks_change what, struct blob *before, struct blob *after);

/* Wakes and tells now, unless ks_defer was called. */
void waits_settle(struct keyspace *ks);

/* Drops the waiters of an entry without a call. */
void waits_forget(struct keyspace *ks, struct entry *entry);

#endif
