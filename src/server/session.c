/* SPDX-License-Identifier: BSD-3-Clause */
#define HASH_NONFATAL_OOM 1 /* hh.tbl is NULL where there was no memory */
#include "server/session.h"

#include "base/buf.h"
#include "wire/scan.h"

#include <endian.h>
#include <rdzv/error.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

void sessions_init(struct sessions *sessions, struct budget *budget, struct siphash_seed seed) {
  *sessions = (struct sessions){.budget = budget, .seed = seed};
}

/* ---- lifetime --------------------------------------------------------------------------------------------- */

static void drop_value(struct sessions *sessions, struct session *session) {
  if (session->value.data) budget_give(sessions->budget, session->value.len);
  rdzv_value_free(&session->value);
}

static void release(struct sessions *sessions, struct session *session) {
  budget_give(sessions->budget, sizeof *session);
  free(session);
}

static void clean(struct sessions *sessions, struct session *session) {
  if (session->is_dirty) DL_DELETE2(sessions->dirty, session, dirty_prev, dirty_next);
  session->is_dirty = false;
}

static void session_free(struct sessions *sessions, struct session *session) {
  drop_value(sessions, session);
  clean(sessions, session);
  HASH_DEL(sessions->table, session); /* NOLINT: it is in the table, so there is one */
  if (session->slot.parts > 0)
    LL_PREPEND(sessions->gone, session);
  else
    release(sessions, session);
}

static void free_gone(struct sessions *sessions) {
  struct session *session, *next;
  LL_FOREACH_SAFE(sessions->gone, session, next) release(sessions, session);
  sessions->gone = NULL;
}

void sessions_free(struct sessions *sessions) {
  struct session *session, *next;
  HASH_ITER(hh, sessions->table, session, next) session_free(sessions, session);
  free_gone(sessions);
}

static void touch(struct sessions *sessions, struct session *session) {
  if (!sessions->tracks || session->is_dirty) return;
  session->is_dirty = true;
  DL_APPEND2(sessions->dirty, session, dirty_prev, dirty_next);
}

static void forget_one(struct sessions *sessions) {
  struct session *session = sessions->left;
  DL_DELETE(sessions->left, session);
  sessions->left_count--;
  if (session->serial > sessions->forgotten) sessions->forgotten = session->serial;
  session_free(sessions, session);
}

void sessions_forget(struct sessions *sessions, int64_t then) {
  while (sessions->left && sessions->left->left_at < then) forget_one(sessions);
}

/* Forgets sessions without a connection, if memory is needed for one that is in use. */
static bool take_budget(struct sessions *sessions, size_t bytes) {
  while (!budget_take(sessions->budget, bytes)) {
    if (!sessions->left) return false;
    forget_one(sessions);
  }
  return true;
}

static struct session *session_new(struct sessions *sessions, uint64_t serial) {
  if (!take_budget(sessions, sizeof(struct session))) return NULL;
  struct session *session = calloc(1, sizeof *session);
  if (session) {
    session->serial = serial;
    HASH_ADD(hh, sessions->table, serial, sizeof session->serial, session);
  }
  if (session && session->hh.tbl) return session;
  budget_give(sessions->budget, sizeof *session);
  free(session);
  return NULL;
}

enum { SERIALS_AT_ONCE = 1 << 16 };

void sessions_reserve(struct sessions *sessions) {
  sessions->issued_kept = sessions->issued + SERIALS_AT_ONCE;
  sessions->is_head_dirty = true;
}

struct session *session_open(struct sessions *sessions, void *conn) {
  if (sessions->tracks && sessions->issued >= sessions->issued_safe) return NULL;
  struct session *session = session_new(sessions, sessions->issued + 1);
  if (!session) return NULL;
  sessions->issued++;
  if (sessions->tracks && sessions->issued + SERIALS_AT_ONCE / 2 == sessions->issued_kept) sessions_reserve(sessions);
  session->conn = conn;
  return session;
}

void *session_attach(struct sessions *sessions, struct session *session, uint64_t epoch, void *conn) {
  void *before = session->conn;
  if (!before && session->prev) {
    DL_DELETE(sessions->left, session);
    sessions->left_count--;
    session->prev = session->next = NULL;
  }
  session->conn = conn;
  session->epoch = epoch;
  touch(sessions, session);
  return before;
}

void session_leave(struct sessions *sessions, struct session *session, int64_t now) {
  session->conn = NULL;
  if (session->done == 0 && session->epoch == 0) {
    session_free(sessions, session);
    return;
  }
  session->left_at = now;
  DL_APPEND(sessions->left, session);
  if (++sessions->left_count > SESSIONS_KEPT) forget_one(sessions);
}

/* ---- tokens -------------------------------------------------------------------------------------------------- */

static void make_token(const struct sessions *sessions, uint64_t serial, uint8_t out[WIRE_TOKEN_BYTES]) {
  const uint64_t number = htole64(serial), hash = htole64(siphash(&sessions->seed, &number, sizeof number));
  memcpy(out, &number, sizeof number);
  memcpy(out + sizeof number, &hash, sizeof hash);
}

void session_token(const struct sessions *sessions, const struct session *session, uint8_t out[WIRE_TOKEN_BYTES]) {
  make_token(sessions, session->serial, out);
}

