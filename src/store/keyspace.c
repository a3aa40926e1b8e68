/* SPDX-License-Identifier: BSD-3-Clause */
#define HASH_NONFATAL_OOM 1 /* a map that cannot grow says so instead of ending the process */
#include "store/keyspace.h"

#include "base/buf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>
#include <utlist.h>

/* The first three are those of enum ks_want. */
enum link_kind { LINK_PRESENT, LINK_VALUE, LINK_QUEUE, LINK_CHANGE, LINK_WATCH, LINK_KINDS };
_Static_assert((int)LINK_QUEUE == (int)KS_WANT_QUEUE, "a want is a kind of link");

/* One waiter under one key. */
struct ks_link {
  struct ks_link *prev, *next; /* under the key, oldest first */
  struct entry *entry;         /* NULL: not listed (any more) */
  struct ks_waiter *waiter;
  enum link_kind kind;
};

struct item {
  struct item *prev, *next;
  size_t len;
  char data[];
};

/* A name that has a value, a queue, or somebody who waits for it; gone when it has none of them. */
struct entry {
  UT_hash_handle hh;
  char *value; /* NULL: no value; a zero byte stands behind value_len */
  size_t value_len;
  size_t value_cap;
  uint64_t version; /* 0: no value */
  struct item *queue;
  size_t queue_len;
  struct ks_link *links[LINK_KINDS];
  size_t key_len;
  char key[];
};

struct keyspace {
  struct entry *entries;
  size_t count;     /* of entries with a value */
  uint64_t version; /* the last one given out */
  struct siphash_seed seed;
  struct budget *budget;
  struct ks_events events;
  void *user;
};

struct keyspace *ks_new(struct budget *budget, const struct ks_events *events, void *user) {
  struct keyspace *ks = calloc(1, sizeof *ks);
  if (!ks) return NULL;
  ks->budget = budget;
  ks->events = *events;
  ks->user = user;
  return ks;
}

void ks_seed(struct keyspace *ks, struct siphash_seed seed) { ks->seed = seed; }

/* ---- entries ---------------------------------------------------------------------------------------------- */

static rdzv_bytes key_of(const struct entry *entry) { return (rdzv_bytes){entry->key, entry->key_len}; }
static rdzv_bytes value_of(const struct entry *entry) { return (rdzv_bytes){entry->value, entry->value_len}; }

static unsigned hash_of(const struct keyspace *ks, const void *data, size_t len) {
  return (unsigned)siphash(&ks->seed, data, len);
}

static struct entry *find(const struct keyspace *ks, rdzv_bytes key) {
  struct entry *entry;
  const void *data = key.len ? key.data : ""; /* an empty key may come as NULL */
  const unsigned hash = hash_of(ks, data, key.len);
  HASH_FIND_BYHASHVALUE(hh, ks->entries, data, key.len, hash, entry);
  return entry;
}

static int make(struct keyspace *ks, rdzv_bytes key, struct entry **out) {
  const size_t size = sizeof(struct entry) + key.len;
  if (!budget_take(ks->budget, size)) return RDZV_E_LIMIT;
  struct entry *entry = calloc(1, size);
  if (entry) {
    entry->key_len = key.len;
    bytes_copy(entry->key, key.data, key.len);
    const unsigned hash = hash_of(ks, entry->key, entry->key_len);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, ks->entries, entry->key, entry->key_len, hash, entry);
  }
  if (!entry || !entry->hh.tbl) { /* uthash leaves tbl NULL where it found no memory */
    free(entry);
    budget_give(ks->budget, size);
    return RDZV_E_NO_MEMORY;
  }
  *out = entry;
  return 0;
}

static int find_or_make(struct keyspace *ks, rdzv_bytes key, struct entry **out) {
  *out = find(ks, key);
  return *out ? 0 : make(ks, key, out);
}

static struct ks_link *any_link(const struct entry *entry) {
  for (int kind = 0; kind < LINK_KINDS; kind++)
    if (entry->links[kind]) return entry->links[kind];
  return NULL;
}

static void drop_if_unused(struct keyspace *ks, struct entry *entry) {
  if (entry->value || entry->queue || any_link(entry)) return;
  HASH_DEL(ks->entries, entry);
  budget_give(ks->budget, sizeof *entry + entry->key_len);
  free(entry);
}

