/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/native.h"

#include "wire/cursor.h"

#define MOST_MS INT64_C(1000000000000) /* 30 years; sums and products of such times do not overflow */
enum { MOST_ATTEMPTS = 1000000, MOST_WORKERS = 1 << 20, MOST_PORT = 65535 };

/* ---- fields --------------------------------------------------------------------------------------------------- */

/* A longer text is cut, so that what is sent can be read. */
static void put_text(struct wire_writer *out, const char *text, size_t most) {
  size_t len = strlen(text);
  if (len > most) len = most;
  while (len > 0 && ((uint8_t)text[len] & 0xc0) == 0x80) len--; /* not within a character */
  wire_put8(out, (uint8_t)len);
  wire_put8(out, (uint8_t)(len >> 8));
  wire_put(out, text, len);
  wire_put8(out, 0);
}

static void put_node(struct wire_writer *out, const struct node_desc *node) {
  put_text(out, node->addr, STATE_MAX_ADDR);
  wire_put64(out, (uint64_t)node->pid);
  wire_put64(out, (uint64_t)node->local_id);
}

static struct node_desc take_node(struct wire_cursor *cursor, const char *name) {
  struct node_desc node;
  node.addr = wire_take_text(cursor, 1, STATE_MAX_ADDR, name);
  node.pid = (int64_t)wire_take64(cursor, name);
  node.local_id = (int64_t)wire_take64(cursor, name);
  return node;
}

static void put_session(struct wire_writer *out, const struct native_session *session) {
  put_node(out, &session->node);
  wire_put(out, session->token, sizeof session->token);
  wire_put64(out, session->epoch);
}

static struct native_session take_session(struct wire_cursor *cursor) {
  struct native_session session = {.node = take_node(cursor, "the node")};
  const uint8_t *token = wire_take(cursor, NATIVE_TOKEN_BYTES, "the token");
  if (token) memcpy(session.token, token, NATIVE_TOKEN_BYTES);
  session.epoch = wire_take64(cursor, "the epoch");
  if (session.epoch == 0) wire_note_bad(cursor, "the epoch");
  return session;
}

/* Begins a value whose length is not known yet; end_value fills it in. */
static size_t begin_value(struct wire_writer *out) {
  wire_put64(out, 0);
  return out->buf.len;
}

