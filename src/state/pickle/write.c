/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/write.h"

#include "base/error.h"
#include "state/pickle/op.h"
#include "state/pickle/read.h" /* the limits */

#include <endian.h>
#include <stdlib.h>

enum { BATCH = 1000 }; /* as many as CPython puts into a container at once */

/* The place of a value in the memo, plus 1; 0: it is not there yet. */
typedef uint32_t memo;

struct node_memo {
  memo node;
  memo addr;     /* kept by the first node that has the address */
  size_t first;  /* which one that is: nodes of one host stand together */
  bool has_more; /* there are others */
};

/* Failures are noted, and looked at in the end. */
struct writer {
  const struct rendezvous_state *state;
  const struct torch_traits *traits;
  struct buf *out;
  bool no_memory;
  bool bad_time;
  uint32_t memo_count;
  memo torch_module, node_class, addr_name, pid_name, local_id_name;
  memo datetime_module, datetime_class, utc;
  struct node_memo *places; /* of each node */
};

/* ---- opcodes -------------------------------------------------------------------------------------------------- */

static void put(struct writer *writer, const void *data, size_t len) {
  if (!buf_append(writer->out, data, len)) writer->no_memory = true;
}

/* Most of a pickle goes through here, so it is worth a shorter way. */
static void put_byte(struct writer *writer, uint8_t byte) {
  struct buf *out = writer->out;
  if (out->len < out->cap)
    out->data[out->len++] = byte;
  else
    put(writer, &byte, 1);
}

static void put_op(struct writer *writer, enum pickle_op op) { put_byte(writer, (uint8_t)op); }

/* `size` bytes, lowest first. */
static void put_number(struct writer *writer, uint64_t number, size_t size) {
  for (; size > 0; size--, number >>= 8) put_byte(writer, (uint8_t)number);
}

static void put_sized(struct writer *writer, enum pickle_op short_op, enum pickle_op op, rdzv_bytes bytes) {
  const bool is_short = bytes.len <= UINT8_MAX;
  put_op(writer, is_short ? short_op : op);
  put_number(writer, bytes.len, is_short ? 1 : 4);
  put(writer, bytes.data, bytes.len);
}

static void put_bytes(struct writer *writer, rdzv_bytes bytes) {
  put_sized(writer, OP_SHORT_BINBYTES, OP_BINBYTES, bytes);
}

static void put_str(struct writer *writer, rdzv_bytes text) {
  put_sized(writer, OP_SHORT_BINUNICODE, OP_BINUNICODE, text);
}

static void put_bool(struct writer *writer, bool truth) { put_op(writer, truth ? OP_NEWTRUE : OP_NEWFALSE); }

static void put_int(struct writer *writer, int64_t number) {
  if (number >= 0 && number <= UINT16_MAX) {
    const bool small = number <= UINT8_MAX;
    put_op(writer, small ? OP_BININT1 : OP_BININT2);
    put_number(writer, (uint64_t)number, small ? 1 : 2);
  } else if (number >= INT32_MIN && number <= INT32_MAX) {
    put_op(writer, OP_BININT);
    put_number(writer, (uint64_t)number, 4);
  } else {
    const uint64_t bits = htole64((uint64_t)number);
    rdzv_bytes bytes = {&bits, sizeof bits};
    pyint_load(&bytes, &number);
    put_sized(writer, OP_LONG1, OP_LONG4, bytes);
  }
}

static void put_float(struct writer *writer, double real) {
  uint64_t bits;
  memcpy(&bits, &real, sizeof bits);
  bits = htobe64(bits);
  put_op(writer, OP_BINFLOAT);
  put(writer, &bits, sizeof bits);
}

/* ---- memo ----------------------------------------------------------------------------------------------------- */

/* Remembers what is on top of the stack. */
static void memoize(struct writer *writer, memo *place) {
  put_op(writer, OP_MEMOIZE);
  *place = ++writer->memo_count;
}

/* Puts what is remembered; false: nothing is. */
static bool recall(struct writer *writer, memo place) {
  if (place == 0) return false;
  const bool is_short = place - 1 <= UINT8_MAX;
  put_op(writer, is_short ? OP_BINGET : OP_LONG_BINGET);
  put_number(writer, place - 1, is_short ? 1 : 4);
  return true;
}

