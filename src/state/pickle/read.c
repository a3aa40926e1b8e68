/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the machine made becomes a state: each of PyTorch's attributes must be there and of its type; the others are
 * kept if they are plain values. The traits that the state shows say which layouts it can have.
 */
#include "state/pickle/read.h"

#include "base/buf.h"
#include "base/error.h"
#include "state/pickle/build.h"
#include "state/pickle/class.h"

enum attribute {
  ROUND,
  COMPLETE,
  DEADLINE,
  CLOSED,
  PARTICIPANTS,
  WAIT_LIST,
  REDUNDANCY_LIST,
  LAST_HEARTBEATS,
  ATTRIBUTES,
};

static const struct {
  const char *name;
  uint32_t kind; /* PICKLE_UNSET: more than one */
} known[ATTRIBUTES] = {
    [ROUND] = {"round", PICKLE_INT},
    [COMPLETE] = {"complete", PICKLE_BOOL},
    [DEADLINE] = {"deadline", PICKLE_UNSET},
    [CLOSED] = {"closed", PICKLE_BOOL},
    [PARTICIPANTS] = {"participants", PICKLE_DICT},
    [WAIT_LIST] = {"wait_list", PICKLE_SET},
    [REDUNDANCY_LIST] = {"redundancy_list", PICKLE_SET},
    [LAST_HEARTBEATS] = {"last_heartbeats", PICKLE_DICT},
};

struct reader {
  struct pickle_machine machine; /* failures are noted in it */
  const struct pickle_value *values[ATTRIBUTES];
  struct state_builder builder;
  struct pyvalue_budget budget;
  struct rendezvous_state state;
  bool addr, fqdn;   /* a node has it */
  bool naive, aware; /* a datetime is so */
};

/* ---- attributes that we do not know --------------------------------------------------------------------------- */

/* The kind that keeps it; PYVALUE_NONE for what is not plain. */
static enum pyvalue_kind plain_kind(uint32_t kind) {
  static const enum pyvalue_kind kinds[PICKLE_TIMEZONE + 1] = {
      [PICKLE_BOOL] = PYVALUE_BOOL,   [PICKLE_INT] = PYVALUE_INT,   [PICKLE_LONG] = PYVALUE_LONG,
      [PICKLE_FLOAT] = PYVALUE_FLOAT, [PICKLE_STR] = PYVALUE_STR,   [PICKLE_BYTES] = PYVALUE_BYTES,
      [PICKLE_TUPLE] = PYVALUE_TUPLE, [PICKLE_LIST] = PYVALUE_LIST, [PICKLE_SET] = PYVALUE_SET,
      [PICKLE_DICT] = PYVALUE_DICT,
  };
  return kinds[kind];
}

/* A memo can make a short pickle mean a value without end: so its size is counted as it unfolds. */
static bool spend(struct reader *reader, size_t count, size_t bytes, int depth) {
  struct pyvalue_budget *left = &reader->budget;
  if (depth > PYVALUE_MAX_DEPTH || count > left->count || bytes > left->bytes)
    return pickle_fail(&reader->machine, "it has over %d values or %d bytes, or is over %d deep", PYVALUE_MAX_COUNT,
                       PYVALUE_MAX_BYTES, PYVALUE_MAX_DEPTH);
  left->count -= count;
  left->bytes -= bytes;
  return true;
}

static bool keep(struct reader *reader, const struct pickle_value *from, int depth, struct pyvalue *to);

static bool keep_items(struct reader *reader, const struct pickle_value *from, int depth, struct pyvalue *to) {
  const bool tuple = from->kind == PICKLE_TUPLE;
  const size_t count = tuple ? from->len : from->items->count;
  if (!spend(reader, count, 0, depth)) return false;
  if (!pyvalue_make_items(to, plain_kind(from->kind), count)) return pickle_no_memory(&reader->machine);
  struct pickle_walk walk = {0};
  if (!tuple) walk = pickle_walk(from->items);
  const size_t step = to->kind == PYVALUE_DICT ? 2 : 1;
  for (size_t i = 0; i < count; i++) {
    if (!keep(reader, tuple ? &from->tuple[i] : pickle_next(&walk), depth + 1, &to->items[i])) return false;
    if (to->kind >= PYVALUE_SET && i % step == 0 && !pyvalue_is_hashable(&to->items[i]))
      return pickle_fail(&reader->machine, "a set or a key of a dict has a list, set or dict in it");
  }
  return true;
}

