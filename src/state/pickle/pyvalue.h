/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plain Python values, and named ones in a list: what we keep of a state's attributes that we do not know, so that
 * they survive when we write it back. All zero is None, and an empty list.
 */
#ifndef RDZV_STATE_PICKLE_PYVALUE_H
#define RDZV_STATE_PICKLE_PYVALUE_H

#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stdint.h>

enum pyvalue_kind {
  PYVALUE_NONE,
  PYVALUE_BOOL,
  PYVALUE_INT,
  PYVALUE_LONG, /* an int that 64 bits do not hold: its bytes, lowest first, as few as tell its sign */
  PYVALUE_FLOAT,
  PYVALUE_STR, /* UTF-8 */
  PYVALUE_BYTES,
  PYVALUE_TUPLE,
  PYVALUE_LIST,
  PYVALUE_SET,
  PYVALUE_DICT, /* each key is followed by its value */
};

struct pyvalue {
  enum pyvalue_kind kind;
  size_t count; /* of bytes or items */
  union {
    bool truth;
    int64_t number;
    double real;
    uint8_t *bytes; /* with a zero byte behind them */
    struct pyvalue *items;
  };
};

/* What a reader gives to the values of one state; a value that is used twice counts twice. */
enum {
  PYVALUE_MAX_DEPTH = 32,
  PYVALUE_MAX_COUNT = 1 << 16,
  PYVALUE_MAX_BYTES = 1 << 20,
  PYVALUE_MAX_NAMES = 64,
  PYVALUE_MAX_NAME = 255, /* bytes */
};

/* What is left of that. */
struct pyvalue_budget {
  size_t count, bytes;
};
#define PYVALUE_BUDGET ((struct pyvalue_budget){PYVALUE_MAX_COUNT, PYVALUE_MAX_BYTES})

static inline bool pyvalue_has_bytes(enum pyvalue_kind kind) {
  return kind == PYVALUE_LONG || kind == PYVALUE_STR || kind == PYVALUE_BYTES;
}
static inline bool pyvalue_has_items(enum pyvalue_kind kind) { return kind >= PYVALUE_TUPLE; }

/* Can it be a key of a dict and in a set? */
bool pyvalue_is_hashable(const struct pyvalue *value);

/* *value becomes one of bytes, copied, or one with room for items, all None; false: no memory. Whatever was there
 * before is not looked at. */
bool pyvalue_make_bytes(struct pyvalue *value, enum pyvalue_kind kind, rdzv_bytes bytes);
bool pyvalue_make_items(struct pyvalue *value, enum pyvalue_kind kind, size_t count);

/* An int as pickle has it, lowest byte first, the highest bit the sign. Takes off the bytes that it does not need;
 * true: 64 bits hold it, and it is *number. */
bool pyint_load(rdzv_bytes *bytes, int64_t *number);

void pyvalue_free(struct pyvalue *value); /* leaves None */

struct pynamed {
  char *name;
  struct pyvalue value;
};

/* In the order of the names, each once. */
struct pynames {
  struct pynamed *items;
  size_t count;
};

/* NULL: there is none of that name. */
struct pyvalue *pynames_find(const struct pynames *names, const char *name);

/* Puts it in the place of what had the name before. Takes the value over on success; false: no memory. */
bool pynames_set(struct pynames *names, const char *name, struct pyvalue *value);
void pynames_remove(struct pynames *names, const char *name);
bool pynames_copy(struct pynames *to, const struct pynames *from); /* false: no memory, *to is empty */
void pynames_free(struct pynames *names);

#endif
