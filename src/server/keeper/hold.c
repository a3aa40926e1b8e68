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

/* ---- while a commit fails ------------------------------------------------------------------------------------- */

static bool is_undurable(const struct keeper *keeper, rdzv_bytes key) {
  return ks_present(keeper->server->ks, key) && ks_batch_of(keeper->server->ks, key) > keeper->committed;
}

/* Does an answer that could be given now depend on the batch that fails? A wait for an absent key may go on. Nodes have
 * their own ways to find out. */
static bool depends(const struct keeper *keeper, const struct wire_request *request) {
  rdzv_bytes list = request->list;
  switch (request->op) {
    case WIRE_OP_WAIT_CHANGED: return is_undurable(keeper, request->key);
    case WIRE_OP_WAIT:
    case WIRE_OP_GET_WAIT:
      for (uint64_t i = 0; i < request->count; i++)
        if (is_undurable(keeper, wire_list_next(&list))) return true;
      return false;
    case WIRE_OP_GET:
    case WIRE_OP_GET_VERSION: return need_of_key(keeper, request->key, keeper_need_of(keeper)) != 0;
    case WIRE_OP_CHECK:
    case WIRE_OP_MULTI_GET:
    case WIRE_OP_NUM_KEYS:
    case WIRE_OP_LIST_KEYS:
    case WIRE_OP_QUEUE_LEN:
    case WIRE_OP_SESSION:
    case WIRE_OP_NODE_QUERY: return keeper_need_of(keeper) != 0;
    default: return false;
  }
}

bool keeper_refuses_read(const struct conn *conn, const struct wire_request *request, const rdzv_error **why) {
  const struct keeper *keeper = conn->server->keeper;
  if (!keeper->failing || conn->decoder.dialect != WIRE_DIALECT_RDZV || keep_waits(keeper->keep)) return false;
  *why = &keeper->why;
  return depends(keeper, request);
}

/* A client of PyTorch's would not come back. */
static bool is_worth_waiting(const struct conn *conn) {
  return conn->decoder.dialect != WIRE_DIALECT_RDZV && conn->server->keeper->why.code == RDZV_E_NO_SPACE;
}

void hold_close(struct keeper *keeper, bool with_nodes) {
  struct conn *conn, *next;
  DL_FOREACH_SAFE2(keeper->held, conn, next, held_next) {
    if (is_worth_waiting(conn) || (conn->is_node && !with_nodes)) continue;
    conn_doom(conn, RDZV_E_CONNECTION, keeper->why.message);
  }
}

/* ---- connections with answers that wait ----------------------------------------------------------------------- */

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
