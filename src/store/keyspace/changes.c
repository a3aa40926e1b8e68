/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/keyspace/changes.h"

#include "store/keyspace/parts.h"

#include <stdlib.h>
#include <utlist.h>

void ks_track(struct keyspace *ks) { ks->tracks = true; }

size_t kept_size(const struct keyspace *ks) { return ks->tracks ? sizeof(struct entry_kept) : 0; }

bool kept_make(struct keyspace *ks, struct entry *entry) {
  (void)ks;
  entry->kept = calloc(1, sizeof *entry->kept);
  return entry->kept != NULL;
}

static void free_popped(struct keyspace *ks, struct entry *entry) {
  struct item *item, *next;
  LL_FOREACH_SAFE(entry->kept->popped, item, next) item_free(entry_budget(ks, entry), item);
  entry->kept->popped = NULL;
}

static void clean(struct keyspace *ks, struct entry *entry) {
  struct entry_kept *kept = entry->kept;
  free_popped(ks, entry);
  if (kept->is_dirty) DL_DELETE2(ks->dirty, entry, kept->dirty_prev, kept->dirty_next);
  kept->is_dirty = kept->is_value_dirty = false;
}

void kept_free(struct keyspace *ks, struct entry *entry) {
  if (entry->kept) clean(ks, entry);
}

void kept_touch(struct keyspace *ks, struct entry *entry, bool value) {
  struct entry_kept *kept = entry->kept;
  kept->is_value_dirty |= value;
  if (kept->is_dirty) return;
  kept->is_dirty = true;
  DL_APPEND2(ks->dirty, entry, kept->dirty_prev, kept->dirty_next);
}

bool ks_has_changed(const struct keyspace *ks) { return ks->dirty != NULL; }

/* ---- collecting --------------------------------------------------------------------------------------------- */

static void put_key(struct batch *batch, struct entry *entry, struct record_id id) {
  const struct record_key key = {entry->version, {entry->key, entry->key_len}};
  const rdzv_bytes value = entry->version ? blob_bytes(entry->value) : (rdzv_bytes){0};
  struct wire_writer head = {0};
  record_put_key(&head, &key);
  if (head.failed) batch->failed = true;
  if (value.len > BATCH_INLINE) batch_hold(batch, entry->value);
  batch_put(batch, id, (rdzv_bytes){head.buf.data, head.buf.len}, value, &entry->kept->slot);
  buf_free(&head.buf);
}

/* The new items are the last ones. */
static void put_items(struct batch *batch, struct entry *entry) {
  struct item *item = entry->queue ? entry->queue->prev : NULL, *first = NULL;
  for (; item && item->slot.parts == 0; item = item->prev) {
    first = item;
    if (item == entry->queue) break;
  }
  for (item = first; item; item = item->next) {
    const struct record_id id = {RECORD_ITEM, entry->kept->id, item->number};
    batch_put(batch, id, (rdzv_bytes){0}, (rdzv_bytes){item->data, item->len}, &item->slot);
  }
}

static void collect(struct keyspace *ks, struct batch *batch, struct entry *entry) {
  struct entry_kept *kept = entry->kept;
  const bool exists = entry->version || entry->queue;
  struct item *item;
  if (exists && kept->id == 0) kept->id = ++ks->ids;
  const struct record_id id = {RECORD_KEY, kept->id, 0};
  if (exists && (kept->is_value_dirty || kept->slot.parts == 0))
    put_key(batch, entry, id);
  else if (!exists && kept->slot.parts > 0)
    batch_remove(batch, id, &kept->slot);
  LL_FOREACH(kept->popped, item)
  batch_remove(batch, (struct record_id){RECORD_ITEM, kept->id, item->number}, &item->slot);
  put_items(batch, entry);
}

void ks_collect(struct keyspace *ks, struct batch *batch) {
  struct entry *entry;
  for (entry = ks->dirty; entry && !batch->failed; entry = entry->kept->dirty_next) collect(ks, batch, entry);
}