/* Makes room for a value of len bytes and its zero byte. */
static int make_room(struct keyspace *ks, struct entry *entry, size_t len, bool growing) {
  const size_t need = len + 1;
  if (entry->value && need <= entry->value_cap && need >= entry->value_cap / 4) return 0;
  const size_t cap = growing && need < SIZE_MAX / 2 ? need + need / 2 : need;
  if (cap > entry->value_cap && !budget_take(ks->budget, cap - entry->value_cap)) return RDZV_E_LIMIT;
  char *value = realloc(entry->value, cap);
  if (!value) {
    if (cap > entry->value_cap) budget_give(ks->budget, cap - entry->value_cap);
    return RDZV_E_NO_MEMORY;
  }
  if (cap < entry->value_cap) budget_give(ks->budget, entry->value_cap - cap);
  entry->value = value;
  entry->value_cap = cap;
  return 0;
}

static void clear_value(struct keyspace *ks, struct entry *entry) {
  budget_give(ks->budget, entry->value_cap);
  free(entry->value);
  entry->value = NULL;
  entry->value_len = entry->value_cap = 0;
  entry->version = 0;
  ks->count--;
}

static void pop_item(struct keyspace *ks, struct entry *entry) {
  struct item *item = entry->queue;
  DL_DELETE(entry->queue, item);
  entry->queue_len--;
  budget_give(ks->budget, sizeof *item + item->len);
  free(item);
}

/* ---- waiters ---------------------------------------------------------------------------------------------- */

static void unlist(struct ks_link *link) {
  DL_DELETE(link->entry->links[link->kind], link);
  link->entry = NULL;
}

static void free_links(struct keyspace *ks, struct ks_waiter *waiter) {
  budget_give(ks->budget, waiter->links_count * sizeof *waiter->links);
  free(waiter->links);
  *waiter = (struct ks_waiter){0};
}

void ks_cancel(struct keyspace *ks, struct ks_waiter *waiter) {
  for (size_t i = 0; i < waiter->links_count; i++) {
    struct entry *entry = waiter->links[i].entry;
    if (!entry) continue;
    unlist(&waiter->links[i]);
    drop_if_unused(ks, entry);
  }
  free_links(ks, waiter);
}

void ks_free(struct keyspace *ks) {
  while (ks && ks->entries) {
    struct entry *entry = ks->entries;
    const struct ks_link *link = any_link(entry);
    if (link) {
      ks_cancel(ks, link->waiter); /* which may free the entry */
      continue;
    }
    while (entry->queue) pop_item(ks, entry);
    if (entry->value) clear_value(ks, entry);
    drop_if_unused(ks, entry);
  }
  free(ks);
}

static int make_links(struct keyspace *ks, struct ks_waiter *waiter, size_t count) {
  if (count > SIZE_MAX / sizeof *waiter->links || !budget_take(ks->budget, count * sizeof *waiter->links))
    return RDZV_E_LIMIT;
  waiter->links = calloc(count, sizeof *waiter->links);
  if (!waiter->links) {
    budget_give(ks->budget, count * sizeof *waiter->links);
    return RDZV_E_NO_MEMORY;
  }
  waiter->links_count = count;
  return 0;
}

static int list_under(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key, enum link_kind kind) {
  struct entry *entry;
  const int result = find_or_make(ks, key, &entry);
  if (result < 0) return result;
  struct ks_link *newest = entry->links[kind] ? entry->links[kind]->prev : NULL;
  if (newest && newest->waiter == waiter) return 0; /* the key was named twice */
  struct ks_link *link = &waiter->links[waiter->missing++];
  *link = (struct ks_link){.entry = entry, .waiter = waiter, .kind = kind};
  DL_APPEND(entry->links[kind], link); /* NOLINT: a head of utlist always has a prev */
  return 0;
}

static bool is_as_wanted(const struct keyspace *ks, rdzv_bytes key, enum ks_want want) {
  const struct entry *entry = find(ks, key);
  const bool value = entry && entry->version, queue = entry && entry->queue;
  return (value && want != KS_WANT_QUEUE) || (queue && want != KS_WANT_VALUE);
}

