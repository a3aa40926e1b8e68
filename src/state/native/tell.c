/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * News for native participants of a complete round: first that they are in it, later what changes in it, as
 * state/engine/watch.c does for one node. Each node records how much was sent to it; news is the rest, so nothing is
 * lost while a node has no connection, and the changes of one step are sent together.
 *
 * In a round of N each change is sent to N nodes. So that N changes are not N * N messages, some time passes between
 * one news and the next, which grows with N; the first comes at once.
 */
#include "state/engine/engine.h"
#include "state/native/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_A_MS = 50, MOST_REST_MS = 250 };

/* ---- the world of a round ------------------------------------------------------------------------------------- */

void world_free(struct native_world *world) {
  state_free(&world->state);
  free(world->gone);
  free(world->how);
  *world = (struct native_world){.state = STATE_EMPTY, .round = -1};
}

static bool copy_participants(struct rendezvous_state *to, const struct rendezvous_state *from) {
  struct rendezvous_state view = *from;
  view.extra = (struct pynames){0};
  view.addrs = NULL;
  view.nodes = malloc((from->num_participants + 1) * sizeof *view.nodes);
  view.count = view.num_waiting = view.num_spares = 0;
  if (!view.nodes) return false;
  for (size_t i = 0; i < from->count; i++)
    if (from->nodes[i].kinds & NODE_PARTICIPANT) view.nodes[view.count++] = from->nodes[i];
  const bool copied = state_copy(to, &view);
  free(view.nodes);
  for (size_t i = 0; copied && i < to->count; i++) to->nodes[i].kinds = NODE_PARTICIPANT;
  return copied;
}

/* The native participants in the order of their ranks; NULL where there is none. */
static void sort_by_rank(const struct coordinator_run *run, const struct native_world *world,
                         struct native_node **by_rank, const struct state_node **first) {
  const size_t count = world->state.count;
  *first = &world->state.nodes[0];
  for (size_t i = 0; i < count; i++) {
    const struct state_node *node = &world->state.nodes[i];
    if (node->rank == 0) *first = node;
    if (node->rank >= 0 && (size_t)node->rank < count) by_rank[node->rank] = native_find(run, &node->desc);
  }
}

static void describe_master(const struct coordinator_run *run, struct native_world *world,
                            const struct state_node *first) {
  const struct native_node *native = native_find(run, &first->desc);
  world->master_node = node_text(&first->desc);
  snprintf(world->master_addr, sizeof world->master_addr, "%s", native ? native->master_addr : "");
  world->answer.master_is_ours = native || first->ours;
  world->answer.master_port = native ? native->master_port : 0;
}

static bool describe(const struct coordinator_run *run, struct native_world *world) {
  const size_t count = world->state.count;
  const struct state_node *first;
  struct native_node **by_rank = calloc(count + 1, sizeof(struct native_node *));
  if (!by_rank) return false;
  sort_by_rank(run, world, by_rank, &first);
  struct native_joined *answer = &world->answer;
  *answer = (struct native_joined){
      .round = world->round, .world_size = (int64_t)count, .all_native = true, .all_ours = true, .has_ranks = true};
  for (size_t i = 0; i < count; i++) {
    const struct state_node *node = &world->state.nodes[i];
    answer->all_native &= by_rank[i] != NULL;
    answer->all_ours &= node->ours || native_find(run, &node->desc);
    answer->has_ranks &= by_rank[i] && by_rank[i]->workers.local_world_size > 0;
  }
  describe_master(run, world, first);
  const bool done = !answer->has_ranks || roles_assign(by_rank, count);
  free(by_rank);
  return done;
}

bool world_make(struct coordinator_run *run) {
  const struct rendezvous_state *state = &run->state;
  if (run->world.round == state->round) return true;
  if (state->num_participants == 0 || !world_is_whole(state)) return false;
  struct native_world world = {.state = STATE_EMPTY, .round = state->round};
  world.gone = calloc(state->num_participants, sizeof *world.gone);
  world.how = calloc(state->num_participants, sizeof *world.how);
  if (!world.gone || !world.how || !copy_participants(&world.state, state) || !describe(run, &world)) {
    world_free(&world);
    run->retry = true;
    return false;
  }
  world_free(&run->world);
  run->world = world;
  run_touch(run);
  run->waits = 0;
  run->waiting = 0; /* nodes that wait already are reported, too */
  return true;
}

void world_lose(struct coordinator_run *run, const struct node_desc *node, enum native_gone how) {
  struct native_world *world = &run->world;
  const struct state_node *found = state_find(&world->state, node);
  if (!found) return;
  const size_t index = (size_t)(found - world->state.nodes);
  if (world->how[index] != NATIVE_HERE) return;
  world->how[index] = (uint8_t)how;
  run_touch(run);
  world->gone[world->gone_count++] = (uint32_t)index;
  run->tell = true;
}

/* ---- telling -------------------------------------------------------------------------------------------------- */

