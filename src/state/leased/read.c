/* SPDX-License-Identifier: BSD-3-Clause */
/* What a machine learns from keys that it reads, and from their changes. */
#include "base/error.h"
#include "state/leased/machine.h"

#include <stdlib.h>
#include <string.h>

/* ---- our place ------------------------------------------------------------------------------------------------ */

void leased_lose_place(struct leased *node, struct leased_update *update) {
  if (node->phase == LEASED_IN && !node->marked) {
    update->news |= ENGINE_NEWS_EVICTED;
    update->round = node->at;
  }
  if (node->phase != LEASED_OUT && node->lease) { /* our key may be there still, in a round that is over */
    node->dropped = node->lease;
    node->lease = 0;
  }
  node->phase = LEASED_OUT;
  node->placed = node->marked = node->synced = false;
  node->gone_count = 0;
  leased_seats_clear(node);
}

bool leased_is_gone(const struct leased *node, int64_t lease) {
  for (size_t i = 0; i < node->gone_count; i++)
    if (node->gone[i] == lease) return true;
  return false;
}

/* ---- the board ------------------------------------------------------------------------------------------------ */

/* A participant whose round is not the world's has lost its place. */
static void check_place(struct leased *node, struct leased_update *update) {
  const bool in = node->world_mod != 0 && node->world.round == node->at;
  if (node->phase == LEASED_IN && !in) leased_lose_place(node, update);
}

/* An etcd that lost its data gives the same revisions again, so the revision alone does not tell. */
static bool is_same(const struct leased_world *a, const struct leased_world *b) {
  bool same = a->round == b->round && a->count == b->count;
  for (size_t i = 0; same && i < a->count; i++) same = a->members[i].lease == b->members[i].lease;
  return same;
}

static int take_world(struct leased *node, const struct leased_kv *kv, rdzv_error *error) {
  struct leased_world world = LEASED_WORLD_NONE;
  const int result = kv ? leased_world_read(kv->value, &world, error) : 0;
  if (result < 0) return result;
  if (kv && kv->mod == node->world_mod && is_same(&world, &node->world)) {
    leased_world_free(&world);
    return 0;
  }
  leased_world_free(&node->world);
  node->world = world;
  node->world_mod = kv ? kv->mod : 0;
  if (kv && kv->lease != node->run_lease) node->run_kept_ms = node->now.mono_ms;
  if (kv) node->run_lease = kv->lease;
  node->call_ends = INT64_MAX;
  return 0;
}

static int take_closed(struct leased *node, const struct leased_kv *kv, rdzv_error *error) {
  if (node->closed) return 0;
  char *reason = leased_note_read(kv->value, "reason");
  if (!reason) return error_no_memory(error);
  free(node->closed_reason);
  node->closed_reason = reason;
  node->closed = true;
  return 0;
}

static int take_board_key(struct leased *node, const struct leased_kv *kv, rdzv_error *error) {
  if (strcmp(kv->key, LEASED_WANT) == 0) node->want = !kv->deleted;
  if (strcmp(kv->key, LEASED_CLOSED) == 0 && !kv->deleted) return take_closed(node, kv, error);
  if (strcmp(kv->key, LEASED_WORLD) == 0) return take_world(node, kv->deleted ? NULL : kv, error);
  return 0;
}

int leased_take_board(struct leased *node, const struct leased_kv *kvs, size_t count, int64_t revision,
                      rdzv_error *error) {
  bool has_world = false;
  int result = 0;
  node->want = false;
  for (size_t i = 0; i < count && result == 0; i++) {
    has_world |= strcmp(kvs[i].key, LEASED_WORLD) == 0;
    result = take_board_key(node, &kvs[i], error);
  }
  if (result == 0 && !has_world) result = take_world(node, NULL, error);
  node->board_seen = revision;
  return result;
}

/* ---- news for a participant ----------------------------------------------------------------------------------- */

/* Did the node say, in its key that went, that it leaves? */
static bool says_left(const char *value) {
  struct leased_node last = {0};
  const bool left = value && leased_node_read(value, &last, NULL) == 0 && last.left;
  leased_node_free(&last);
  return left;
}

