/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine that a pickle is a program for: opcodes push values on a stack, put them into containers, and name them
 * in a memo to use them again. It knows numbers, texts and containers; what it may do with classes is in
 * state/pickle/class.h. Private to the pickle reader.
 *
 * All functions that return bool are false on failure, which is then noted in the machine.
 */
#ifndef RDZV_STATE_PICKLE_MACHINE_H
#define RDZV_STATE_PICKLE_MACHINE_H

#include "state/pickle/read.h" /* the limits */

enum pickle_kind {
  PICKLE_UNSET, /* of a place in the memo */
  PICKLE_NONE,
  PICKLE_BOOL,
  PICKLE_INT,
  PICKLE_LONG, /* an int of over 8 bytes */
  PICKLE_FLOAT,
  PICKLE_STR,
  PICKLE_BYTES,
  PICKLE_TUPLE,
  PICKLE_LIST,
  PICKLE_DICT,
  PICKLE_SET,
  PICKLE_GLOBAL,
  PICKLE_NODE,
  PICKLE_STATE,
  PICKLE_NAIVE, /* a datetime without and with a time zone */
  PICKLE_AWARE,
  PICKLE_TIMEDELTA, /* of 0 */
  PICKLE_TIMEZONE,  /* UTC */
};

struct pickle_value {
  uint32_t kind;
  uint32_t len; /* of bytes, or the items of a tuple; of a time, its `fold` */
  union {
    int64_t number; /* an int, a truth, a time, or an enum pickle_global */
    double real;
    const uint8_t *bytes; /* in the pickle, or in the arena */
    const struct pickle_value *tuple;
    struct pickle_items *items; /* of a list, a set, or a dict */
    struct pickle_node *node;
    struct pickle_state *state;
  };
};

/* What a container has, in the pieces it came in. A dict's keys are followed by their values. */
struct pickle_chunk {
  struct pickle_chunk *next;
  size_t count;
  struct pickle_value values[];
};
struct pickle_items {
  struct pickle_chunk *first, *last;
  size_t count; /* of values, all chunks together */
};

/* A walk through a container. */
struct pickle_walk {
  const struct pickle_chunk *chunk;
  size_t at;
};
static inline struct pickle_walk pickle_walk(const struct pickle_items *items) {
  return (struct pickle_walk){items->first, 0};
}
const struct pickle_value *pickle_next(struct pickle_walk *walk); /* NULL: the end */

struct pickle_block;

struct pickle_machine {
  const uint8_t *data;
  size_t len;
  size_t pos; /* of the next byte */
  size_t at;  /* of the opcode under way */

  struct pickle_value *stack;
  size_t depth, stack_cap;
  size_t marks[PICKLE_MAX_MARKS]; /* depths */
  size_t marks_count;
  struct pickle_value *memo;
  size_t memo_count, memo_cap; /* places in use, and those there are */

  struct pickle_block *blocks; /* the arena: what objects are in until the end */
  size_t block_used, block_size;
  size_t memory; /* of all blocks */

  int code; /* what failed: RDZV_E_CORRUPT or RDZV_E_NO_MEMORY */
  rdzv_error *error;
};

/* Runs the pickle in data and len; *result is what it leaves. */
bool pickle_run(struct pickle_machine *machine, struct pickle_value *result);
void pickle_machine_free(struct pickle_machine *machine);

/* Notes that the pickle is corrupt, and why; always false. */
bool pickle_fail(struct pickle_machine *machine, const char *format, ...) RDZV_PRINTF(2, 3);
bool pickle_no_memory(struct pickle_machine *machine);

/* Memory for an object, until pickle_machine_free. NULL: failed. */
void *pickle_alloc(struct pickle_machine *machine, size_t size);

/* Makes an array (a pointer to it is given) of *cap items of `size` bytes hold `need` of them, which are at most
 * `most`. */
bool pickle_grow(struct pickle_machine *machine, void *array, size_t *cap, size_t need, size_t most, size_t size);

/* Puts copies of values behind those of a container. */
bool pickle_extend(struct pickle_machine *machine, struct pickle_items *items, const struct pickle_value *values,
                   size_t count);

/* What Python calls such a value, for sentences. */
const char *pickle_kind_name(uint32_t kind);

static inline rdzv_bytes pickle_bytes(const struct pickle_value *value) {
  return (rdzv_bytes){value->bytes, value->len};
}

#endif