static void end_value(struct wire_writer *out, size_t start) {
  if (out->failed) return;
  const uint64_t len = htole64(out->buf.len - start);
  memcpy(out->buf.data + start - sizeof len, &len, sizeof len);
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

/* A node is an agent or none: 11 is the greatest value without both. */
enum { FLAG_REDUNDANCY_LIST = 1, FLAG_MARKS = 2, FLAG_AGENT = 4, FLAG_NO_AGENT = 8, JOIN_FLAGS = 11 };

static void put_op(struct wire_writer *out, enum wire_op op) { wire_put_op(out, WIRE_DIALECT_RDZV, op); }

static void put_settings(struct wire_writer *out, const struct rendezvous_settings *settings) {
  wire_put64(out, (uint64_t)settings->min_nodes);
  wire_put64(out, (uint64_t)settings->max_nodes);
  wire_put64(out, (uint64_t)settings->join_timeout);
  wire_put64(out, (uint64_t)settings->last_call_timeout);
  wire_put64(out, (uint64_t)settings->close_timeout);
  wire_put64(out, (uint64_t)settings->heartbeat_timeout);
  wire_put64(out, (uint64_t)settings->keep_alive_interval);
  wire_put64(out, (uint64_t)settings->keep_alive_max_attempt);
  wire_put8(out, (uint8_t)settings->rank_order);
  wire_put8(out, (settings->has_redundancy_list ? FLAG_REDUNDANCY_LIST : 0) | (settings->marks ? FLAG_MARKS : 0) |
                     (settings->launcher == LAUNCHER_AGENT  ? FLAG_AGENT
                      : settings->launcher == LAUNCHER_NONE ? FLAG_NO_AGENT
                                                            : 0));
  if (settings->launcher == LAUNCHER_AGENT) wire_put64(out, (uint64_t)settings->max_restarts);
}

static struct rendezvous_settings take_settings(struct wire_cursor *cursor) {
  struct rendezvous_settings settings;
  settings.min_nodes = wire_take_number(cursor, 1, STATE_MAX_NODES, "min_nodes");
  settings.max_nodes = wire_take_number(cursor, settings.min_nodes, STATE_MAX_NODES, "max_nodes");
  settings.join_timeout = wire_take_number(cursor, 0, MOST_MS, "join_timeout");
  settings.last_call_timeout = wire_take_number(cursor, 0, MOST_MS, "last_call_timeout");
  settings.close_timeout = wire_take_number(cursor, 0, MOST_MS, "close_timeout");
  settings.heartbeat_timeout = wire_take_number(cursor, 0, MOST_MS, "heartbeat_timeout");
  settings.keep_alive_interval = wire_take_number(cursor, 1, MOST_MS, "keep_alive_interval");
  settings.keep_alive_max_attempt = wire_take_number(cursor, 1, MOST_ATTEMPTS, "keep_alive_max_attempt");
  settings.rank_order = wire_take8(cursor, RANK_ORDER_NATURAL, "the order of ranks");
  const unsigned flags = wire_take8(cursor, JOIN_FLAGS, "the flags");
  settings.has_redundancy_list = flags & FLAG_REDUNDANCY_LIST;
  settings.marks = flags & FLAG_MARKS;
  settings.launcher = flags & FLAG_AGENT ? LAUNCHER_AGENT : flags & FLAG_NO_AGENT ? LAUNCHER_NONE : LAUNCHER_UNKNOWN;
  settings.max_restarts = flags & FLAG_AGENT ? wire_take_number(cursor, 0, INT64_MAX, "max_restarts") : 0;
  return settings;
}

void wire_put_native_join(struct wire_writer *out, const struct native_join *join) {
  put_op(out, WIRE_OP_NODE_JOIN);
  const size_t start = begin_value(out);
  put_text(out, join->run_id, NATIVE_MAX_RUN_ID);
  put_session(out, &join->session);
  wire_put64(out, join->number);
  wire_put64(out, (uint64_t)join->times.keep_alive_ms);
  wire_put64(out, (uint64_t)join->times.grace_ms);
  put_settings(out, &join->settings);
  wire_put8(out, (uint8_t)join->layout);
  wire_put64(out, (uint64_t)join->first_round);
  put_text(out, join->master_addr, NATIVE_MAX_MASTER);
  wire_put64(out, (uint64_t)join->master_port);
  put_text(out, join->workers.role, NATIVE_MAX_ROLE);
  wire_put64(out, (uint64_t)join->workers.local_world_size);
  wire_put64(out, (uint64_t)join->workers.restart_count);
  end_value(out, start);
}

int wire_native_join(rdzv_bytes value, struct native_join *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(value);
  if (value.len > WIRE_NATIVE_MAX_MESSAGE) wire_note_bad(&cursor, "it is too long");
  out->run_id = wire_take_text(&cursor, 1, NATIVE_MAX_RUN_ID, "the run id");
  out->session = take_session(&cursor);
  out->number = wire_take64(&cursor, "the number of the join");
  if (out->number == 0) wire_note_bad(&cursor, "the number of the join");
  out->times.keep_alive_ms = wire_take_number(&cursor, 1, MOST_MS, "session_keep_alive");
  out->times.grace_ms = wire_take_number(&cursor, 0, MOST_MS, "session_grace");
  out->settings = take_settings(&cursor);
  out->layout = wire_take8(&cursor, TORCH_NEWEST, "the layout");
  out->first_round = wire_take_number(&cursor, 0, INT64_MAX, "the first round");
  out->master_addr = wire_take_text(&cursor, 0, NATIVE_MAX_MASTER, "the address");
  out->master_port = (int)wire_take_number(&cursor, 0, MOST_PORT, "the port");
  out->workers.role = wire_take_text(&cursor, 0, NATIVE_MAX_ROLE, "the role");
  out->workers.local_world_size = wire_take_number(&cursor, 0, MOST_WORKERS, "the number of workers");
  out->workers.restart_count = wire_take_number(&cursor, 0, INT64_MAX, "the number of restarts");
  return wire_cursor_end(&cursor, "the join", error);
}

void wire_put_native_resume(struct wire_writer *out, const char *run_id, const struct native_session *session) {
  put_op(out, WIRE_OP_NODE_RESUME);
  const size_t start = begin_value(out);
  put_text(out, run_id, NATIVE_MAX_RUN_ID);
  put_session(out, session);
  end_value(out, start);
}

int wire_native_resume(rdzv_bytes value, const char **run_id, struct native_session *session, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(value);
  if (value.len > WIRE_NATIVE_MAX_MESSAGE) wire_note_bad(&cursor, "it is too long");
  *run_id = wire_take_text(&cursor, 1, NATIVE_MAX_RUN_ID, "the run id");
  *session = take_session(&cursor);
  return wire_cursor_end(&cursor, "the resumption", error);
}

void wire_put_native_leave(struct wire_writer *out) { put_op(out, WIRE_OP_NODE_LEAVE); }

void wire_put_native_close(struct wire_writer *out, const char *run_id, const char *reason) {
  put_op(out, WIRE_OP_NODE_CLOSE);
  wire_put_bytes(out, rdzv_str(run_id));
  const size_t len = strlen(reason);
  wire_put_bytes(out, (rdzv_bytes){reason, len < NATIVE_MAX_REASON ? len : NATIVE_MAX_REASON});
}

void wire_put_native_query(struct wire_writer *out, const char *run_id, uint64_t round) {
  put_op(out, WIRE_OP_NODE_QUERY);
  wire_put_bytes(out, rdzv_str(run_id));
  wire_put64(out, round);
}

void wire_put_native_beat(struct wire_writer *out, bool wants_answer, int64_t trip_us) {
  const uint64_t trip = trip_us < 0 ? 0 : trip_us == 0 ? 1 : trip_us > UINT32_MAX ? UINT32_MAX : (uint64_t)trip_us;
  put_op(out, WIRE_OP_NODE_BEAT);
  wire_put64(out, (wants_answer ? UINT64_C(1) << 63 : 0) | trip);
}

/* ---- messages of the server ----------------------------------------------------------------------------------- */

enum { FLAG_ALL_NATIVE = 1, FLAG_ALL_OURS = 2, FLAG_MASTER_IS_OURS = 4, FLAG_HAS_RANKS = 8, JOINED_FLAGS = 15 };

static size_t begin_message(struct wire_writer *out, enum wire_native_kind kind) {
  wire_put8(out, WIRE_BYTE_DONE);
  const size_t start = begin_value(out);
  wire_put8(out, (uint8_t)kind);
  return start;
}

static void put_ranks(struct wire_writer *out, const struct native_ranks *ranks) {
  wire_put64(out, (uint64_t)ranks->base);
  wire_put64(out, (uint64_t)ranks->world_size);
  wire_put64(out, (uint64_t)ranks->role_base);
  wire_put64(out, (uint64_t)ranks->role_world_size);
  wire_put64(out, (uint64_t)ranks->restart_count);
}

static struct native_ranks take_ranks(struct wire_cursor *cursor) {
  struct native_ranks ranks;
  ranks.base = wire_take_number(cursor, 0, INT64_MAX, "the first rank");
  ranks.world_size = wire_take_number(cursor, 0, INT64_MAX, "the number of ranks");
  ranks.role_base = wire_take_number(cursor, 0, INT64_MAX, "the first rank of the role");
  ranks.role_world_size = wire_take_number(cursor, 0, INT64_MAX, "the number of ranks of the role");
  ranks.restart_count = wire_take_number(cursor, 0, INT64_MAX, "the number of restarts");
  return ranks;
}

void wire_put_native_joined(struct wire_writer *out, const struct native_joined *joined) {
  const size_t start = begin_message(out, WIRE_NATIVE_JOINED);
  wire_put64(out, joined->number);
  wire_put64(out, (uint64_t)joined->round);
  wire_put64(out, (uint64_t)joined->rank);
  wire_put64(out, (uint64_t)joined->world_size);
  wire_put8(out,
            (uint8_t)((joined->all_native ? FLAG_ALL_NATIVE : 0) | (joined->all_ours ? FLAG_ALL_OURS : 0) |
                      (joined->master_is_ours ? FLAG_MASTER_IS_OURS : 0) | (joined->has_ranks ? FLAG_HAS_RANKS : 0)));
  put_text(out, joined->master_node, sizeof(struct node_text));
  put_text(out, joined->master_addr, NATIVE_MAX_MASTER);
  wire_put64(out, (uint64_t)joined->master_port);
  if (joined->has_ranks) put_ranks(out, &joined->ranks);
  end_value(out, start);
}

int wire_native_joined(rdzv_bytes body, struct native_joined *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(body);
  *out = (struct native_joined){.number = wire_take64(&cursor, "the number of the join")};
  out->round = (int64_t)wire_take64(&cursor, "the round");
  out->rank = wire_take_number(&cursor, 0, STATE_MAX_NODES - 1, "the rank");
  out->world_size = wire_take_number(&cursor, out->rank + 1, STATE_MAX_NODES, "the number of nodes");
  const unsigned flags = wire_take8(&cursor, JOINED_FLAGS, "the flags");
  out->all_native = flags & FLAG_ALL_NATIVE;
  out->all_ours = flags & FLAG_ALL_OURS;
  out->master_is_ours = flags & FLAG_MASTER_IS_OURS;
  out->has_ranks = flags & FLAG_HAS_RANKS;
  out->master_node = wire_take_text(&cursor, 1, sizeof(struct node_text), "the node of rank 0");
  out->master_addr = wire_take_text(&cursor, 0, NATIVE_MAX_MASTER, "the address of rank 0");
  out->master_port = (int)wire_take_number(&cursor, 0, MOST_PORT, "the port of rank 0");
  if (out->has_ranks) out->ranks = take_ranks(&cursor);
  return wire_cursor_end(&cursor, "the answer to the join", error);
}

void wire_put_native_resumed(struct wire_writer *out, uint64_t number) {
  const size_t start = begin_message(out, WIRE_NATIVE_RESUMED);
  wire_put64(out, number);
  end_value(out, start);
}

int wire_native_resumed(rdzv_bytes body, uint64_t *number, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(body);
  *number = wire_take64(&cursor, "the number of the join");
  return wire_cursor_end(&cursor, "the answer to the resumption", error);
}

void wire_put_native_done(struct wire_writer *out, enum wire_native_kind kind) {
  end_value(out, begin_message(out, kind));
}

/* How many of the nodes fit into a message. */
static size_t fitting(const struct native_news *news) {
  enum { OTHER_BYTES = 64 + NATIVE_MAX_WARNING, NODE_BYTES = 2 + 1 + 8 + 8 };
  size_t named = 0, used = OTHER_BYTES;
  for (; named < news->named && named < NATIVE_MOST_NAMED; named++) {
    used += NODE_BYTES + strlen(news->nodes[named].addr);
    if (used > WIRE_NATIVE_MAX_MESSAGE) break;
  }
  return named;
}

void wire_put_native_news(struct wire_writer *out, const struct native_news *news) {
  const size_t start = begin_message(out, WIRE_NATIVE_NEWS), named = fitting(news);
  wire_put64(out, news->what);
  wire_put64(out, (uint64_t)news->round);
  wire_put64(out, (uint64_t)news->waiting);
  wire_put64(out, news->gone);
  wire_put8(out, (uint8_t)named);
  for (size_t i = 0; i < named; i++) put_node(out, &news->nodes[i]);
  put_text(out, news->warning ? news->warning : "", NATIVE_MAX_WARNING);
  end_value(out, start);
}

int wire_native_news(rdzv_bytes body, struct native_news *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(body);
  out->what = (unsigned)wire_take_number(&cursor, 0, INT32_MAX, "the kind of news");
  out->round = (int64_t)wire_take64(&cursor, "the round");
  out->waiting = wire_take_number(&cursor, 0, STATE_MAX_NODES, "the number of waiting nodes");
  out->gone = (size_t)wire_take_number(&cursor, 0, STATE_MAX_NODES, "the number of nodes that are gone");
  out->named = wire_take8(&cursor, NATIVE_MOST_NAMED, "the number of names");
  for (size_t i = 0; i < out->named; i++) out->nodes[i] = take_node(&cursor, "a node that is gone");
  out->warning = wire_take_text(&cursor, 0, NATIVE_MAX_WARNING, "the warning");
  return wire_cursor_end(&cursor, "the news", error);
}

/* ---- the stream of the server --------------------------------------------------------------------------------- */

/* Where the server closes the connection, that as such is refused: its code is the one of a lost request. */
static enum wire_result read_refusal(uint8_t status, rdzv_bytes value, struct wire_native_message *out) {
  struct wire_refusal refusal;
  if (!wire_read_refusal(value, &refusal)) return WIRE_RESULT_BAD;
  out->code = refusal.asked < 0 ? wire_refusal_code(status) : wire_code_of(status);
  out->asked = refusal.asked;
  out->number = refusal.number;
  out->body = refusal.text;
  return WIRE_RESULT_DONE;
}

static bool is_list(uint8_t kind) { return kind == WIRE_NATIVE_STATUS || kind == WIRE_NATIVE_MEMBERS; }

enum wire_result wire_native_next(const uint8_t *data, size_t len, size_t most, struct wire_native_message *out,
                                  size_t *want) {
  *want = WIRE_NATIVE_HEAD_BYTES + 1;
  if (len > 0 && data[0] == WIRE_BYTE_CANCELED) return WIRE_RESULT_BAD;
  if (len < WIRE_NATIVE_HEAD_BYTES) return WIRE_RESULT_MORE;
  const uint64_t size = wire_load64(data + 1);
  const bool failed = data[0] != WIRE_BYTE_DONE;
  if (size > WIRE_NATIVE_MAX_MESSAGE && (failed || size > most)) return WIRE_RESULT_BAD;
  if (size == 0 && !failed) return WIRE_RESULT_BAD;
  if (!failed && len > WIRE_NATIVE_HEAD_BYTES) {
    const uint8_t kind = data[WIRE_NATIVE_HEAD_BYTES];
    if (kind < WIRE_NATIVE_JOINED || kind > WIRE_NATIVE_MEMBERS) return WIRE_RESULT_BAD;
    if (size > (is_list(kind) ? most : WIRE_NATIVE_MAX_MESSAGE)) return WIRE_RESULT_BAD;
    out->kind = kind;
  }
  *want = WIRE_NATIVE_HEAD_BYTES + (size_t)size;
  if (len < *want) return WIRE_RESULT_MORE;
  const rdzv_bytes value = {data + WIRE_NATIVE_HEAD_BYTES, (size_t)size};
  out->size = *want;
  if (failed) return read_refusal(data[0], value, out);
  out->code = 0;
  out->asked = -1;
  out->body = (rdzv_bytes){data + WIRE_NATIVE_HEAD_BYTES + 1, (size_t)size - 1};
  return WIRE_RESULT_DONE;
}
