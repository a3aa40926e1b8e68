/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rounds of native nodes, kept. A run that was touched is compared, node by node, with what is kept of it: what
 * differs is written. So no change of the coordinator can be overlooked; the cost is that of a look at the nodes of the
 * runs that were touched, once for a commit.
 */
#define HASH_NONFATAL_OOM 1 /* hh.tbl is NULL where there was no memory */
#include "base/error.h"
#include "server/keeper/keeper.h"
#include "server/native/native.h"
#include "state/native/snapshot.h"

#include <stdlib.h>
#include <uthash.h>

struct kept_node {
  UT_hash_handle hh;
  uint64_t serial;
  struct record_slot slot;
  uint64_t content; /* its check sum, as of the last batch */
  uint64_t next;    /* as of the batch that is being made */
  bool is_there;
};

struct kept_run {
  UT_hash_handle hh;
  uint64_t serial;
  struct record_slot slot;
  bool is_there, is_changed;
  struct kept_node *nodes;
};

static void free_nodes(struct kept_run *run) {
  struct kept_node *node, *next;
  HASH_ITER(hh, run->nodes, node, next) {
    HASH_DEL(run->nodes, node); /* NOLINT: the one before is out of the table */
    free(node);
  }
}

static void free_run(struct keeper *keeper, struct kept_run *run) {
  free_nodes(run);
  HASH_DEL(keeper->runs, run); /* NOLINT: the same */
  free(run);
}

void kept_natives_free(struct keeper *keeper) {
  struct kept_run *run, *next;
  HASH_ITER(hh, keeper->runs, run, next) free_run(keeper, run);
  native_scratch_free(&keeper->scratch);
}

/* NULL: no memory. */
static struct kept_run *run_of(struct keeper *keeper, uint64_t serial) {
  struct kept_run *run;
  HASH_FIND(hh, keeper->runs, &serial, sizeof serial, run);
  if (run) return run;
  run = calloc(1, sizeof *run);
  if (!run) return NULL;
  run->serial = serial;
  HASH_ADD(hh, keeper->runs, serial, sizeof run->serial, run);
  if (run->hh.tbl) return run;
  free(run);
  return NULL;
}

static struct kept_node *node_of(struct kept_run *run, uint64_t serial) {
  struct kept_node *node;
  HASH_FIND(hh, run->nodes, &serial, sizeof serial, node);
  if (node) return node;
  node = calloc(1, sizeof *node);
  if (!node) return NULL;
  node->serial = serial;
  HASH_ADD(hh, run->nodes, serial, sizeof node->serial, node);
  if (node->hh.tbl) return node;
  free(node);
  return NULL;
}

/* ---- collecting ----------------------------------------------------------------------------------------------- */

struct collecting {
  struct batch *batch;
  struct kept_run *run;
  struct wire_writer out;
};

static void collect_node(void *user, uint64_t serial, const struct native_node_snapshot *snapshot) {
  struct collecting *to = user;
  struct kept_node *node = node_of(to->run, serial);
  to->out.buf.len = 0;
  record_put_node(&to->out, snapshot);
  if (!node || to->out.failed) {
    to->batch->failed = true;
    return;
  }
  const rdzv_bytes head = {to->out.buf.data, to->out.buf.len};
  node->is_there = true;
  node->next = record_sum((rdzv_bytes){&node->serial, sizeof node->serial}, head);
  if (node->slot.parts > 0 && node->next == node->content) return;
  batch_put(to->batch, (struct record_id){RECORD_NODE, to->run->serial, serial}, head, (rdzv_bytes){0}, &node->slot);
}

static void remove_nodes(struct batch *batch, struct kept_run *run, bool all) {
  for (struct kept_node *node = run->nodes; node; node = node->hh.next)
    if ((all || !node->is_there) && node->slot.parts > 0)
      batch_remove(batch, (struct record_id){RECORD_NODE, run->serial, node->serial}, &node->slot);
}

static void put_run(struct keeper *keeper, struct batch *batch, struct coordinator_run *run, struct kept_run *kept) {
  struct native_run_snapshot snapshot;
  struct wire_writer head = {0}, body = {0};
  if (coordinator_run_snapshot(run, &keeper->scratch, &snapshot, NULL) < 0) {
    batch->failed = true;
    return;
  }
  const struct native_run *own = *coordinator_run_user(run);
  snapshot.is_private = own && own->is_private;
  record_put_run(&head, &body, &snapshot);
  if (head.failed || body.failed) batch->failed = true;
  const rdzv_bytes copy = batch_copy(batch, (rdzv_bytes){body.buf.data, body.buf.len});
  batch_put(batch, (struct record_id){RECORD_RUN, kept->serial, 0}, (rdzv_bytes){head.buf.data, head.buf.len}, copy,
            &kept->slot);
  buf_free(&head.buf);
  buf_free(&body.buf);
}

