/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/keyspace/parts.h"

#include "base/buf.h"

#include <stdlib.h>
#include <utlist.h>

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
static rdzv_bytes value_of(const struct entry *entry) { return blob_bytes(entry->value); }

static bool is_last(const struct keyspace *ks, rdzv_bytes key) {
  return ks->last && bytes_equal(key_of(ks->last), key);
}

static struct entry *find_hashed(struct keyspace *ks, rdzv_bytes key, uint64_t hash) {
  for (struct table_node *node = table_first(&ks->table, hash); node; node = node->next) {
    struct entry *entry = (struct entry *)node; /* its first member */
    if (node->hash == hash && bytes_equal(key_of(entry), key)) return ks->last = entry;
  }
  return NULL;
}

struct entry *entry_find(struct keyspace *ks, rdzv_bytes key) {
  return is_last(ks, key) ? ks->last : find_hashed(ks, key, siphash_short(&ks->seed, key.data, key.len));
}

static size_t size_of(const struct keyspace *ks, size_t key_len, bool owned) {
  return sizeof(struct entry) + key_len + kept_size(ks) + (owned ? sizeof(struct entry_owned) : 0);
}

static void release(struct entry *entry) {
  if (!entry) return;
  free(entry->kept);
  free(entry->owned);
  free(entry);
}

/* The parts of an entry. NULL: no memory. */
static struct entry *allocate(struct keyspace *ks, rdzv_bytes key, struct ks_owner *owner) {
  struct entry *entry = calloc(1, sizeof *entry + key.len);
  if (!entry) return NULL;
  if (owner) entry->owned = calloc(1, sizeof *entry->owned);
  if ((ks->tracks && !kept_make(ks, entry)) || (owner && !entry->owned)) {
    release(entry);
    return NULL;
  }
  if (owner) entry->owned->owner = owner;
  entry->key_len = (uint32_t)key.len;
  bytes_copy(entry->key, key.data, key.len);
  return entry;
}

static int make(struct keyspace *ks, rdzv_bytes key, uint64_t hash, struct entry **out) {
  struct ks_owner *owner = NULL;
  if (key.len > UINT32_MAX) return RDZV_E_LIMIT;
  if (ks->events.owner && !ks->events.owner(ks->user, key, &owner)) return RDZV_E_LIMIT;
  struct budget *budget = owner ? &owner->budget : ks->budget;
  const size_t size = size_of(ks, key.len, owner != NULL);
  if (!budget_take(budget, size)) return RDZV_E_LIMIT;
  struct entry *entry = allocate(ks, key, owner);
  if (entry) entry->node.hash = hash;
  if (!entry || !table_add(&ks->table, &entry->node)) {
    release(entry);
    budget_give(budget, size);
    return RDZV_E_NO_MEMORY;
  }
  if (owner) DL_APPEND2(owner->first, entry, owned->prev, owned->next);
  *out = entry;
  return 0;
}

int entry_find_or_make(struct keyspace *ks, rdzv_bytes key, struct entry **out) {
  if (is_last(ks, key)) {
    *out = ks->last;
    return 0;
  }
  const uint64_t hash = siphash_short(&ks->seed, key.data, key.len);
  struct entry *found = find_hashed(ks, key, hash);
  if (!found) return make(ks, key, hash, out);
  *out = found;
  return 0;
}

void entry_drop_if_unused(struct keyspace *ks, struct entry *entry) {
  if (entry->value || entry->queue || entry->groups || entry->pins) return;
  if (entry->kept && entry->kept->is_dirty) return; /* ks_collected drops it */
  if (ks->last == entry) ks->last = NULL;
  table_remove(&ks->table, &entry->node);
  budget_give(entry_budget(ks, entry), size_of(ks, entry->key_len, entry->owned != NULL));
  if (entry->owned) DL_DELETE2(entry->owned->owner->first, entry, owned->prev, owned->next);
  release(entry);
}

bool entry_is_as_wanted(const struct entry *entry, enum ks_want want) {
  const bool value = entry && entry->version, queue = entry && entry->queue;
  return (value && want != KS_WANT_QUEUE) || (queue && want != KS_WANT_VALUE);
}

void item_free(struct budget *budget, struct item *item) {
  budget_give(budget, sizeof *item + item->len);
  free(item);
}

