/* SPDX-License-Identifier: BSD-3-Clause */
/* The requests of a machine, above all its transactions, and what they have done where they hold. */
#include "base/error.h"
#include "state/leased/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- requests ------------------------------------------------------------------------------------------------- */

int leased_do(struct leased *node, enum leased_step step, enum leased_request request, struct leased_update *update) {
  node->under_way = step;
  node->sent_ms = node->now.mono_ms;
  update->request = request;
  return 0;
}

int leased_do_grant(struct leased *node, enum leased_step step, int64_t ttl_ms, struct leased_update *update) {
  update->ttl_ms = ttl_ms;
  return leased_do(node, step, LEASED_DO_GRANT, update);
}

int leased_do_keep(struct leased *node, enum leased_step step, int64_t lease, struct leased_update *update) {
  update->lease = lease;
  return leased_do(node, step, LEASED_DO_KEEP_ALIVE, update);
}

int leased_do_watch(struct leased *node, int64_t until_ms, struct leased_update *update) {
  if (!node->watches || node->watches_all != node->leads) node->watch_id++;
  node->watches = true;
  node->watches_all = node->leads;
  update->watch = (struct leased_watch){
      .id = node->watch_id, .all = node->leads, .board_from = node->board_seen + 1, .nodes_from = node->nodes_seen + 1};
  if (node->leads) update->watch.nodes_from = least(node->board_seen, node->nodes_seen) + 1;
  update->until_ms = until_ms;
  return leased_do(node, LEASED_STEP_WATCH, LEASED_DO_WATCH, update);
}

static void compare(struct leased_txn *txn, const char *key, bool mod, int64_t number) {
  txn->compares[txn->compare_count++] = (struct leased_compare){key, mod, number};
}

static void put(struct leased_txn *txn, const char *key, const char *value, int64_t lease) {
  txn->puts[txn->put_count++] = (struct leased_put){key, value, lease};
}

/* Takes over the value. NULL: no memory. */
static int keep_value(struct leased *node, char *value, rdzv_error *error) {
  free(node->value);
  node->value = value;
  return value ? 0 : error_no_memory(error);
}

/* ---- joining -------------------------------------------------------------------------------------------------- */

int64_t leased_next_round(const struct leased *node) {
  const int64_t next = node->world_mod ? node->world.round + 1 : 0;
  return next > node->first ? next : node->first;
}

/* The world is older than this node's last round: the rounds restarted. An empty world raises the round for all. */
static bool must_raise(const struct leased *node) {
  return leased_next_round(node) > (node->world_mod ? node->world.round + 1 : 0);
}

static int raise_world(struct leased *node, struct leased_txn *txn, rdzv_error *error) {
  const struct leased_world none = {.round = leased_next_round(node) - 1};
  free(node->world_text);
  node->world_text = leased_world_write(&none);
  if (!node->world_text) return error_no_memory(error);
  put(txn, LEASED_WORLD, node->world_text, node->run_lease);
  return 0;
}

/* Puts our key into the next round, out of the one where it is. */
int leased_do_join(struct leased *node, struct leased_update *update, rdzv_error *error) {
  const int64_t round = leased_next_round(node);
  if (must_raise(node) && !node->run_lease) return leased_do_grant(node, LEASED_STEP_RUN_LEASE, LEASED_RUN_MS, update);
  struct leased_txn *txn = &update->txn;
  node->old_key = node->own_key;
  if (node->placed) node->old_key = leased_key(node->at, &node->config.node, node->lease);
  node->own_key = leased_key(round, &node->config.node, node->lease);
  snprintf(node->prefix.text, sizeof node->prefix.text, "%" PRId64 "/nodes/", round);
  node->self.left = false;
  int result = keep_value(node, leased_node_write(&node->self, &node->config.settings), error);
  if (result < 0) return result;
  compare(txn, LEASED_WORLD, true, node->world_mod);
  compare(txn, LEASED_CLOSED, false, 0);
  compare(txn, node->own_key.text, false, 0);
  txn->counted = node->prefix.text;
  put(txn, node->own_key.text, node->value, node->lease);
  if (node->placed) txn->deletes[txn->delete_count++] = node->old_key.text;
  if (must_raise(node)) result = raise_world(node, txn, error);
  node->compared = node->world_mod;
  return result < 0 ? result : leased_do(node, LEASED_STEP_JOIN, LEASED_DO_TXN, update);
}