int ks_wait(struct keyspace *ks, struct ks_waiter *waiter, enum ks_want want, const rdzv_bytes *keys, size_t count) {
  size_t missing = 0;
  for (size_t i = 0; i < count; i++) missing += !is_as_wanted(ks, keys[i], want);
  if (missing == 0) return 0;
  int result = make_links(ks, waiter, missing);
  for (size_t i = 0; i < count && result == 0; i++)
    if (!is_as_wanted(ks, keys[i], want)) result = list_under(ks, waiter, keys[i], (enum link_kind)want);
  if (result < 0) ks_cancel(ks, waiter);
  return result;
}

static int wait_for_one(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key, enum link_kind kind) {
  int result = make_links(ks, waiter, 1);
  if (result == 0) result = list_under(ks, waiter, key, kind);
  if (result < 0) ks_cancel(ks, waiter);
  return result;
}

int ks_wait_change(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key) {
  return wait_for_one(ks, waiter, key, LINK_CHANGE);
}

int ks_wait_barrier(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key) {
  return wait_for_one(ks, waiter, key, LINK_PRESENT);
}

int ks_watch(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key) {
  const int result = wait_for_one(ks, waiter, key, LINK_WATCH);
  waiter->watching = result == 0;
  return result;
}

/* Takes the link off its key; the waiter's last one ends its wait. */
static void satisfy(struct keyspace *ks, struct ks_link *link) {
  struct ks_waiter *waiter = link->waiter;
  unlist(link);
  if (--waiter->missing > 0) return;
  free_links(ks, waiter);
  ks->events.wake(ks->user, waiter);
}

static void wake_all(struct keyspace *ks, struct entry *entry, enum link_kind kind) {
  struct ks_link *link, *next;
  DL_FOREACH_SAFE(entry->links[kind], link, next) satisfy(ks, link);
}

/* A value was written: whoever waits for the key to be there or to have one goes on. */
static void wake_for_value(struct keyspace *ks, struct entry *entry) {
  wake_all(ks, entry, LINK_PRESENT);
  wake_all(ks, entry, LINK_VALUE);
}

static void wake_for_item(struct keyspace *ks, struct entry *entry) {
  struct ks_link *oldest = entry->links[LINK_QUEUE] ? entry->links[LINK_QUEUE] : entry->links[LINK_PRESENT];
  if (oldest) satisfy(ks, oldest);
}

static void tell_watchers(struct keyspace *ks, struct entry *entry, enum ks_change change, rdzv_bytes before,
                          rdzv_bytes after) {
  struct ks_link *link;
  DL_FOREACH(entry->links[LINK_WATCH], link)
  ks->events.changed(ks->user, link->waiter, change, key_of(entry), before, after);
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* A value that was there, kept while watchers are told of the one that replaced it. */
struct before {
  bool there;
  rdzv_value copy;
};

static int keep_before(const struct entry *entry, struct before *before) {
  *before = (struct before){.there = entry->version != 0};
  if (!before->there || !entry->links[LINK_WATCH]) return 0;
  return value_copy(&before->copy, entry->value, entry->value_len) ? 0 : RDZV_E_NO_MEMORY;
}

/* Everything that must happen when a value has been written, but for waking who waits for the key. */
static void written(struct keyspace *ks, struct entry *entry, struct before *before) {
  if (!before->there) ks->count++;
  entry->version = ++ks->version;
  tell_watchers(ks, entry, before->there ? KS_UPDATED : KS_CREATED, rdzv_value_bytes(&before->copy), value_of(entry));
  wake_all(ks, entry, LINK_CHANGE);
  rdzv_value_free(&before->copy);
}

/* Writes a value from `offset` on: 0 replaces it, its length appends. Without `wake`, who waits for the key to be there
 * is left waiting, as BARRIER does it; who waits for its value is not. */
static int write_to(struct keyspace *ks, struct entry *entry, size_t offset, rdzv_bytes value, bool wake) {
  struct before before;
  int result = keep_before(entry, &before);
  if (result == 0 && value.len > SIZE_MAX / 2 - offset) result = RDZV_E_LIMIT;
  if (result == 0) result = make_room(ks, entry, offset + value.len, offset > 0);
  if (result < 0) {
    rdzv_value_free(&before.copy);
    drop_if_unused(ks, entry);
    return result;
  }
  bytes_copy(entry->value + offset, value.data, value.len);
  entry->value_len = offset + value.len;
  entry->value[entry->value_len] = '\0';
  written(ks, entry, &before);
  if (wake)
    wake_for_value(ks, entry);
  else
    wake_all(ks, entry, LINK_VALUE);
  return 0;
}

int ks_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value) {
  struct entry *entry;
  const int result = find_or_make(ks, key, &entry);
  return result < 0 ? result : write_to(ks, entry, 0, value, true);
}

