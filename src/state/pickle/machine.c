/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/machine.h"

#include "base/buf.h"
#include "base/text/utf8.h"
#include "state/pickle/class.h"
#include "state/pickle/op.h"
#include "state/pickle/pyvalue.h"

#include <endian.h>

/* ---- the stack -------------------------------------------------------------------------------------------------- */

static bool push(struct pickle_machine *machine, struct pickle_value value) {
  if (machine->depth >= PICKLE_MAX_STACK) return pickle_fail(machine, "over %d values on the stack", PICKLE_MAX_STACK);
  if (!pickle_grow(machine, &machine->stack, &machine->stack_cap, machine->depth + 1, PICKLE_MAX_STACK, sizeof value))
    return false;
  machine->stack[machine->depth++] = value;
  return true;
}

/* Takes the last `count` values, not those below the last mark; NULL: failed. They are valid until the next push. */
static const struct pickle_value *pop(struct pickle_machine *machine, size_t count) {
  const size_t floor = machine->marks_count > 0 ? machine->marks[machine->marks_count - 1] : 0;
  if (machine->depth - floor < count) {
    pickle_fail(machine, "the stack has fewer values than the opcode needs");
    return NULL;
  }
  machine->depth -= count;
  return machine->stack + machine->depth;
}

/* Takes all values above the last mark, and the mark; NULL: failed. */
static const struct pickle_value *pop_mark(struct pickle_machine *machine, size_t *count) {
  if (machine->marks_count == 0) {
    pickle_fail(machine, "there is no mark");
    return NULL;
  }
  const size_t floor = machine->marks[--machine->marks_count];
  *count = machine->depth - floor;
  machine->depth = floor;
  return machine->stack + floor; /* which is not NULL: see mark() */
}

static bool mark(struct pickle_machine *machine) {
  if (machine->marks_count >= PICKLE_MAX_MARKS)
    return pickle_fail(machine, "nested more than %d levels", PICKLE_MAX_MARKS);
  /* Even of nothing, what stands above a mark is a place in the stack. */
  if (!pickle_grow(machine, &machine->stack, &machine->stack_cap, 1, PICKLE_MAX_STACK, sizeof *machine->stack))
    return false;
  machine->marks[machine->marks_count++] = machine->depth;
  return true;
}

/* ---- what opcodes carry --------------------------------------------------------------------------------------- */

/* The next `count` bytes of the pickle; NULL: it ends before. */
static const uint8_t *take(struct pickle_machine *machine, size_t count) {
  if (machine->len - machine->pos < count) {
    pickle_fail(machine, "the pickle is cut short");
    return NULL;
  }
  machine->pos += count;
  return machine->data + machine->pos - count;
}

/* A number of `size` bytes, lowest first. */
static bool take_number(struct pickle_machine *machine, size_t size, uint64_t *number) {
  const uint8_t *bytes = take(machine, size);
  *number = 0;
  for (size_t i = size; bytes && i > 0; i--) *number = *number << 8 | bytes[i - 1];
  return bytes != NULL;
}

/* A length of `size` bytes and the bytes. */
static bool take_sized(struct pickle_machine *machine, size_t size, struct pickle_value *value) {
  uint64_t len;
  if (!take_number(machine, size, &len)) return false;
  if (len > PICKLE_MAX_STRING)
    return pickle_fail(machine, "a length of %llu, over the limit of %d", (unsigned long long)len, PICKLE_MAX_STRING);
  value->len = (uint32_t)len;
  value->bytes = take(machine, (size_t)len);
  return value->bytes != NULL;
}

static bool push_int(struct pickle_machine *machine, size_t size) {
  uint64_t number;
  return take_number(machine, size, &number) &&
         push(machine, (struct pickle_value){.kind = PICKLE_INT, .number = (int64_t)number});
}

static bool push_signed(struct pickle_machine *machine) {
  uint64_t number;
  return take_number(machine, 4, &number) &&
         push(machine, (struct pickle_value){.kind = PICKLE_INT, .number = (int32_t)(uint32_t)number});
}

