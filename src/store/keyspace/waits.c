/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/keyspace/parts.h"

#include <stdlib.h>
#include <utlist.h>

/* ---- groups ------------------------------------------------------------------------------------------------ */

static struct wait_group *group_of(const struct entry *entry, enum link_kind kind) {
  struct wait_group *group = entry->groups;
  while (group && group->kind != kind) group = group->next;
  return group;
}

bool entry_is_watched(const struct entry *entry) { return group_of(entry, LINK_WATCH) != NULL; }

static int group_find_or_make(struct keyspace *ks, struct entry *entry, enum link_kind kind, struct wait_group **out) {
  struct wait_group *group = group_of(entry, kind);
  if (!group) {
    if (!budget_take(ks->budget, sizeof *group)) return RDZV_E_LIMIT;
    group = calloc(1, sizeof *group);
    if (!group) {
      budget_give(ks->budget, sizeof *group);
      return RDZV_E_NO_MEMORY;
    }
    group->entry = entry;
    group->kind = kind;
    LL_PREPEND(entry->groups, group);
  }
  *out = group;
  return 0;
}

static void make_busy(struct keyspace *ks, struct wait_group *group) {
  if (group->busy) return;
  group->busy = true;
  DL_APPEND2(ks->busy, group, busy_prev, busy_next);
}

static void make_idle(struct keyspace *ks, struct wait_group *group) {
  if (group->busy) DL_DELETE2(ks->busy, group, busy_prev, busy_next);
  group->busy = false;
}

static void drop_oldest_change(struct keyspace *ks, struct wait_group *group) {
  struct change *change = group->changes;
  group->changes = change->next;
  blob_drop(change->before);
  blob_drop(change->after);
  free(change);
  budget_give(ks->budget, sizeof *change);
  group->untold = group->count;
}

/* A group without links. */
static void group_free(struct keyspace *ks, struct wait_group *group) {
  struct entry *entry = group->entry;
  make_idle(ks, group);
  while (group->changes) drop_oldest_change(ks, group);
  if (entry) LL_DELETE(entry->groups, group);
  free(group);
  budget_give(ks->budget, sizeof *group);
  if (entry) entry_drop_if_unused(ks, entry);
}

