/* SPDX-License-Identifier: BSD-3-Clause */
/* What native nodes and their server tell each other: what goes in comes out, and nothing else is taken. */
#include "native_messages.h"
#include "unit.h"

enum { MOST = 1 << 20 };

/* The value of the one request in `out`, behind the operation and the length. */
static rdzv_bytes request_value(const struct wire_writer *out) {
  assert_false(out->failed);
  assert_int_equal(wire_load64(out->buf.data + 1), out->buf.len - 9);
  return (rdzv_bytes){out->buf.data + 9, out->buf.len - 9};
}

/* The one message in `out`. */
static struct wire_native_message message_of(const struct wire_writer *out) {
  struct wire_native_message message = {0};
  size_t want;
  assert_false(out->failed);
  assert_int_equal(wire_native_next(out->buf.data, out->buf.len, MOST, &message, &want), WIRE_RESULT_DONE);
  assert_int_equal(message.size, out->buf.len);
  return message;
}

/* ---- the decoders, all alike ---- */

static int decode_join(rdzv_bytes bytes, rdzv_error *error) {
  struct native_join join;
  return wire_native_join(bytes, &join, error);
}

static int decode_resume(rdzv_bytes bytes, rdzv_error *error) {
  struct native_session session;
  const char *run_id;
  return wire_native_resume(bytes, &run_id, &session, error);
}

static int decode_joined(rdzv_bytes bytes, rdzv_error *error) {
  struct native_joined joined;
  return wire_native_joined(bytes, &joined, error);
}

static int decode_resumed(rdzv_bytes bytes, rdzv_error *error) {
  uint64_t number;
  return wire_native_resumed(bytes, &number, error);
}

static int decode_news(rdzv_bytes bytes, rdzv_error *error) {
  struct native_news news;
  return wire_native_news(bytes, &news, error);
}

static int read_nodes(struct wire_native_reader *reader, rdzv_error *error) {
  struct wire_native_node node;
  int result;
  while ((result = wire_native_read_node(reader, &node, error)) > 0) assert_true(strlen(node.desc.addr) > 0);
  return result;
}

static int decode_status(rdzv_bytes bytes, rdzv_error *error) {
  struct wire_native_reader reader;
  struct wire_native_status status;
  const int result = wire_native_read_status(&reader, bytes, &status, error);
  return result < 0 ? result : read_nodes(&reader, error);
}

static int decode_members(rdzv_bytes bytes, rdzv_error *error) {
  struct wire_native_reader reader;
  int64_t round;
  const int result = wire_native_read_members(&reader, bytes, &round, error);
  return result < 0 ? result : read_nodes(&reader, error);
}

typedef int decoder(rdzv_bytes bytes, rdzv_error *error);

/* Decodes a copy that has not one byte more than it should. */
static int decode_copy(decoder *decode, const void *data, size_t len) {
  rdzv_error error = {0};
  uint8_t *copy = malloc(len ? len : 1);
  assert_non_null(copy);
  if (len > 0) memcpy(copy, data, len);
  const int result = decode((rdzv_bytes){copy, len}, &error);
  if (result < 0) assert_true(result == RDZV_E_PROTOCOL && strlen(error.message) > 0);
  free(copy);
  return result;
}