void entry_pop_item(struct keyspace *ks, struct entry *entry) {
  struct item *item = entry->queue;
  DL_DELETE(entry->queue, item);
  entry->queue_len--;
  entry_touch(ks, entry, false);
  if (item->slot.parts > 0)
    LL_PREPEND(entry->kept->popped, item); /* its records are to be removed */
  else
    item_free(entry_budget(ks, entry), item);
}

void ks_free(struct keyspace *ks) {
  struct table_node *node;
  while (ks && ks->busy) ks_cancel(ks, ks->busy->links->waiter);
  for (size_t at = 0; ks && (node = table_any(&ks->table, &at)) != NULL;) {
    struct entry *entry = (struct entry *)node;
    waits_forget(ks, entry);
    while (entry->queue) entry_pop_item(ks, entry);
    kept_free(ks, entry);
    blob_drop(entry->value);
    entry->value = NULL;
    entry_drop_if_unused(ks, entry);
  }
  if (ks) table_free(&ks->table);
  free(ks);
}

/* ---- values ------------------------------------------------------------------------------------------------ */

void entry_appear(struct keyspace *ks, struct entry *entry) {
  DL_APPEND(ks->first, entry);
  ks->count++;
  ks->keys_bytes += entry->key_len + 8;
  ks->keys_version++;
}

static void disappear(struct keyspace *ks, struct entry *entry) {
  struct entry *before = entry == ks->first ? NULL : entry->prev;
  if (ks->walk_at == entry) ks->walk_at = entry == ks->walk_end ? NULL : entry->next;
  if (ks->walk_end == entry) ks->walk_end = before;
  DL_DELETE(ks->first, entry);
  ks->count--;
  ks->keys_bytes -= entry->key_len + 8;
  ks->keys_version++;
}

/* What must happen after a value was written, except waking the waiters of the key. */
static void written(struct keyspace *ks, struct entry *entry, struct blob *before) {
  const bool there = entry->version != 0;
  if (!there) entry_appear(ks, entry);
  entry->version = ++ks->version;
  entry_touch(ks, entry, true);
  if (!entry->groups) return;
  waits_tell(ks, entry, there ? KS_CHANGE_UPDATED : KS_CHANGE_CREATED, before, entry->value);
  waits_wake(ks, entry, LINK_CHANGE);
}

/* Makes room for a value of len bytes and its zero byte. The first `keep` bytes are those of the old value. If the old
 * value has other holders, or will have, it is left unchanged, and the caller must drop *before. */
static int make_room(struct keyspace *ks, struct entry *entry, size_t len, size_t keep, struct blob **before) {
  struct blob *old = entry->value, *fresh;
  const size_t need = len + 1, cap = keep > 0 && need < SIZE_MAX / 4 ? need + need / 2 : need;
  const bool shared = old && (old->holders > 1 || (entry->groups && entry_is_watched(entry)));
  *before = NULL;
  if (old && !shared) return need <= old->cap && need >= old->cap / 4 ? 0 : blob_resize(&entry->value, cap);
  const int result = blob_new(entry_budget(ks, entry), cap, &fresh);
  if (result < 0) return result;
  if (old) bytes_copy(fresh->data, old->data, keep);
  *before = old;
  entry->value = fresh;
  return 0;
}

/* Writes a value from `offset` on: 0 replaces it, its length appends. Without `wake`, which BARRIER wants, waiters for
 * the presence of the key are not woken; waiters for its value are. */
static int write_to(struct keyspace *ks, struct entry *entry, size_t offset, rdzv_bytes value, bool wake) {
  struct blob *before;
  int result = value.len > SIZE_MAX / 4 - offset ? RDZV_E_LIMIT : 0;
  if (result == 0) result = make_room(ks, entry, offset + value.len, offset, &before);
  if (result < 0) {
    entry_drop_if_unused(ks, entry);
    return result;
  }
  bytes_copy(entry->value->data + offset, value.data, value.len);
  entry->value->len = offset + value.len;
  entry->value->data[entry->value->len] = '\0';
  written(ks, entry, before);
  if (before) blob_drop(before);
  if (entry->groups && wake) waits_wake(ks, entry, LINK_PRESENT);
  if (entry->groups) waits_wake(ks, entry, LINK_VALUE);
  if (ks->busy) waits_settle(ks);
  return 0;
}

int ks_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value) {
  struct entry *entry;
  const int result = entry_find_or_make(ks, key, &entry);
  return result < 0 ? result : write_to(ks, entry, 0, value, true);
}

int ks_append(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value) {
  struct entry *entry;
  const int result = entry_find_or_make(ks, key, &entry);
  return result < 0 ? result : write_to(ks, entry, value_of(entry).len, value, true);
}

