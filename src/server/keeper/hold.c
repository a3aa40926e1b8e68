/* SPDX-License-Identifier: BSD-3-Clause */
#include "server/keeper/keeper.h"

#include <utlist.h>

uint64_t keeper_committed(const struct rdzv_server *server) {
  return server->keeper ? server->keeper->committed : UINT64_MAX;
}

/* A server that has lost its lease sends nothing. */
uint64_t keeper_need_of(const struct keeper *keeper) {
  if (!keep_holds(keeper->keep)) return UINT64_MAX;
  const uint64_t in_flight = keeper->committed + keeper->in_flight;
  if (gather_has_changes(keeper)) return in_flight + 1;
  return keeper->in_flight ? in_flight : 0;
}

/* The batch that the value of one key depends on. */
static uint64_t need_of_key(const struct keeper *keeper, rdzv_bytes key, uint64_t need) {
  const uint64_t batch = ks_batch_of(keeper->server->ks, key);
  return batch == UINT64_MAX ? need : batch > keeper->committed ? batch : 0;
}

/* A read of one key depends on that key alone; other requests, on all that was done before them. What follows a write
 * on its connection waits for the write, since PyTorch's SET has no answer. */
static uint64_t need_of(struct conn *conn, const struct wire_request *request, uint64_t need, bool refused) {
  const struct keeper *keeper = conn->server->keeper;
  const uint64_t floor = conn->floor > keeper->committed ? conn->floor : 0;
  if (refused) return floor;
  rdzv_bytes list = request->list;
  uint64_t own;
  switch (request->op) {
    case WIRE_OP_GET:
    case WIRE_OP_GET_VERSION:
    case WIRE_OP_WAIT_CHANGED: own = need_of_key(keeper, request->key, need); break;
    case WIRE_OP_CHECK:
    case WIRE_OP_WAIT:
    case WIRE_OP_GET_WAIT: own = request->count == 1 ? need_of_key(keeper, wire_list_next(&list), need) : need; break;
    case WIRE_OP_VALIDATE:
    case WIRE_OP_PING:
    case WIRE_OP_NODE_BEAT: own = 0; break;
    default: conn->floor = need; return need;
  }
  return own > floor ? own : floor;
}

void keeper_note(struct conn *conn, const struct wire_request *request, bool refused) {
  struct rdzv_server *server = conn->server;
  uint64_t need = keeper_need(server);
  if (need != 0 && need != UINT64_MAX) need = need_of(conn, request, need, refused);
  if (need > server->need) server->need = need;
}

void keeper_hold(struct conn *conn) {
  struct keeper *keeper = conn->server->keeper;
  if (conn->is_held) return;
  conn->is_held = true;
  keeper->held_count++;
  DL_APPEND2(keeper->held, conn, held_prev, held_next);
}

void keeper_forget(struct conn *conn) {
  if (!conn->is_held) return;
  DL_DELETE2(conn->server->keeper->held, conn, held_prev, held_next); /* NOLINT: it is in the list */
  conn->server->keeper->held_count--;
  conn->is_held = false;
}

void hold_release(struct keeper *keeper) {
  struct conn *conn, *next;
  keeper->released = 0;
  DL_FOREACH_SAFE2(keeper->held, conn, next, held_next) {
    if (!outbox_can_send(conn)) continue;
    keeper_forget(conn);
    schedule_conn(conn);
    keeper->released++;
  }
}