static bool push_long(struct pickle_machine *machine, size_t size) {
  struct pickle_value value = {.kind = PICKLE_LONG};
  if (!take_sized(machine, size, &value)) return false;
  rdzv_bytes bytes = pickle_bytes(&value);
  int64_t number;
  if (pyint_load(&bytes, &number)) return push(machine, (struct pickle_value){.kind = PICKLE_INT, .number = number});
  value.len = (uint32_t)bytes.len;
  return push(machine, value);
}

static bool push_float(struct pickle_machine *machine) {
  const uint8_t *bytes = take(machine, sizeof(double));
  if (!bytes) return false;
  uint64_t bits;
  memcpy(&bits, bytes, sizeof bits);
  bits = be64toh(bits); /* the one number of a pickle that has its highest byte first */
  struct pickle_value value = {.kind = PICKLE_FLOAT};
  memcpy(&value.real, &bits, sizeof bits);
  return push(machine, value);
}

static bool push_text(struct pickle_machine *machine, uint32_t kind, size_t size) {
  struct pickle_value value = {.kind = kind};
  if (!take_sized(machine, size, &value)) return false;
  if (kind == PICKLE_STR && !utf8_is_valid(pickle_bytes(&value)))
    return pickle_fail(machine, "the str '%s' is not UTF-8", bytes_quote(pickle_bytes(&value)).text);
  return push(machine, value);
}

/* ---- containers ----------------------------------------------------------------------------------------------- */

static bool push_tuple(struct pickle_machine *machine, const struct pickle_value *values, size_t count) {
  if (!values) return false;
  struct pickle_value tuple = {.kind = PICKLE_TUPLE, .len = (uint32_t)count};
  if (count > 0) {
    struct pickle_value *copy = pickle_alloc(machine, count * sizeof *copy);
    if (!copy) return false;
    memcpy(copy, values, count * sizeof *copy);
    tuple.tuple = copy;
  }
  return push(machine, tuple);
}

static bool push_marked_tuple(struct pickle_machine *machine) {
  size_t count;
  const struct pickle_value *values = pop_mark(machine, &count);
  return values && push_tuple(machine, values, count);
}

static bool push_container(struct pickle_machine *machine, uint32_t kind) {
  struct pickle_items *items = pickle_alloc(machine, sizeof *items);
  if (!items) return false;
  *items = (struct pickle_items){0};
  return push(machine, (struct pickle_value){.kind = kind, .items = items});
}

/* As in Python, a node that has no attributes yet cannot be distinguished from another, and so cannot be a key. */
static bool check_key(struct pickle_machine *machine, const struct pickle_value *key) {
  const bool hashable = key->kind != PICKLE_LIST && key->kind != PICKLE_DICT && key->kind != PICKLE_SET &&
                        key->kind != PICKLE_STATE && (key->kind != PICKLE_NODE || key->node->built);
  return hashable || pickle_fail(machine, "%s cannot be in a set or a key of a dict", pickle_kind_name(key->kind));
}

/* Puts values into the container on top of the stack. */
static bool put_items(struct pickle_machine *machine, uint32_t kind, const struct pickle_value *values, size_t count) {
  const struct pickle_value *container = pop(machine, 1);
  if (!container) return false;
  machine->depth++; /* it stays */
  if (container->kind != kind)
    return pickle_fail(machine, "%s is to be %s", pickle_kind_name(container->kind), pickle_kind_name(kind));
  const size_t step = kind == PICKLE_DICT ? 2 : 1;
  if (count % step != 0) return pickle_fail(machine, "a key has no value");
  for (size_t i = 0; kind != PICKLE_LIST && i < count; i += step)
    if (!check_key(machine, &values[i])) return false;
  return pickle_extend(machine, container->items, values, count);
}

static bool put_popped(struct pickle_machine *machine, uint32_t kind, size_t count) {
  const struct pickle_value *values = pop(machine, count);
  return values && put_items(machine, kind, values, count);
}

static bool put_marked(struct pickle_machine *machine, uint32_t kind) {
  size_t count;
  const struct pickle_value *values = pop_mark(machine, &count);
  return values && put_items(machine, kind, values, count);
}