static void collect_run(struct keeper *keeper, struct batch *batch, struct coordinator_run *run) {
  struct kept_run *kept = run_of(keeper, coordinator_run_serial(run));
  if (!kept) {
    batch->failed = true;
    return;
  }
  kept->is_there = true;
  kept->is_changed = coordinator_run_has_changed(run);
  if (!kept->is_changed) return;
  struct collecting to = {.batch = batch, .run = kept};
  for (struct kept_node *node = kept->nodes; node; node = node->hh.next) node->is_there = false;
  put_run(keeper, batch, run, kept);
  coordinator_run_nodes(run, collect_node, &to);
  remove_nodes(batch, kept, false);
  buf_free(&to.out.buf);
}

void kept_natives_collect(struct keeper *keeper, struct batch *batch) {
  const struct coordinator *coordinator = keeper->server->natives->coordinator;
  struct kept_run *kept;
  struct coordinator_run *run = NULL;
  if (!coordinator_has_changed(coordinator)) return;
  for (kept = keeper->runs; kept; kept = kept->hh.next) kept->is_there = kept->is_changed = false;
  while ((run = coordinator_next_run(coordinator, run)) != NULL) collect_run(keeper, batch, run);
  for (kept = keeper->runs; kept; kept = kept->hh.next) {
    if (kept->is_there) continue;
    remove_nodes(batch, kept, true);
    if (kept->slot.parts > 0) batch_remove(batch, (struct record_id){RECORD_RUN, kept->serial, 0}, &kept->slot);
  }
}

static void settle_nodes(struct kept_run *run) {
  struct kept_node *node, *next;
  HASH_ITER(hh, run->nodes, node, next) {
    node->content = node->next;
    if (node->is_there) continue;
    HASH_DEL(run->nodes, node); /* NOLINT: the one before is out of the table */
    free(node);
  }
}

void kept_natives_collected(struct keeper *keeper) {
  struct coordinator *coordinator = keeper->server->natives->coordinator;
  struct kept_run *run, *next;
  if (!coordinator_has_changed(coordinator)) return;
  HASH_ITER(hh, keeper->runs, run, next) {
    if (!run->is_there)
      free_run(keeper, run);
    else if (run->is_changed)
      settle_nodes(run);
  }
  coordinator_kept(coordinator);
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

int kept_natives_load_run(struct keeper *keeper, struct record_id id, rdzv_bytes head, rdzv_bytes body,
                          struct record_slot slot, rdzv_error *error) {
  struct native_run_snapshot snapshot = {0};
  uint32_t *gone = calloc(STATE_MAX_NODES, sizeof *gone);
  uint8_t *how = calloc(STATE_MAX_NODES, sizeof *how);
  struct kept_run *kept = gone && how ? run_of(keeper, id.id) : NULL;
  int result = kept ? record_read_run(head, body, gone, how, &snapshot, error) : error_no_memory(error);
  if (result == 0)
    result = coordinator_restore_run(keeper->server->natives->coordinator, id.id, &snapshot, natives_now(), error);
  if (result == 0) result = natives_load(keeper->server, snapshot.id, snapshot.is_private, error);
  if (result == 0 && kept) kept->slot = slot;
  free(gone);
  free(how);
  return result;
}

int kept_natives_load_node(struct keeper *keeper, struct record_id id, rdzv_bytes head, struct record_slot slot,
                           rdzv_error *error) {
  struct native_node_snapshot snapshot;
  int result = record_read_node(head, &snapshot, error);
  if (result < 0) return result;
  struct kept_run *run = run_of(keeper, id.id);
  struct kept_node *node = run && run->slot.parts > 0 ? node_of(run, id.sub) : NULL;
  if (!node) return error_set(error, RDZV_E_CORRUPT, "the kept state is damaged: a node has no run");
  node->slot = slot;
  node->content = record_sum((rdzv_bytes){&node->serial, sizeof node->serial}, head);
  return coordinator_restore_node(keeper->server->natives->coordinator, id.sub, &snapshot, natives_now(), error);
}

int kept_natives_loaded(struct keeper *keeper, rdzv_error *error) {
  struct rdzv_server *server = keeper->server;
  const int result = coordinator_restored(server->natives->coordinator, natives_now(), error);
  if (result < 0) return result;
  natives_loaded(server);
  return 0;
}