/* On failure *to is something to be freed. */
static bool keep(struct reader *reader, const struct pickle_value *from, int depth, struct pyvalue *to) {
  *to = (struct pyvalue){.kind = plain_kind(from->kind)};
  if (pyvalue_has_items(to->kind)) {
    to->kind = PYVALUE_NONE;
    return keep_items(reader, from, depth, to);
  }
  if (pyvalue_has_bytes(to->kind)) {
    const enum pyvalue_kind kind = to->kind;
    to->kind = PYVALUE_NONE;
    return spend(reader, 0, from->len, depth) &&
           (pyvalue_make_bytes(to, kind, pickle_bytes(from)) || pickle_no_memory(&reader->machine));
  }
  if (to->kind == PYVALUE_NONE && from->kind != PICKLE_NONE)
    return pickle_fail(&reader->machine, "%s is not a plain value", pickle_kind_name(from->kind));
  if (to->kind == PYVALUE_FLOAT)
    to->real = from->real;
  else if (to->kind == PYVALUE_BOOL)
    to->truth = from->number;
  else if (to->kind == PYVALUE_INT)
    to->number = from->number;
  return true;
}

static bool keep_attribute(struct reader *reader, rdzv_bytes name, const struct pickle_value *from) {
  if (name.len > PYVALUE_MAX_NAME || memchr(name.data, 0, name.len))
    return pickle_fail(&reader->machine, "'%s' is not the name of an attribute", bytes_quote(name).text);
  char text[PYVALUE_MAX_NAME + 1];
  bytes_copy(text, name.data, name.len);
  text[name.len] = '\0';
  struct pyvalue value;
  bool kept = keep(reader, from, 0, &value);
  if (!kept)
    error_prefix(reader->machine.error, reader->machine.code, "attribute '%s' cannot be kept", bytes_quote(name).text);
  if (kept && !pynames_set(&reader->state.extra, text, &value)) kept = pickle_no_memory(&reader->machine);
  if (!kept) pyvalue_free(&value);
  return kept;
}

/* ---- nodes -------------------------------------------------------------------------------------------------- */

static bool fail_item(struct reader *reader, enum attribute in, const struct pickle_value *value, const char *wanted) {
  return pickle_fail(&reader->machine, "in attribute '%s' is %s, not %s", known[in].name, pickle_kind_name(value->kind),
                     wanted);
}

static bool note_time(struct reader *reader, const struct pickle_value *value) {
  if (value->kind == PICKLE_AWARE)
    reader->aware = true;
  else
    reader->naive = true;
  return value->kind == PICKLE_AWARE || value->kind == PICKLE_NAIVE;
}

/* NULL: failed. */
static struct state_entry *add_node(struct reader *reader, enum attribute in, const struct pickle_value *value) {
  if (value->kind != PICKLE_NODE || !value->node->built) {
    fail_item(reader, in, value, "a _NodeDesc");
    return NULL;
  }
  const struct pickle_node *node = value->node;
  if (node->fqdn)
    reader->fqdn = true;
  else
    reader->addr = true;
  struct pickle_machine *machine = &reader->machine;
  return state_builder_add(&reader->builder, node->addr, node->pid, node->local_id, &machine->code, machine->error);
}

static bool add_set(struct reader *reader, enum attribute in, unsigned kind) {
  if (!reader->values[in]) return true;
  state_builder_begin(&reader->builder);
  struct pickle_walk walk = pickle_walk(reader->values[in]->items);
  for (const struct pickle_value *node; (node = pickle_next(&walk));) {
    struct state_entry *entry = add_node(reader, in, node);
    if (!entry) return false;
    entry->kinds |= kind;
  }
  return true;
}

static bool add_participants(struct reader *reader) {
  state_builder_begin(&reader->builder);
  struct pickle_walk walk = pickle_walk(reader->values[PARTICIPANTS]->items);
  for (const struct pickle_value *node, *rank; (node = pickle_next(&walk)) && (rank = pickle_next(&walk));) {
    struct state_entry *entry = add_node(reader, PARTICIPANTS, node);
    if (!entry) return false;
    if (rank->kind != PICKLE_INT) return fail_item(reader, PARTICIPANTS, rank, "an int of 64 bits");
    entry->kinds |= NODE_PARTICIPANT;
    entry->rank = rank->number;
  }
  return true;
}

static bool add_heartbeats(struct reader *reader) {
  state_builder_begin(&reader->builder);
  struct pickle_walk walk = pickle_walk(reader->values[LAST_HEARTBEATS]->items);
  for (const struct pickle_value *node, *time; (node = pickle_next(&walk)) && (time = pickle_next(&walk));) {
    struct state_entry *entry = add_node(reader, LAST_HEARTBEATS, node);
    if (!entry) return false;
    if (!note_time(reader, time)) return fail_item(reader, LAST_HEARTBEATS, time, "a datetime");
    entry->last_heartbeat = time->number;
    entry->ours = time->len != 0;
  }
  return true;
}

static bool add_nodes(struct reader *reader) {
  struct pickle_machine *machine = &reader->machine;
  if (!add_participants(reader) || !add_set(reader, WAIT_LIST, NODE_WAITING) ||
      !add_set(reader, REDUNDANCY_LIST, NODE_SPARE) || !add_heartbeats(reader))
    return false;
  machine->code = state_builder_finish(&reader->builder, &reader->state, machine->error);
  return machine->code == 0;
}

