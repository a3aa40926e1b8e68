/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that are answered at once. The dialects differ in three places: answer_ok() (in RDZV every request has an
 * answer, which begins with a status), refuse() (in PyTorch's dialects the server can only close the connection) and
 * get() (the answer to GET of an absent key).
 */
#include "base/error.h"
#include "server/server.h"
#include "wire/native.h"

#include <stdio.h>

enum { GREETING_REQUESTS = 5 }; /* VALIDATE and up to four PINGs */

void refuse(struct conn *conn, int code, const char *why) {
  if (conn->decoder.dialect != WIRE_DIALECT_RDZV) {
    conn_doom(conn, code, why);
    return;
  }
  struct wire_writer *out = &conn->server->aside;
  wire_put_refusal(out, code, why);
  if (!out->failed) conn_send(conn, out->buf.data, out->buf.len);
  out->buf.len = 0;
  out->failed = false;
}

void answer_ok(const struct conn *conn, struct wire_writer *out) {
  if (conn->decoder.dialect == WIRE_DIALECT_RDZV) wire_put8(out, WIRE_BYTE_DONE);
}

void answer_value(struct conn *conn, struct wire_writer *out, rdzv_bytes key, rdzv_bytes value) {
  struct rdzv_server *server = conn->server;
  if (value.len < SHARED_BYTES) {
    wire_put_bytes(out, value);
    return;
  }
  wire_put64(out, value.len);
  if (out != &server->answers) { /* what is in `out` is sent first */
    conn_send(conn, out->buf.data, out->buf.len);
    out->buf.len = 0;
  }
  conn_send_blob(conn, ks_share(server->ks, key));
}

/* ---- sessions ------------------------------------------------------------------------------------------------ */

void write_done(struct conn *conn, enum wire_op op, uint64_t result) {
  if (conn->session) session_done(&conn->server->sessions, conn->session, conn->write, op, result);
}

bool pop_done(struct conn *conn, enum wire_op op, uint64_t result, rdzv_bytes value) {
  return !conn->session || session_took(&conn->server->sessions, conn->session, conn->write, op, result, value);
}

void leave_session(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  if (!conn->session) return;
  session_leave(&server->sessions, conn->session, (int64_t)uv_now(&server->loop));
  conn->session = NULL;
  timeouts_tick(server);
}

/* Answers the second PING of a greeting. */
static int offer_session(struct conn *conn, struct wire_writer *out) {
  uint8_t token[WIRE_TOKEN_BYTES];
  conn->session = session_open(&conn->server->sessions, conn);
  answer_ok(conn, out);
  wire_put32(out, conn->session ? WIRE_SESSION_ANSWER : WIRE_SESSION_NONCE);
  if (!conn->session) return 0; /* no memory: the answer of a server without sessions */
  session_token(&conn->server->sessions, conn->session, token);
  wire_put(out, token, sizeof token);
  return 0;
}

static const char *reason_for_session(int code) {
  switch (code) {
    case RDZV_E_STALE: return NULL; /* late bytes: the client has moved to another connection */
    case RDZV_E_OUTCOME_UNKNOWN: return "its session is forgotten";
    default: return "its session cannot be used";
  }
}

/* A client whose session is refused is closed: its next requests must not be executed without the session. */
static int take_session(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  struct session *session;
  const int result = session_find(&conn->server->sessions, request->value, request->epoch, &session);
  if (result < 0) {
    conn_doom(conn, result, reason_for_session(result));
    return 0;
  }
  struct conn *before = session_attach(&conn->server->sessions, session, request->epoch, conn);
  if (before && before != conn) {
    before->session = NULL;
    conn_doom(before, RDZV_E_CONNECTION, NULL); /* nothing that arrives there late is executed */
  }
  if (session != conn->session) leave_session(conn);
  conn->session = session;
  conn->writes = request->number - 1;
  answer_ok(conn, out);
  wire_put64(out, session->done);
  return 0;
}

/* Numbers a write. True: do not execute it, because it was executed before or its number is wrong. */
static bool is_repeated(struct conn *conn, const struct wire_request *request) {
  conn->write = ++conn->writes;
  switch (session_judge(conn->session, conn->write, request->op)) {
    case SESSION_NEW: return false;
    case SESSION_REPEATED: session_repeat(conn->session, request, &conn->server->answers); break;
    case SESSION_WRONG: conn_doom(conn, RDZV_E_PROTOCOL, "its write is not the last one of its session"); break;
  }
  return true;
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

static int validate(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  (void)conn, (void)request, (void)out; /* the decoder has checked the magic */
  return 0;
}

/* Does a PING of the greeting name another run than the one that serves this store? */
static bool is_another_run(const struct conn *conn, uint64_t nonce) {
  const char *run_id = conn->server->options.run_id;
  const bool greets = conn->decoder.dialect == WIRE_DIALECT_RDZV && conn->decoder.requests <= GREETING_REQUESTS;
  return run_id && greets && (nonce & WIRE_RUN_MASK) == WIRE_RUN_NONCE && nonce != wire_run_nonce(run_id);
}

static int ping(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  const bool hello = conn->decoder.dialect == WIRE_DIALECT_V2 && conn->decoder.requests == 2;
  if (hello && request->number == WIRE_HELLO_NONCE) {
    conn->decoder.dialect = WIRE_DIALECT_RDZV;
    wire_put32(out, WIRE_HELLO_ANSWER);
    wire_put64(out, conn->server->instance);
    return 0;
  }
  const bool second = conn->decoder.dialect == WIRE_DIALECT_RDZV && conn->decoder.requests == 3;
  if (second && request->number == WIRE_SESSION_NONCE) return offer_session(conn, out);
  if (is_another_run(conn, request->number)) {
    struct rdzv_server *server = conn->server;
    snprintf(server->doom_text, sizeof server->doom_text, "this store serves run '%.80s'", server->options.run_id);
    conn_doom(conn, RDZV_E_STALE, server->doom_text);
    return 0;
  }
  answer_ok(conn, out);
  const bool native = conn->decoder.dialect == WIRE_DIALECT_RDZV && request->number == WIRE_NATIVE_NONCE;
  wire_put32(out, native ? WIRE_NATIVE_ANSWER : (uint32_t)request->number);
  return 0;
}

/* Answers a write without a result. */
static int acknowledge(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  write_done(conn, request->op, 0);
  answer_ok(conn, out);
  return 0;
}

static int set(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  const int result = ks_set(conn->server->ks, request->key, request->value);
  return result < 0 ? result : acknowledge(conn, request, out);
}

static int append(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  struct rdzv_server *server = conn->server;
  rdzv_bytes value;
  ks_get(server->ks, request->key, &value);
  if (value.len > server->limits.max_value - request->value.len) return RDZV_E_LIMIT;
  const int result = ks_append(server->ks, request->key, request->value);
  return result < 0 ? result : acknowledge(conn, request, out);
}

static int compare_set(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  rdzv_bytes now;
  const int result = ks_compare_set(conn->server->ks, request->key, request->value, request->desired, &now);
  if (result < 0) return result;
  /* The answer is the desired value, which a repetition has in its request: no value is remembered. */
  if (conn->session && bytes_equal(now, request->desired)) write_done(conn, request->op, 0);
  answer_ok(conn, out);
  wire_put_bytes(out, now);
  return 0;
}

/* PyTorch's clients get only keys that they have waited for, but a key may be deleted in between. Then PyTorch 1.x
 * closes the connection, and 2.x with libuv answers with an empty value. */
static int get(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  rdzv_bytes value;
  const bool there = ks_get(conn->server->ks, request->key, &value) != 0;
  if (!there && conn->decoder.dialect == WIRE_DIALECT_V1) return RDZV_E_PROTOCOL;
  answer_ok(conn, out);
  answer_value(conn, out, request->key, value);
  return 0;
}

static int add(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  int64_t sum;
  const int result = ks_add(conn->server->ks, request->key, (int64_t)request->number, &sum);
  if (result < 0) return result;
  write_done(conn, request->op, (uint64_t)sum);
  answer_ok(conn, out);
  wire_put64(out, (uint64_t)sum);
  return 0;
}

static int num_keys(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  (void)request;
  answer_ok(conn, out);
  wire_put64(out, ks_count(conn->server->ks));
  return 0;
}

static int delete_key(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  const bool deleted = ks_delete(conn->server->ks, request->key);
  if (deleted) write_done(conn, request->op, deleted);
  answer_ok(conn, out);
  wire_put64(out, deleted);
  return 0;
}

static int queue_push(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  const int result = ks_queue_push(conn->server->ks, request->key, request->value);
  return result < 0 ? result : acknowledge(conn, request, out);
}

static int queue_pop(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  struct keyspace *ks = conn->server->ks;
  const size_t len = ks_queue_len(ks, request->key);
  if (len > 0 && !pop_done(conn, request->op, len, ks_queue_front(ks, request->key))) return RDZV_E_NO_MEMORY;
  answer_ok(conn, out);
  wire_put64(out, len);
  if (len == 0) return 0;
  wire_put_bytes(out, ks_queue_front(ks, request->key));
  ks_queue_drop(ks, request->key);
  return 0;
}

static int queue_len(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  answer_ok(conn, out);
  wire_put64(out, ks_queue_len(conn->server->ks, request->key));
  return 0;
}

static int barrier(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  bool full;
  const int result = ks_barrier(conn->server->ks, request->key, (int64_t)request->number, &full);
  if (result < 0) return result;
  if (full)
    wire_put8(out, WIRE_BYTE_DONE);
  else
    pending_keep(conn, request);
  return 0;
}

static int watch_key(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  wire_put8(out, WIRE_BYTE_WATCHING);
  pending_keep(conn, request);
  return 0;
}

static int get_version(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  rdzv_bytes value;
  const uint64_t version = ks_get(conn->server->ks, request->key, &value);
  answer_ok(conn, out);
  wire_put64(out, version);
  answer_value(conn, out, request->key, value);
  return 0;
}

static int compare_set_version(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  struct keyspace *ks = conn->server->ks;
  bool swapped;
  const int result = ks_compare_set_version(ks, request->key, request->number, request->value, &swapped);
  if (result < 0) return result;
  rdzv_bytes now;
  const uint64_t version = ks_get(ks, request->key, &now);
  if (swapped) write_done(conn, request->op, version);
  answer_ok(conn, out);
  wire_put8(out, swapped);
  wire_put64(out, version);
  wire_put_bytes(out, swapped ? (rdzv_bytes){0} : now);
  return 0;
}

/* Is this the question of an RDZV client whether the server is PyTorch 1.x? See WIRE_BYTE_NOT_V1 in wire/op.h. */
static bool is_v1_question(const struct conn *conn, const struct wire_request *request) {
  const bool first = conn->decoder.dialect == WIRE_DIALECT_V1 && conn->decoder.requests == 1;
  rdzv_bytes list = request->list;
  return first && request->op == WIRE_OP_CHECK && request->count == 1 && wire_list_next(&list).len == 0;
}

/* NULL: the request may wait (pending.c) or take long (multi.c, listing.c). */
static handler *const handlers[WIRE_OP_COUNT] = {
    [WIRE_OP_VALIDATE] = validate,
    [WIRE_OP_SET] = set,
    [WIRE_OP_COMPARE_SET] = compare_set,
    [WIRE_OP_GET] = get,
    [WIRE_OP_ADD] = add,
    [WIRE_OP_NUM_KEYS] = num_keys,
    [WIRE_OP_WATCH_KEY] = watch_key,
    [WIRE_OP_DELETE_KEY] = delete_key,
    [WIRE_OP_APPEND] = append,
    [WIRE_OP_PING] = ping,
    [WIRE_OP_QUEUE_PUSH] = queue_push,
    [WIRE_OP_QUEUE_POP] = queue_pop,
    [WIRE_OP_QUEUE_LEN] = queue_len,
    [WIRE_OP_BARRIER] = barrier,
    [WIRE_OP_GET_VERSION] = get_version,
    [WIRE_OP_COMPARE_SET_VERSION] = compare_set_version,
    [WIRE_OP_SESSION] = take_session,
    [WIRE_OP_NODE_JOIN] = natives_join,
    [WIRE_OP_NODE_RESUME] = natives_resume,
    [WIRE_OP_NODE_LEAVE] = natives_leave,
    [WIRE_OP_NODE_CLOSE] = natives_close,
    [WIRE_OP_NODE_BEAT] = natives_beat,
    [WIRE_OP_NODE_QUERY] = natives_query,
};

static const char *reason(int code) {
  switch (code) {
    case RDZV_E_LIMIT: return "the request exceeds a memory limit or the value limit";
    case RDZV_E_NOT_A_NUMBER: return "it adds to a value that is not a number";
    case RDZV_E_PROTOCOL: return "it gets an absent key";
    case RDZV_E_UNSUPPORTED: return "it sets the state of a run with native nodes together with other keys";
    default: return rdzv_error_text(code);
  }
}

/* A limit of a run says so itself. */
void refuse_code(struct conn *conn, int code) {
  char *text = conn->server->limit_text;
  refuse(conn, code, code == RDZV_E_LIMIT && *text ? text : reason(code));
  *text = '\0';
}

/* The run of a request, if it names one: the first of its keys tells. */
static void note_use(struct rdzv_server *server, const struct wire_request *request) {
  rdzv_bytes list = request->list;
  tenants_use_key(server, request->count > 0 && request->key.len == 0 ? wire_list_next(&list) : request->key);
}

/* Refuses what would change something, while nothing can be committed, and what would depend on a batch that is not.
 * The refusal waits for no commit. A client whose session is refused is closed: see take_session. */
static bool is_refused(struct conn *conn, const struct wire_request *request) {
  const rdzv_error *why;
  const enum wire_op op = request->op;
  const bool is_node = op == WIRE_OP_NODE_JOIN || op == WIRE_OP_NODE_CLOSE;
  const bool changes = wire_ops[op].writes || is_node || op == WIRE_OP_BARRIER;
  if (changes ? !keeper_refuses(conn->server, &why) : !keeper_refuses_read(conn, request, &why)) return false;
  if (conn->decoder.dialect != WIRE_DIALECT_RDZV || op == WIRE_OP_SESSION)
    conn_doom(conn, why->code, why->message);
  else if (is_node)
    natives_put_refusal(request, why, &conn->server->answers);
  else
    wire_put_refusal(&conn->server->answers, why->code, why->message);
  return true;
}

static bool execute_one(struct conn *conn, const struct wire_request *request, const uint8_t *data, bool *refused) {
  if (conn->session && wire_ops[request->op].writes && is_repeated(conn, request)) return true;
  if (conn->server->keeper && (*refused = is_refused(conn, request))) return true;
  if (conn->server->tenants) note_use(conn->server, request);
  handler *const run = handlers[request->op];
  if (request->op != WIRE_OP_NODE_BEAT) conn->server->was_asked = true;
  if (run && conn->server->native_runs > 0 && natives_owns(conn->server, request->key)) {
    natives_execute(conn, request, run);
    return true;
  }
  if (run) {
    const int result = run(conn, request, &conn->server->answers);
    if (result < 0) refuse_code(conn, result);
    return true;
  }
  if (is_v1_question(conn, request)) {
    wire_put8(&conn->server->answers, WIRE_BYTE_NOT_V1);
    return true;
  }
  switch (request->op) {
    case WIRE_OP_CHECK:
    case WIRE_OP_MULTI_GET:
    case WIRE_OP_MULTI_SET:
    case WIRE_OP_CANCEL_WAIT: return multi_begin(conn, request, data);
    case WIRE_OP_LIST_KEYS: return listing_ask(conn);
    default: return pending_begin(conn, request, data);
  }
}

bool execute(struct conn *conn, const struct wire_request *request, const uint8_t *data) {
  if (conn->server->stands_by) return standby_refuse(conn, request);
  bool refused = false;
  const bool done = execute_one(conn, request, data, &refused);
  if (conn->server->keeper) keeper_note(conn, request, refused);
  return done;
}
