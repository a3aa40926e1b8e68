/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of the TCPStore protocol, their numbers in each dialect and the fields of their requests.
 * docs/wire.md tells what they mean.
 *
 * The three dialects have the same request layouts and differ in numbers and answers:
 *   V1    PyTorch 1.9 to 2.1; 2.1 and 1.x disagree on 7 and 8, where 1.x holds
 *   V2    PyTorch 2.2 and later
 *   RDZV  ours: V2's requests and some more; every request is answered, and every answer begins with a status
 */
#ifndef RDZV_WIRE_OP_H
#define RDZV_WIRE_OP_H

#include <stdint.h>

enum wire_dialect { WIRE_UNKNOWN = 0, WIRE_V1, WIRE_V2, WIRE_RDZV };

/* Fields: k key, v value, n 8-byte number, w 4-byte number, K list of keys, P list of key and value pairs.
 * Columns: name, number in V1, in V2, in RDZV (-1: not there), fields. */
#define WIRE_OP_LIST(X)                      \
  X(VALIDATE, -1, 0, -1, "w")                \
  X(SET, 0, 1, 1, "kv")                      \
  X(COMPARE_SET, 1, 2, 2, "kvv")             \
  X(GET, 2, 3, 3, "k")                       \
  X(ADD, 3, 4, 4, "kn")                      \
  X(CHECK, 4, 5, 5, "K")                     \
  X(WAIT, 5, 6, 6, "K")                      \
  X(NUM_KEYS, 6, 7, 7, "")                   \
  X(WATCH_KEY, 7, -1, -1, "k")               \
  X(DELETE_KEY, 8, 8, 8, "k")                \
  X(APPEND, -1, 9, 9, "kv")                  \
  X(MULTI_GET, 9, 10, 10, "K")               \
  X(MULTI_SET, 10, 11, 11, "P")              \
  X(CANCEL_WAIT, 11, 12, 12, "")             \
  X(PING, -1, 13, 13, "w")                   \
  X(QUEUE_PUSH, -1, 14, 14, "kv")            \
  X(QUEUE_POP, -1, 15, 15, "k")              \
  X(QUEUE_LEN, -1, 16, 16, "k")              \
  X(LIST_KEYS, -1, 17, 17, "")               \
  X(BARRIER, -1, 18, 18, "kn")               \
  X(GET_WAIT, -1, -1, 128, "K")              \
  X(QUEUE_POP_WAIT, -1, -1, 129, "k")        \
  X(GET_VERSION, -1, -1, 130, "k")           \
  X(COMPARE_SET_VERSION, -1, -1, 131, "knv") \
  X(WAIT_CHANGED, -1, -1, 132, "kn")

enum wire_op {
#define WIRE_OP_ENUM(name, v1, v2, rdzv, fields) WIRE_##name,
  WIRE_OP_LIST(WIRE_OP_ENUM)
#undef WIRE_OP_ENUM
      WIRE_OP_COUNT
};

struct wire_op_row {
  const char *name;
  const char *fields;
  int16_t number[4]; /* by dialect */
};

extern const struct wire_op_row wire_ops[WIRE_OP_COUNT];

/* The operation of a number, or -1. */
int wire_op_of(enum wire_dialect dialect, uint8_t number);

enum {
  WIRE_MAGIC = 0x3C85F7CE, /* what VALIDATE carries */
  /* One-byte answers. In RDZV they are statuses: a higher one is an error code, negated, and a text follows. */
  WIRE_DONE_BYTE = 0,
  WIRE_CANCELED_BYTE = 1,
  WIRE_WATCHING_BYTE = 3,
};

/* A client that begins with VALIDATE and a PING of this number asks for RDZV. No process has this id, so no PyTorch
 * client sends it; PyTorch's servers from 2.5 on echo it; 1.x takes it for a SET whose key is longer than memory. */
#define WIRE_HELLO_NONCE 0xFFFFFFFFu

/* Our server answers that PING with these four bytes and the 8-byte id of its instance. */
#define WIRE_HELLO_ANSWER 0x017A6472u /* "rdz", 1 */

#endif
