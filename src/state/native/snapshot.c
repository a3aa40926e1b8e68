/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/native/snapshot.h"

#include "base/error.h"
#include "state/native/run.h"
#include "state/pickle/read.h"
#include "state/pickle/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what has changed ----------------------------------------------------------------------------------------- */

bool coordinator_has_changed(const struct coordinator *coordinator) { return coordinator->touched; }

void coordinator_kept(struct coordinator *coordinator) {
  for (struct coordinator_run *run = coordinator->runs; run; run = run->hh.next) run->touched = false;
  coordinator->touched = false;
}

struct coordinator_run *coordinator_next_run(const struct coordinator *coordinator, const struct coordinator_run *run) {
  return run ? run->hh.next : coordinator->runs;
}

uint64_t coordinator_run_serial(const struct coordinator_run *run) { return run->serial; }
bool coordinator_run_has_changed(const struct coordinator_run *run) { return run->touched; }

void native_scratch_free(struct native_scratch *scratch) {
  buf_free(&scratch->state);
  buf_free(&scratch->world);
  buf_free(&scratch->how);
}

static rdzv_bytes bytes_of(const struct buf *buf) { return (rdzv_bytes){buf->data, buf->len}; }

static int describe_world(const struct native_world *world, enum torch_layout layout, struct native_scratch *scratch,
                          struct native_run_snapshot *out, rdzv_error *error) {
  const int result = pickle_write(&world->state, layout, &scratch->world, error);
  if (result < 0) return result;
  for (uint32_t i = 0; i < world->gone_count; i++)
    if (!buf_append(&scratch->how, &world->how[world->gone[i]], 1)) return error_no_memory(error);
  out->world = bytes_of(&scratch->world);
  out->gone = world->gone;
  out->how = scratch->how.data;
  out->gone_count = world->gone_count;
  out->answer = world->answer;
  out->answer.master_node = world->master_node.text;
  out->answer.master_addr = world->master_addr;
  return 0;
}

int coordinator_run_snapshot(const struct coordinator_run *run, struct native_scratch *scratch,
                             struct native_run_snapshot *out, rdzv_error *error) {
  scratch->state.len = scratch->world.len = scratch->how.len = 0;
  *out = (struct native_run_snapshot){.id = run->id,
                                      .layout = run->layout,
                                      .first_round = run->first_round,
                                      .waits = run->waits,
                                      .world_round = run->world.round};
  const int result = pickle_write(&run->state, run->layout, &scratch->state, error);
  out->state = bytes_of(&scratch->state);
  if (result < 0 || run->world.round < 0) return result;
  return describe_world(&run->world, run->layout, scratch, out, error);
}

static struct native_node_snapshot snapshot_of(const struct native_node *node) {
  const struct coordinator_run *run = node->run;
  struct native_node_snapshot snapshot = {.order = node->order,
                                          .wish = node->wish,
                                          .over_us = node->over_us,
                                          .joined = node->joined,
                                          .in_round = node->in_round,
                                          .unanswered = node->unanswered,
                                          .missed = node->missed != 0,
                                          .ranks = node->ranks};
  snapshot.join = (struct native_join){.run_id = run->id,
                                       .session = {.node = node->node, .epoch = node->epoch},
                                       .number = node->number,
                                       .times = node->times,
                                       .settings = node->settings,
                                       .layout = run->layout,
                                       .first_round = node->first_round,
                                       .master_addr = node->master_addr,
                                       .master_port = node->master_port,
                                       .workers = node->workers};
  memcpy(snapshot.join.session.token, node->token, sizeof node->token);
  return snapshot;
}

void coordinator_run_nodes(const struct coordinator_run *run,
                           void (*visit)(void *user, uint64_t serial, const struct native_node_snapshot *node),
                           void *user) {
  for (const struct native_node *node = run->nodes; node; node = node->by_node.next) {
    const struct native_node_snapshot snapshot = snapshot_of(node);
    visit(user, node->serial, &snapshot);
  }
}

/* ---- restoring ------------------------------------------------------------------------------------------------ */

static int corrupt(const struct coordinator_run *run, const char *what, rdzv_error *error) {
  return error_set(error, RDZV_E_CORRUPT, "%s of run '%s' is invalid", what, run->id);
}