static void put_name(struct writer *writer, const char *name, memo *place) {
  if (recall(writer, *place)) return;
  put_str(writer, rdzv_str(name));
  memoize(writer, place);
}

static void put_class(struct writer *writer, const char *module, memo *module_place, const char *name) {
  put_name(writer, module, module_place);
  put_str(writer, rdzv_str(name));
  put_op(writer, OP_STACK_GLOBAL);
}

/* ---- times and nodes ------------------------------------------------------------------------------------------ */

/* timezone(timedelta(0, 0, 0)) */
static void put_utc(struct writer *writer) {
  if (recall(writer, writer->utc)) return;
  put_class(writer, "datetime", &writer->datetime_module, "timezone");
  put_class(writer, "datetime", &writer->datetime_module, "timedelta");
  for (int i = 0; i < 3; i++) put_int(writer, 0);
  put_op(writer, OP_TUPLE3);
  put_op(writer, OP_REDUCE);
  put_op(writer, OP_TUPLE1);
  put_op(writer, OP_REDUCE);
  memoize(writer, &writer->utc);
}

static void put_time(struct writer *writer, int64_t time, bool fold) {
  uint8_t packed[DATETIME_PACKED];
  if (!datetime_pack(time, packed)) {
    writer->bad_time = true;
    return;
  }
  if (fold) datetime_set_fold(packed);
  if (!recall(writer, writer->datetime_class)) {
    put_class(writer, "datetime", &writer->datetime_module, "datetime");
    memoize(writer, &writer->datetime_class);
  }
  put_bytes(writer, (rdzv_bytes){packed, sizeof packed});
  if (writer->traits->aware) put_utc(writer);
  put_op(writer, writer->traits->aware ? OP_TUPLE2 : OP_TUPLE1);
  put_op(writer, OP_REDUCE);
}

static void find_hosts(struct writer *writer) {
  const struct state_node *nodes = writer->state->nodes;
  for (size_t i = 0; i < writer->state->count; i++) {
    const bool is_next = i > 0 && strcmp(nodes[i].desc.addr, nodes[i - 1].desc.addr) == 0;
    writer->places[i].first = is_next ? writer->places[i - 1].first : i;
    if (is_next) writer->places[writer->places[i].first].has_more = true;
  }
}

static void put_addr(struct writer *writer, size_t i) {
  struct node_memo *first = &writer->places[writer->places[i].first];
  if (recall(writer, first->addr)) return;
  put_str(writer, rdzv_str(writer->state->nodes[i].desc.addr));
  if (first->has_more) memoize(writer, &first->addr);
}

static bool is_used_again(const struct state_node *node) {
  return __builtin_popcount(node->kinds) + (node->last_heartbeat != DATETIME_NONE) > 1;
}

static void put_node(struct writer *writer, size_t i) {
  if (recall(writer, writer->places[i].node)) return;
  const struct state_node *node = &writer->state->nodes[i];
  if (!recall(writer, writer->node_class)) {
    put_class(writer, PICKLE_TORCH_MODULE, &writer->torch_module, PICKLE_NODE_CLASS);
    memoize(writer, &writer->node_class);
  }
  put_op(writer, OP_EMPTY_TUPLE);
  put_op(writer, OP_NEWOBJ);
  if (is_used_again(node)) memoize(writer, &writer->places[i].node);
  put_op(writer, OP_EMPTY_DICT);
  put_op(writer, OP_MARK);
  put_name(writer, writer->traits->addr, &writer->addr_name);
  put_addr(writer, i);
  put_name(writer, "pid", &writer->pid_name);
  put_int(writer, node->desc.pid);
  put_name(writer, "local_id", &writer->local_id_name);
  put_int(writer, node->desc.local_id);
  put_op(writer, OP_SETITEMS);
  put_op(writer, OP_BUILD);
}

/* ---- collections ---------------------------------------------------------------------------------------------- */