/* ---- the state ------------------------------------------------------------------------------------------------ */

static enum attribute attribute_of(rdzv_bytes name) {
  enum attribute i = 0;
  while (i < ATTRIBUTES && !bytes_equal(name, rdzv_str(known[i].name))) i++;
  return i;
}

static bool sort_attributes(struct reader *reader, const struct pickle_state *state) {
  struct pickle_walk walk = pickle_walk(&state->attributes);
  for (const struct pickle_value *name, *value; (name = pickle_next(&walk)) && (value = pickle_next(&walk));) {
    if (name->kind != PICKLE_STR)
      return pickle_fail(&reader->machine, "the name of an attribute is %s", pickle_kind_name(name->kind));
    const enum attribute attribute = attribute_of(pickle_bytes(name));
    if (attribute < ATTRIBUTES)
      reader->values[attribute] = value; /* what comes last holds, as in Python */
    else if (!keep_attribute(reader, pickle_bytes(name), value))
      return false;
  }
  return true;
}

static bool check_attributes(struct reader *reader) {
  for (enum attribute i = 0; i < ATTRIBUTES; i++) {
    const struct pickle_value *value = reader->values[i];
    if (!value && i != REDUNDANCY_LIST)
      return pickle_fail(&reader->machine, "attribute '%s' is missing", known[i].name);
    if (value && known[i].kind != PICKLE_UNSET && value->kind != known[i].kind)
      return pickle_fail(&reader->machine, "attribute '%s' is %s, not %s", known[i].name, pickle_kind_name(value->kind),
                         pickle_kind_name(known[i].kind));
  }
  return true;
}

static bool set_plain(struct reader *reader) {
  const struct pickle_value *const *values = reader->values;
  reader->state.round = values[ROUND]->number;
  reader->state.complete = values[COMPLETE]->number;
  reader->state.closed = values[CLOSED]->number;
  const struct pickle_value *deadline = values[DEADLINE];
  if (deadline->kind == PICKLE_NONE) return true;
  if (!note_time(reader, deadline))
    return pickle_fail(&reader->machine, "attribute 'deadline' is %s, not a datetime",
                       pickle_kind_name(deadline->kind));
  reader->state.deadline = deadline->number;
  return true;
}

/* A PyTorch that is given a nodeless state of another layout keeps the attributes that it does not know, so traits of
 * different layouts can meet; but those that meet in nodes or times would make every PyTorch fail. */
static bool find_layouts(struct reader *reader, struct torch_layouts *layouts) {
  const bool listed = reader->values[REDUNDANCY_LIST];
  if (reader->naive && reader->aware) return pickle_fail(&reader->machine, "some datetimes have a time zone, some not");
  if (reader->addr && reader->fqdn) return pickle_fail(&reader->machine, "some nodes have 'addr', some 'fqdn'");
  if (reader->fqdn && (reader->aware || reader->state.num_spares > 0))
    return pickle_fail(&reader->machine, "its nodes are of PyTorch 1.13, the rest is not");
  if (reader->fqdn)
    *layouts = (struct torch_layouts){TORCH_1_13, TORCH_1_13};
  else if (reader->aware)
    *layouts = (struct torch_layouts){TORCH_2_6, TORCH_2_6};
  else if (listed)
    *layouts = (struct torch_layouts){TORCH_2_3, reader->naive ? TORCH_2_3 : TORCH_2_6};
  else
    *layouts = (struct torch_layouts){reader->addr ? TORCH_2_0 : TORCH_1_13, TORCH_2_0};
  return true;
}

static bool make_state(struct reader *reader, const struct pickle_value *result, struct torch_layouts *layouts) {
  if (result->kind != PICKLE_STATE || !result->state->built)
    return pickle_fail(&reader->machine, "it is %s, not a _RendezvousState", pickle_kind_name(result->kind));
  return sort_attributes(reader, result->state) && check_attributes(reader) && set_plain(reader) && add_nodes(reader) &&
         find_layouts(reader, layouts);
}

int pickle_read(rdzv_bytes pickle, struct rendezvous_state *state, struct torch_layouts *layouts, rdzv_error *error) {
  struct reader reader = {.machine = {.data = pickle.data, .len = pickle.len, .error = error},
                          .budget = PYVALUE_BUDGET,
                          .state = STATE_EMPTY};
  struct torch_layouts found;
  struct pickle_value result;
  const bool ran = pickle_run(&reader.machine, &result);
  if (!ran) error_prefix(error, reader.machine.code, "at byte %zu", reader.machine.at);
  const bool read = ran && make_state(&reader, &result, &found);
  if (read) {
    *state = reader.state;
    *layouts = found;
  } else {
    error_prefix(error, reader.machine.code, "cannot read the rendezvous state");
    state_free(&reader.state);
  }
  state_builder_free(&reader.builder);
  pickle_machine_free(&reader.machine);
  return read ? 0 : reader.machine.code;
}
