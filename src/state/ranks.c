/* SPDX-License-Identifier: BSD-3-Clause */
/* Which participant gets which rank. The node that completes a round decides; the others read the result. */
#include "base/error.h"
#include "state/rendezvous.h"

#include <stdlib.h>
#include <string.h>

/* ---- orders --------------------------------------------------------------------------------------------------- */

static size_t digits_at(const char *text) { return strspn(text, "0123456789"); }

/* Two runs of digits as numbers of any length: without leading zeros, the longer is the greater. */
static int compare_numbers(const char *a, size_t a_len, const char *b, size_t b_len) {
  while (a_len > 0 && *a == '0') a++, a_len--;
  while (b_len > 0 && *b == '0') b++, b_len--;
  if (a_len != b_len) return a_len < b_len ? -1 : 1;
  return a_len > 0 ? memcmp(a, b, a_len) : 0;
}

int natural_compare(const char *a, const char *b) {
  while (*a && *b) {
    const size_t a_len = digits_at(a), b_len = digits_at(b);
    const bool numbers = a_len > 0 && b_len > 0;
    const int order = numbers ? compare_numbers(a, a_len, b, b_len) : (unsigned char)*a - (unsigned char)*b;
    if (order != 0) return order;
    a += numbers ? a_len : 1;
    b += numbers ? b_len : 1;
  }
  return (unsigned char)*a - (unsigned char)*b;
}

/* Addresses that differ only in leading zeros are in PyTorch's order, so that the order is total. */
static int by_nature(const void *left, const void *right) {
  const struct state_node *a = *(struct state_node *const *)left, *b = *(struct state_node *const *)right;
  const int order = natural_compare(a->desc.addr, b->desc.addr);
  return order != 0 ? order : node_compare(&a->desc, &b->desc);
}

static void rank_in_order(struct state_node **participants, size_t count) {
  for (size_t i = 0; i < count; i++) participants[i]->rank = (int64_t)i;
}

/* ---- the ranks of the round before ---------------------------------------------------------------------------- */

struct kept_rank {
  const char *node; /* as text; the state's */
  int64_t rank;
};

static int by_text(const void *left, const void *right) {
  const struct kept_rank *a = left, *b = right;
  return strcmp(a->node, b->node);
}

/* *kept is sorted by by_text, and the caller frees it. Other nodes can write the attribute, so a malformed one counts
 * as missing. */
static int load_kept(const struct rendezvous_state *state, struct kept_rank **kept, size_t *count, rdzv_error *error) {
  const struct pyvalue *value = pynames_find(&state->extra, RANKS_ATTRIBUTE);
  *count = 0;
  *kept = NULL;
  if (!value || value->kind != PYVALUE_DICT || value->count == 0) return 0;
  *kept = malloc(value->count / 2 * sizeof **kept);
  if (!*kept) return error_no_memory(error);
  for (size_t i = 0; i + 1 < value->count; i += 2) {
    const struct pyvalue *node = &value->items[i], *rank = &value->items[i + 1];
    if (node->kind != PYVALUE_STR || rank->kind != PYVALUE_INT) continue;
    (*kept)[(*count)++] = (struct kept_rank){(const char *)node->bytes, rank->number};
  }
  qsort(*kept, *count, sizeof **kept, by_text);
  return 0;
}

static int64_t find_kept(const struct kept_rank *kept, size_t count, const struct node_desc *node) {
  const struct node_text text = node_text(node);
  const struct kept_rank key = {text.text, 0};
  const struct kept_rank *found = count > 0 ? bsearch(&key, kept, count, sizeof *kept, by_text) : NULL;
  return found ? found->rank : -1;
}

static bool keep_rank(struct pyvalue *pair, const struct state_node *node) {
  const struct node_text text = node_text(&node->desc);
  pair[1] = (struct pyvalue){.kind = PYVALUE_INT, .number = node->rank};
  return pyvalue_make_bytes(&pair[0], PYVALUE_STR, rdzv_str(text.text));
}

static int save_kept(struct rendezvous_state *state, struct state_node *const *participants, size_t count,
                     rdzv_error *error) {
  if (count > RANKS_MAX_KEPT) {
    pynames_remove(&state->extra, RANKS_ATTRIBUTE);
    return 0;
  }
  struct pyvalue value;
  if (!pyvalue_make_items(&value, PYVALUE_DICT, 2 * count)) return error_no_memory(error);
  bool kept = true;
  for (size_t i = 0; i < count && kept; i++) kept = keep_rank(&value.items[2 * i], participants[i]);
  if (kept && pynames_set(&state->extra, RANKS_ATTRIBUTE, &value)) return 0;
  pyvalue_free(&value);
  return error_no_memory(error);
}

/* A kept rank that is taken, or beyond the end, counts as none. */
static void rank_stably(struct state_node **participants, size_t count, const struct kept_rank *kept, size_t kept_count,
                        bool *taken) {
  for (size_t i = 0; i < count; i++) {
    const int64_t rank = find_kept(kept, kept_count, &participants[i]->desc);
    const bool free_rank = rank >= 0 && (uint64_t)rank < count && !taken[rank];
    if (free_rank) taken[rank] = true;
    participants[i]->rank = free_rank ? rank : -1;
  }
  size_t next = 0;
  for (size_t i = 0; i < count; i++) {
    if (participants[i]->rank >= 0) continue;
    while (taken[next]) next++;
    participants[i]->rank = (int64_t)next++;
  }
}

static int assign_stable(struct rendezvous_state *state, struct state_node **participants, size_t count,
                         rdzv_error *error) {
  struct kept_rank *kept;
  size_t kept_count;
  int result = load_kept(state, &kept, &kept_count, error);
  if (result < 0) return result;
  bool *taken = calloc(count + 1, sizeof *taken);
  if (taken) rank_stably(participants, count, kept, kept_count, taken);
  result = taken ? save_kept(state, participants, count, error) : error_no_memory(error);
  free(taken);
  free(kept);
  return result;
}

int rendezvous_assign_ranks(struct rendezvous_state *state, enum rank_order order, rdzv_error *error) {
  struct state_node **participants = calloc(state->count + 1, sizeof(struct state_node *));
  if (!participants) return error_no_memory(error);
  size_t count = 0;
  for (size_t i = 0; i < state->count; i++)
    if (state->nodes[i].kinds & NODE_PARTICIPANT) participants[count++] = &state->nodes[i];
  int result = 0;
  if (order == RANK_ORDER_NATURAL) qsort(participants, count, sizeof(struct state_node *), by_nature);
  if (order == RANK_ORDER_STABLE)
    result = assign_stable(state, participants, count, error);
  else
    rank_in_order(participants, count);
  free(participants);
  return result;
}