static void unlist(struct keyspace *ks, struct ks_link *link) {
  struct wait_group *group = link->group;
  DL_DELETE(group->links, link); /* NOLINT: a link that is listed has a group */
  link->group = NULL;
  group->count--;
  if (group->changes && link->told < group->changes->number) group->untold--;
  if (group->count == 0) group_free(ks, group);
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

static void free_links(struct keyspace *ks, struct ks_waiter *waiter) {
  budget_give(ks->budget, waiter->links_count * sizeof *waiter->links);
  free(waiter->links);
  *waiter = (struct ks_waiter){0};
}

size_t ks_cancel_some(struct keyspace *ks, struct ks_waiter *waiter, size_t most) {
  size_t done = 0;
  waiter->missing = SIZE_MAX; /* so that it is not woken */
  while (waiter->listed > 0 && done < most) {
    struct ks_link *link = &waiter->links[--waiter->listed];
    if (link->group) unlist(ks, link);
    done++;
  }
  if (waiter->listed == 0) free_links(ks, waiter);
  return done;
}

void ks_cancel(struct keyspace *ks, struct ks_waiter *waiter) { ks_cancel_some(ks, waiter, SIZE_MAX); }

void waits_forget(struct keyspace *ks, struct entry *entry) {
  entry->pins++; /* keeps the entry meanwhile */
  while (entry->groups) ks_cancel(ks, entry->groups->links->waiter);
  entry->pins--;
}

int ks_wait_open(struct keyspace *ks, struct ks_waiter *waiter, size_t count) {
  if (count > SIZE_MAX / sizeof *waiter->links || !budget_take(ks->budget, count * sizeof *waiter->links))
    return RDZV_E_LIMIT;
  struct ks_link *links = calloc(count, sizeof *links);
  if (!links) {
    budget_give(ks->budget, count * sizeof *links);
    return RDZV_E_NO_MEMORY;
  }
  *waiter = (struct ks_waiter){.links = links, .links_count = count, .missing = 1};
  return 0;
}

static int list_under(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key, enum link_kind kind) {
  struct entry *entry;
  struct wait_group *group;
  int result = entry_find_or_make(ks, key, &entry);
  if (result < 0) return result;
  result = group_find_or_make(ks, entry, kind, &group);
  if (result < 0) {
    entry_drop_if_unused(ks, entry);
    return result;
  }
  const struct ks_link *newest = group->links ? group->links->prev : NULL;
  if (newest && newest->waiter == waiter) return 0; /* the key was named twice */
  struct ks_link *link = &waiter->links[waiter->listed++];
  *link = (struct ks_link){.group = group, .waiter = waiter, .told = group->number};
  DL_APPEND(group->links, link); /* NOLINT: a head of utlist always has a prev */
  group->count++;
  waiter->missing++;
  return 0;
}

int ks_wait_add(struct keyspace *ks, struct ks_waiter *waiter, enum ks_want want, rdzv_bytes key) {
  if (entry_is_as_wanted(entry_find(ks, key), want)) return 0;
  return list_under(ks, waiter, key, (enum link_kind)want);
}

bool ks_wait_close(struct keyspace *ks, struct ks_waiter *waiter) {
  if (--waiter->missing > 0) return true;
  free_links(ks, waiter);
  return false;
}

int ks_wait(struct keyspace *ks, struct ks_waiter *waiter, enum ks_want want, const rdzv_bytes *keys, size_t count) {
  size_t missing = 0;
  for (size_t i = 0; i < count; i++) missing += !entry_is_as_wanted(entry_find(ks, keys[i]), want);
  if (missing == 0) return 0;
  int result = ks_wait_open(ks, waiter, missing);
  if (result < 0) return result;
  for (size_t i = 0; i < count && result == 0; i++) result = ks_wait_add(ks, waiter, want, keys[i]);
  if (result < 0)
    ks_cancel(ks, waiter);
  else
    ks_wait_close(ks, waiter);
  return result;
}

static int wait_for_one(struct keyspace *ks, struct ks_waiter *waiter, rdzv_bytes key, enum link_kind kind) {
  int result = ks_wait_open(ks, waiter, 1);
  if (result < 0) return result;
  result = list_under(ks, waiter, key, kind);
  if (result < 0)
    ks_cancel(ks, waiter);
  else
    ks_wait_close(ks, waiter);
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

/* ---- waking ------------------------------------------------------------------------------------------------ */

/* Removes the link from its key. The last link of a waiter ends its wait. */
static void satisfy(struct keyspace *ks, struct ks_link *link) {
  struct ks_waiter *waiter = link->waiter;
  unlist(ks, link);
  if (--waiter->missing > 0) return;
  free_links(ks, waiter);
  ks->events.wake(ks->user, waiter);
}

void waits_wake(struct keyspace *ks, struct entry *entry, enum link_kind kind) {
  struct wait_group *group = group_of(entry, kind);
  if (!group) return;
  LL_DELETE(entry->groups, group);
  group->entry = NULL;
  make_busy(ks, group);
}

void waits_wake_for_item(struct keyspace *ks, struct entry *entry) {
  const struct wait_group *group = group_of(entry, LINK_QUEUE);
  if (!group) group = group_of(entry, LINK_PRESENT);
  if (group) satisfy(ks, group->links);
}

/* ---- telling ----------------------------------------------------------------------------------------------- */

static void keep_change(struct keyspace *ks, struct wait_group *group, enum ks_change what, struct blob *before,
                        struct blob *after) {
  struct change *change = budget_take(ks->budget, sizeof *change) ? malloc(sizeof *change) : NULL;
  group->number++;
  if (!change) {
    group->lost = true;
    return;
  }
  *change = (struct change){NULL, group->number, what, blob_hold(before), blob_hold(after)};
  if (group->changes) {
    group->newest->next = change;
  } else {
    group->changes = change;
    group->untold = group->count;
  }
  group->newest = change;
}

void waits_tell(struct keyspace *ks, struct entry *entry, enum ks_change what, struct blob *before,
                struct blob *after) {
  struct wait_group *group = group_of(entry, LINK_WATCH);
  if (!group) return;
  if (ks->deferred) {
    if (!group->lost) keep_change(ks, group, what, before, after);
    make_busy(ks, group);
    return;
  }
  const struct ks_news news = {what, {entry->key, entry->key_len}, before, after};
  struct ks_link *link;
  DL_FOREACH(group->links, link) ks->events.changed(ks->user, link->waiter, &news);
}

static void move_to_tail(struct wait_group *group, struct ks_link *link) {
  DL_DELETE(group->links, link);
  DL_APPEND(group->links, link);
}

/* Tells the oldest change to the next watcher, or drops the change if all know it. */
static void tell_next(struct keyspace *ks, struct wait_group *group) {
  const struct change *change = group->changes;
  if (!change) {
    make_idle(ks, group);
  } else if (group->untold == 0) {
    drop_oldest_change(ks, group);
  } else {
    struct ks_link *link = group->links;
    move_to_tail(group, link);
    group->untold--;
    if (link->told >= change->number) return; /* it came later */
    link->told = change->number;
    const struct ks_news news = {
        change->what, {group->entry->key, group->entry->key_len}, change->before, change->after};
    ks->events.changed(ks->user, link->waiter, &news);
  }
}

/* Tells the next watcher that it has missed a change. */
static void tell_loss(struct keyspace *ks, struct wait_group *group) {
  struct ks_link *link = group->links;
  if (link->told == UINT64_MAX) { /* all know it */
    group->lost = false;
    while (group->changes) drop_oldest_change(ks, group);
    make_idle(ks, group);
    return;
  }
  move_to_tail(group, link);
  link->told = UINT64_MAX;
  ks->events.changed(ks->user, link->waiter, NULL);
}

size_t ks_settle(struct keyspace *ks, size_t most) {
  enum { IN_A_ROW = 32 }; /* waiters of one key, before those of another key */
  size_t done = 0;
  for (; done < most && ks->busy; done++) {
    struct wait_group *group = ks->busy;
    if (group->kind != LINK_WATCH)
      satisfy(ks, group->links);
    else if (group->lost)
      tell_loss(ks, group);
    else
      tell_next(ks, group);
    if (done % IN_A_ROW < IN_A_ROW - 1 || ks->busy != group) continue;
    make_idle(ks, group);
    make_busy(ks, group);
  }
  return done;
}

void waits_settle(struct keyspace *ks) {
  if (!ks->deferred) ks_settle(ks, SIZE_MAX);
}

bool ks_is_busy(const struct keyspace *ks) { return ks->busy != NULL; }

void ks_defer(struct keyspace *ks) { ks->deferred = true; }
