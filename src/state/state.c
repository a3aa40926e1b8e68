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

/* Where the node is or would be. */
static size_t position(const struct rendezvous_state *state, const struct node_desc *node, bool *found) {
  size_t low = 0, high = state->count;
  *found = false;
  while (low < high && !*found) {
    const size_t middle = low + (high - low) / 2;
    const int order = node_compare(&state->nodes[middle].desc, node);
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
  return found ? &state->nodes[at] : NULL;
}

static int check_new(const struct rendezvous_state *state, const struct node_desc *node, rdzv_error *error) {
  const rdzv_bytes addr = rdzv_str(node->addr);
  if (addr.len > STATE_MAX_ADDR)
    return error_set(error, RDZV_E_LIMIT, "the node's address has %zu bytes, over the limit of %d", addr.len,
                     STATE_MAX_ADDR);
  if (!utf8_is_valid(addr))
    return error_set(error, RDZV_E_INVALID, "the node's address '%s' is not UTF-8", bytes_quote(addr).text);
  if (state->count >= STATE_MAX_NODES)
    return error_set(error, RDZV_E_LIMIT, "the rendezvous has %zu nodes, which is the limit", state->count);
  return 0;
}

static bool make_room(struct rendezvous_state *state) {
  if (state->count < state->cap) return true;
  const size_t cap = state->cap ? state->cap * 2 : 8;
  struct state_node *nodes = realloc(state->nodes, cap * sizeof *nodes);
  if (!nodes) return false;
  state->nodes = nodes;
  state->cap = cap;
  return true;
}

int state_insert(struct rendezvous_state *state, const struct node_desc *desc, struct state_node **node,
                 rdzv_error *error) {
  bool found;
  const size_t at = position(state, desc, &found);
  if (!found) {
    const int result = check_new(state, desc, error);
    if (result < 0) return result;
    char *addr = strdup(desc->addr);
    if (!addr || !make_room(state)) {
      free(addr);
      return error_no_memory(error);
    }
    struct state_node *place = &state->nodes[at];
    memmove(place + 1, place, (state->count - at) * sizeof *place);
    *place = (struct state_node){
        .desc = {addr, desc->pid, desc->local_id}, .last_heartbeat = DATETIME_NONE, .owns_addr = true};
    state->count++;
  }
  *node = &state->nodes[at];
  return 0;
}

static void free_addr(const struct state_node *node) {
  if (node->owns_addr) free((char *)node->desc.addr);
}

void state_remove(struct rendezvous_state *state, struct state_node *node) {
  state_set_kinds(state, node, 0);
  free_addr(node);
  state->count--;
  memmove(node, node + 1, (size_t)(state->nodes + state->count - node) * sizeof *node);
}

void state_set_kinds(struct rendezvous_state *state, struct state_node *node, unsigned kinds) {
  const struct {
    unsigned kind;
    size_t *num;
  } each[] = {{NODE_PARTICIPANT, &state->num_participants},
              {NODE_WAITING, &state->num_waiting},
              {NODE_SPARE, &state->num_spares}};
  for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
    if (node->kinds & each[i].kind) --*each[i].num;
    if (kinds & each[i].kind) ++*each[i].num;
  }
  if (!(kinds & NODE_PARTICIPANT)) node->rank = 0;
  node->kinds = kinds;
}

/* ---- whole states --------------------------------------------------------------------------------------------- */

void state_free(struct rendezvous_state *state) {
  for (size_t i = 0; i < state->count; i++) free_addr(&state->nodes[i]);
  free(state->nodes);
  free(state->addrs);
  pynames_free(&state->extra);
  *state = STATE_EMPTY;
}

/* All addresses in one piece: a copy of thousands of nodes is three allocations. */
static bool copy_nodes(struct rendezvous_state *to, const struct rendezvous_state *from) {
  size_t bytes = 0;
  for (size_t i = 0; i < from->count; i++) bytes += strlen(from->nodes[i].desc.addr) + 1;
  char *addrs = malloc(bytes);
  struct state_node *nodes = malloc(from->count * sizeof *nodes);
  if (!addrs || !nodes) {
    free(addrs);
    free(nodes);
    return false;
  }
  memcpy(nodes, from->nodes, from->count * sizeof *nodes);
  to->nodes = nodes;
  to->addrs = addrs;
  to->count = to->cap = from->count;
  for (size_t i = 0; i < to->count; i++) {
    const size_t size = strlen(nodes[i].desc.addr) + 1;
    nodes[i].desc.addr = memcpy(addrs, nodes[i].desc.addr, size);
    nodes[i].owns_addr = false;
    addrs += size;
  }
  return true;
}

int state_check_round(const struct rendezvous_state *state, rdzv_error *error) {
  if (state->round >= 0 && state->round <= STATE_MOST_ROUND) return 0;
  return error_set(error, RDZV_E_CORRUPT, "%" PRId64 " is not a valid round number", state->round);
}

bool state_copy(struct rendezvous_state *to, const struct rendezvous_state *from) {
  *to = *from;
  to->nodes = NULL;
  to->addrs = NULL;
  to->count = to->cap = 0;
  if (pynames_copy(&to->extra, &from->extra) && (from->count == 0 || copy_nodes(to, from))) return true;
  state_free(to);
  return false;
}