/* ---- memo ----------------------------------------------------------------------------------------------------- */

static bool memo_put(struct pickle_machine *machine, uint64_t place) {
  const struct pickle_value *value = pop(machine, 1);
  if (!value) return false;
  machine->depth++; /* it stays */
  if (place >= PICKLE_MAX_MEMO) return pickle_fail(machine, "over %d values in the memo", PICKLE_MAX_MEMO);
  const size_t before = machine->memo_cap;
  if (!pickle_grow(machine, &machine->memo, &machine->memo_cap, (size_t)place + 1, PICKLE_MAX_MEMO, sizeof *value))
    return false;
  for (size_t i = before; i < machine->memo_cap; i++) machine->memo[i].kind = PICKLE_UNSET;
  if (machine->memo[place].kind == PICKLE_UNSET) machine->memo_count++;
  machine->memo[place] = *value;
  return true;
}

static bool memo_get(struct pickle_machine *machine, uint64_t place) {
  if (place >= machine->memo_cap || machine->memo[place].kind == PICKLE_UNSET)
    return pickle_fail(machine, "the memo has no value %llu", (unsigned long long)place);
  return push(machine, machine->memo[place]);
}

static bool memo_put_at(struct pickle_machine *machine, size_t size) {
  uint64_t place;
  return take_number(machine, size, &place) && memo_put(machine, place);
}

static bool memo_get_at(struct pickle_machine *machine, size_t size) {
  uint64_t place;
  return take_number(machine, size, &place) && memo_get(machine, place);
}

/* ---- classes -------------------------------------------------------------------------------------------------- */

static bool take_line(struct pickle_machine *machine, rdzv_bytes *line) {
  const uint8_t *start = machine->data + machine->pos;
  const size_t left = machine->len - machine->pos;
  const size_t most = left < PICKLE_MAX_STRING ? left : PICKLE_MAX_STRING;
  const uint8_t *end = memchr(start, '\n', most);
  if (!end) return pickle_fail(machine, "the name of a class does not end");
  *line = (rdzv_bytes){start, (size_t)(end - start)};
  machine->pos += line->len + 1;
  return true;
}

static bool push_global(struct pickle_machine *machine) {
  rdzv_bytes module = {0}, name = {0};
  struct pickle_value class_ = {0};
  return take_line(machine, &module) && take_line(machine, &name) && pickle_global(machine, module, name, &class_) &&
         push(machine, class_);
}

static bool push_stack_global(struct pickle_machine *machine) {
  const struct pickle_value *names = pop(machine, 2);
  if (!names) return false;
  if (names[0].kind != PICKLE_STR || names[1].kind != PICKLE_STR)
    return pickle_fail(machine, "the name of a class is not a str");
  struct pickle_value class_ = {0};
  return pickle_global(machine, pickle_bytes(&names[0]), pickle_bytes(&names[1]), &class_) && push(machine, class_);
}

static bool push_made(struct pickle_machine *machine, bool (*make)(struct pickle_machine *, struct pickle_value,
                                                                   struct pickle_value, struct pickle_value *)) {
  const struct pickle_value *values = pop(machine, 2);
  struct pickle_value result = {0};
  return values && make(machine, values[0], values[1], &result) && push(machine, result);
}