static int restore_gone(struct coordinator_run *run, const struct native_run_snapshot *snapshot, rdzv_error *error) {
  struct native_world *world = &run->world;
  const size_t count = world->state.count;
  if (snapshot->gone_count > count || count == 0) return corrupt(run, "the world", error);
  world->gone = calloc(count, sizeof *world->gone);
  world->how = calloc(count, sizeof *world->how);
  if (!world->gone || !world->how) return error_no_memory(error);
  for (uint32_t i = 0; i < snapshot->gone_count; i++) {
    const uint32_t index = snapshot->gone[i];
    const bool right = index < count && world->how[index] == NATIVE_HERE && snapshot->how[i] > NATIVE_HERE &&
                       snapshot->how[i] <= NATIVE_DIED;
    if (!right) return corrupt(run, "the world", error);
    world->gone[i] = index;
    world->how[index] = snapshot->how[i];
  }
  world->gone_count = snapshot->gone_count;
  return 0;
}

static int restore_world(struct coordinator_run *run, const struct native_run_snapshot *snapshot, rdzv_error *error) {
  struct native_world *world = &run->world;
  struct torch_layouts layouts;
  const int result = pickle_read(snapshot->world, &world->state, &layouts, error);
  if (result < 0) return result;
  world->round = snapshot->world_round;
  world->answer = snapshot->answer;
  snprintf(world->master_node.text, sizeof world->master_node.text, "%s", snapshot->answer.master_node);
  snprintf(world->master_addr, sizeof world->master_addr, "%s", snapshot->answer.master_addr);
  for (size_t i = 0; i < world->state.count; i++) world->state.nodes[i].kinds = NODE_PARTICIPANT;
  return restore_gone(run, snapshot, error);
}

int coordinator_restore_run(struct coordinator *coordinator, uint64_t serial,
                            const struct native_run_snapshot *snapshot, struct moment now, rdzv_error *error) {
  struct torch_layouts layouts;
  coordinator_advance(coordinator, now.mono_ms);
  if (coordinator_find(coordinator, snapshot->id, strlen(snapshot->id)))
    return error_set(error, RDZV_E_CORRUPT, "run '%s' is there twice", snapshot->id);
  struct coordinator_run *run = run_new(coordinator, snapshot->id, snapshot->layout);
  if (!run) return error_no_memory(error);
  int result = pickle_read(snapshot->state, &run->state, &layouts, error);
  if (result < 0) return result;
  run->serial = serial;
  if (serial > coordinator->serials) coordinator->serials = serial;
  run->first_round = snapshot->first_round;
  run->waits = snapshot->waits;
  run->waiting = run->state.num_waiting;
  return snapshot->world_round >= 0 ? restore_world(run, snapshot, error) : 0;
}

int coordinator_restore_node(struct coordinator *coordinator, uint64_t serial,
                             const struct native_node_snapshot *snapshot, struct moment now, rdzv_error *error) {
  const char *id = snapshot->join.run_id;
  struct coordinator_run *run = coordinator_find(coordinator, id, strlen(id));
  if (!run) return error_set(error, RDZV_E_CORRUPT, "a node is of run '%s', which is not there", id);
  return sessions_restore(run, serial, snapshot, now, error);
}

static int by_order(const struct native_node *a, const struct native_node *b) {
  return (a->order > b->order) - (a->order < b->order);
}

/* The last call ends when it was to end, but for a clock that has jumped. */
static void restore_call(struct coordinator_run *run, struct moment now) {
  const int64_t deadline = run->state.deadline, most = run->settings.last_call_timeout;
  run->last_call = LAST_CALL_NONE;
  if (deadline == DATETIME_NONE) return;
  const int64_t left = (deadline - now.wall_us) / 1000;
  run->last_call.deadline = deadline;
  run->last_call.ends_ms = now.mono_ms + (left < 0 ? 0 : left > most ? most : left);
}

int coordinator_restored(struct coordinator *coordinator, struct moment now, rdzv_error *error) {
  for (struct coordinator_run *run = coordinator->runs; run; run = run->hh.next) {
    if (!run->nodes) return error_set(error, RDZV_E_CORRUPT, "run '%s' has no nodes", run->id);
    DL_SORT(run->pending, by_order);
    restore_call(run, now);
    run_look(run, now);
    run->retry = true; /* joins are decided on with the first timer */
  }
  coordinator_wake_by(coordinator, now.mono_ms + 1);
  return 0;
}