int ks_append(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value) {
  struct entry *entry;
  const int result = find_or_make(ks, key, &entry);
  return result < 0 ? result : write_to(ks, entry, entry->value_len, value, true);
}

int ks_parse_number(rdzv_bytes text, int64_t *number) {
  const char *start = text.data;
  char *end;
  errno = 0;
  const long long parsed = strtoll(start, &end, 10);
  if (end == start || errno == ERANGE) return RDZV_E_NOT_A_NUMBER;
  *number = parsed;
  return 0;
}

/* The entry of a key, and what its number will be. */
static int add_up(struct keyspace *ks, rdzv_bytes key, int64_t delta, struct entry **entry, int64_t *sum) {
  int64_t number = 0;
  const int result = find_or_make(ks, key, entry);
  if (result < 0) return result;
  if ((*entry)->version && ks_parse_number(value_of(*entry), &number) < 0) return RDZV_E_NOT_A_NUMBER;
  *sum = (int64_t)((uint64_t)number + (uint64_t)delta); /* wraps */
  return 0;
}

static int write_number(struct keyspace *ks, struct entry *entry, int64_t number, bool wake) {
  char text[24];
  const int len = snprintf(text, sizeof text, "%" PRId64, number);
  return write_to(ks, entry, 0, (rdzv_bytes){text, (size_t)len}, wake);
}

int ks_add(struct keyspace *ks, rdzv_bytes key, int64_t delta, int64_t *sum) {
  struct entry *entry;
  int64_t number = 0;
  int result = add_up(ks, key, delta, &entry, &number);
  if (result == 0) result = write_number(ks, entry, number, true);
  if (result == 0) *sum = number;
  return result;
}

/* ---- several at once ---- */

/* What a value is kept in until all of them have one. */
struct place {
  struct entry *entry;
  char *value;
};

static int make_place(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value, struct place *place) {
  const int result = find_or_make(ks, key, &place->entry);
  if (result < 0) return result;
  if (!budget_take(ks->budget, value.len + 1)) return RDZV_E_LIMIT;
  place->value = malloc(value.len + 1);
  if (!place->value) {
    budget_give(ks->budget, value.len + 1);
    return RDZV_E_NO_MEMORY;
  }
  bytes_copy(place->value, value.data, value.len);
  place->value[value.len] = '\0';
  return 0;
}

static void give_up_places(struct keyspace *ks, struct place *places, const rdzv_bytes *keys, const rdzv_bytes *values,
                           size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (places[i].value) budget_give(ks->budget, values[i].len + 1);
    free(places[i].value);
    struct entry *entry = find(ks, keys[i]); /* one that was named twice may be gone already */
    if (entry) drop_if_unused(ks, entry);
  }
}

/* Nothing of this can fail; a watcher that there is no memory for is told an empty old value. */
static void take_place(struct keyspace *ks, struct place *place, size_t len) {
  struct entry *entry = place->entry;
  struct before before;
  keep_before(entry, &before);
  budget_give(ks->budget, entry->value_cap);
  free(entry->value);
  entry->value = place->value;
  entry->value_len = len;
  entry->value_cap = len + 1;
  written(ks, entry, &before);
  wake_for_value(ks, entry);
}

int ks_multi_set(struct keyspace *ks, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count) {
  struct place *places = calloc(count ? count : 1, sizeof *places);
  if (!places) return RDZV_E_NO_MEMORY;
  int result = 0;
  for (size_t i = 0; i < count && result == 0; i++) result = make_place(ks, keys[i], values[i], &places[i]);
  if (result < 0) give_up_places(ks, places, keys, values, count);
  for (size_t i = 0; i < count && result == 0; i++) take_place(ks, &places[i], values[i].len);
  free(places);
  return result;
}

/* Sets the value of an entry, or of one that is made for the key. */
static int set_found(struct keyspace *ks, struct entry **entry, rdzv_bytes key, rdzv_bytes value) {
  const int result = *entry ? 0 : make(ks, key, entry);
  return result < 0 ? result : write_to(ks, *entry, 0, value, true);
}