static bool build(struct pickle_machine *machine) {
  const struct pickle_value *values = pop(machine, 2);
  if (!values) return false;
  machine->depth++; /* the object stays */
  return pickle_build(machine, values[0], values[1]);
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

/* Frames are for readers of a stream. This input is complete, if it is not cut. */
static bool frame(struct pickle_machine *machine) {
  uint64_t len;
  if (!take_number(machine, 8, &len)) return false;
  return len <= machine->len - machine->pos || pickle_fail(machine, "the pickle is cut short");
}

static bool step(struct pickle_machine *m, uint8_t op) {
  size_t count;
  switch (op) {
    case OP_FRAME: return frame(m);
    case OP_MARK: return mark(m);
    case OP_POP: return pop(m, 1);
    case OP_POP_MARK: return pop_mark(m, &count);
    case OP_NONE: return push(m, (struct pickle_value){.kind = PICKLE_NONE});
    case OP_NEWTRUE: return push(m, (struct pickle_value){.kind = PICKLE_BOOL, .number = true});
    case OP_NEWFALSE: return push(m, (struct pickle_value){.kind = PICKLE_BOOL, .number = false});
    case OP_BININT: return push_signed(m);
    case OP_BININT1: return push_int(m, 1);
    case OP_BININT2: return push_int(m, 2);
    case OP_LONG1: return push_long(m, 1);
    case OP_LONG4: return push_long(m, 4);
    case OP_BINFLOAT: return push_float(m);
    case OP_SHORT_BINUNICODE: return push_text(m, PICKLE_STR, 1);
    case OP_BINUNICODE: return push_text(m, PICKLE_STR, 4);
    case OP_BINUNICODE8: return push_text(m, PICKLE_STR, 8);
    case OP_SHORT_BINBYTES: return push_text(m, PICKLE_BYTES, 1);
    case OP_BINBYTES: return push_text(m, PICKLE_BYTES, 4);
    case OP_BINBYTES8: return push_text(m, PICKLE_BYTES, 8);
    case OP_EMPTY_TUPLE: return push(m, (struct pickle_value){.kind = PICKLE_TUPLE});
    case OP_TUPLE: return push_marked_tuple(m);
    case OP_TUPLE1: return push_tuple(m, pop(m, 1), 1);
    case OP_TUPLE2: return push_tuple(m, pop(m, 2), 2);
    case OP_TUPLE3: return push_tuple(m, pop(m, 3), 3);
    case OP_EMPTY_LIST: return push_container(m, PICKLE_LIST);
    case OP_APPEND: return put_popped(m, PICKLE_LIST, 1);
    case OP_APPENDS: return put_marked(m, PICKLE_LIST);
    case OP_EMPTY_DICT: return push_container(m, PICKLE_DICT);
    case OP_SETITEM: return put_popped(m, PICKLE_DICT, 2);
    case OP_SETITEMS: return put_marked(m, PICKLE_DICT);
    case OP_EMPTY_SET: return push_container(m, PICKLE_SET);
    case OP_ADDITEMS: return put_marked(m, PICKLE_SET);
    case OP_BINPUT: return memo_put_at(m, 1);
    case OP_LONG_BINPUT: return memo_put_at(m, 4);
    case OP_MEMOIZE: return memo_put(m, m->memo_count);
    case OP_BINGET: return memo_get_at(m, 1);
    case OP_LONG_BINGET: return memo_get_at(m, 4);
    case OP_GLOBAL: return push_global(m);
    case OP_STACK_GLOBAL: return push_stack_global(m);
    case OP_NEWOBJ: return push_made(m, pickle_newobj);
    case OP_REDUCE: return push_made(m, pickle_reduce);
    case OP_BUILD: return build(m);
    default: return pickle_fail(m, "unexpected opcode 0x%02x", op);
  }
}

static bool start(struct pickle_machine *machine) {
  if (machine->len > PICKLE_MAX_BYTES)
    return pickle_fail(machine, "the pickle has %zu bytes, over the limit of %d", machine->len, PICKLE_MAX_BYTES);
  const uint8_t *proto = take(machine, 2);
  if (!proto) return false;
  return (proto[0] == OP_PROTO && proto[1] >= 2 && proto[1] <= 5) ||
         pickle_fail(machine, "it is not a pickle of protocol 2 to 5");
}

bool pickle_run(struct pickle_machine *machine, struct pickle_value *result) {
  if (!start(machine)) return false;
  for (;;) {
    machine->at = machine->pos;
    const uint8_t *op = take(machine, 1);
    if (!op) return false;
    if (*op == OP_STOP) break;
    if (!step(machine, *op)) return false;
  }
  if (machine->pos != machine->len)
    return pickle_fail(machine, "%zu bytes come after its end", machine->len - machine->pos);
  if (machine->depth != 1 || machine->marks_count != 0)
    return pickle_fail(machine, "it leaves %zu values, not one", machine->depth);
  *result = machine->stack[0];
  return true;
}