static bool is_ours(const struct sessions *sessions, rdzv_bytes token) {
  uint8_t ours[WIRE_TOKEN_BYTES];
  if (token.len != sizeof ours) return false;
  make_token(sessions, wire_load64(token.data), ours);
  return memcmp(ours, token.data, sizeof ours) == 0;
}

int session_find(struct sessions *sessions, rdzv_bytes token, uint64_t epoch, struct session **out) {
  if (!is_ours(sessions, token) || epoch == 0) return RDZV_E_PROTOCOL;
  const uint64_t serial = wire_load64(token.data);
  HASH_FIND(hh, sessions->table, &serial, sizeof serial, *out);
  if (*out) return epoch > (*out)->epoch ? 0 : RDZV_E_STALE;
  if (serial <= sessions->forgotten) return RDZV_E_OUTCOME_UNKNOWN;
  *out = session_new(sessions, serial);
  return *out ? 0 : RDZV_E_NO_MEMORY;
}

/* ---- writes -------------------------------------------------------------------------------------------------- */

enum session_verdict session_judge(const struct session *session, uint64_t number, enum wire_op op) {
  if (number > session->done) return SESSION_NEW;
  return number == session->done && op == session->op ? SESSION_REPEATED : SESSION_WRONG;
}

void session_done(struct sessions *sessions, struct session *session, uint64_t number, enum wire_op op,
                  uint64_t result) {
  if (number <= session->done) return; /* the client pipelines writes: the latest counts */
  drop_value(sessions, session);
  session->done = number;
  session->op = op;
  session->result = result;
  touch(sessions, session);
}

/* The item's memory goes back to the budget when it leaves its queue, so the copy is not refused for the budget's sake.
 */
bool session_took(struct sessions *sessions, struct session *session, uint64_t number, enum wire_op op, uint64_t result,
                  rdzv_bytes value) {
  rdzv_value copy;
  if (number <= session->done) return true;
  if (!value_copy(&copy, value.data, value.len)) return false;
  session_done(sessions, session, number, op, result);
  sessions->budget->used += copy.len;
  session->value = copy;
  return true;
}

void session_repeat(const struct session *session, const struct wire_request *request, struct wire_writer *out) {
  wire_put8(out, WIRE_BYTE_DONE);
  switch (session->op) {
    case WIRE_OP_ADD:
    case WIRE_OP_DELETE_KEY: wire_put64(out, session->result); break;
    case WIRE_OP_COMPARE_SET: wire_put_bytes(out, request->desired); break;
    case WIRE_OP_COMPARE_SET_VERSION:
      wire_put8(out, true);
      wire_put64(out, session->result);
      wire_put_bytes(out, (rdzv_bytes){0});
      break;
    case WIRE_OP_QUEUE_POP: wire_put64(out, session->result); /* fall through */
    case WIRE_OP_QUEUE_POP_WAIT: wire_put_bytes(out, rdzv_value_bytes(&session->value)); break;
    default: break; /* SET, APPEND, MULTI_SET, QUEUE_PUSH have no result */
  }
}

/* ---- keeping them -------------------------------------------------------------------------------------------- */

void sessions_track(struct sessions *sessions) { sessions->tracks = true; }

bool sessions_have_changed(const struct sessions *sessions) {
  return sessions->dirty || sessions->gone || sessions->is_head_dirty;
}

static struct record_id id_of(const struct session *session) {
  return (struct record_id){RECORD_SESSION, session->serial, 0};
}

static void collect(struct batch *batch, struct session *session) {
  const struct record_session record = {session->epoch, session->done, session->result, session->op};
  struct wire_writer head = {0};
  record_put_session(&head, &record);
  if (head.failed) batch->failed = true;
  batch_put(batch, id_of(session), (rdzv_bytes){head.buf.data, head.buf.len},
            batch_copy(batch, rdzv_value_bytes(&session->value)), &session->slot);
  buf_free(&head.buf);
}

void sessions_collect(struct sessions *sessions, struct batch *batch) {
  struct session *session;
  DL_FOREACH2(sessions->dirty, session, dirty_next) collect(batch, session);
  LL_FOREACH(sessions->gone, session) batch_remove(batch, id_of(session), &session->slot);
}

void sessions_collected(struct sessions *sessions) {
  while (sessions->dirty) clean(sessions, sessions->dirty);
  free_gone(sessions);
  sessions->is_head_dirty = false;
}

void sessions_load_head(struct sessions *sessions, const struct record_head *head) {
  sessions->seed = head->seed;
  sessions->issued = sessions->issued_kept = sessions->issued_safe = head->issued;
  sessions->forgotten = head->forgotten;
}

int sessions_load(struct sessions *sessions, uint64_t serial, const struct record_session *record, rdzv_bytes value,
                  struct record_slot slot, int64_t now) {
  struct session *session;
  HASH_FIND(hh, sessions->table, &serial, sizeof serial, session);
  if (session || serial == 0) return RDZV_E_CORRUPT;
  session = session_new(sessions, serial);
  if (!session) return RDZV_E_LIMIT;
  session->epoch = record->epoch;
  session->done = record->done;
  session->op = record->op;
  session->result = record->result;
  session->slot = slot;
  session->left_at = now;
  DL_APPEND(sessions->left, session);
  sessions->left_count++;
  if (value.len == 0) return 0;
  if (!value_copy(&session->value, value.data, value.len)) return RDZV_E_NO_MEMORY;
  sessions->budget->used += value.len;
  return 0;
}
