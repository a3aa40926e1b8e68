/* SPDX-License-Identifier: BSD-3-Clause */
#include "server/keeper/keeper.h"

#include <utlist.h>

uint64_t keeper_committed(const struct rdzv_server *server) {
  return server->keeper ? server->keeper->committed : UINT64_MAX;
}

/* A server that has lost its place sends nothing any more. */
uint64_t keeper_need_of(const struct keeper *keeper) {
  if (!keep_holds(keeper->keep)) return UINT64_MAX;
  const uint64_t in_flight = keeper->committed + keeper->in_flight;
  if (gather_has_changes(keeper)) return in_flight + 1;
  return keeper->in_flight ? in_flight : 0;
}

void keeper_hold(struct conn *conn) {
  struct keeper *keeper = conn->server->keeper;
  if (conn->is_held) return;
  conn->is_held = true;
  DL_APPEND2(keeper->held, conn, held_prev, held_next);
}

void keeper_forget(struct conn *conn) {
  if (!conn->is_held) return;
  DL_DELETE2(conn->server->keeper->held, conn, held_prev, held_next); /* NOLINT: it is in the list */
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
