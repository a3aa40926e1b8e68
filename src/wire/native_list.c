/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of nodes. A node has in front how many bytes its address has in common with that of the node before, and all
 * numbers are as short as they can be: a list in node order takes about 10 bytes a node.
 */
#include "base/text/utf8.h"
#include "wire/cursor.h"
#include "wire/native.h"

enum { FLAG_EXISTS = 1, FLAG_COMPLETE = 2, FLAG_CLOSED = 4, FLAG_DIED = 8, STATUS_FLAGS = 15 };
enum { KINDS_MASK = NODE_PARTICIPANT | NODE_WAITING | NODE_SPARE, WAY_SHIFT = 3, MOST_TRAITS = 2 << 3 | 7 };
enum { LEAST_NODE_BYTES = 6 }; /* a list cannot claim more nodes than it has bytes for */

static void put_short(struct wire_writer *out, uint64_t number) {
  for (; number > 0x7f; number >>= 7) wire_put8(out, (uint8_t)(number | 0x80));
  wire_put8(out, (uint8_t)number);
}

static void put_signed(struct wire_writer *out, int64_t number) {
  put_short(out, (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0));
}

static void put_text(struct wire_writer *out, const char *text, size_t most) {
  const size_t len = strnlen(text, most);
  wire_put8(out, (uint8_t)len);
  wire_put8(out, (uint8_t)(len >> 8));
  wire_put(out, text, len);
  wire_put8(out, 0);
}

static void begin(struct wire_native_writer *writer, struct wire_writer *out, enum wire_native_kind kind) {
  wire_put8(out, WIRE_BYTE_DONE);
  wire_put64(out, 0);
  *writer = (struct wire_native_writer){.out = out, .kind = kind, .start = out->buf.len, .before = ""};
  wire_put8(out, (uint8_t)kind);
}

void wire_native_begin_status(struct wire_native_writer *writer, struct wire_writer *out,
                              const struct wire_native_status *status, size_t count) {
  begin(writer, out, WIRE_NATIVE_STATUS);
  wire_put8(out, (uint8_t)((status->exists ? FLAG_EXISTS : 0) | (status->complete ? FLAG_COMPLETE : 0) |
                           (status->closed ? FLAG_CLOSED : 0) | (status->died ? FLAG_DIED : 0)));
  wire_put8(out, (uint8_t)status->layout);
  put_signed(out, status->round);
  put_signed(out, status->call_left_ms);
  put_text(out, status->reason, NATIVE_MAX_REASON);
  put_signed(out, status->min_nodes);
  put_signed(out, status->max_nodes);
  put_signed(out, status->ended_us);
  put_text(out, status->ended_by, sizeof(struct node_text));
  put_short(out, count);
}

void wire_native_begin_members(struct wire_native_writer *writer, struct wire_writer *out, int64_t round,
                               size_t count) {
  begin(writer, out, WIRE_NATIVE_MEMBERS);
  put_signed(out, round);
  put_short(out, count);
}

void wire_native_add(struct wire_native_writer *writer, const struct wire_native_node *node) {
  struct wire_writer *out = writer->out;
  const char *addr = node->desc.addr;
  size_t common = 0;
  while (addr[common] && addr[common] == writer->before[common]) common++;
  const size_t len = strlen(addr + common);
  put_short(out, common);
  put_short(out, len);
  wire_put(out, addr + common, len);
  put_signed(out, node->desc.pid);
  put_signed(out, node->desc.local_id);
  put_signed(out, node->rank);
  wire_put8(out, (uint8_t)((node->kinds & KINDS_MASK) | (unsigned)node->way << WAY_SHIFT));
  if (writer->kind == WIRE_NATIVE_STATUS) {
    put_signed(out, node->heard_ms);
    put_signed(out, node->trip_us);
  }
  writer->before = addr;
}

