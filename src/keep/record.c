/* SPDX-License-Identifier: BSD-3-Clause */
#include "keep/record.h"

#include "base/error.h"
#include "wire/cursor.h"
#include "wire/native.h"

#define MAGIC "rdzvkeep"
enum { MAGIC_BYTES = 8, MOST_KEY = 1 << 30, GONE_BYTES = 5, NODE_FLAGS = 7 };

/* What the wire calls a broken protocol is corrupt data here. */
static int end(const struct wire_cursor *cursor, const char *what, rdzv_error *error) {
  if (wire_cursor_end(cursor, what, error) == 0) return 0;
  if (error) error->code = RDZV_E_CORRUPT;
  return RDZV_E_CORRUPT;
}

static int corrupt(int result, rdzv_error *error) {
  if (result == RDZV_E_PROTOCOL && error) error->code = RDZV_E_CORRUPT;
  return result == RDZV_E_PROTOCOL ? RDZV_E_CORRUPT : result;
}

/* As wire_take_text wants it. */
static void put_text(struct wire_writer *out, const char *text) {
  const size_t len = strlen(text);
  wire_put8(out, (uint8_t)len);
  wire_put8(out, (uint8_t)(len >> 8));
  wire_put(out, text, len + 1);
}

static rdzv_bytes take_bytes(struct wire_cursor *cursor, size_t most, const char *name) {
  const uint64_t len = wire_take64(cursor, name);
  if (len > most) wire_note_bad(cursor, name);
  const uint8_t *at = wire_take(cursor, cursor->bad ? 0 : (size_t)len, name);
  return at ? (rdzv_bytes){at, (size_t)len} : (rdzv_bytes){0};
}

/* ---- the head ------------------------------------------------------------------------------------------------- */

void record_put_head(struct wire_writer *out, const struct record_head *head) {
  wire_put(out, MAGIC, MAGIC_BYTES);
  wire_put64(out, RECORD_FORMAT);
  wire_put64(out, head->instance);
  wire_put64(out, head->seed.key[0]);
  wire_put64(out, head->seed.key[1]);
  wire_put64(out, head->issued);
  wire_put64(out, head->forgotten);
  wire_put64(out, head->version);
  wire_put64(out, head->tally.count);
  wire_put64(out, head->tally.sum);
}

static int check_format(struct wire_cursor *cursor, rdzv_error *error) {
  const uint8_t *magic = wire_take(cursor, MAGIC_BYTES, "the mark");
  if (!magic || memcmp(magic, MAGIC, MAGIC_BYTES) != 0)
    return error_set(error, RDZV_E_CORRUPT, "the head is invalid: it has no mark");
  const uint64_t format = wire_take64(cursor, "the format");
  if (!cursor->bad && format != RECORD_FORMAT)
    return error_set(error, RDZV_E_UNSUPPORTED, "it has format %llu, but this version of rdzv reads only format %d",
                     (unsigned long long)format, RECORD_FORMAT);
  return 0;
}

int record_read_head(rdzv_bytes head, struct record_head *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(head);
  const int result = check_format(&cursor, error);
  if (result < 0) return result;
  out->instance = wire_take64(&cursor, "the instance");
  if (out->instance == 0) wire_note_bad(&cursor, "the instance");
  out->seed.key[0] = wire_take64(&cursor, "the seed");
  out->seed.key[1] = wire_take64(&cursor, "the seed");
  out->issued = wire_take64(&cursor, "the sessions");
  out->forgotten = wire_take64(&cursor, "the sessions");
  out->version = wire_take64(&cursor, "the version");
  out->tally.count = wire_take64(&cursor, "the tally");
  out->tally.sum = wire_take64(&cursor, "the tally");
  return end(&cursor, "the head", error);
}

/* ---- keys and sessions ---------------------------------------------------------------------------------------- */

void record_put_key(struct wire_writer *out, const struct record_key *key) {
  wire_put64(out, key->version);
  wire_put_bytes(out, key->key);
}

int record_read_key(rdzv_bytes head, struct record_key *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(head);
  out->version = wire_take64(&cursor, "the version");
  out->key = take_bytes(&cursor, MOST_KEY, "the key");
  return end(&cursor, "a key", error);
}

void record_put_session(struct wire_writer *out, const struct record_session *session) {
  wire_put64(out, session->epoch);
  wire_put64(out, session->done);
  wire_put64(out, session->result);
  wire_put_op(out, WIRE_DIALECT_RDZV, session->done ? session->op : WIRE_OP_SET);
}

int record_read_session(rdzv_bytes head, struct record_session *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(head);
  out->epoch = wire_take64(&cursor, "the epoch");
  out->done = wire_take64(&cursor, "the number of the write");
  out->result = wire_take64(&cursor, "the result");
  const int op = wire_op_of(WIRE_DIALECT_RDZV, wire_take8(&cursor, UINT8_MAX, "the operation"));
  const bool fits = op >= 0 && wire_ops[op].writes && (out->done != 0 || op == WIRE_OP_SET);
  if (!fits) wire_note_bad(&cursor, "the operation");
  out->op = cursor.bad ? WIRE_OP_SET : (enum wire_op)op;
  return end(&cursor, "a session", error);
}

/* ---- runs ----------------------------------------------------------------------------------------------------- */

static void put_gone(struct wire_writer *out, const struct native_run_snapshot *run) {
  for (uint32_t i = 0; i < run->gone_count; i++) {
    wire_put32(out, run->gone[i]);
    wire_put8(out, run->how[i]);
  }
}

