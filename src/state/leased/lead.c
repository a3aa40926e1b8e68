/* SPDX-License-Identifier: BSD-3-Clause */
/* What the oldest node of a round does: it knows all keys of nodes, decides by the rules of state/rendezvous.h, and
 * makes the world. */
#include "base/error.h"
#include "state/leased/machine.h"

#include <stdlib.h>
#include <string.h>

/* ---- seats ---------------------------------------------------------------------------------------------------- */

static struct leased_seat *find(const struct leased *node, int64_t round, int64_t lease) {
  for (size_t i = 0; i < node->seat_count; i++)
    if (node->seats[i].lease == lease && node->seats[i].round == round) return &node->seats[i];
  return NULL;
}

static struct leased_seat *add(struct leased *node) {
  if (node->seat_count == node->seat_cap) {
    const size_t cap = node->seat_cap ? 2 * node->seat_cap : 8;
    struct leased_seat *more = realloc(node->seats, cap * sizeof *more);
    if (!more) return NULL;
    node->seats = more;
    node->seat_cap = cap;
  }
  return &node->seats[node->seat_count++];
}

int leased_seat_put(struct leased *node, int64_t round, int64_t lease, const struct leased_kv *kv, rdzv_error *error) {
  struct leased_node read;
  const int result = leased_node_read(kv->value, &read, error);
  if (result < 0) return result == RDZV_E_CORRUPT ? 0 : result;
  struct leased_seat *seat = find(node, round, lease);
  const bool known = seat != NULL;
  if (!known) seat = add(node);
  if (!seat) {
    leased_node_free(&read);
    return error_no_memory(error);
  }
  if (known) leased_node_free(&seat->node);
  const struct differences_settings own = differences_settings(&node->config.settings);
  *seat = (struct leased_seat){.round = round,
                               .lease = lease,
                               .create = kv->create,
                               .differs = *read.settings && strcmp(read.settings, own.text) != 0,
                               .clashes = differences_clashes(&node->config.settings, read.settings),
                               .node = read};
  return 0;
}

void leased_seat_remove(struct leased *node, int64_t round, int64_t lease) {
  struct leased_seat *seat = find(node, round, lease);
  if (!seat) return;
  leased_node_free(&seat->node);
  *seat = node->seats[--node->seat_count];
}

void leased_seats_clear(struct leased *node) {
  for (size_t i = 0; i < node->seat_count; i++) leased_node_free(&node->seats[i].node);
  free(node->seats);
  node->seats = NULL;
  node->seat_count = node->seat_cap = 0;
  node->leads = false;
  node->call_ends = INT64_MAX;
}

/* ---- the state that the rules are about ----------------------------------------------------------------------- */

static int by_age(const void *left, const void *right) {
  const struct leased_seat *a = left, *b = right;
  return (a->create > b->create) - (a->create < b->create);
}

/* The ranks of the round before, for the stable order. */
static bool keep_ranks(struct rendezvous_state *state, const struct leased_world *world) {
  struct pyvalue value;
  if (world->count == 0 || world->count > RANKS_MAX_KEPT) return true;
  if (!pyvalue_make_items(&value, PYVALUE_DICT, 2 * world->count)) return false;
  bool kept = true;
  for (size_t i = 0; kept && i < world->count; i++) {
    value.items[2 * i + 1] = (struct pyvalue){.kind = PYVALUE_INT, .number = (int64_t)i};
    kept = pyvalue_make_bytes(&value.items[2 * i], PYVALUE_STR, rdzv_str(node_text(&world->members[i].desc).text));
  }
  if (kept && pynames_set(&state->extra, RANKS_ATTRIBUTE, &value)) return true;
  pyvalue_free(&value);
  return false;
}

/* The nodes of our round, oldest first, are participants until it is full, and then spares. Of two keys of one node,
 * which came back after it had lost its lease, the younger counts: state_insert gives it the same place. */