int ks_compare_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_bytes *now) {
  struct entry *entry = find(ks, key);
  const bool there = entry && entry->version;
  *now = there ? value_of(entry) : expected;
  if (there ? !bytes_equal(*now, expected) : expected.len > 0) return 0;
  const int result = set_found(ks, &entry, key, desired);
  if (result == 0) *now = value_of(entry);
  return result;
}

int ks_compare_set_version(struct keyspace *ks, rdzv_bytes key, uint64_t expected, rdzv_bytes value, bool *swapped) {
  struct entry *entry = find(ks, key);
  *swapped = (entry ? entry->version : 0) == expected;
  return *swapped ? set_found(ks, &entry, key, value) : 0;
}

bool ks_delete(struct keyspace *ks, rdzv_bytes key) {
  struct entry *entry = find(ks, key);
  if (!entry || !entry->version) return false;
  tell_watchers(ks, entry, KS_DELETED, value_of(entry), (rdzv_bytes){0});
  clear_value(ks, entry);
  wake_all(ks, entry, LINK_CHANGE);
  drop_if_unused(ks, entry);
  return true;
}

uint64_t ks_get(const struct keyspace *ks, rdzv_bytes key, rdzv_bytes *value) {
  const struct entry *entry = find(ks, key);
  *value = entry && entry->version ? value_of(entry) : (rdzv_bytes){0};
  return entry ? entry->version : 0;
}

bool ks_present(const struct keyspace *ks, rdzv_bytes key) { return is_as_wanted(ks, key, KS_WANT_PRESENT); }

size_t ks_count(const struct keyspace *ks) { return ks->count; }

const void *ks_next(const struct keyspace *ks, const void *at, rdzv_bytes *key) {
  const struct entry *entry = at ? ((const struct entry *)at)->hh.next : ks->entries;
  while (entry && !entry->version) entry = entry->hh.next;
  if (entry) *key = key_of(entry);
  return entry;
}

int ks_copy_keys(const struct keyspace *ks, rdzv_value **out, size_t *count) {
  rdzv_value *keys = calloc(ks->count ? ks->count : 1, sizeof *keys);
  if (!keys) return RDZV_E_NO_MEMORY;
  size_t copied = 0;
  rdzv_bytes key;
  for (const void *at = NULL; (at = ks_next(ks, at, &key)) != NULL; copied++) {
    if (value_copy(&keys[copied], key.data, key.len)) continue;
    rdzv_values_free(keys, copied);
    return RDZV_E_NO_MEMORY;
  }
  *out = keys;
  *count = copied;
  return 0;
}

/* ---- queues and barriers ----------------------------------------------------------------------------------- */

int ks_queue_push(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value) {
  struct entry *entry;
  int result = find_or_make(ks, key, &entry);
  if (result < 0) return result;
  const size_t size = sizeof(struct item) + value.len;
  struct item *item = NULL;
  if (!budget_take(ks->budget, size)) {
    result = RDZV_E_LIMIT;
  } else if (!(item = malloc(size))) {
    budget_give(ks->budget, size);
    result = RDZV_E_NO_MEMORY;
  }
  if (!item) {
    drop_if_unused(ks, entry);
    return result;
  }
  item->len = value.len;
  bytes_copy(item->data, value.data, value.len);
  DL_APPEND(entry->queue, item);
  entry->queue_len++;
  wake_for_item(ks, entry);
  return 0;
}

size_t ks_queue_len(const struct keyspace *ks, rdzv_bytes key) {
  const struct entry *entry = find(ks, key);
  return entry ? entry->queue_len : 0;
}

rdzv_bytes ks_queue_front(const struct keyspace *ks, rdzv_bytes key) {
  const struct item *item = find(ks, key)->queue;
  return (rdzv_bytes){item->data, item->len};
}

void ks_queue_drop(struct keyspace *ks, rdzv_bytes key) {
  struct entry *entry = find(ks, key);
  pop_item(ks, entry);
  drop_if_unused(ks, entry);
}

void ks_queue_pass_on(struct keyspace *ks, rdzv_bytes key) {
  struct entry *entry = find(ks, key);
  if (entry && entry->queue) wake_for_item(ks, entry);
}

int ks_barrier(struct keyspace *ks, rdzv_bytes key, int64_t size, bool *full) {
  struct entry *entry;
  int64_t count = 0;
  const int result = add_up(ks, key, 1, &entry, &count);
  if (result < 0) return result;
  *full = count >= size;
  return write_number(ks, entry, count, *full);
}
