/* SPDX-License-Identifier: BSD-3-Clause */
/* PyTorch's TCPStore protocol, as far as the benchmark speaks it: little-endian integers, u64 lengths, v2's opcodes one
 * above v1's. The dialect `echo` sends v2's bytes without the hello, or behind one of its own. */
#include "load.h"

#include "echo.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

static const uint8_t hello_v2[] = {0x00, 0xce, 0xf7, 0x85, 0x3c}; /* VALIDATE and its magic number */

static uint8_t *put(uint8_t *out, const void *data, size_t len) {
  memcpy(out, data, len);
  return out + len;
}

uint8_t *wire_number(uint8_t *out, int64_t number) {
  const uint64_t little = htole64((uint64_t)number);
  return put(out, &little, sizeof little);
}

static uint8_t *put_bytes(uint8_t *out, const void *data, size_t len) {
  return put(wire_number(out, (int64_t)len), data, len);
}

static uint8_t *put_opcode(uint8_t *out, enum dialect dialect, enum op op) {
  static const uint8_t v1[] = {
      [OP_SET] = 0, [OP_COMPARE_SET] = 1, [OP_GET] = 2, [OP_ADD] = 3, [OP_CHECK] = 4, [OP_WAIT] = 5, [OP_BARRIER] = 17,
  };
  *out = (uint8_t)(v1[op] + (dialect == DIALECT_V1 ? 0 : 1));
  return out + 1;
}

void wire_key(char key[KEY_LEN + 1], uint32_t number, unsigned index) {
  snprintf(key, KEY_LEN + 1, "/bench/%08x/%06u", number, index % 1000000);
}

/* Each connection has two values of its own, so that a mix-up of connections or of new and old shows. */
static uint8_t *put_value(uint8_t *out, unsigned index, uint64_t turn) {
  char value[VALUE_LEN + 1];
  snprintf(value, sizeof value, "%06u/%u/abcdefghijklmnopqrstuvw", index % 1000000, (unsigned)(turn & 1));
  return put_bytes(out, value, VALUE_LEN);
}

/* 2.6's libuv server takes VALIDATE only whole and in the first segment: the caller writes it together with what
 * follows. No PING: servers before 2.5 have none, and the first answered request tells as much. */
uint8_t *wire_hello(uint8_t *out, enum dialect dialect) {
  return dialect == DIALECT_V2 ? put(out, hello_v2, sizeof hello_v2) : out;
}

uint8_t *wire_echo_hello(uint8_t *out, size_t request, size_t answer) {
  const struct echo_hello hello = {ECHO_HELLO, (uint16_t)request, (uint16_t)answer};
  return put(out, &hello, sizeof hello);
}

uint8_t *wire_set(uint8_t *out, enum dialect dialect, const char *key, const char *value, size_t len) {
  out = put_opcode(out, dialect, OP_SET);
  out = put_bytes(out, key, KEY_LEN);
  return put_bytes(out, value, len);
}

uint8_t *wire_add(uint8_t *out, enum dialect dialect, const char *key, int64_t amount) {
  out = put_opcode(out, dialect, OP_ADD);
  out = put_bytes(out, key, KEY_LEN);
  return wire_number(out, amount);
}

uint8_t *wire_barrier(uint8_t *out, enum dialect dialect, const char *key, int64_t clients) {
  out = put_opcode(out, dialect, OP_BARRIER);
  out = put_bytes(out, key, KEY_LEN);
  return wire_number(out, clients);
}

uint8_t *wire_query(uint8_t *out, enum dialect dialect, enum op op, const char *key) {
  out = put_opcode(out, dialect, op);
  if (op != OP_GET) out = wire_number(out, 1);
  return put_bytes(out, key, KEY_LEN);
}

uint8_t *wire_prepare(uint8_t *out, enum dialect dialect, enum op op, const char *key, unsigned index) {
  if (op == OP_ADD) {
    out = wire_set(out, dialect, key, "0", 1);
  } else {
    out = put_opcode(out, dialect, OP_SET);
    out = put_bytes(out, key, KEY_LEN);
    out = put_value(out, index, 0);
  }
  return wire_query(out, dialect, OP_CHECK, key);
}

uint8_t *wire_request(uint8_t *out, enum dialect dialect, enum op op, const char *key, unsigned index, uint64_t turn) {
  if (op == OP_ADD) return wire_add(out, dialect, key, 1);
  if (op != OP_SET && op != OP_COMPARE_SET) return wire_query(out, dialect, op, key);
  out = put_opcode(out, dialect, op);
  out = put_bytes(out, key, KEY_LEN);
  if (op == OP_COMPARE_SET) out = put_value(out, index, turn - 1);
  out = put_value(out, index, turn);
  /* SET has no answer: only that of a request behind it on the same connection tells that it was carried out. */
  return op == OP_SET ? wire_query(out, dialect, OP_CHECK, key) : out;
}

uint8_t *wire_answer(uint8_t *out, enum op op, unsigned index, uint64_t turn) {
  if (op == OP_GET) return put_value(out, index, 0);
  if (op == OP_COMPARE_SET) return put_value(out, index, turn);
  if (op == OP_ADD) return wire_number(out, (int64_t)turn);
  *out = 0; /* CHECK: all there; WAIT: stop waiting */
  return out + 1;
}

uint8_t *wire_final(uint8_t *out, enum op op, unsigned index, uint64_t turns) {
  if (op == OP_SET || op == OP_COMPARE_SET) return put_value(out, index, turns);
  if (op != OP_ADD) return put_value(out, index, 0);
  char text[24];
  const int len = snprintf(text, sizeof text, "%llu", (unsigned long long)turns);
  return put_bytes(out, text, (size_t)len);
}