/* How many more come with the next opcode, when `left` are left; `add` is the opcode of a batch. */
static size_t begin_batch(struct writer *writer, size_t left, enum pickle_op add) {
  const size_t batch = left < BATCH ? left : BATCH;
  if (batch > 1 || add == OP_ADDITEMS) put_op(writer, OP_MARK);
  return batch;
}

static void end_batch(struct writer *writer, size_t batch, enum pickle_op add) {
  if (batch > 1 || add == OP_ADDITEMS)
    put_op(writer, add);
  else
    put_op(writer, add == OP_SETITEMS ? OP_SETITEM : OP_APPEND);
}

/* The next node from *i on that is of that kind, or of kind 0 has a heartbeat. */
static size_t next_node(const struct rendezvous_state *state, size_t *i, unsigned kind) {
  for (;; ++*i) {
    const struct state_node *node = &state->nodes[*i];
    if (kind != 0 ? (node->kinds & kind) != 0 : node->last_heartbeat != DATETIME_NONE) return (*i)++;
  }
}

static void put_set(struct writer *writer, unsigned kind, size_t count) {
  put_op(writer, OP_EMPTY_SET);
  size_t i = 0;
  for (size_t left = count, batch; left > 0; left -= batch) {
    batch = begin_batch(writer, left, OP_ADDITEMS);
    for (size_t n = 0; n < batch; n++) put_node(writer, next_node(writer->state, &i, kind));
    end_batch(writer, batch, OP_ADDITEMS);
  }
}

/* Nodes with their ranks, or of kind 0 with their heartbeats. */
static void put_dict(struct writer *writer, unsigned kind, size_t count) {
  put_op(writer, OP_EMPTY_DICT);
  size_t i = 0;
  for (size_t left = count, batch; left > 0; left -= batch) {
    batch = begin_batch(writer, left, OP_SETITEMS);
    for (size_t n = 0; n < batch; n++) {
      const size_t at = next_node(writer->state, &i, kind);
      put_node(writer, at);
      if (kind == NODE_PARTICIPANT)
        put_int(writer, writer->state->nodes[at].rank);
      else
        put_time(writer, writer->state->nodes[at].last_heartbeat, writer->state->nodes[at].ours);
    }
    end_batch(writer, batch, OP_SETITEMS);
  }
}

static size_t count_heartbeats(const struct rendezvous_state *state) {
  size_t count = 0;
  for (size_t i = 0; i < state->count; i++) count += state->nodes[i].last_heartbeat != DATETIME_NONE;
  return count;
}

/* ---- attributes that are not PyTorch's ------------------------------------------------------------------------ */

static void put_value(struct writer *writer, const struct pyvalue *value);