/* A key of the world's round went. */
static void miss_member(struct leased *node, int64_t lease, bool left, struct leased_update *update) {
  const int64_t rank = leased_world_rank(&node->world, lease);
  if (rank < 0 || node->world.members[rank].gone) return;
  struct leased_member *member = &node->world.members[rank];
  member->gone = node->steps;
  member->died = !left;
  if (node->phase == LEASED_IN) {
    update->news |= left ? ENGINE_NEWS_PARTICIPANT_LEFT : ENGINE_NEWS_PARTICIPANT_DIED;
    update->round = node->at;
  } else if (node->spare) { /* its place is free */
    node->spare = false;
    node->deadline = node->now.mono_ms + node->config.settings.join_timeout;
  }
}

/* A node that waits with the lease of a participant has left the round; that its key went may not have come yet. */
static void tell_of_board(struct leased *node, bool was_closed, const struct leased_kv *want,
                          struct leased_update *update) {
  if (node->phase != LEASED_IN) return;
  update->round = node->at;
  if (node->closed && !was_closed) update->news |= ENGINE_NEWS_IS_CLOSED;
  if (!node->want || !want || want->mod <= node->told_want) return;
  node->told_want = want->mod;
  update->news |= ENGINE_NEWS_SOMEONE_WAITS;
  miss_member(node, want->lease, true, update);
}

/* ---- keys of nodes -------------------------------------------------------------------------------------------- */

static int note_gone(struct leased *node, int64_t lease, rdzv_error *error) {
  if (node->gone_count == node->gone_cap) {
    const size_t cap = node->gone_cap ? 2 * node->gone_cap : 8;
    int64_t *more = cap <= STATE_MAX_NODES ? realloc(node->gone, cap * sizeof *more) : NULL;
    if (!more) return error_no_memory(error);
    node->gone = more;
    node->gone_cap = cap;
  }
  node->gone[node->gone_count++] = lease;
  return 0;
}

/* Of a round that we gather in: is there one less before us? */
static int take_gone_peer(struct leased *node, const struct leased_kv *kv, int64_t lease, rdzv_error *error) {
  if (kv->create == 0)
    node->synced = false;
  else if (kv->create < node->born)
    node->older--;
  return note_gone(node, lease, error);
}

static int take_gone_key(struct leased *node, const struct leased_kv *kv, int64_t round, int64_t lease,
                         struct leased_update *update, rdzv_error *error) {
  if (node->leads) leased_seat_remove(node, round, lease);
  if (lease == node->clash_lease) node->clash_lease = 0;
  if (lease == node->lease) {
    if (node->placed && round == node->at && kv->mod > node->born) leased_lose_place(node, update);
    return 0;
  }
  if (node->world_mod && round == node->world.round) miss_member(node, lease, says_left(kv->value), update);
  const bool peer = node->placed && node->phase == LEASED_GATHER && round == node->at && kv->mod > node->born;
  return peer ? take_gone_peer(node, kv, lease, error) : 0;
}

static int take_node_key(struct leased *node, const struct leased_kv *kv, struct leased_update *update,
                         rdzv_error *error) {
  int64_t round, lease;
  if (!leased_key_parse(kv->key, &round, &lease)) return 0;
  if (kv->deleted) return take_gone_key(node, kv, round, lease, update, error);
  return node->leads ? leased_seat_put(node, round, lease, kv, error) : 0;
}

static bool is_of_node(const char *key) { return *key >= '0' && *key <= '9'; }

int leased_take_changes(struct leased *node, const struct leased_event *event, struct leased_update *update,
                        rdzv_error *error) {
  const bool was_closed = node->closed;
  const struct leased_kv *want = NULL;
  int64_t nodes_seen = node->nodes_seen, board_seen = node->board_seen;
  int result = 0;
  for (size_t i = 0; i < event->kv_count && result == 0; i++) {
    const struct leased_kv *kv = &event->kvs[i];
    int64_t *seen = is_of_node(kv->key) ? &node->nodes_seen : &node->board_seen;
    if (kv->mod <= *seen) continue; /* told before */
    int64_t *last = is_of_node(kv->key) ? &nodes_seen : &board_seen;
    if (kv->mod > *last) *last = kv->mod;
    if (strcmp(kv->key, LEASED_WANT) == 0) want = kv;
    result = is_of_node(kv->key) ? take_node_key(node, kv, update, error) : take_board_key(node, kv, error);
  }
  if (nodes_seen > node->nodes_seen) node->nodes_seen = nodes_seen;
  if (board_seen > node->board_seen) node->board_seen = board_seen;
  if (result < 0) node->synced = false;
  check_place(node, update);
  tell_of_board(node, was_closed, want, update);
  return result;
}