static int gather(struct leased *node, struct rendezvous_state *state, rdzv_error *error) {
  *state = STATE_EMPTY;
  state->round = node->at;
  state->closed = node->closed;
  qsort(node->seats, node->seat_count, sizeof *node->seats, by_age);
  for (size_t i = 0; i < node->seat_count; i++) {
    const struct leased_seat *seat = &node->seats[i];
    struct state_node *place;
    if (seat->round != node->at || seat->clashes) continue;
    const int result = state_insert(state, &seat->node.desc, &place, error);
    if (result < 0) return result;
    if (place->kinds) continue;
    const bool full = (int64_t)state->num_participants >= node->config.settings.max_nodes;
    state_set_kinds(state, place, full ? NODE_SPARE : NODE_PARTICIPANT);
  }
  return 0;
}

/* ---- the world ------------------------------------------------------------------------------------------------ */

/* The state's ranks, as a world. Its addresses are the seats'. */
static int make_world(struct leased *node, const struct rendezvous_state *state, struct leased_world *world,
                      rdzv_error *error) {
  *world = (struct leased_world){.round = node->at, .count = state->num_participants};
  world->members = calloc(world->count + 1, sizeof *world->members);
  if (!world->members) return error_no_memory(error);
  for (size_t i = 0; i < node->seat_count; i++) { /* oldest first: the younger of two stays */
    const struct leased_seat *seat = &node->seats[i];
    const struct state_node *place = seat->round == node->at ? state_find(state, &seat->node.desc) : NULL;
    if (!place || !(place->kinds & NODE_PARTICIPANT)) continue;
    world->members[place->rank] = (struct leased_member){.desc = seat->node.desc, .lease = seat->lease};
    if (place->rank > 0) continue;
    world->master_addr = seat->node.master_addr;
    world->master_port = seat->node.master_port;
  }
  return 0;
}

/* Is a key of an earlier round there? No node can create one now, so waiting for the last to go is enough. */
static bool others_remain(const struct leased *node) {
  for (size_t i = 0; i < node->seat_count; i++)
    if (node->seats[i].round != node->at) return true;
  return false;
}

static void call_last(struct leased *node, struct rendezvous_state *state) {
  const struct rendezvous_settings *settings = &node->config.settings;
  const bool enough = (int64_t)state->num_participants >= settings->min_nodes && !others_remain(node);
  if (!enough) node->call_ends = INT64_MAX;
  if (enough && node->call_ends == INT64_MAX) node->call_ends = node->now.mono_ms + settings->last_call_timeout;
  if (enough && (int64_t)state->num_participants == settings->max_nodes) node->call_ends = node->now.mono_ms;
  state->deadline = enough ? node->call_ends * 1000 : DATETIME_NONE;
}

static int decide(struct leased *node, struct rendezvous_state *state, bool *complete, struct leased_world *world,
                  rdzv_error *error) {
  call_last(node, state);
  struct rendezvous_context context = {.node = &node->config.node,
                                       .state = state,
                                       .settings = &node->config.settings,
                                       .now = node->now,
                                       .deadline_ms = INT64_MAX,
                                       .last_call_over = node->now.mono_ms >= node->call_ends};
  const enum rendezvous_action action = decide_join(&context);
  *complete = action == ACTION_MARK_RENDEZVOUS_COMPLETE;
  if (!*complete) return 0;
  if (!keep_ranks(state, &node->world)) return error_no_memory(error);
  const int result = rendezvous_apply(&context, action, error);
  return result < 0 ? result : make_world(node, state, world, error);
}

/* Can there be anything to decide? Asked for each key that comes, so it does not look at all of them in depth. */
static bool may_be_due(struct leased *node) {
  const struct rendezvous_settings *settings = &node->config.settings;
  int64_t count = 0;
  for (size_t i = 0; i < node->seat_count; i++) count += node->seats[i].round == node->at;
  const bool called = node->call_ends != INT64_MAX && node->now.mono_ms < node->call_ends;
  return count < settings->min_nodes ? node->call_ends != INT64_MAX : count >= settings->max_nodes || !called;
}

int leased_lead(struct leased *node, bool *complete, struct leased_world *world, int64_t *until, rdzv_error *error) {
  struct rendezvous_state state;
  *complete = false;
  *world = LEASED_WORLD_NONE;
  *until = node->call_ends;
  if (!may_be_due(node)) return 0;
  int result = gather(node, &state, error);
  if (result == 0) result = decide(node, &state, complete, world, error);
  *until = node->call_ends;
  state_free(&state);
  return result;
}