static void put_tuple(struct writer *writer, const struct pyvalue *tuple) {
  static const enum pickle_op ops[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
  if (tuple->count > 3) put_op(writer, OP_MARK);
  for (size_t i = 0; i < tuple->count; i++) put_value(writer, &tuple->items[i]);
  put_op(writer, tuple->count > 3 ? OP_TUPLE : ops[tuple->count]);
}

/* `step` values are one item. */
static void put_items(struct writer *writer, const struct pyvalue *value, enum pickle_op empty, enum pickle_op add,
                      size_t step) {
  put_op(writer, empty);
  const struct pyvalue *next = value->items;
  for (size_t left = value->count / step, batch; left > 0; left -= batch) {
    batch = begin_batch(writer, left, add);
    for (size_t i = 0; i < batch * step; i++) put_value(writer, next++);
    end_batch(writer, batch, add);
  }
}

static void put_value(struct writer *writer, const struct pyvalue *value) {
  const rdzv_bytes bytes = {pyvalue_has_bytes(value->kind) ? value->bytes : NULL, value->count};
  switch (value->kind) {
    case PYVALUE_NONE: put_op(writer, OP_NONE); break;
    case PYVALUE_BOOL: put_bool(writer, value->truth); break;
    case PYVALUE_INT: put_int(writer, value->number); break;
    case PYVALUE_LONG: put_sized(writer, OP_LONG1, OP_LONG4, bytes); break;
    case PYVALUE_FLOAT: put_float(writer, value->real); break;
    case PYVALUE_STR: put_str(writer, bytes); break;
    case PYVALUE_BYTES: put_bytes(writer, bytes); break;
    case PYVALUE_TUPLE: put_tuple(writer, value); break;
    case PYVALUE_LIST: put_items(writer, value, OP_EMPTY_LIST, OP_APPENDS, 1); break;
    case PYVALUE_SET: put_items(writer, value, OP_EMPTY_SET, OP_ADDITEMS, 1); break;
    case PYVALUE_DICT: put_items(writer, value, OP_EMPTY_DICT, OP_SETITEMS, 2); break;
  }
}

/* ---- the state ------------------------------------------------------------------------------------------------ */

/* In the order in which PyTorch's __init__ sets them. */
static void put_attributes(struct writer *writer) {
  const struct rendezvous_state *state = writer->state;
  put_str(writer, rdzv_str("round"));
  put_int(writer, state->round);
  put_str(writer, rdzv_str("complete"));
  put_bool(writer, state->complete);
  put_str(writer, rdzv_str("deadline"));
  if (state->deadline == DATETIME_NONE)
    put_op(writer, OP_NONE);
  else
    put_time(writer, state->deadline, false);
  put_str(writer, rdzv_str("closed"));
  put_bool(writer, state->closed);
  put_str(writer, rdzv_str("participants"));
  put_dict(writer, NODE_PARTICIPANT, state->num_participants);
  put_str(writer, rdzv_str("wait_list"));
  put_set(writer, NODE_WAITING, state->num_waiting);
  if (writer->traits->redundancy_list) {
    put_str(writer, rdzv_str("redundancy_list"));
    put_set(writer, NODE_SPARE, state->num_spares);
  }
  put_str(writer, rdzv_str("last_heartbeats"));
  put_dict(writer, 0, count_heartbeats(state));
  for (size_t i = 0; i < state->extra.count; i++) {
    put_str(writer, rdzv_str(state->extra.items[i].name));
    put_value(writer, &state->extra.items[i].value);
  }
}

static void put_pickle(struct writer *writer) {
  put_op(writer, OP_PROTO);
  put_byte(writer, 4);
  put_op(writer, OP_FRAME);
  put_number(writer, 0, 8);
  const size_t start = writer->out->len;
  put_class(writer, PICKLE_TORCH_MODULE, &writer->torch_module, PICKLE_STATE_CLASS);
  put_op(writer, OP_EMPTY_TUPLE);
  put_op(writer, OP_NEWOBJ);
  put_op(writer, OP_EMPTY_DICT);
  put_op(writer, OP_MARK);
  put_attributes(writer);
  put_op(writer, OP_SETITEMS);
  put_op(writer, OP_BUILD);
  put_op(writer, OP_STOP);
  if (writer->no_memory) return;
  const uint64_t len = htole64(writer->out->len - start);
  memcpy(writer->out->data + start - sizeof len, &len, sizeof len);
}

int pickle_write(const struct rendezvous_state *state, enum torch_layout layout, struct buf *out, rdzv_error *error) {
  struct writer writer = {.state = state, .traits = torch_traits(layout), .out = out};
  if (state->num_spares > 0 && !writer.traits->redundancy_list)
    return error_set(
        error, RDZV_E_UNSUPPORTED,
        "cannot write the rendezvous state for PyTorch %s: %zu nodes are spares, which it does not support",
        writer.traits->version, state->num_spares);
  const size_t before = out->len;
  writer.places = calloc(state->count + 1, sizeof *writer.places);
  if (writer.places) {
    find_hosts(&writer);
    put_pickle(&writer);
  } else {
    writer.no_memory = true;
  }
  free(writer.places);
  const size_t len = out->len - before;
  if (!writer.no_memory && !writer.bad_time && len <= PICKLE_MAX_BYTES) return 0;
  out->len = before;
  if (writer.no_memory) return error_no_memory(error);
  if (writer.bad_time)
    return error_set(error, RDZV_E_INVALID,
                     "cannot write the rendezvous state: a time is before the year 1 or after 9999");
  return error_set(error, RDZV_E_LIMIT, "cannot write the rendezvous state: %zu bytes, over the limit of %d", len,
                   PICKLE_MAX_BYTES);
}
