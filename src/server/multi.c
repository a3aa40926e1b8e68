/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests over many keys, in slices: CHECK, MULTI_GET and MULTI_SET over many keys, CANCEL_WAIT of many waits.
 *
 * Up to SLICE_KEYS keys, a request is done at once. A longer one stays at the front of conn->in and goes on in later
 * iterations of the loop; the client's next requests wait for it. MULTI_SET stages its values in slices and then sets
 * them all in one step. MULTI_GET and CHECK look at the keys of a slice in one step.
 */
#include "server/server.h"

#include <stdlib.h>

/* ---- the slices --------------------------------------------------------------------------------------------- */

static rdzv_bytes take(struct multi *multi, const uint8_t *data) {
  rdzv_bytes list = {data + multi->at, multi->size - multi->at};
  const rdzv_bytes bytes = wire_list_next(&list);
  multi->at = multi->size - list.len;
  return bytes;
}

static int check_one(struct conn *conn, struct multi *multi, rdzv_bytes key) {
  if (ks_present(conn->server->ks, key)) return 0;
  multi->absent = true;
  multi->left = 1; /* the other keys do not matter */
  return 0;
}

/* The answer may be far longer than the request, so its length is checked first. */
static int get_one(struct conn *conn, struct multi *multi, rdzv_bytes key) {
  struct rdzv_server *server = conn->server;
  rdzv_bytes value;
  natives_look(server, key);
  const bool there = ks_get(server->ks, key, &value) != 0;
  if (!there && conn->decoder.dialect == WIRE_DIALECT_V1) return RDZV_E_PROTOCOL;
  if (value.len + 8 > server->limits.max_message - multi->values.len) return RDZV_E_LIMIT;
  return chain_put_found(&multi->values, server, key, value) ? 0 : RDZV_E_LIMIT;
}

static int stage_one(struct conn *conn, struct multi *multi, rdzv_bytes key, rdzv_bytes value) {
  if (conn->server->native_runs > 0 && natives_owns(conn->server, key)) return RDZV_E_UNSUPPORTED;
  const int result = ks_stage(conn->server->ks, key, value, &multi->stages[multi->staged]);
  if (result == 0) multi->staged++;
  return result;
}

/* Handles as many keys as fit into a slice. */
static int step(struct conn *conn, struct multi *multi, const uint8_t *data) {
  const size_t began = multi->at;
  int result = 0;
  for (size_t n = 0; n < SLICE_KEYS && multi->left > 0 && multi->at - began < SLICE_BYTES && result == 0; n++) {
    const rdzv_bytes key = take(multi, data);
    if (multi->op == WIRE_OP_CHECK)
      result = check_one(conn, multi, key);
    else if (multi->op == WIRE_OP_MULTI_GET)
      result = get_one(conn, multi, key);
    else
      result = stage_one(conn, multi, key, take(multi, data));
    multi->left--;
  }
  return result;
}

static void finish(struct conn *conn, struct multi *multi) {
  struct wire_writer *out = &conn->server->answers;
  if (multi->op == WIRE_OP_MULTI_SET) {
    ks_commit(conn->server->ks, multi->stages, multi->staged);
    conn->write = multi->write;
    write_done(conn, multi->op, 0);
  }
  answer_ok(conn, out);
  if (multi->op == WIRE_OP_CHECK) wire_put8(out, multi->absent);
  if (multi->op == WIRE_OP_MULTI_GET) conn_send_chain(conn, &multi->values);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static int make_stages(struct rdzv_server *server, struct multi *multi) {
  multi->stages_bytes = (multi->left ? multi->left : 1) * sizeof *multi->stages;
  if (!budget_take(&server->budget, multi->stages_bytes)) return RDZV_E_LIMIT;
  multi->stages = malloc(multi->stages_bytes);
  if (multi->stages) return 0;
  budget_give(&server->budget, multi->stages_bytes);
  return RDZV_E_NO_MEMORY;
}

/* Frees a part of what the request holds. True: something is left. */
static bool let_go(struct rdzv_server *server, struct multi *multi, size_t most) {
  for (size_t n = 0; n < most && multi->staged > 0; n++) ks_unstage(server->ks, &multi->stages[--multi->staged]);
  if (multi->staged > 0) return true;
  if (multi->stages) budget_give(&server->budget, multi->stages_bytes);
  free(multi->stages);
  multi->stages = NULL;
  chain_free(&multi->values, &server->budget);
  return false;
}

/* CHECK is the most frequent of these requests, and mostly has one key. */
static bool check_at_once(struct conn *conn, const struct wire_request *request) {
  struct wire_writer *out = &conn->server->answers;
  rdzv_bytes list = request->list;
  size_t there = 0;
  while (there < request->count && ks_present(conn->server->ks, wire_list_next(&list))) there++;
  answer_ok(conn, out);
  wire_put8(out, there < request->count);
  return true;
}

/* ---- the request ----------------------------------------------------------------------------------------- */

/* True: the request is done, and holds nothing. */
static bool go_on(struct conn *conn, struct multi *multi, const uint8_t *data) {
  if (!multi->over && multi->op == WIRE_OP_CANCEL_WAIT) {
    if (pending_cancel_some(conn, SLICE_KEYS)) return false;
    wire_put8(&conn->server->answers, WIRE_BYTE_CANCELED); /* in our dialect too this byte is the whole answer */
    multi->over = true;
  } else if (!multi->over) {
    const int result = step(conn, multi, data);
    multi->over = result < 0 || multi->left == 0;
    if (result < 0)
      refuse_code(conn, result);
    else if (multi->over)
      finish(conn, multi);
  }
  return multi->over && !let_go(conn->server, multi, SLICE_KEYS);
}

bool multi_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data) {
  if (request->op == WIRE_OP_CHECK && !is_large(request)) return check_at_once(conn, request);
  struct multi multi = {.op = request->op, .size = request->size, .left = request->count, .write = conn->write};
  int result = 0;
  if (request->count > 0) multi.at = (size_t)((const uint8_t *)request->list.data - data);
  if (multi.op == WIRE_OP_MULTI_SET) result = make_stages(conn->server, &multi);
  if (result == 0 && go_on(conn, &multi, data)) return true;
  struct multi *kept = result == 0 ? malloc(sizeof *kept) : NULL;
  if (!kept) {
    refuse_code(conn, result < 0 ? result : RDZV_E_NO_MEMORY);
    while (let_go(conn->server, &multi, SLICE_KEYS)) {
    }
    return true;
  }
  *kept = multi;
  conn->multi = kept;
  return false;
}

static void forget(struct conn *conn) {
  free(conn->multi);
  conn->multi = NULL;
}

bool multi_go_on(struct conn *conn) {
  const bool done = go_on(conn, conn->multi, conn->in.data);
  if (done) forget(conn);
  return done;
}

bool multi_drop_some(struct conn *conn) {
  const bool left = conn->multi && let_go(conn->server, conn->multi, SLICE_KEYS);
  if (!left) forget(conn);
  return left;
}
