/* SPDX-License-Identifier: BSD-3-Clause */
/* The stream of a server to a native node: message after message, each decoded by its kind. A message that has not come
 * whole wants more than has come. */
#include "fuzz.h"
#include "wire/native.h"

enum { MOST = 8192 };

static void read_nodes(struct wire_native_reader *reader) {
  struct wire_native_node node;
  size_t count = 0;
  const size_t most = reader->count;
  while (wire_native_read_node(reader, &node, NULL) > 0) {
    const size_t len = strlen(node.desc.addr);
    CHECK(len >= 1 && len <= STATE_MAX_ADDR && node.way <= NATIVE_WAY_NATIVE);
    count++;
  }
  CHECK(count <= most && most <= STATE_MAX_NODES);
}

static void joined(rdzv_bytes body) {
  struct native_joined joined;
  if (wire_native_joined(body, &joined, NULL) < 0) return;
  CHECK(joined.rank >= 0 && joined.rank < joined.world_size && joined.world_size <= STATE_MAX_NODES);
  CHECK(strlen(joined.master_node) >= 1 && strlen(joined.master_addr) <= NATIVE_MAX_MASTER);
  CHECK(joined.master_port >= 0 && joined.master_port <= 65535);
}

static void news(rdzv_bytes body) {
  struct native_news news;
  if (wire_native_news(body, &news, NULL) < 0) return;
  CHECK(news.named <= NATIVE_MOST_NAMED);
  for (size_t i = 0; i < news.named; i++) CHECK(strlen(news.nodes[i].addr) >= 1);
  CHECK(strlen(news.warning) <= NATIVE_MAX_WARNING);
}

static void lists(const struct wire_native_message *message) {
  struct wire_native_reader reader;
  struct wire_native_status status;
  int64_t round;
  const int result = message->kind == WIRE_NATIVE_STATUS
                         ? wire_native_read_status(&reader, message->body, &status, NULL)
                         : wire_native_read_members(&reader, message->body, &round, NULL);
  if (result == 0) read_nodes(&reader);
}

static void take(const struct wire_native_message *message) {
  uint64_t number;
  if (message->code != 0) return;
  switch (message->kind) {
    case WIRE_NATIVE_JOINED: joined(message->body); break;
    case WIRE_NATIVE_RESUMED: wire_native_resumed(message->body, &number, NULL); break;
    case WIRE_NATIVE_NEWS: news(message->body); break;
    case WIRE_NATIVE_STATUS:
    case WIRE_NATIVE_MEMBERS: lists(message); break;
    default: break;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  for (size_t at = 0;;) {
    struct wire_native_message message;
    size_t want;
    uint8_t *rest = fuzz_copy(data + at, len - at);
    const enum wire_result result = wire_native_next(rest, len - at, MOST, &message, &want);
    if (result == WIRE_RESULT_MORE) CHECK(want > len - at);
    if (result == WIRE_RESULT_DONE) {
      CHECK(message.size <= len - at && message.size >= WIRE_NATIVE_HEAD_BYTES && message.body.len < message.size);
      take(&message);
      at += message.size;
    }
    free(rest);
    if (result != WIRE_RESULT_DONE) return 0;
  }
}