uint64_t ks_batch_of(struct keyspace *ks, rdzv_bytes key) {
  const struct entry *entry = entry_find(ks, key);
  if (!entry || entry->kept->is_dirty || (!entry->version && !entry->queue)) return UINT64_MAX;
  return entry->kept->batch;
}

void ks_collected(struct keyspace *ks, uint64_t number) {
  while (ks->dirty) {
    struct entry *entry = ks->dirty;
    clean(ks, entry);
    entry->kept->batch = number;
    entry_drop_if_unused(ks, entry);
  }
}

/* ---- loading ------------------------------------------------------------------------------------------------ */

uint64_t ks_version(const struct keyspace *ks) { return ks->version; }
void ks_set_version(struct keyspace *ks, uint64_t version) { ks->version = version; }

static bool note_entry(struct ks_loading *loading, struct entry *entry) {
  if (loading->count == loading->cap) {
    const size_t cap = loading->cap ? 2 * loading->cap : 1024;
    struct entry **entries = realloc(loading->entries, cap * sizeof(struct entry *));
    if (!entries) return false;
    loading->entries = entries;
    loading->cap = cap;
  }
  loading->entries[loading->count++] = entry;
  return true;
}

static int load_value(struct keyspace *ks, struct entry *entry, uint64_t version, rdzv_bytes value) {
  const int result = blob_new(entry_budget(ks, entry), value.len + 1, &entry->value);
  if (result < 0) return result;
  bytes_copy(entry->value->data, value.data, value.len);
  entry->value->data[value.len] = '\0';
  entry->value->len = value.len;
  entry_appear(ks, entry);
  entry->version = version;
  return 0;
}

int ks_load_key(struct keyspace *ks, struct ks_loading *loading, uint64_t id, const struct record_key *key,
                rdzv_bytes value, struct record_slot slot) {
  struct entry *entry;
  int result = id <= ks->ids || key->version > ks->version ? RDZV_E_CORRUPT : 0;
  if (result == 0) result = entry_find_or_make(ks, key->key, &entry);
  if (result < 0) return result;
  if (entry->kept->id != 0) return RDZV_E_CORRUPT;
  entry->kept->id = ks->ids = id;
  entry->kept->slot = slot;
  if (!note_entry(loading, entry)) return RDZV_E_NO_MEMORY;
  return key->version ? load_value(ks, entry, key->version, value) : 0;
}

static struct entry *find_id(const struct ks_loading *loading, uint64_t id) {
  size_t from = 0, to = loading->count;
  while (from < to) {
    const size_t middle = from + (to - from) / 2;
    if (loading->entries[middle]->kept->id < id)
      from = middle + 1;
    else
      to = middle;
  }
  return from < loading->count && loading->entries[from]->kept->id == id ? loading->entries[from] : NULL;
}

int ks_load_item(struct keyspace *ks, const struct ks_loading *loading, uint64_t id, uint64_t number, rdzv_bytes value,
                 struct record_slot slot) {
  struct entry *entry = find_id(loading, id);
  if (!entry || number <= entry->kept->pushed) return RDZV_E_CORRUPT;
  const size_t size = sizeof(struct item) + value.len;
  struct budget *budget = entry_budget(ks, entry);
  if (!budget_take(budget, size)) return RDZV_E_LIMIT;
  struct item *item = malloc(size);
  if (!item) {
    budget_give(budget, size);
    return RDZV_E_NO_MEMORY;
  }
  *item = (struct item){.number = number, .slot = slot, .len = value.len};
  bytes_copy(item->data, value.data, value.len);
  DL_APPEND(entry->queue, item);
  entry->queue_len++;
  entry->kept->pushed = number;
  return 0;
}

int ks_load_end(struct ks_loading *loading) {
  for (size_t i = 0; i < loading->count; i++)
    if (!loading->entries[i]->version && !loading->entries[i]->queue) return RDZV_E_CORRUPT;
  return 0;
}

void ks_load_free(struct ks_loading *loading) {
  free(loading->entries);
  *loading = (struct ks_loading){0};
}