/* Finds the entry of a key, and computes its next number. */
static int add_up(struct keyspace *ks, rdzv_bytes key, int64_t delta, struct entry **entry, int64_t *sum) {
  int64_t number = 0;
  const int result = entry_find_or_make(ks, key, entry);
  if (result < 0) return result;
  if ((*entry)->version && ks_parse_number(value_of(*entry), &number) < 0) return RDZV_E_NOT_A_NUMBER;
  *sum = (int64_t)((uint64_t)number + (uint64_t)delta); /* wraps */
  return 0;
}

static int write_number(struct keyspace *ks, struct entry *entry, int64_t number, bool wake) {
  char text[NUMBER_BYTES];
  return write_to(ks, entry, 0, number_text(number, text), wake);
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

int ks_stage(struct keyspace *ks, rdzv_bytes key, rdzv_bytes value, struct ks_stage *out) {
  struct ks_stage stage = {0};
  int result = entry_find_or_make(ks, key, &stage.entry);
  if (result < 0) return result;
  result =
      value.len > SIZE_MAX / 4 ? RDZV_E_LIMIT : blob_new(entry_budget(ks, stage.entry), value.len + 1, &stage.value);
  if (result < 0) {
    entry_drop_if_unused(ks, stage.entry);
    return result;
  }
  stage.entry->pins++;
  bytes_copy(stage.value->data, value.data, value.len);
  stage.value->data[value.len] = '\0';
  stage.value->len = value.len;
  *out = stage;
  return 0;
}

void ks_unstage(struct keyspace *ks, struct ks_stage *stage) {
  blob_drop(stage->value);
  stage->entry->pins--;
  entry_drop_if_unused(ks, stage->entry);
}

/* Cannot fail. ks_unstage drops the old values. */
void ks_commit(struct keyspace *ks, struct ks_stage *stages, size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct entry *entry = stages[i].entry;
    struct blob *before = entry->value;
    entry->value = stages[i].value;
    stages[i].value = before;
    written(ks, entry, before);
    waits_wake(ks, entry, LINK_PRESENT);
    waits_wake(ks, entry, LINK_VALUE);
  }
  waits_settle(ks);
}

int ks_multi_set(struct keyspace *ks, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count) {
  struct ks_stage *stages = calloc(count ? count : 1, sizeof *stages);
  if (!stages) return RDZV_E_NO_MEMORY;
  size_t staged = 0;
  int result = 0;
  for (; staged < count && result == 0; staged += result == 0)
    result = ks_stage(ks, keys[staged], values[staged], &stages[staged]);
  if (result == 0) ks_commit(ks, stages, count);
  for (size_t i = 0; i < staged; i++) ks_unstage(ks, &stages[i]);
  free(stages);
  return result;
}

/* Sets the value of an entry, or of a new one for the key. */
static int set_found(struct keyspace *ks, struct entry **entry, rdzv_bytes key, rdzv_bytes value) {
  const int result = *entry ? 0 : entry_find_or_make(ks, key, entry);
  return result < 0 ? result : write_to(ks, *entry, 0, value, true);
}

int ks_compare_set(struct keyspace *ks, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_bytes *now) {
  struct entry *entry = entry_find(ks, key);
  const bool there = entry && entry->version;
  *now = there ? value_of(entry) : expected;
  if (there ? !bytes_equal(*now, expected) : expected.len > 0) return 0;
  const int result = set_found(ks, &entry, key, desired);
  if (result == 0) *now = value_of(entry);
  return result;
}

int ks_compare_set_version(struct keyspace *ks, rdzv_bytes key, uint64_t expected, rdzv_bytes value, bool *swapped) {
  struct entry *entry = entry_find(ks, key);
  *swapped = (entry ? entry->version : 0) == expected;
  return *swapped ? set_found(ks, &entry, key, value) : 0;
}

bool ks_delete(struct keyspace *ks, rdzv_bytes key) {
  struct entry *entry = entry_find(ks, key);
  if (!entry || !entry->version) return false;
  struct blob *before = entry->value;
  disappear(ks, entry);
  entry->value = NULL;
  entry->version = 0;
  entry_touch(ks, entry, true);
  waits_tell(ks, entry, KS_CHANGE_DELETED, before, NULL);
  blob_drop(before);
  waits_wake(ks, entry, LINK_CHANGE);
  entry_drop_if_unused(ks, entry);
  waits_settle(ks);
  return true;
}