void tell_joined(struct native_node *node) {
  struct coordinator_run *run = node->run;
  const struct native_world *world = &run->world;
  const struct state_node *place = state_find(&world->state, &node->node);
  struct native_joined joined = world->answer;
  joined.number = node->number;
  joined.rank = place ? place->rank : 0;
  joined.master_node = world->master_node.text;
  joined.master_addr = world->master_addr;
  joined.ranks = node->ranks;
  if (node->unanswered != (node->link == NULL)) run_touch(run);
  node->unanswered = node->link == NULL;
  native_emit(node, (struct coordinator_effect){.kind = COORDINATOR_DO_JOINED, .run = run, .joined = &joined});
}

static void name_gone(const struct native_world *world, uint32_t from, struct native_news *news) {
  for (uint32_t i = from; i < world->gone_count; i++) {
    const uint32_t index = world->gone[i];
    const bool died = world->how[index] == NATIVE_DIED;
    news->what |= died ? ENGINE_NEWS_PARTICIPANT_DIED : ENGINE_NEWS_PARTICIPANT_LEFT;
    if (news->named < NATIVE_MOST_NAMED) news->nodes[news->named++] = world->state.nodes[index].desc;
  }
  news->gone = world->gone_count - from;
}

/* All that a node of the round has not been told. `news` is that of the node before, which often is the same. */
static void tell(struct native_node *node, struct native_news *news, uint32_t *from) {
  struct coordinator_run *run = node->run;
  const struct rendezvous_state *state = &run->state;
  if (*from != node->told_gone || news->round < 0) {
    *news = (struct native_news){.round = run->world.round};
    *from = node->told_gone;
    name_gone(&run->world, *from, news);
  }
  const unsigned gone = ENGINE_NEWS_PARTICIPANT_DIED | ENGINE_NEWS_PARTICIPANT_LEFT;
  const bool room = (int64_t)state->num_participants < node->settings.max_nodes;
  news->what &= gone;
  news->waiting = (int64_t)state->num_waiting;
  if (node->told_waits != run->waits && room && state->num_waiting > 0) news->what |= ENGINE_NEWS_SOMEONE_WAITS;
  if (state->closed && !node->told_closed) news->what |= ENGINE_NEWS_IS_CLOSED;
  node->told_gone = run->world.gone_count;
  node->told_waits = run->waits;
  node->told_closed = state->closed;
  if (news->what) native_emit(node, (struct coordinator_effect){.kind = COORDINATOR_DO_TELL, .run = run, .news = news});
}

void tell_evicted(struct native_node *node) {
  const struct native_news news = {.what = ENGINE_NEWS_EVICTED, .round = node->joined};
  node->in_round = node->unanswered = false;
  node->missed = node->link ? 0 : ENGINE_NEWS_EVICTED;
  run_touch(node->run);
  native_emit(node, (struct coordinator_effect){.kind = COORDINATOR_DO_TELL, .run = node->run, .news = &news});
}

void tell_missed(struct native_node *node) {
  struct native_news news = {.round = -1};
  uint32_t from = 0;
  if (node->missed) tell_evicted(node);
  if (node->in_round) tell(node, &news, &from);
}

static void warn(struct native_node *node, const struct state_node *torch) {
  struct summary warning;
  while (node->link && differences_next(&node->differences, &node->run->state, &node->settings, torch, &warning)) {
    const struct native_news news = {.what = ENGINE_NEWS_WARNING, .round = node->joined, .warning = warning.text};
    coordinator_trace(node->run->coordinator, node->run, "'%s' is warned: %s", node_text(&node->node).text,
                      warning.text);
    native_emit(node, (struct coordinator_effect){.kind = COORDINATOR_DO_TELL, .run = node->run, .news = &news});
  }
}

void warn_node(struct native_node *node) {
  warn(node, node->run->has_torch ? differences_find_torch(&node->run->state) : NULL);
}

void warn_nodes(struct coordinator_run *run) {
  const struct state_node *torch = run->has_torch ? differences_find_torch(&run->state) : NULL;
  if (!torch && differences_count(&run->state) < 2) return;
  for (struct native_node *node = run->nodes; node; node = node->by_node.next) warn(node, torch);
}

static int64_t rest_ms(const struct coordinator_run *run) {
  const int64_t rest = (int64_t)run->world.state.count / NODES_A_MS;
  return rest < MOST_REST_MS ? rest : MOST_REST_MS;
}

void tell_news(struct coordinator_run *run, struct moment now) {
  if (now.mono_ms < run->quiet_ms) return; /* the timer comes back to it */
  run->tell = false;
  struct native_news news = {.round = -1};
  uint32_t from = 0;
  bool told = false;
  for (struct native_node *node = run->nodes; node; node = node->by_node.next) {
    if (!node->in_round || !node->link) continue;
    tell(node, &news, &from);
    told = true;
  }
  if (told) run->quiet_ms = now.mono_ms + rest_ms(run);
}
