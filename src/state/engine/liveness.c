/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/engine/liveness.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { JUMP_MS = 1000 }; /* a wall clock that moves by so much more or less than the monotonic one has jumped */

void liveness_free(struct liveness *liveness) {
  for (size_t i = 0; i < liveness->count; i++) free((char *)liveness->nodes[i].desc.addr);
  free(liveness->nodes);
  *liveness = (struct liveness){0};
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

static int64_t credited(const struct liveness *liveness, const struct rendezvous_settings *settings, int64_t now_ms) {
  const int64_t gap = now_ms - liveness->last.mono_ms, most = rendezvous_dead_time(settings) * 2 / 5;
  return liveness->looked + (gap < most ? gap : most);
}

static bool has_jumped(const struct liveness *liveness, struct moment now) {
  const int64_t mono = now.mono_ms - liveness->last.mono_ms, wall = (now.wall_us - liveness->last.wall_us) / 1000;
  return wall - mono > JUMP_MS || mono - wall > JUMP_MS;
}

static bool sees_the_same(const struct liveness *liveness, const struct rendezvous_state *state) {
  if (liveness->count != state->count) return false;
  for (size_t i = 0; i < state->count; i++)
    if (node_compare(&liveness->nodes[i].desc, &state->nodes[i].desc) != 0) return false;
  return true;
}

/* The observation of that node in the old array, from *at on; both are in node order. */
static struct observed_node *follow(const struct liveness *liveness, size_t *at, const struct node_desc *node) {
  while (*at < liveness->count) {
    const int order = node_compare(&liveness->nodes[*at].desc, node);
    if (order == 0) return &liveness->nodes[(*at)++];
    if (order > 0) return NULL;
    ++*at;
  }
  return NULL;
}

static bool observe_node(struct liveness *liveness, size_t *at, const struct state_node *node,
                         struct observed_node *to) {
  struct observed_node *old = follow(liveness, at, &node->desc);
  if (old) {
    *to = *old;
    return old->kept = true;
  }
  char *addr = strdup(node->desc.addr);
  *to = (struct observed_node){.desc = {addr, node->desc.pid, node->desc.local_id},
                               .heartbeat = node->last_heartbeat,
                               .ours = node->ours,
                               .changed = liveness->looked,
                               .at_first = !liveness->started};
  return addr != NULL;
}

/* Makes the array of the nodes that are there now: those of before move over, the others begin. */
static bool meet(struct liveness *liveness, const struct rendezvous_state *state) {
  struct observed_node *nodes = calloc(state->count + 1, sizeof *nodes);
  if (!nodes) return false;
  size_t at = 0, met = 0;
  while (met < state->count && observe_node(liveness, &at, &state->nodes[met], &nodes[met])) met++;
  const bool all = met == state->count;
  /* What is dropped is what went away, or if memory ran out, what came. */
  for (size_t i = 0; i < met && !all; i++)
    if (!nodes[i].kept) free((char *)nodes[i].desc.addr);
  for (size_t i = 0; i < liveness->count; i++) {
    if (all && !liveness->nodes[i].kept) free((char *)liveness->nodes[i].desc.addr);
    liveness->nodes[i].kept = false;
  }
  struct observed_node *dropped = all ? liveness->nodes : nodes;
  if (all) {
    liveness->nodes = nodes;
    liveness->count = met;
  }
  free(dropped);
  return all;
}

static void note_heartbeat(struct observed_node *observed, const struct state_node *node, int64_t looked) {
  observed->kept = false;
  observed->ours = node->ours;
  if (observed->heartbeat == node->last_heartbeat) return;
  observed->heartbeat = node->last_heartbeat;
  observed->changed = looked;
  observed->at_first = observed->long_silent = false;
}

static int64_t latest_heartbeat(const struct liveness *liveness, size_t first, size_t end) {
  int64_t latest = DATETIME_MIN;
  for (size_t i = first; i < end; i++)
    if (liveness->nodes[i].heartbeat > latest) latest = liveness->nodes[i].heartbeat;
  return latest;
}

/* Compares the nodes of each host, which stand together, with the latest time that its clock is known to have shown. */
static void compare_on_hosts(struct liveness *liveness, const struct rendezvous_settings *settings,
                             const struct node_desc *self, int64_t now_us) {
  for (size_t first = 0, end; first < liveness->count; first = end) {
    const char *addr = liveness->nodes[first].desc.addr;
    for (end = first + 1; end < liveness->count && strcmp(liveness->nodes[end].desc.addr, addr) == 0;) end++;
    const int64_t latest = strcmp(addr, self->addr) == 0 ? now_us : latest_heartbeat(liveness, first, end);
    for (size_t i = first; i < end; i++) {
      struct observed_node *node = &liveness->nodes[i];
      const int64_t dead_us = rendezvous_dead_time_of(settings, node->ours) * 1000;
      if (node->at_first && node->heartbeat != DATETIME_NONE && node->heartbeat < latest - dead_us)
        node->long_silent = true;
    }
  }
}

int liveness_observe(struct liveness *liveness, const struct rendezvous_settings *settings,
                     const struct node_desc *self, const struct rendezvous_state *state, struct moment now,
                     rdzv_error *error) {
  if (!liveness->started) liveness->last = now;
  const int64_t before = liveness->looked;
  const bool jumped = has_jumped(liveness, now);
  liveness->looked = credited(liveness, settings, now.mono_ms);
  if (!sees_the_same(liveness, state) && !meet(liveness, state)) {
    liveness->looked = before;
    return error_no_memory(error);
  }
  for (size_t i = 0; i < liveness->count; i++) {
    note_heartbeat(&liveness->nodes[i], &state->nodes[i], liveness->looked);
    if (jumped) liveness->nodes[i].at_first = false;
  }
  liveness->last = now;
  liveness->started = true;
  compare_on_hosts(liveness, settings, self, now.wall_us);
  return 0;
}

/* ---- judging -------------------------------------------------------------------------------------------------- */

static bool is_dead(const struct observed_node *node, const struct rendezvous_settings *settings, int64_t looked) {
  return node->long_silent || looked - node->changed > rendezvous_dead_time_of(settings, node->ours);
}

static int by_node(const void *left, const void *right) {
  const struct observed_node *a = left, *b = right;
  return node_compare(&a->desc, &b->desc);
}

static const struct observed_node *find(const struct liveness *liveness, const struct node_desc *node) {
  const struct observed_node key = {.desc = *node};
  return liveness->count > 0 ? bsearch(&key, liveness->nodes, liveness->count, sizeof key, by_node) : NULL;
}

bool liveness_saw_change(const struct liveness *liveness, const struct node_desc *node) {
  const struct observed_node *found = find(liveness, node);
  return found && !found->at_first;
}

int64_t liveness_age(const struct liveness *liveness, const struct rendezvous_settings *settings,
                     const struct node_desc *node, int64_t now_ms) {
  const struct observed_node *found = find(liveness, node);
  return found ? credited(liveness, settings, now_ms) - found->changed : -1;
}

bool liveness_was_silent(const struct liveness *liveness, const struct rendezvous_settings *settings,
                         const struct node_desc *node, int64_t now_ms) {
  const struct observed_node *found = find(liveness, node);
  return found &&
         credited(liveness, settings, now_ms) - found->changed > rendezvous_dead_time_of(settings, found->ours) * 2 / 3;
}

int64_t liveness_wake(const struct liveness *liveness, const struct rendezvous_settings *settings,
                      const struct node_desc *self) {
  int64_t first = INT64_MAX;
  for (size_t i = 0; i < liveness->count; i++) {
    const struct observed_node *node = &liveness->nodes[i];
    const int64_t end = node->changed + rendezvous_dead_time_of(settings, node->ours);
    if (end < first && node_compare(&node->desc, self) != 0) first = end;
  }
  if (first == INT64_MAX) return INT64_MAX;
  const int64_t left = first + 1 - liveness->looked;
  const int64_t interval = liveness_look_interval(settings);
  return liveness->last.mono_ms + (left < 0 ? 0 : left < interval ? left : interval);
}

struct judge {
  const struct liveness *liveness;
  const struct rendezvous_settings *settings;
  const struct node_desc *self;
  int64_t looked;
  size_t left; /* observations that may still be of a node of the state; both come from the last to the first */
};

static bool judge(void *argument, const struct state_node *node) {
  struct judge *context = argument;
  while (context->left > 0) {
    const struct observed_node *seen = &context->liveness->nodes[context->left - 1];
    const int order = node_compare(&seen->desc, &node->desc);
    if (order < 0) return false;
    context->left--;
    if (order == 0)
      return is_dead(seen, context->settings, context->looked) && node_compare(&seen->desc, context->self) != 0;
  }
  return false;
}

size_t liveness_sanitize(const struct liveness *liveness, const struct rendezvous_settings *settings,
                         const struct node_desc *self, struct rendezvous_state *state, int64_t now_ms) {
  struct judge context = {liveness, settings, self, credited(liveness, settings, now_ms), liveness->count};
  return rendezvous_sanitize(state, settings, judge, &context);
}

/* ---- the store ------------------------------------------------------------------------------------------------ */

void silence_end(struct silence *silence, int64_t now_ms) { *silence = (struct silence){.looked_ms = now_ms}; }

int64_t silence_look(struct silence *silence, const struct rendezvous_settings *settings, int64_t now_ms) {
  const int64_t gap = now_ms - silence->looked_ms, most = silence_look_interval(settings);
  silence->lasted_ms += gap < most ? gap : most;
  silence->looked_ms = now_ms;
  return silence->lasted_ms;
}

int64_t silence_wake(const struct silence *silence, const struct rendezvous_settings *settings) {
  const int64_t left = rendezvous_dead_time(settings) - silence->lasted_ms, interval = silence_look_interval(settings);
  return silence->looked_ms + (left > 0 && left < interval ? left : interval);
}