int leased_joined_key(struct leased *node, const struct leased_event *event, rdzv_error *error) {
  const int64_t round = leased_next_round(node);
  const bool goes_on = node->placed && node->synced;
  if (must_raise(node)) {
    struct leased_world world;
    const int result = leased_world_read(node->world_text, &world, error);
    if (result < 0) return result;
    leased_world_free(&node->world);
    node->world = world;
    node->world_mod = event->revision;
  }
  node->phase = LEASED_GATHER;
  node->placed = node->synced = true;
  node->marked = false;
  node->at = node->first = round;
  node->born = event->revision;
  node->older = event->count;
  node->gone_count = 0;
  leased_seats_clear(node);
  if (node->board_seen == 0) node->board_seen = event->revision;
  if (!goes_on) {
    node->nodes_seen = event->revision;
    node->watches = false;
  }
  node->spare =
      node->world_mod && node->world.count > 0 && (int64_t)node->world.count >= node->config.settings.max_nodes;
  for (size_t i = 0; i < node->world.count; i++) node->spare &= node->world.members[i].gone == 0;
  return 0;
}

/* A node that waits while the round is not full notifies the participants. */
bool leased_must_want(const struct leased *node) {
  return !node->want && !node->spare && node->world_mod && node->world.count > 0;
}

int leased_do_announce(struct leased *node, struct leased_update *update, rdzv_error *error) {
  struct leased_txn *txn = &update->txn;
  const int result = keep_value(node, leased_note_write("node", node_text(&node->config.node).text), error);
  if (result < 0) return result;
  compare(txn, LEASED_WORLD, true, node->world_mod);
  compare(txn, LEASED_WANT, false, 0);
  compare(txn, node->own_key.text, false, node->born);
  put(txn, LEASED_WANT, node->value, node->lease);
  node->compared = node->world_mod;
  return leased_do(node, LEASED_STEP_WANT, LEASED_DO_TXN, update);
}

/* A mark in our key, before it goes, tells the others that we left and did not die. */
bool leased_must_mark(const struct leased *node) {
  return node->placed && !node->marked && node->lease && node->world_mod && node->world.round == node->at &&
         leased_world_rank(&node->world, node->lease) >= 0;
}

int leased_do_mark(struct leased *node, struct leased_update *update, rdzv_error *error) {
  struct leased_txn *txn = &update->txn;
  node->self.left = node->marked = true;
  const int result = keep_value(node, leased_node_write(&node->self, &node->config.settings), error);
  if (result < 0) return result;
  node->own_key = leased_key(node->at, &node->config.node, node->lease);
  compare(txn, node->own_key.text, false, node->born);
  put(txn, node->own_key.text, node->value, node->lease);
  return leased_do(node, LEASED_STEP_MARK, LEASED_DO_TXN, update);
}

/* ---- leading -------------------------------------------------------------------------------------------------- */

int leased_do_complete(struct leased *node, const struct leased_world *world, struct leased_update *update,
                       rdzv_error *error) {
  struct leased_txn *txn = &update->txn;
  if (!node->run_lease) return leased_do_grant(node, LEASED_STEP_RUN_LEASE, LEASED_RUN_MS, update);
  free(node->world_text);
  node->world_text = leased_world_write(world);
  if (!node->world_text) return error_no_memory(error);
  node->own_key = leased_key(node->at, &node->config.node, node->lease);
  compare(txn, LEASED_WORLD, true, node->world_mod);
  compare(txn, LEASED_CLOSED, false, 0);
  compare(txn, node->own_key.text, false, node->born);
  put(txn, LEASED_WORLD, node->world_text, node->run_lease);
  txn->deletes[txn->delete_count++] = LEASED_WANT;
  node->compared = node->world_mod;
  return leased_do(node, LEASED_STEP_COMPLETE, LEASED_DO_TXN, update);
}

int leased_completed(struct leased *node, const struct leased_event *event, rdzv_error *error) {
  struct leased_world world;
  const int result = leased_world_read(node->world_text, &world, error);
  if (result < 0) return result;
  leased_world_free(&node->world);
  node->world = world;
  node->world_mod = event->revision;
  node->run_kept_ms = node->now.mono_ms;
  node->want = false;
  return 0;
}

/* The first reason stays. */
int leased_do_close(struct leased *node, struct leased_update *update, rdzv_error *error) {
  const int result = keep_value(node, leased_note_write("reason", node->reason ? node->reason : ""), error);
  if (result < 0) return result;
  compare(&update->txn, LEASED_CLOSED, false, 0);
  put(&update->txn, LEASED_CLOSED, node->value, node->closed_lease);
  return leased_do(node, LEASED_STEP_CLOSE, LEASED_DO_TXN, update);
}
