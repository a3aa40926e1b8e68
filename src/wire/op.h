/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of the TCPStore protocol, their numbers in each dialect and the fields of their requests.
 * docs/wire.md describes them.
 *
 * The three dialects have the same request layouts and differ in numbers and answers:
 *   V1    PyTorch 1.9 to 2.1; 2.1 and 1.x disagree on 7 and 8, where 1.x holds
 *   V2    PyTorch 2.2 and later
 *   RDZV  ours: V2's requests and some more; every request is answered, and every answer begins with a status
 */
#ifndef RDZV_WIRE_OP_H
#define RDZV_WIRE_OP_H

#include <stdbool.h>
#include <stdint.h>

enum wire_dialect { WIRE_DIALECT_UNKNOWN = 0, WIRE_DIALECT_V1, WIRE_DIALECT_V2, WIRE_DIALECT_RDZV };

/* Fields: k key, v value, n 8-byte number, w 4-byte number, K list of keys, P list of key and value pairs.
 * Columns: name, number in V1, in V2, in RDZV (-1: none), fields, and whether it is a write, which sessions count. */
#define WIRE_OP_LIST(X)                            \
  X(VALIDATE, -1, 0, -1, "w", false)               \
  X(SET, 0, 1, 1, "kv", true)                      \
  X(COMPARE_SET, 1, 2, 2, "kvv", true)             \
  X(GET, 2, 3, 3, "k", false)                      \
  X(ADD, 3, 4, 4, "kn", true)                      \
  X(CHECK, 4, 5, 5, "K", false)                    \
  X(WAIT, 5, 6, 6, "K", false)                     \
  X(NUM_KEYS, 6, 7, 7, "", false)                  \
  X(WATCH_KEY, 7, -1, -1, "k", false)              \
  X(DELETE_KEY, 8, 8, 8, "k", true)                \
  X(APPEND, -1, 9, 9, "kv", true)                  \
  X(MULTI_GET, 9, 10, 10, "K", false)              \
  X(MULTI_SET, 10, 11, 11, "P", true)              \
  X(CANCEL_WAIT, 11, 12, 12, "", false)            \
  X(PING, -1, 13, 13, "w", false)                  \
  X(QUEUE_PUSH, -1, 14, 14, "kv", true)            \
  X(QUEUE_POP, -1, 15, 15, "k", true)              \
  X(QUEUE_LEN, -1, 16, 16, "k", false)             \
  X(LIST_KEYS, -1, 17, 17, "", false)              \
  X(BARRIER, -1, 18, 18, "kn", false)              \
  X(GET_WAIT, -1, -1, 128, "K", false)             \
  X(QUEUE_POP_WAIT, -1, -1, 129, "k", true)        \
  X(GET_VERSION, -1, -1, 130, "k", false)          \
  X(COMPARE_SET_VERSION, -1, -1, 131, "knv", true) \
  X(WAIT_CHANGED, -1, -1, 132, "kn", false)        \
  X(SESSION, -1, -1, 133, "vnn", false)            \
  X(NODE_JOIN, -1, -1, 134, "v", false)            \
  X(NODE_RESUME, -1, -1, 135, "v", false)          \
  X(NODE_LEAVE, -1, -1, 136, "", false)            \
  X(NODE_CLOSE, -1, -1, 137, "kv", false)          \
  X(NODE_BEAT, -1, -1, 138, "n", false)            \
  X(NODE_QUERY, -1, -1, 139, "kn", false)

enum wire_op {
#define WIRE_OP_ENUM(name, v1, v2, rdzv, fields, writes) WIRE_OP_##name,
  WIRE_OP_LIST(WIRE_OP_ENUM)
#undef WIRE_OP_ENUM
      WIRE_OP_COUNT
};

struct wire_op_row {
  const char *name;
  const char *fields;
  int16_t number[4]; /* by dialect */
  bool writes;
};

extern const struct wire_op_row wire_ops[WIRE_OP_COUNT];

/* The operation of a number, or -1. */
static inline int wire_op_of(enum wire_dialect dialect, uint8_t number) {
  /* No operation is listed before its number: most are where they are looked for first, or right behind. */
  for (int op = number < WIRE_OP_COUNT ? number : 0; op < WIRE_OP_COUNT; op++)
    if (wire_ops[op].number[dialect] == number) return op;
  return -1;
}

enum { WIRE_MAGIC = 0x3C85F7CE }; /* what VALIDATE carries */

/* One-byte answers. In RDZV they are statuses: a higher one is an error code, negated, and a text follows. */
enum wire_byte { WIRE_BYTE_DONE = 0, WIRE_BYTE_CANCELED = 1, WIRE_BYTE_WATCHING = 3 };

/* A client that begins with VALIDATE and a PING of this number asks for RDZV. PyTorch's clients send their process id
 * there, which never has this value. PyTorch's servers from 2.5 on echo it; 1.x reads a SET with an impossible key. */
#define WIRE_HELLO_NONCE 0xFFFFFFFFu

/* Our server answers that PING with these four bytes and the 8-byte id of its instance. */
#define WIRE_HELLO_ANSWER 0x017A6472u /* "rdz", 1 */

/* A standby answers it with these four bytes and the address of the active server as a value, which is empty where it
 * is not known, and closes the connection. */
#define WIRE_STANDBY_ANSWER 0x01627473u /* "stb", 1 */

/* A client whose greeting is reset detects PyTorch 1.x by a CHECK of one empty key in V1, the first request of a new
 * connection. PyTorch's servers answer 0 or 1, ours this byte. PyTorch's clients never send it, because they put a
 * slash before each key. In V2 the same bytes are an incomplete ADD. */
#define WIRE_BYTE_NOT_V1 'r'

/* A client that wants a session sends a second PING, of this number, behind the first one. A server with sessions
 * answers these four bytes and a token; others echo the number. */
#define WIRE_SESSION_NONCE 0xFFFFFFFEu
#define WIRE_SESSION_ANSWER 0x01736573u /* "ses", 1 */
enum { WIRE_TOKEN_BYTES = 16 };

/* A client that belongs to a run sends a third PING, of this number and 28 bits of a hash of the run id. A server of
 * another run refuses it; other servers echo it. */
#define WIRE_RUN_NONCE 0xE0000000u
#define WIRE_RUN_MASK 0xF0000000u
uint32_t wire_run_nonce(const char *run_id);

/* A client that may become a native node (wire/native.h) sends this PING, too. A server that forms rounds answers these
 * four bytes; others echo the number. */
#define WIRE_NATIVE_NONCE 0xFFFFFFFDu
#define WIRE_NATIVE_ANSWER 0x0174616Eu /* "nat", 1 */

#endif