/* ---- all keys ------------------------------------------------------------------------------------------------- */

/* Where we are, by our lease. */
static void find_place(struct leased *node, const struct leased_event *event) {
  int64_t round, lease;
  const int64_t before = node->born;
  node->placed = false;
  for (size_t i = 0; i < event->kv_count; i++) {
    const struct leased_kv *kv = &event->kvs[i];
    if (!leased_key_parse(kv->key, &round, &lease) || lease != node->lease || node->lease == 0) continue;
    if (node->placed && kv->create < node->born) continue;
    node->placed = true;
    node->at = round;
    node->born = kv->create;
  }
  if (!node->placed || node->born == before) return;
  node->marked = false; /* by a transaction whose answer got lost we are elsewhere */
  node->gone_count = 0;
  if (node->first < node->at) node->first = node->at;
}

static int take_nodes(struct leased *node, const struct leased_event *event, rdzv_error *error) {
  int64_t round, lease;
  int result = 0;
  node->older = 0;
  for (size_t i = 0; i < event->kv_count; i++) {
    const struct leased_kv *kv = &event->kvs[i];
    if (leased_key_parse(kv->key, &round, &lease)) node->older += round == node->at && kv->create < node->born;
  }
  if (!node->placed || node->older > 0 || node->phase == LEASED_IN) return 0;
  for (size_t i = 0; i < event->kv_count && result == 0; i++)
    if (leased_key_parse(event->kvs[i].key, &round, &lease))
      result = leased_seat_put(node, round, lease, &event->kvs[i], error);
  node->leads = result == 0;
  return result;
}

/* The last round that has a key with that lease; -1: none. */
static int64_t round_of(const struct leased_event *event, int64_t lease) {
  int64_t found_round, found_lease, round = -1;
  for (size_t i = 0; i < event->kv_count; i++)
    if (leased_key_parse(event->kvs[i].key, &found_round, &found_lease) && found_lease == lease && found_round > round)
      round = found_round;
  return round;
}

/* Members whose keys went without an event. */
static int miss_members(struct leased *node, const struct leased_event *event, struct leased_update *update,
                        rdzv_error *error) {
  for (size_t i = 0; node->world_mod && i < node->world.count; i++) {
    const int64_t lease = node->world.members[i].lease;
    const int64_t round = round_of(event, lease);
    if (lease == node->lease || round == node->world.round) continue;
    miss_member(node, lease, round > node->world.round, update); /* it is in a later one: it lives */
    const bool ours = node->phase == LEASED_GATHER && node->at == node->world.round;
    const int result = ours && !leased_is_gone(node, lease) ? note_gone(node, lease, error) : 0;
    if (result < 0) return result;
  }
  return 0;
}

int leased_take_all(struct leased *node, const struct leased_event *event, struct leased_update *update,
                    rdzv_error *error) {
  const bool was_closed = node->closed;
  const struct leased_kv *want = NULL;
  leased_seats_clear(node);
  int result = leased_take_board(node, event->kvs, event->kv_count, event->revision, error);
  if (result < 0) return result;
  for (size_t i = 0; i < event->kv_count; i++)
    if (strcmp(event->kvs[i].key, LEASED_WANT) == 0) want = &event->kvs[i];
  find_place(node, event);
  if (!node->placed) leased_lose_place(node, update);
  if (node->placed && node->phase == LEASED_OUT) node->phase = LEASED_GATHER;
  check_place(node, update);
  tell_of_board(node, was_closed, want, update);
  node->nodes_seen = event->revision;
  leased_check_clash(node, event);
  result = miss_members(node, event, update, error);
  if (result == 0 && node->placed) result = take_nodes(node, event, error);
  node->synced = result == 0;
  return result;
}