/* Every truncation, a byte too many, each byte changed in every bit, and noise. */
static void torture(decoder *decode, rdzv_bytes whole) {
  uint8_t bytes[WIRE_NATIVE_MAX_MESSAGE];
  assert_true(whole.len + 1 < sizeof bytes);
  memcpy(bytes, whole.data, whole.len);
  bytes[whole.len] = 0;
  assert_int_equal(decode_copy(decode, bytes, whole.len), 0);
  for (size_t len = 0; len < whole.len; len++) assert_int_equal(decode_copy(decode, bytes, len), RDZV_E_PROTOCOL);
  assert_int_equal(decode_copy(decode, bytes, whole.len + 1), RDZV_E_PROTOCOL);
  for (size_t i = 0; i < 8 * whole.len; i++) {
    bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    decode_copy(decode, bytes, whole.len);
    bytes[i / 8] ^= (uint8_t)(1 << i % 8);
  }
  uint32_t seed = 1;
  for (int round = 0; round < 2000; round++) {
    for (size_t i = 0; i < whole.len; i++) bytes[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    decode_copy(decode, bytes, seed % (whole.len + 1));
  }
}

/* ---- requests ---- */

static void joins(void **scene) {
  (void)scene;
  const struct native_join join = native_join_sample();
  struct native_join got;
  struct wire_writer out = {0};
  wire_put_native_join(&out, &join);
  assert_int_equal(out.buf.data[0], 134);
  const rdzv_bytes value = request_value(&out);
  assert_true(value.len < 512); /* the usual join is short */
  assert_int_equal(wire_native_join(value, &got, NULL), 0);
  assert_string_equal(got.run_id, "a-run");
  assert_int_equal(node_compare(&got.session.node, &join.session.node), 0);
  assert_memory_equal(got.session.token, join.session.token, NATIVE_TOKEN_BYTES);
  assert_true(got.session.epoch == 3 && got.number == 2);
  assert_memory_equal(&got.times, &join.times, sizeof got.times);
  assert_int_equal(got.settings.min_nodes, 2);
  assert_int_equal(got.settings.max_nodes, 9);
  assert_int_equal(got.settings.join_timeout, join.settings.join_timeout);
  assert_int_equal(got.settings.last_call_timeout, join.settings.last_call_timeout);
  assert_int_equal(got.settings.close_timeout, join.settings.close_timeout);
  assert_int_equal(got.settings.heartbeat_timeout, join.settings.heartbeat_timeout);
  assert_int_equal(got.settings.keep_alive_interval, join.settings.keep_alive_interval);
  assert_int_equal(got.settings.keep_alive_max_attempt, join.settings.keep_alive_max_attempt);
  assert_int_equal(got.settings.rank_order, RANK_ORDER_STABLE);
  assert_true(got.settings.has_redundancy_list && got.settings.marks);
  assert_true(got.settings.launcher == LAUNCHER_AGENT && got.settings.max_restarts == 7);
  assert_true(got.layout == TORCH_2_3 && got.first_round == 4 && got.master_port == 29400);
  assert_string_equal(got.master_addr, "10.0.0.7");
  assert_string_equal(got.workers.role, "trainer");
  assert_true(got.workers.local_world_size == 8 && got.workers.restart_count == 1);
  torture(decode_join, value);
  buf_free(&out.buf);
}

static char *text_of(size_t len) {
  char *text = calloc(1, len + 1);
  assert_non_null(text);
  memset(text, 'x', len);
  return text;
}

/* The longest text fits; one byte more is refused. The encoder cuts, so a byte is put in and the length is forged. */
static void check_longest(const struct native_join *join, const char *longest, size_t most) {
  struct native_join got;
  struct wire_writer out = {0};
  struct buf longer = {0};
  wire_put_native_join(&out, join);
  const rdzv_bytes value = request_value(&out);
  assert_int_equal(wire_native_join(value, &got, NULL), 0);
  const uint8_t *start = value.data, *at = memmem(start, value.len, longest, most);
  assert_non_null(at);
  const size_t before = (size_t)(at - start);
  assert_true(buf_append(&longer, start, before) && buf_append(&longer, "x", 1));
  assert_true(buf_append(&longer, at, value.len - before));
  longer.data[before - 2] = (uint8_t)(most + 1);
  longer.data[before - 1] = (uint8_t)((most + 1) >> 8);
  assert_int_equal(decode_copy(decode_join, longer.data, longer.len), RDZV_E_PROTOCOL);
  buf_free(&longer);
  buf_free(&out.buf);
}

static void long_texts_are_refused(void **scene) {
  (void)scene;
  const struct native_join good = native_join_sample();
  struct native_join join;
  char *text = text_of(STATE_MAX_ADDR);
#define LONGEST(field, most)                   \
  join = good;                                 \
  join.field = text + STATE_MAX_ADDR - (most); \
  check_longest(&join, join.field, most)
  LONGEST(run_id, NATIVE_MAX_RUN_ID);
  LONGEST(session.node.addr, STATE_MAX_ADDR);
  LONGEST(master_addr, NATIVE_MAX_MASTER);
  LONGEST(workers.role, NATIVE_MAX_ROLE);
#undef LONGEST
  free(text);
}

/* Numbers that no node may say. */
static void wild_numbers_are_refused(void **scene) {
  (void)scene;
  struct native_join joins[16], good = native_join_sample();
  size_t count = 0;
#define BAD(field, value) joins[count] = good, joins[count++].field = (value)
  BAD(number, 0);
  BAD(session.epoch, 0);
  BAD(times.keep_alive_ms, 0);
  BAD(times.keep_alive_ms, INT64_MAX);
  BAD(times.grace_ms, -1);
  BAD(settings.min_nodes, 0);
  BAD(settings.max_nodes, 1);
  BAD(settings.max_nodes, STATE_MAX_NODES + 1);
  BAD(settings.join_timeout, INT64_MAX);
  BAD(settings.keep_alive_max_attempt, INT64_MAX);
  BAD(settings.rank_order, 3);
  BAD(settings.max_restarts, -1);
  BAD(layout, TORCH_NEWEST + 1);
  BAD(first_round, -1);
  BAD(master_port, 65536);
  BAD(workers.local_world_size, -1);
#undef BAD
  for (size_t i = 0; i < count; i++) {
    struct wire_writer out = {0};
    wire_put_native_join(&out, &joins[i]);
    const rdzv_bytes value = request_value(&out);
    assert_int_equal(decode_copy(decode_join, value.data, value.len), RDZV_E_PROTOCOL);
    buf_free(&out.buf);
  }
}

static void resumes(void **scene) {
  (void)scene;
  const struct native_join join = native_join_sample();
  struct native_session got;
  const char *run_id;
  struct wire_writer out = {0};
  wire_put_native_resume(&out, "a-run", &join.session);
  assert_int_equal(out.buf.data[0], 135);
  assert_int_equal(wire_native_resume(request_value(&out), &run_id, &got, NULL), 0);
  assert_string_equal(run_id, "a-run");
  assert_int_equal(node_compare(&got.node, &join.session.node), 0);
  assert_memory_equal(got.token, join.session.token, NATIVE_TOKEN_BYTES);
  assert_int_equal(got.epoch, 3);
  torture(decode_resume, request_value(&out));
  buf_free(&out.buf);
}

static uint64_t beat(bool wants_answer, int64_t trip_us) {
  struct wire_writer out = {0};
  wire_put_native_beat(&out, wants_answer, trip_us);
  assert_int_equal(out.buf.len, 9);
  const uint64_t number = wire_load64(out.buf.data + 1);
  buf_free(&out.buf);
  return number;
}

static void beats(void **scene) {
  (void)scene;
  assert_true(wire_native_beat_wants_answer(beat(true, 7)));
  assert_int_equal(wire_native_beat_trip(beat(true, 7)), 7);
  assert_false(wire_native_beat_wants_answer(beat(false, 7)));
  assert_int_equal(wire_native_beat_trip(beat(false, 7)), 7);
  assert_int_equal(wire_native_beat_trip(beat(false, -1)), -1);
  assert_int_equal(wire_native_beat_trip(beat(false, INT64_MAX)), UINT32_MAX);
}

/* ---- messages of the server ---- */

static void joined(void **scene) {
  (void)scene;
  const struct native_joined sample = native_joined_sample();
  struct native_joined got;
  struct wire_writer out = {0};
  wire_put_native_joined(&out, &sample);
  const struct wire_native_message message = message_of(&out);
  assert_true(message.code == 0 && message.kind == WIRE_NATIVE_JOINED);
  assert_int_equal(wire_native_joined(message.body, &got, NULL), 0);
  assert_true(got.number == 2 && got.round == 7 && got.rank == 3 && got.world_size == 9);
  assert_true(got.all_native && !got.all_ours && got.master_is_ours && got.has_ranks);
  assert_string_equal(got.master_node, sample.master_node);
  assert_string_equal(got.master_addr, sample.master_addr);
  assert_int_equal(got.master_port, 1024);
  assert_memory_equal(&got.ranks, &sample.ranks, sizeof got.ranks);
  torture(decode_joined, message.body);
  buf_free(&out.buf);
}

static void a_rank_is_in_its_world(void **scene) {
  (void)scene;
  struct native_joined sample = native_joined_sample();
  struct wire_writer out = {0};
  sample.rank = sample.world_size;
  wire_put_native_joined(&out, &sample);
  const rdzv_bytes body = message_of(&out).body;
  assert_int_equal(decode_copy(decode_joined, body.data, body.len), RDZV_E_PROTOCOL);
  buf_free(&out.buf);
}

static void resumed(void **scene) {
  (void)scene;
  struct wire_writer out = {0};
  uint64_t number;
  wire_put_native_resumed(&out, 5);
  assert_int_equal(message_of(&out).kind, WIRE_NATIVE_RESUMED);
  assert_int_equal(wire_native_resumed(message_of(&out).body, &number, NULL), 0);
  assert_int_equal(number, 5);
  torture(decode_resumed, message_of(&out).body);
  buf_free(&out.buf);
}

static void short_messages(void **scene) {
  (void)scene;
  const enum wire_native_kind kinds[] = {WIRE_NATIVE_LEFT, WIRE_NATIVE_CLOSED, WIRE_NATIVE_BEAT};
  for (int i = 0; i < 3; i++) {
    struct wire_writer out = {0};
    wire_put_native_done(&out, kinds[i]);
    assert_int_equal(out.buf.len, 10);
    assert_true(message_of(&out).kind == kinds[i] && message_of(&out).body.len == 0);
    buf_free(&out.buf);
  }
}

static void news(void **scene) {
  (void)scene;
  const struct native_news sample = native_news_sample();
  struct native_news got;
  struct wire_writer out = {0};
  wire_put_native_news(&out, &sample);
  assert_int_equal(message_of(&out).kind, WIRE_NATIVE_NEWS);
  assert_int_equal(wire_native_news(message_of(&out).body, &got, NULL), 0);
  assert_true(got.what == sample.what && got.round == 7 && got.waiting == 1 && got.gone == 2 && got.named == 2);
  for (int i = 0; i < 2; i++) assert_int_equal(node_compare(&got.nodes[i], &sample.nodes[i]), 0);
  assert_string_equal(got.warning, "nodes differ");
  torture(decode_news, message_of(&out).body);
  buf_free(&out.buf);
}

/* However long the names are, the news fit into a message. */
static void long_names_are_left_out(void **scene) {
  (void)scene;
  struct native_news sample = native_news_sample(), got;
  struct wire_writer out = {0};
  char *addr = text_of(STATE_MAX_ADDR);
  sample.named = sample.gone = NATIVE_MOST_NAMED;
  for (size_t i = 0; i < sample.named; i++) sample.nodes[i] = (struct node_desc){addr, (int64_t)i, 0};
  wire_put_native_news(&out, &sample);
  assert_true(out.buf.len <= WIRE_NATIVE_HEAD_BYTES + WIRE_NATIVE_MAX_MESSAGE);
  assert_int_equal(wire_native_news(message_of(&out).body, &got, NULL), 0);
  assert_true(got.gone == NATIVE_MOST_NAMED && got.named == 3);
  buf_free(&out.buf);
  free(addr);
}

static void refusals(void **scene) {
  (void)scene;
  struct wire_writer out = {0};
  wire_put_native_refusal(&out, WIRE_OP_NODE_RESUME, UINT64_MAX - 1, RDZV_E_STALE, "the place is lost");
  struct wire_native_message message = message_of(&out);
  assert_true(message.code == RDZV_E_STALE && message.asked == WIRE_OP_NODE_RESUME);
  assert_true(message.number == UINT64_MAX - 1);
  assert_true(bytes_equal(message.body, BYTES("the place is lost")));
  out.buf.len = 0;
  wire_put8(&out, (uint8_t)-RDZV_E_STOPPED); /* what the server says to any client before it closes */
  wire_put_bytes(&out, BYTES("the server is stopping"));
  message = message_of(&out);
  assert_true(message.code == RDZV_E_STOPPED && message.asked == -1 && message.number == 0);
  assert_true(bytes_equal(message.body, BYTES("the server is stopping")));
  out.buf.len = 0;
  char *text = text_of(3 * WIRE_NATIVE_MAX_MESSAGE);
  wire_put_native_refusal(&out, WIRE_OP_NODE_JOIN, 1, RDZV_E_CLOSED, text);
  assert_int_equal(message_of(&out).body.len, WIRE_NATIVE_MAX_MESSAGE - 9);
  free(text);
  buf_free(&out.buf);
}

/* A message that comes in pieces is MORE until its last byte, and says how much it wants. */
static void pieces(void **scene) {
  (void)scene;
  const struct native_joined sample = native_joined_sample();
  struct wire_native_message message;
  struct wire_writer out = {0};
  size_t want;
  wire_put_native_joined(&out, &sample);
  const size_t whole = out.buf.len;
  wire_put_native_done(&out, WIRE_NATIVE_BEAT);
  for (size_t len = 0; len < whole; len++) {
    assert_int_equal(wire_native_next(out.buf.data, len, MOST, &message, &want), WIRE_RESULT_MORE);
    assert_true(want > len && want <= whole);
  }
  assert_int_equal(wire_native_next(out.buf.data, out.buf.len, MOST, &message, &want), WIRE_RESULT_DONE);
  assert_int_equal(message.size, whole);
  buf_free(&out.buf);
}

static enum wire_result head(uint8_t status, uint64_t size, int kind) {
  struct wire_native_message message;
  struct wire_writer out = {0};
  size_t want;
  wire_put8(&out, status);
  wire_put64(&out, size);
  if (kind >= 0) wire_put8(&out, (uint8_t)kind);
  const enum wire_result result = wire_native_next(out.buf.data, out.buf.len, MOST, &message, &want);
  buf_free(&out.buf);
  return result;
}

static void heads_that_lie(void **scene) {
  (void)scene;
  assert_int_equal(head(1, 1, -1), WIRE_RESULT_BAD);
  assert_int_equal(head(0, 0, -1), WIRE_RESULT_BAD);
  assert_int_equal(head(0, 2, 0), WIRE_RESULT_BAD);
  assert_int_equal(head(0, 2, 9), WIRE_RESULT_BAD);
  assert_int_equal(head(0, UINT64_MAX, -1), WIRE_RESULT_BAD);
  assert_int_equal(head(16, 1, 134), WIRE_RESULT_BAD); /* a refusal without its number */
  assert_int_equal(head(0, MOST + 1, WIRE_NATIVE_STATUS), WIRE_RESULT_BAD);
  assert_int_equal(head(0, MOST, WIRE_NATIVE_STATUS), WIRE_RESULT_MORE);
  assert_int_equal(head(0, WIRE_NATIVE_MAX_MESSAGE + 1, WIRE_NATIVE_NEWS), WIRE_RESULT_BAD);
  assert_int_equal(head(0, WIRE_NATIVE_MAX_MESSAGE, WIRE_NATIVE_NEWS), WIRE_RESULT_MORE);
  assert_int_equal(head(16, WIRE_NATIVE_MAX_MESSAGE + 1, -1), WIRE_RESULT_BAD);
}

/* ---- lists ---- */

static void expect_node(struct wire_native_reader *reader, const struct wire_native_node *expected) {
  struct wire_native_node node;
  assert_int_equal(wire_native_read_node(reader, &node, NULL), 1);
  assert_int_equal(node_compare(&node.desc, &expected->desc), 0);
  assert_true(node.rank == expected->rank && node.kinds == expected->kinds && node.way == expected->way);
  assert_true(node.heard_ms == expected->heard_ms && node.trip_us == expected->trip_us);
}

static void status(void **scene) {
  (void)scene;
  struct wire_native_reader reader;
  struct wire_native_status got;
  struct wire_native_node node;
  struct wire_writer out = {0};
  native_status_sample(&out);
  const rdzv_bytes body = message_of(&out).body;
  assert_int_equal(wire_native_read_status(&reader, body, &got, NULL), 0);
  assert_true(got.exists && got.complete && !got.closed && got.round == 7 && got.call_left_ms == -1);
  assert_int_equal(got.layout, TORCH_2_6);
  assert_string_equal(got.reason, "done");
  assert_true(got.min_nodes == 2 && got.max_nodes == 4 && got.ended_us == 1790000000000000);
  assert_string_equal(got.ended_by, "host-1_12_0");
  expect_node(&reader, &(struct wire_native_node){{"host-1", 12, 0}, 0, NODE_PARTICIPANT, NATIVE_WAY_NATIVE, 15, 120});
  expect_node(&reader, &(struct wire_native_node){{"host-10", -3, 1}, 1, NODE_PARTICIPANT, NATIVE_WAY_TORCH, 4000, -1});
  expect_node(&reader,
              &(struct wire_native_node){{"other", INT64_MAX, INT64_MIN}, 0, NODE_WAITING, NATIVE_WAY_SWAP, -1, -1});
  assert_int_equal(wire_native_read_node(&reader, &node, NULL), 0);
  torture(decode_status, body);
  buf_free(&out.buf);
}

static void members(void **scene) {
  (void)scene;
  struct wire_native_reader reader;
  struct wire_native_node node;
  int64_t round;
  struct wire_writer out = {0};
  native_members_sample(&out);
  assert_int_equal(wire_native_read_members(&reader, message_of(&out).body, &round, NULL), 0);
  assert_int_equal(round, 7);
  expect_node(&reader, &(struct wire_native_node){{"host-1", 12, 0}, 1, NODE_PARTICIPANT, NATIVE_WAY_NATIVE, -1, -1});
  expect_node(&reader, &(struct wire_native_node){{"host-2", 13, 0}, 0, NODE_PARTICIPANT, NATIVE_WAY_SWAP, -1, -1});
  assert_int_equal(wire_native_read_node(&reader, &node, NULL), 0);
  torture(decode_members, message_of(&out).body);
  buf_free(&out.buf);
}

/* 10 000 nodes with names as clusters have them: no more than 16 bytes each. */
static void a_list_is_short(void **scene) {
  (void)scene;
  enum { COUNT = 10000 };
  struct wire_native_writer writer;
  struct wire_writer out = {0};
  char names[2][64];
  wire_native_begin_members(&writer, &out, 1, COUNT);
  for (int i = 0; i < COUNT; i++) {
    snprintf(names[i % 2], sizeof names[0], "compute-node-%05d.cluster.example", i);
    const struct wire_native_node node = {{names[i % 2], 10000 + i, 0}, i, NODE_PARTICIPANT, NATIVE_WAY_NATIVE, 0, 0};
    wire_native_add(&writer, &node);
  }
  wire_native_end(&writer);
  const rdzv_bytes body = message_of(&out).body;
  assert_int_equal(decode_copy(decode_members, body.data, body.len), 0);
  assert_true(body.len <= 32 * COUNT);
  buf_free(&out.buf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joins),
      cmocka_unit_test(long_texts_are_refused),
      cmocka_unit_test(wild_numbers_are_refused),
      cmocka_unit_test(resumes),
      cmocka_unit_test(beats),
      cmocka_unit_test(joined),
      cmocka_unit_test(a_rank_is_in_its_world),
      cmocka_unit_test(resumed),
      cmocka_unit_test(short_messages),
      cmocka_unit_test(news),
      cmocka_unit_test(long_names_are_left_out),
      cmocka_unit_test(refusals),
      cmocka_unit_test(pieces),
      cmocka_unit_test(heads_that_lie),
      cmocka_unit_test(status),
      cmocka_unit_test(members),
      cmocka_unit_test(a_list_is_short),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
