/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The key of a run, where PyTorch nodes and swap nodes share the state. While the run has native nodes, the coordinator
 * has the state, and the key is a copy: it is written again before it is read, if it is out of date, and what others
 * write to it is decoded first and then adopted by the coordinator.
 *
 * Clients that wait for a change of the key, or of its bell (backend/c10d/cell.c), hear of changes by native nodes,
 * too. For them the key is written at most once in an iteration of the loop, and then not for some time, which grows
 * with what it cost.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/text/base64.h"
#include "base/text/utf8.h"
#include "server/native/native.h"
#include "state/pickle/read.h"
#include "store/run_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#define SENTINEL "Y2FuaW1hZGFt" /* what PyTorch puts there before there is a state */

enum {
  REST_SHARE = 4, /* after a write for waiting clients: this many times what it took */
};

/* ---- keys ----------------------------------------------------------------------------------------------------- */

struct run_key {
  char text[1 + RUN_KEY_PREFIX_SIZE + NATIVE_MAX_RUN_ID + 1];
  size_t len;
};

static rdzv_bytes key_of(struct run_key *key, const char *run_id, enum run_part part) {
  key->len = (size_t)snprintf(key->text, sizeof key->text, "/%s%.*s", run_key_prefix(part), NATIVE_MAX_RUN_ID, run_id);
  return (rdzv_bytes){key->text, key->len};
}

int natives_take_id(rdzv_bytes bytes, char run_id[NATIVE_MAX_RUN_ID + 1], rdzv_error *error) {
  if (bytes.len == 0 || bytes.len > NATIVE_MAX_RUN_ID)
    return error_set(error, RDZV_E_INVALID, "the run id has %zu bytes: expected 1 to %d", bytes.len, NATIVE_MAX_RUN_ID);
  if (memchr(bytes.data, 0, bytes.len) || !utf8_is_valid(bytes))
    return error_set(error, RDZV_E_INVALID, "the run id is not UTF-8");
  bytes_copy(run_id, bytes.data, bytes.len);
  run_id[bytes.len] = '\0';
  return 0;
}

uint64_t natives_get(struct rdzv_server *server, const char *run_id, enum run_part part, rdzv_bytes *value) {
  struct run_key key;
  return ks_get(server->ks, key_of(&key, run_id, part), value);
}

int natives_set(struct rdzv_server *server, const char *run_id, enum run_part part, rdzv_bytes value) {
  struct run_key key;
  const int result = ks_set(server->ks, key_of(&key, run_id, part), value);
  if (ks_is_busy(server->ks)) schedule_work(server);
  return result;
}

/* The run of a key, if it has native nodes. */
static struct coordinator_run *find(const struct rdzv_server *server, rdzv_bytes key) {
  const size_t prefix = sizeof NATIVE_KEY - 1;
  if (key.len <= prefix || memcmp(key.data, NATIVE_KEY, prefix) != 0) return NULL;
  return coordinator_find(server->natives->coordinator, (const char *)key.data + prefix, key.len - prefix);
}

bool natives_owns(const struct rdzv_server *server, rdzv_bytes key) { return find(server, key) != NULL; }

/* ---- decoding ------------------------------------------------------------------------------------------------- */

int natives_decode(rdzv_bytes text, enum torch_layout preferred, bool *exists, struct rendezvous_state *state,
                   enum torch_layout *layout, rdzv_error *error) {
  struct torch_layouts layouts = {0};
  struct buf pickle = {0};
  bool valid;
  *exists = false;
  if (text.len == 0 || bytes_equal(text, rdzv_str(SENTINEL))) return 0;
  if (!base64_decode(text, &pickle, &valid)) return error_no_memory(error);
  const int result = valid ? pickle_read((rdzv_bytes){pickle.data, pickle.len}, state, &layouts, error)
                           : error_set(error, RDZV_E_CORRUPT, "the state of the rendezvous is not base64");
  buf_free(&pickle);
  if (result < 0) return result;
  *exists = true;
  *layout = torch_layout_choose(layouts, preferred);
  return 0;
}