size_t ks_delete_owned(struct keyspace *ks, struct ks_owner *owner, size_t most) {
  size_t done = 0;
  struct entry *entry, *next;
  DL_FOREACH_SAFE2(owner->first, entry, next, owned->next) {
    if (done == most) break;
    if (!entry->version && !entry->queue) continue; /* only waiters */
    while (entry->queue) entry_pop_item(ks, entry);
    const rdzv_bytes key = key_of(entry);
    done++;
    if (entry->version)
      ks_delete(ks, key); /* which may free it */
    else
      entry_drop_if_unused(ks, entry);
  }
  return done;
}

uint64_t ks_get(struct keyspace *ks, rdzv_bytes key, rdzv_bytes *value) {
  const struct entry *entry = entry_find(ks, key);
  *value = entry && entry->version ? value_of(entry) : (rdzv_bytes){0};
  return entry ? entry->version : 0;
}

struct blob *ks_share(struct keyspace *ks, rdzv_bytes key) {
  return blob_hold(entry_find(ks, key)->value);
}

bool ks_present(struct keyspace *ks, rdzv_bytes key) {
  return entry_is_as_wanted(entry_find(ks, key), KS_WANT_PRESENT);
}

bool ks_is_awaited(struct keyspace *ks, rdzv_bytes key) {
  const struct entry *entry = entry_find(ks, key);
  return entry && entry->groups;
}

/* ---- all keys ---- */

size_t ks_count(const struct keyspace *ks) { return ks->count; }

size_t ks_keys_bytes(const struct keyspace *ks) { return ks->keys_bytes; }

uint64_t ks_keys_version(const struct keyspace *ks) { return ks->keys_version; }

const void *ks_next(const struct keyspace *ks, const void *at, rdzv_bytes *key) {
  const struct entry *entry = at ? ((const struct entry *)at)->next : ks->first;
  if (entry) *key = key_of(entry);
  return entry;
}

void ks_walk_start(struct keyspace *ks) {
  ks->walk_at = ks->first;
  ks->walk_end = ks->first ? ks->first->prev : NULL;
}

bool ks_walk(struct keyspace *ks, rdzv_bytes *key) {
  struct entry *entry = ks->walk_at;
  if (!entry) return false;
  *key = key_of(entry);
  ks->walk_at = entry == ks->walk_end ? NULL : entry->next;
  return true;
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
  int result = entry_find_or_make(ks, key, &entry);
  if (result < 0) return result;
  const size_t size = sizeof(struct item) + value.len;
  struct item *item = NULL;
  struct budget *budget = entry_budget(ks, entry);
  if (!budget_take(budget, size)) {
    result = RDZV_E_LIMIT;
  } else if (!(item = malloc(size))) {
    budget_give(budget, size);
    result = RDZV_E_NO_MEMORY;
  }
  if (!item) {
    entry_drop_if_unused(ks, entry);
    return result;
  }
  item->len = value.len;
  item->slot = (struct record_slot){0};
  entry_touch(ks, entry, false);
  item->number = ks->tracks ? ++entry->kept->pushed : 0;
  bytes_copy(item->data, value.data, value.len);
  DL_APPEND(entry->queue, item);
  entry->queue_len++;
  waits_wake_for_item(ks, entry);
  return 0;
}

size_t ks_queue_len(struct keyspace *ks, rdzv_bytes key) {
  const struct entry *entry = entry_find(ks, key);
  return entry ? entry->queue_len : 0;
}

rdzv_bytes ks_queue_front(struct keyspace *ks, rdzv_bytes key) {
  const struct item *item = entry_find(ks, key)->queue;
  return (rdzv_bytes){item->data, item->len};
}

void ks_queue_drop(struct keyspace *ks, rdzv_bytes key) {
  struct entry *entry = entry_find(ks, key);
  entry_pop_item(ks, entry);
  entry_drop_if_unused(ks, entry);
}

void ks_queue_pass_on(struct keyspace *ks, rdzv_bytes key) {
  struct entry *entry = entry_find(ks, key);
  if (entry && entry->queue) waits_wake_for_item(ks, entry);
}

int ks_barrier(struct keyspace *ks, rdzv_bytes key, int64_t size, bool *full) {
  struct entry *entry;
  int64_t count = 0;
  const int result = add_up(ks, key, 1, &entry, &count);
  if (result < 0) return result;
  *full = count >= size;
  return write_number(ks, entry, count, *full);
}