void wire_native_end(struct wire_native_writer *writer) {
  struct wire_writer *out = writer->out;
  if (out->failed) return;
  const uint64_t len = htole64(out->buf.len - writer->start);
  memcpy(out->buf.data + writer->start - sizeof len, &len, sizeof len);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* Behind what is before the list. */
static int begin_list(struct wire_native_reader *reader, struct wire_cursor *cursor, enum wire_native_kind kind,
                      const char *what, rdzv_error *error) {
  const uint64_t count = wire_take_short(cursor, "the number of nodes");
  if (count > STATE_MAX_NODES || count > cursor->left / LEAST_NODE_BYTES) wire_note_bad(cursor, "the number of nodes");
  if (cursor->bad || count == 0) {
    const int result = wire_cursor_end(cursor, what, error);
    if (result < 0) return result;
  }
  reader->rest = (rdzv_bytes){cursor->at, cursor->left};
  reader->kind = kind;
  reader->count = (size_t)count;
  reader->len = 0;
  return 0;
}

int wire_native_read_status(struct wire_native_reader *reader, rdzv_bytes body, struct wire_native_status *out,
                            rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(body);
  const unsigned flags = wire_take8(&cursor, STATUS_FLAGS, "the flags");
  out->exists = flags & FLAG_EXISTS;
  out->complete = flags & FLAG_COMPLETE;
  out->closed = flags & FLAG_CLOSED;
  out->died = flags & FLAG_DIED;
  out->layout = wire_take8(&cursor, TORCH_NEWEST, "the layout");
  out->round = wire_take_signed(&cursor, "the round");
  out->call_left_ms = wire_take_signed(&cursor, "the time of the last call");
  out->reason = wire_take_text(&cursor, 0, NATIVE_MAX_REASON, "the reason");
  out->min_nodes = wire_take_signed(&cursor, "the least number of nodes");
  out->max_nodes = wire_take_signed(&cursor, "the largest number of nodes");
  out->ended_us = wire_take_signed(&cursor, "the time of the end");
  out->ended_by = wire_take_text(&cursor, 0, sizeof(struct node_text), "the node that ended it");
  return begin_list(reader, &cursor, WIRE_NATIVE_STATUS, "the status", error);
}

int wire_native_read_members(struct wire_native_reader *reader, rdzv_bytes body, int64_t *round, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(body);
  *round = wire_take_signed(&cursor, "the round");
  return begin_list(reader, &cursor, WIRE_NATIVE_MEMBERS, "the list of members", error);
}

static void read_addr(struct wire_native_reader *reader, struct wire_cursor *cursor) {
  static const char name[] = "the address of a node";
  const uint64_t common = wire_take_short(cursor, name), len = wire_take_short(cursor, name);
  if (common > reader->len || len > STATE_MAX_ADDR - common || common + len == 0) wire_note_bad(cursor, name);
  const uint8_t *addr = wire_take(cursor, (size_t)len, name);
  if (!addr) return;
  if (memchr(addr, 0, (size_t)len)) wire_note_bad(cursor, name);
  memcpy(reader->addr + common, addr, (size_t)len);
  reader->len = (size_t)(common + len);
  reader->addr[reader->len] = '\0';
  if (!utf8_is_valid((rdzv_bytes){reader->addr, reader->len})) wire_note_bad(cursor, name);
}

int wire_native_read_node(struct wire_native_reader *reader, struct wire_native_node *out, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(reader->rest);
  if (reader->count == 0) return wire_cursor_end(&cursor, "the list of nodes", error);
  read_addr(reader, &cursor);
  *out = (struct wire_native_node){.desc.addr = reader->addr, .heard_ms = -1, .trip_us = -1};
  out->desc.pid = wire_take_signed(&cursor, "a process id");
  out->desc.local_id = wire_take_signed(&cursor, "a local id");
  out->rank = wire_take_signed(&cursor, "a rank");
  const unsigned traits = wire_take8(&cursor, MOST_TRAITS, "the kind of a node");
  out->kinds = traits & KINDS_MASK;
  out->way = (enum native_way)(traits >> WAY_SHIFT);
  if (reader->kind == WIRE_NATIVE_STATUS) {
    out->heard_ms = wire_take_signed(&cursor, "the age of a node");
    out->trip_us = wire_take_signed(&cursor, "a round-trip time");
  }
  reader->rest = (rdzv_bytes){cursor.at, cursor.left};
  reader->count--;
  cursor.left = 0; /* the other nodes follow */
  const int result = wire_cursor_end(&cursor, "the list of nodes", error);
  return result < 0 ? result : 1;
}