int natives_adopt(struct rdzv_server *server, const char *run_id, enum torch_layout preferred, rdzv_error *error) {
  struct natives *natives = server->natives;
  struct rendezvous_state state = STATE_EMPTY;
  enum torch_layout layout;
  rdzv_bytes text;
  bool exists;
  if (coordinator_find(natives->coordinator, run_id, strlen(run_id))) return 0;
  if (natives_get(server, run_id, RUN_PART_STATE, &text) == 0) return 0;
  int result = natives_decode(text, preferred, &exists, &state, &layout, error);
  if (result < 0 || !exists) return result;
  result = coordinator_adopt(natives->coordinator, run_id, &state, layout, natives_now(), error);
  state_free(&state);
  return result;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

static int put_blob(struct rdzv_server *server, struct coordinator_run *run, rdzv_bytes key, rdzv_error *error) {
  struct natives *natives = server->natives;
  rdzv_bytes before;
  natives->pickle.len = natives->text.len = 0;
  int result = coordinator_write_blob(run, natives_now(), &natives->pickle, error);
  if (result == 0 && !base64_encode((rdzv_bytes){natives->pickle.data, natives->pickle.len}, &natives->text))
    result = error_no_memory(error);
  const rdzv_bytes text = {natives->text.data, natives->text.len};
  const bool is_there = result == 0 && ks_get(server->ks, key, &before) != 0 && bytes_equal(before, text);
  if (result == 0 && !is_there && (result = ks_set(server->ks, key, text)) < 0)
    error_set(error, result, "%s", rdzv_error_text(result));
  if (result < 0 && natives_may_log(server))
    log_line(&server->log, RDZV_LOG_WARNING, "the state of run '%s' cannot be written: %s", coordinator_run_id(run),
             error->message);
  if (natives->text.cap > KEEP_ANSWER_BYTES) {
    buf_free(&natives->pickle);
    buf_free(&natives->text);
  }
  if (ks_is_busy(server->ks)) schedule_work(server);
  return result;
}

static rdzv_bytes own_key(const struct native_run *own) { return (rdzv_bytes){own->key, own->key_len}; }

static uint64_t version_of(struct rdzv_server *server, const struct native_run *own) {
  rdzv_bytes value;
  return ks_get(server->ks, own_key(own), &value);
}

static bool is_fresh(struct rdzv_server *server, const struct native_run *own) {
  return own->version != 0 && version_of(server, own) == own->version &&
         coordinator_blob_is_fresh(own->run, natives_now());
}

/* On failure the key has an old state, which must not be swapped. */
static int refresh(struct rdzv_server *server, struct native_run *own, rdzv_error *error) {
  if (is_fresh(server, own)) return 0;
  const int result = put_blob(server, own->run, own_key(own), error);
  own->version = result < 0 ? 0 : version_of(server, own);
  return result;
}

static struct native_run *make_own(struct rdzv_server *server, struct coordinator_run *run) {
  struct run_key key;
  const rdzv_bytes bytes = key_of(&key, coordinator_run_id(run), RUN_PART_STATE);
  struct native_run *own = calloc(1, sizeof *own + bytes.len);
  if (!own) return NULL;
  own->run = run;
  own->is_private = !ks_present(server->ks, bytes);
  own->key_len = bytes.len;
  memcpy(own->key, bytes.data, bytes.len);
  DL_APPEND(server->natives->runs, own);
  *coordinator_run_user(run) = own;
  return own;
}

/* What the server keeps of the run, made with the first change; then its key is there. NULL: no memory. */
static struct native_run *own_of(struct rdzv_server *server, struct coordinator_run *run) {
  struct native_run *own = *coordinator_run_user(run);
  rdzv_error error;
  if (own) return own;
  own = make_own(server, run);
  if (own) refresh(server, own, &error);
  return own;
}

int natives_load(struct rdzv_server *server, const char *run_id, bool is_private, rdzv_error *error) {
  struct native_run *own = make_own(server, coordinator_find(server->natives->coordinator, run_id, strlen(run_id)));
  if (!own) return error_no_memory(error);
  own->is_private = is_private;
  return 0;
}

/* A run that never had a round is forgotten without a trace. */
static bool is_blank(const struct native_run *own) {
  const struct rendezvous_state *state = coordinator_run_state(own->run);
  return own->is_private && state->round == 0 && !state->complete && !state->closed && state->count == 0;
}

void natives_save(struct rdzv_server *server, struct coordinator_run *run) {
  struct native_run *own = *coordinator_run_user(run);
  struct run_key key;
  rdzv_error error;
  if (own && is_blank(own))
    ks_delete(server->ks, own_key(own));
  else if (!own || !is_fresh(server, own))
    put_blob(server, run, key_of(&key, coordinator_run_id(run), RUN_PART_STATE), &error);
  if (!own) return;
  DL_DELETE(server->natives->runs, own);
  free(own);
}

/* ---- clients that wait for a change --------------------------------------------------------------------------- */

static void look_later(struct natives *natives, uint64_t delay_ms) {
  if (natives->server->stopping) return;
  if (!uv_is_active((uv_handle_t *)&natives->changes) || uv_timer_get_due_in(&natives->changes) > delay_ms)
    uv_timer_start(&natives->changes, natives_on_changes, delay_ms, 0);
}

static void mark(struct rdzv_server *server, struct native_run *own) {
  if (!own->is_dirty) look_later(server->natives, 0);
  own->is_dirty = true;
}

void natives_changed(struct rdzv_server *server, struct coordinator_run *run) {
  struct native_run *own = own_of(server, run);
  if (own) mark(server, own);
}

static void ring(struct rdzv_server *server, const struct native_run *own) {
  struct run_key key;
  int64_t count;
  const rdzv_bytes bell = key_of(&key, coordinator_run_id(own->run), RUN_PART_BELL);
  if (ks_is_awaited(server->ks, bell)) ks_add(server->ks, bell, 1, &count);
  if (ks_is_busy(server->ks)) schedule_work(server);
}

static void tell_waiters(struct rdzv_server *server, struct native_run *own, uint64_t now_ns) {
  rdzv_error error;
  if (ks_is_awaited(server->ks, own_key(own)) || version_of(server, own) == 0) { /* or a client has deleted it */
    refresh(server, own, &error);
    own->rest_ns = now_ns + (uv_hrtime() - now_ns) * REST_SHARE;
  }
  ring(server, own);
  own->is_dirty = false;
}

void natives_on_changes(uv_timer_t *timer) {
  struct natives *natives = timer->data;
  struct native_run *own;
  uint64_t next_ns = UINT64_MAX;
  DL_FOREACH(natives->runs, own) {
    const uint64_t now_ns = uv_hrtime();
    if (own->is_dirty && own->rest_ns <= now_ns) tell_waiters(natives->server, own, now_ns);
    if (own->is_dirty && own->rest_ns - now_ns < next_ns) next_ns = own->rest_ns - now_ns;
  }
  if (next_ns != UINT64_MAX) look_later(natives, 1 + next_ns / 1000000);
}

/* ---- requests for such a key ---------------------------------------------------------------------------------- */

void natives_look_at(struct rdzv_server *server, rdzv_bytes key) {
  struct coordinator_run *run = find(server, key);
  struct native_run *own = run ? own_of(server, run) : NULL;
  rdzv_error error;
  if (!own) return;
  own->is_private = false;
  refresh(server, own, &error);
}

void natives_await_at(struct rdzv_server *server, rdzv_bytes key) {
  struct coordinator_run *run = find(server, key);
  struct native_run *own = run ? own_of(server, run) : NULL;
  if (!own) return;
  own->is_private = false;
  if (!is_fresh(server, own)) mark(server, own);
}

/* Would the request write, as the key is now? *value is what. */
static bool would_write(struct rdzv_server *server, const struct wire_request *request, rdzv_bytes *value) {
  rdzv_bytes now;
  const uint64_t version = ks_get(server->ks, request->key, &now);
  switch (request->op) {
    case WIRE_OP_SET: *value = request->value; return true;
    case WIRE_OP_COMPARE_SET: *value = request->desired; return bytes_equal(now, request->value);
    case WIRE_OP_COMPARE_SET_VERSION: *value = request->value; return version == request->number;
    case WIRE_OP_DELETE_KEY: *value = (rdzv_bytes){0}; return true;
    default: return false;
  }
}

/* An impossible state is answered as a lost swap: its writer gets the current state. */
static int lose_swap(struct conn *conn, const struct wire_request *request, handler *run, const struct native_run *own,
                     rdzv_error *error) {
  struct rdzv_server *server = conn->server;
  struct wire_request lost = *request;
  if (natives_may_log(server))
    log_line(&server->log, RDZV_LOG_WARNING, "a state that was written for run '%s' is refused: %s",
             coordinator_run_id(own->run), error->message);
  if (request->op == WIRE_OP_SET) return RDZV_E_CORRUPT;                               /* which cannot be lost */
  lost.value = request->op == WIRE_OP_COMPARE_SET ? request->desired : request->value; /* is not the state as it is */
  lost.number = UINT64_MAX;                                                            /* nor is this its version */
  const int result = run(conn, &lost, &server->answers);
  return result < 0 ? error_set(error, result, "%s", rdzv_error_text(result)) : 0;
}

static int write_and_adopt(struct conn *conn, const struct wire_request *request, handler *run, rdzv_bytes value,
                           struct native_run *own, rdzv_error *error) {
  struct rdzv_server *server = conn->server;
  struct rendezvous_state state = STATE_EMPTY;
  enum torch_layout layout = coordinator_run_layout(own->run);
  bool exists;
  int result = natives_decode(value, layout, &exists, &state, &layout, error);
  if (result < 0) return result;
  if (exists && coordinator_check_swap(own->run, &state, error) < 0) {
    state_free(&state);
    return lose_swap(conn, request, run, own, error);
  }
  result = run(conn, request, &server->answers);
  if (result < 0) {
    state_free(&state);
    return error_set(error, result, "%s", rdzv_error_text(result));
  }
  own->version = version_of(server, own);
  own->is_private = request->op == WIRE_OP_DELETE_KEY;
  natives_step(server, (struct coordinator_event){.kind = COORDINATOR_EV_SWAPPED,
                                                  .run_id = coordinator_run_id(own->run),
                                                  .state = exists ? &state : NULL,
                                                  .layout = layout});
  state_free(&state);
  return 0;
}

void natives_execute(struct conn *conn, const struct wire_request *request, handler *run) {
  struct rdzv_server *server = conn->server;
  struct native_run *own = own_of(server, find(server, request->key));
  rdzv_error error;
  rdzv_bytes value;
  int result = own ? 0 : error_no_memory(&error);
  if (own) {
    own->is_private = false;
    result = refresh(server, own, &error);
    if (request->op == WIRE_OP_DELETE_KEY) result = 0; /* which needs no state and gives memory back */
  }
  if (result == 0 && request->op == WIRE_OP_APPEND)
    result = error_set(&error, RDZV_E_UNSUPPORTED, "the state of a run with native nodes cannot be appended to");
  else if (result == 0 && would_write(server, request, &value))
    result = write_and_adopt(conn, request, run, value, own, &error);
  else if (result == 0 && (result = run(conn, request, &server->answers)) < 0)
    error_set(&error, result, "%s", rdzv_error_text(result));
  if (result == 0) return;
  snprintf(server->doom_text, sizeof server->doom_text, "%.120s", error.message);
  refuse(conn, result, server->doom_text);
}
