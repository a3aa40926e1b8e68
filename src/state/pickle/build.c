/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/build.h"

#include "base/buf.h"
#include "base/error.h"

#include <stdlib.h>

enum { MAX_ENTRIES = 4 * STATE_MAX_NODES }; /* each node in each collection */

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int compare_addrs(rdzv_bytes a, rdzv_bytes b) {
  const size_t least = a.len < b.len ? a.len : b.len;
  const int order = least > 0 ? memcmp(a.data, b.data, least) : 0;
  return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_nodes(const struct state_entry *a, const struct state_entry *b) {
  int order = compare_addrs(a->addr, b->addr);
  if (order == 0) order = compare(a->pid, b->pid);
  return order != 0 ? order : compare(a->local_id, b->local_id);
}

/* Those of one node stay in the order they came. */
static int compare_entries(const void *a, const void *b) {
  const struct state_entry *one = a, *other = b;
  const int order = compare_nodes(one, other);
  return order != 0 ? order : compare(one->number, other->number);
}

void state_builder_begin(struct state_builder *builder) { builder->next = 0; }

static bool make_room(struct state_builder *builder) {
  if (builder->count < builder->cap) return true;
  const size_t cap = builder->cap ? builder->cap * 2 : 16;
  struct state_entry *entries = realloc(builder->entries, cap * sizeof *entries);
  if (!entries) return false;
  builder->entries = entries;
  builder->cap = cap;
  return true;
}

static int check(const struct state_builder *builder, rdzv_bytes addr, rdzv_error *error) {
  if (addr.len > STATE_MAX_ADDR)
    return error_set(error, RDZV_E_CORRUPT, "the address '%s' of a node has %zu bytes, over the limit of %d",
                     bytes_quote(addr).text, addr.len, STATE_MAX_ADDR);
  if (addr.len > 0 && memchr(addr.data, 0, addr.len))
    return error_set(error, RDZV_E_CORRUPT, "the address '%s' of a node has a zero in it", bytes_quote(addr).text);
  if (builder->count >= MAX_ENTRIES) return error_set(error, RDZV_E_CORRUPT, "over %d nodes", STATE_MAX_NODES);
  return 0;
}

struct state_entry *state_builder_add(struct state_builder *builder, rdzv_bytes addr, int64_t pid, int64_t local_id,
                                      int *code, rdzv_error *error) {
  const struct state_entry new = {.addr = addr,
                                  .pid = pid,
                                  .local_id = local_id,
                                  .last_heartbeat = DATETIME_NONE,
                                  .number = (unsigned)builder->count};
  /* Mostly the heartbeats are in the order of the participants: then each finds its entry at once. After the first that
   * does not, the rest of the collection is sorted in: so what came last stays last. */
  if (builder->next < builder->count && compare_nodes(&builder->entries[builder->next], &new) == 0)
    return &builder->entries[builder->next++];
  builder->next = SIZE_MAX;
  *code = check(builder, addr, error);
  if (*code < 0) return NULL;
  if (!make_room(builder)) {
    *code = error_no_memory(error);
    return NULL;
  }
  builder->entries[builder->count] = new;
  return &builder->entries[builder->count++];
}

static void sort(struct state_builder *builder) {
  for (size_t i = 1; i < builder->count; i++)
    if (compare_nodes(&builder->entries[i - 1], &builder->entries[i]) > 0) {
      qsort(builder->entries, builder->count, sizeof *builder->entries, compare_entries);
      return;
    }
}

/* Puts the entries of each node together in its first one. */
static void merge(struct state_builder *builder) {
  size_t kept = 0;
  for (size_t i = 1; i < builder->count; i++) {
    struct state_entry *to = &builder->entries[kept];
    const struct state_entry *from = &builder->entries[i];
    if (compare_nodes(to, from) != 0) {
      builder->entries[++kept] = *from;
      continue;
    }
    if (from->kinds & NODE_PARTICIPANT) to->rank = from->rank;
    if (from->last_heartbeat != DATETIME_NONE) {
      to->last_heartbeat = from->last_heartbeat;
      to->ours = from->ours;
    }
    to->kinds |= from->kinds;
  }
  if (builder->count > 0) builder->count = kept + 1;
}

static bool same_addr_as_before(const struct state_builder *builder, size_t i) {
  return i > 0 && compare_addrs(builder->entries[i - 1].addr, builder->entries[i].addr) == 0;
}

static void fill(const struct state_builder *builder, struct rendezvous_state *state) {
  char *text = state->addrs;
  const char *last = NULL;
  for (size_t i = 0; i < builder->count; i++) {
    const struct state_entry *entry = &builder->entries[i];
    if (!same_addr_as_before(builder, i)) {
      last = text;
      bytes_copy(text, entry->addr.data, entry->addr.len);
      text += entry->addr.len;
      *text++ = '\0';
    }
    struct state_node *node = &state->nodes[i];
    *node = (struct state_node){
        .desc = {last, entry->pid, entry->local_id}, .last_heartbeat = entry->last_heartbeat, .ours = entry->ours};
    state_set_kinds(state, node, entry->kinds);
    if (entry->kinds & NODE_PARTICIPANT) node->rank = entry->rank;
  }
  state->count = builder->count;
}

int state_builder_finish(struct state_builder *builder, struct rendezvous_state *state, rdzv_error *error) {
  sort(builder);
  merge(builder);
  if (builder->count > STATE_MAX_NODES)
    return error_set(error, RDZV_E_CORRUPT, "%zu nodes, over the limit of %d", builder->count, STATE_MAX_NODES);
  if (builder->count == 0) return 0;
  size_t bytes = 0;
  for (size_t i = 0; i < builder->count; i++)
    if (!same_addr_as_before(builder, i)) bytes += builder->entries[i].addr.len + 1;
  state->nodes = malloc(builder->count * sizeof *state->nodes);
  state->addrs = malloc(bytes);
  if (!state->nodes || !state->addrs) {
    free(state->nodes);
    free(state->addrs);
    state->nodes = NULL;
    state->addrs = NULL;
    return error_no_memory(error);
  }
  state->cap = builder->count;
  fill(builder, state);
  return 0;
}

void state_builder_free(struct state_builder *builder) {
  free(builder->entries);
  *builder = (struct state_builder){0};
}
