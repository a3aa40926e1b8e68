/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "server/native/native.h"
#include "wire/native.h"

#include <stdio.h>

enum {
  NODE_BYTES = 4096,           /* the most memory of a join, its run included */
  LONGEST_KEEP_ALIVE = 600000, /* a node that asks for more silence is not waited for longer */
  LONGEST_GRACE = 60000,
};

/* Does this server serve another run only? */
static bool is_refused(struct conn *conn, enum wire_op op, uint64_t number, const char *run_id) {
  struct rdzv_server *server = conn->server;
  const char *own = server->options.run_id;
  if (!own || strcmp(own, run_id) == 0) return false;
  snprintf(server->doom_text, sizeof server->doom_text, "this store serves run '%.80s'", own);
  natives_refuse(conn, op, number, RDZV_E_STALE, server->doom_text);
  return true;
}

static void limit_times(struct native_times *times) {
  if (times->keep_alive_ms > LONGEST_KEEP_ALIVE) times->keep_alive_ms = LONGEST_KEEP_ALIVE;
  if (times->grace_ms > LONGEST_GRACE) times->grace_ms = LONGEST_GRACE;
}

/* Is there memory for one more? */
static int check_room(struct rdzv_server *server, const char *for_what, rdzv_error *error) {
  if (!budget_take(&server->budget, NODE_BYTES))
    return error_set(error, RDZV_E_LIMIT, "no memory is left %s", for_what);
  budget_give(&server->budget, NODE_BYTES);
  return 0;
}

void natives_put_refusal(const struct wire_request *request, const rdzv_error *why, struct wire_writer *out) {
  struct native_join join = {0};
  rdzv_error unused;
  if (request->op == WIRE_OP_NODE_JOIN) wire_native_join(request->value, &join, &unused);
  wire_put_native_refusal(out, request->op, join.number, why->code, why->message);
}

int natives_join(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  (void)out;
  struct rdzv_server *server = conn->server;
  struct native_join join;
  rdzv_error error;
  int result = wire_native_join(request->value, &join, &error);
  if (result == 0 && is_refused(conn, request->op, join.number, join.run_id)) return 0;
  if (result == 0) result = check_room(server, "for another node", &error);
  if (result == 0 && !tenants_admit(server, join.run_id))
    result = error_set(&error, RDZV_E_LIMIT, "%s", server->limit_text);
  if (result == 0) result = natives_adopt(server, join.run_id, join.layout, &error);
  if (result < 0) {
    natives_refuse(conn, request->op, join.number, result, error.message);
    return 0;
  }
  limit_times(&join.times);
  conn->is_node = true;
  natives_step(server, (struct coordinator_event){.kind = COORDINATOR_EV_JOIN, .link = conn, .join = &join});
  return 0;
}

int natives_resume(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  (void)out;
  struct native_session session;
  const char *run_id;
  rdzv_error error;
  const int result = wire_native_resume(request->value, &run_id, &session, &error);
  if (result < 0) {
    natives_refuse(conn, request->op, session.epoch, result, error.message);
    return 0;
  }
  if (is_refused(conn, request->op, session.epoch, run_id)) return 0;
  conn->is_node = true;
  natives_step(conn->server, (struct coordinator_event){
                                 .kind = COORDINATOR_EV_RESUME, .link = conn, .run_id = run_id, .session = &session});
  return 0;
}

int natives_leave(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  (void)request, (void)out;
  natives_step(conn->server, (struct coordinator_event){.kind = COORDINATOR_EV_LEAVE, .link = conn});
  return 0;
}

/* The first reason stays. It is set before a node learns that the rendezvous is closed. */
static void leave_reason(struct rdzv_server *server, const char *run_id, rdzv_bytes reason) {
  rdzv_bytes before;
  if (reason.len == 0 || natives_get(server, run_id, RUN_PART_REASON, &before) != 0) return;
  natives_set(server, run_id, RUN_PART_REASON, reason); /* a rendezvous is closed even without its reason */
}

int natives_close(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  (void)out;
  struct rdzv_server *server = conn->server;
  char run_id[NATIVE_MAX_RUN_ID + 1];
  rdzv_error error;
  int result = natives_take_id(request->key, run_id, &error);
  if (result == 0 && is_refused(conn, request->op, 0, run_id)) return 0;
  if (result == 0 && request->value.len > NATIVE_MAX_REASON)
    result = error_set(&error, RDZV_E_LIMIT, "the reason has %zu bytes: the limit is %d", request->value.len,
                       NATIVE_MAX_REASON);
  if (result == 0) result = check_room(server, "to close the run", &error);
  if (result == 0) result = natives_adopt(server, run_id, TORCH_NEWEST, &error);
  if (result < 0) {
    natives_refuse(conn, request->op, 0, result, error.message);
    return 0;
  }
  leave_reason(server, run_id, request->value);
  natives_step(server, (struct coordinator_event){.kind = COORDINATOR_EV_CLOSE, .link = conn, .run_id = run_id});
  return 0;
}

/* Thousands of nodes send one every other second. */
int natives_beat(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  if (!conn->is_node) {
    natives_refuse(conn, request->op, 0, RDZV_E_STALE, "the connection has no node");
    return 0;
  }
  natives_step(conn->server,
               (struct coordinator_event){
                   .kind = COORDINATOR_EV_HEARD, .link = conn, .trip_us = wire_native_beat_trip(request->number)});
  conn->server->natives->was_beat = true;
  if (wire_native_beat_wants_answer(request->number)) wire_put_native_done(out, WIRE_NATIVE_BEAT);
  return 0;
}
