/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/state.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

int node_compare(const struct node_desc *a, const struct node_desc *b) {
  int order = strcmp(a->addr, b->addr); /* the order of UTF-8 is that of the code points */
  if (order == 0) order = compare(a->pid, b->pid);
  return order != 0 ? order : compare(a->local_id, b->local_id);
}

struct node_text node_text(const struct node_desc *node) {
  struct node_text text;
  snprintf(text.text, sizeof text.text, "%.*s_%" PRId64 "_%" PRId64, STATE_MAX_ADDR, node->addr, node->pid,
           node->local_id);
  return text;
}

/* ---- members -------------------------------------------------------------------------------------------------- */

/* Where the node is or would be. */
static size_t position(const struct rendezvous_state *state, const struct node_desc *node, bool *found) {
  size_t low = 0, high = state->count;
  *found = false;
  while (low < high && !*found) {
    const size_t middle = low + (high - low) / 2;
    const int order = node_compare(&state->members[middle].node, node);
    *found = order == 0;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return *found ? high : low;
}

struct state_node *state_find(const struct rendezvous_state *state, const struct node_desc *node) {
  bool found;
  const size_t at = position(state, node, &found);
  return found ? &state->members[at] : NULL;
}

static int check_new(const struct rendezvous_state *state, const struct node_desc *node, rdzv_error *error) {
  const rdzv_bytes addr = rdzv_str(node->addr);
  if (addr.len > STATE_MAX_ADDR)
    return error_set(error, RDZV_E_LIMIT, "the node's address has %zu bytes, over the limit of %d", addr.len,
                     STATE_MAX_ADDR);
  if (!utf8_is_valid(addr))
    return error_set(error, RDZV_E_INVALID, "the node's address '%s' is not UTF-8", bytes_quote(addr).text);
  if (state->count >= STATE_MAX_MEMBERS)
    return error_set(error, RDZV_E_LIMIT, "the rendezvous has %zu members, it can have no more", state->count);
  return 0;
}

static bool make_room(struct rendezvous_state *state) {
  if (state->count < state->cap) return true;
  const size_t cap = state->cap ? state->cap * 2 : 8;
  struct state_node *members = realloc(state->members, cap * sizeof *members);
  if (!members) return false;
  state->members = members;
  state->cap = cap;
  return true;
}

int state_insert(struct rendezvous_state *state, const struct node_desc *node, struct state_node **member,
                 rdzv_error *error) {
  bool found;
  const size_t at = position(state, node, &found);
  if (!found) {
    const int result = check_new(state, node, error);
    if (result < 0) return result;
    char *addr = strdup(node->addr);
    if (!addr || !make_room(state)) {
      free(addr);
      return error_no_memory(error);
    }
    struct state_node *place = &state->members[at];
    memmove(place + 1, place, (state->count - at) * sizeof *place);
    *place = (struct state_node){
        .node = {addr, node->pid, node->local_id}, .last_heartbeat = DATETIME_NONE, .owns_addr = true};
    state->count++;
  }
  *member = &state->members[at];
  return 0;
}

static void free_addr(const struct state_node *member) {
  if (member->owns_addr) free((char *)member->node.addr);
}

void state_remove(struct rendezvous_state *state, struct state_node *member) {
  state_set_kinds(state, member, 0);
  free_addr(member);
  state->count--;
  memmove(member, member + 1, (size_t)(state->members + state->count - member) * sizeof *member);
}

void state_set_kinds(struct rendezvous_state *state, struct state_node *member, unsigned kinds) {
  const struct {
    unsigned kind;
    size_t *num;
  } each[] = {{STATE_PARTICIPANT, &state->num_participants},
              {STATE_WAITING, &state->num_waiting},
              {STATE_SPARE, &state->num_spares}};
  for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
    if (member->kinds & each[i].kind) --*each[i].num;
    if (kinds & each[i].kind) ++*each[i].num;
  }
  if (!(kinds & STATE_PARTICIPANT)) member->rank = 0;
  member->kinds = kinds;
}

/* ---- whole states --------------------------------------------------------------------------------------------- */

void state_free(struct rendezvous_state *state) {
  for (size_t i = 0; i < state->count; i++) free_addr(&state->members[i]);
  free(state->members);
  free(state->addrs);
  pynames_free(&state->extra);
  *state = STATE_EMPTY;
}

/* All addresses in one piece: a copy of thousands of members is three allocations. */
static bool copy_members(struct rendezvous_state *to, const struct rendezvous_state *from) {
  size_t bytes = 0;
  for (size_t i = 0; i < from->count; i++) bytes += strlen(from->members[i].node.addr) + 1;
  char *addrs = malloc(bytes);
  struct state_node *members = malloc(from->count * sizeof *members);
  if (!addrs || !members) {
    free(addrs);
    free(members);
    return false;
  }
  memcpy(members, from->members, from->count * sizeof *members);
  to->members = members;
  to->addrs = addrs;
  to->count = to->cap = from->count;
  for (size_t i = 0; i < to->count; i++) {
    const size_t size = strlen(members[i].node.addr) + 1;
    members[i].node.addr = memcpy(addrs, members[i].node.addr, size);
    members[i].owns_addr = false;
    addrs += size;
  }
  return true;
}

bool state_copy(struct rendezvous_state *to, const struct rendezvous_state *from) {
  *to = *from;
  to->members = NULL;
  to->addrs = NULL;
  to->count = to->cap = 0;
  if (pynames_copy(&to->extra, &from->extra) && (from->count == 0 || copy_members(to, from))) return true;
  state_free(to);
  return false;
}

static bool members_equal(const struct state_node *a, const struct state_node *b) {
  return a->kinds == b->kinds && a->rank == b->rank && a->last_heartbeat == b->last_heartbeat && a->ours == b->ours &&
         node_compare(&a->node, &b->node) == 0;
}

bool state_equal(const struct rendezvous_state *a, const struct rendezvous_state *b) {
  if (a->round != b->round || a->complete != b->complete || a->closed != b->closed || a->deadline != b->deadline ||
      a->count != b->count || !pynames_equal(&a->extra, &b->extra))
    return false;
  for (size_t i = 0; i < a->count; i++)
    if (!members_equal(&a->members[i], &b->members[i])) return false;
  return true;
}
