/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What several clients did to one key, and whether one store could have answered so.
 *
 * A history is linearizable if each operation can be given one moment between its call and its return such that the
 * operations, done at these moments one after the other, give the answers that were given. An operation whose outcome
 * is unknown may take effect at any moment after its call, or never. One that failed for certain did nothing, and is
 * left out.
 */
#ifndef RDZV_TESTS_CHAOS_HISTORY_H
#define RDZV_TESTS_CHAOS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
  HISTORY_TEXT = 384, /* longest value, with its end */
  HISTORY_OPS = 256,  /* of one key */
};

enum op_kind {
  OP_SET,
  OP_GET,
  OP_CHECK, /* wait, too: the key was there */
  OP_ADD,
  OP_APPEND,
  OP_COMPARE_SET,
  OP_DELETE,
  OP_GET_VERSION, /* wait_changed, too */
  OP_COMPARE_SET_VERSION,
  OP_PUSH,
  OP_POP,
  OP_LEN,
  OP_WIPE, /* a server that forgets its keys was restarted */
  OP_KINDS,
};

enum outcome {
  DONE,
  NOT_A_NUMBER, /* the answer of an add */
  EMPTY,        /* the answer of a pop */
  UNKNOWN,      /* it may have happened, or may still happen */
  FAILED,       /* it has not happened */
};

struct op {
  int32_t worker, key;
  enum op_kind kind;
  enum outcome outcome;
  int code; /* of the call, for people */
  char message[256];
  int64_t call_us, return_us;
  char expected[HISTORY_TEXT]; /* of compare_set */
  char value[HISTORY_TEXT];    /* that is set, appended, desired, pushed */
  char out[HISTORY_TEXT];      /* what it gave */
  int64_t number;              /* delta of add; len's answer */
  int64_t sum;
  uint64_t expected_version, version;
  bool flag; /* check: all there; delete: was there; compare_set_version: swapped */
};

/* What stores differ in. */
struct dialect_rules {
  bool queue;           /* the key is a queue */
  bool delete_says_yes; /* delete_key of an absent key tells true: a file store */
  bool empty_is_a_zero; /* add to an empty value: a file store */
};

/* ---- model.c: one store that does one operation at a time ------------------------------------------------------ */

enum { ABSENT = -1 };
#define VERSION_NEW UINT64_MAX /* another than all before; nobody has seen it yet */

struct model_state {
  int32_t value; /* number of the text in the model's table, or ABSENT; of a queue: its values, each with a newline */
  uint64_t version;
};

struct model {
  struct dialect_rules rules;
  char **texts;
  int32_t *next; /* of the same hash, or -1 */
  size_t count, room;
  int32_t first[4096]; /* by hash */
  const struct op *pops[HISTORY_OPS];
  size_t pop_count;
};

void model_init(struct model *model, struct dialect_rules rules);
void model_free(struct model *model);
struct model_state model_start(void);

/* Says beforehand which values will be popped when: a queue in which they cannot be is not looked into. */
void model_expect(struct model *model, const struct op *op);

/* Does the operation in this state and tells whether it gives the answer that was given. An operation of unknown
 * outcome that would change nothing is refused: it might as well not happen. */
bool model_step(struct model *model, struct model_state state, const struct op *op, struct model_state *next);

/* Reads are left out where they gave no answer. */
bool model_is_read(enum op_kind kind);

/* ---- check.c: the search --------------------------------------------------------------------------------------- */

enum verdict { LINEARIZABLE, NOT_LINEARIZABLE, UNDECIDED /* the search took too long */ };

struct check_result {
  enum verdict verdict;
  size_t configurations; /* that were looked at */
  size_t longest;        /* how many operations could be put in order at most, and which */
  const struct op *order[HISTORY_OPS];
};

/* The operations of one key, in any order. */
struct check_result history_check(const struct op *const *ops, size_t count, struct dialect_rules rules);

/* ---- text.c: for people and for files ---------------------------------------------------------------------------- */

/*
 * One line an operation, times in microseconds, "-" for the return of an unknown one:
 *
 *   WORKER CALL RETURN set VALUE             WORKER CALL RETURN get = VALUE
 *   … add DELTA = SUM                        … add DELTA = nan
 *   … append VALUE                           … cas EXPECTED DESIRED = VALUE
 *   … delete = yes                           … check = yes
 *   … getv = VALUE VERSION                   … casv VERSION VALUE = swapped VERSION
 *   … casv VERSION VALUE = VALUE VERSION     … push VALUE
 *   … pop = VALUE                            … pop = empty
 *   … len = NUMBER                           … wipe
 *
 * "''" is an empty value. What was not answered has no "=".
 */
void op_print(FILE *file, const struct op *op);
bool op_parse(const char *line, struct op *op);
void history_print(FILE *file, const struct op *const *ops, size_t count, const struct check_result *result);

#endif