void record_put_run(struct wire_writer *head, struct wire_writer *body, const struct native_run_snapshot *run) {
  put_text(head, run->id);
  wire_put8(head, (uint8_t)run->layout);
  wire_put8(head, run->is_private);
  wire_put64(head, (uint64_t)run->first_round);
  wire_put64(head, run->waits);
  wire_put64(head, (uint64_t)run->world_round);
  wire_put64(head, run->gone_count);
  wire_put_bytes(body, run->state);
  if (run->world_round < 0) return;
  wire_put_bytes(body, run->world);
  put_gone(body, run);
  wire_put_native_joined(body, &run->answer);
}

static void take_gone(struct wire_cursor *cursor, uint32_t *gone, uint8_t *how, uint32_t count) {
  const uint8_t *at = wire_take(cursor, (size_t)count * GONE_BYTES, "the nodes that left");
  for (uint32_t i = 0; at && i < count; i++, at += GONE_BYTES) {
    uint32_t index;
    memcpy(&index, at, sizeof index);
    gone[i] = le32toh(index);
    how[i] = at[sizeof index];
  }
}

static int read_body(rdzv_bytes body, uint32_t *gone, uint8_t *how, struct native_run_snapshot *out,
                     rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(body);
  struct wire_native_message message = {0};
  size_t want;
  out->state = take_bytes(&cursor, body.len, "the state");
  if (out->world_round < 0) return end(&cursor, "a run", error);
  out->world = take_bytes(&cursor, body.len, "the world");
  take_gone(&cursor, gone, how, out->gone_count);
  const bool whole = !cursor.bad && wire_native_next(cursor.at, cursor.left, 0, &message, &want) == WIRE_RESULT_DONE &&
                     message.code == 0 && message.kind == WIRE_NATIVE_JOINED && message.size == cursor.left;
  if (!whole) wire_note_bad(&cursor, "the answer");
  if (cursor.bad) return end(&cursor, "a run", error);
  return corrupt(wire_native_joined(message.body, &out->answer, error), error);
}

int record_read_run(rdzv_bytes head, rdzv_bytes body, uint32_t *gone, uint8_t *how, struct native_run_snapshot *out,
                    rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(head);
  *out = (struct native_run_snapshot){.gone = gone, .how = how};
  out->id = wire_take_text(&cursor, 1, NATIVE_MAX_RUN_ID, "the run id");
  out->layout = wire_take8(&cursor, TORCH_NEWEST, "the layout");
  out->is_private = wire_take8(&cursor, 1, "the flag");
  out->first_round = wire_take_number(&cursor, 0, INT64_MAX, "the first round");
  out->waits = (uint32_t)wire_take_number(&cursor, 0, UINT32_MAX, "the waits");
  out->world_round = wire_take_number(&cursor, -1, INT64_MAX, "the round");
  out->gone_count = (uint32_t)wire_take_number(&cursor, 0, STATE_MAX_NODES, "the nodes that left");
  const int result = end(&cursor, "a run", error);
  return result < 0 ? result : read_body(body, gone, how, out, error);
}

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

enum { FLAG_IN_ROUND = 1, FLAG_UNANSWERED = 2, FLAG_MISSED = 4 };

void record_put_node(struct wire_writer *out, const struct native_node_snapshot *node) {
  wire_put64(out, node->order);
  wire_put8(out, (uint8_t)node->wish);
  wire_put64(out, (uint64_t)node->over_us);
  wire_put64(out, (uint64_t)node->joined);
  wire_put8(out, (uint8_t)((node->in_round ? FLAG_IN_ROUND : 0) | (node->unanswered ? FLAG_UNANSWERED : 0) |
                           (node->missed ? FLAG_MISSED : 0)));
  wire_put64(out, (uint64_t)node->ranks.base);
  wire_put64(out, (uint64_t)node->ranks.world_size);
  wire_put64(out, (uint64_t)node->ranks.role_base);
  wire_put64(out, (uint64_t)node->ranks.role_world_size);
  wire_put64(out, (uint64_t)node->ranks.restart_count);
  wire_put_native_join(out, &node->join);
}

int record_read_node(rdzv_bytes head, struct native_node_snapshot *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(head);
  out->order = wire_take64(&cursor, "the order");
  out->wish = wire_take8(&cursor, NATIVE_WISHES - 1, "the wish");
  out->over_us = wire_take_number(&cursor, 0, INT64_MAX, "the end of the join");
  out->joined = wire_take_number(&cursor, -1, INT64_MAX, "the round");
  const unsigned flags = wire_take8(&cursor, NODE_FLAGS, "the flags");
  out->in_round = flags & FLAG_IN_ROUND;
  out->unanswered = flags & FLAG_UNANSWERED;
  out->missed = flags & FLAG_MISSED;
  out->ranks.base = wire_take_number(&cursor, 0, INT64_MAX, "the ranks");
  out->ranks.world_size = wire_take_number(&cursor, 0, INT64_MAX, "the ranks");
  out->ranks.role_base = wire_take_number(&cursor, 0, INT64_MAX, "the ranks");
  out->ranks.role_world_size = wire_take_number(&cursor, 0, INT64_MAX, "the ranks");
  out->ranks.restart_count = wire_take_number(&cursor, 0, INT64_MAX, "the ranks");
  const uint8_t op = wire_take8(&cursor, UINT8_MAX, "the join");
  const rdzv_bytes join = take_bytes(&cursor, WIRE_NATIVE_MAX_MESSAGE, "the join");
  if (wire_op_of(WIRE_DIALECT_RDZV, op) != WIRE_OP_NODE_JOIN) wire_note_bad(&cursor, "the join");
  const int result = end(&cursor, "a node", error);
  return result < 0 ? result : corrupt(wire_native_join(join, &out->join, error), error);
}
