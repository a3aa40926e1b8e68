/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/class.h"

#include "base/buf.h"
#include "base/text/utf8.h"
#include "state/pickle/datetime.h"
#include "state/pickle/op.h"

enum pickle_global {
  GLOBAL_STATE,
  GLOBAL_NODE,
  GLOBAL_DATETIME,
  GLOBAL_TIMEZONE,
  GLOBAL_TIMEDELTA,
  GLOBAL_SET,
  GLOBAL_BYTES,
  GLOBAL_ENCODE
};

/* Protocol 2 has no opcodes for sets and bytes and calls these instead; it also has Python 2's name of builtins. */
static const struct {
  const char *module, *name;
  enum pickle_global global;
} globals[] = {
    {PICKLE_TORCH_MODULE, PICKLE_STATE_CLASS, GLOBAL_STATE},
    {PICKLE_TORCH_MODULE, PICKLE_NODE_CLASS, GLOBAL_NODE},
    {"datetime", "datetime", GLOBAL_DATETIME},
    {"datetime", "timezone", GLOBAL_TIMEZONE},
    {"datetime", "timedelta", GLOBAL_TIMEDELTA},
    {"builtins", "set", GLOBAL_SET},
    {"__builtin__", "set", GLOBAL_SET},
    {"builtins", "bytes", GLOBAL_BYTES},
    {"__builtin__", "bytes", GLOBAL_BYTES},
    {"_codecs", "encode", GLOBAL_ENCODE},
};

bool pickle_global(struct pickle_machine *machine, rdzv_bytes module, rdzv_bytes name, struct pickle_value *result) {
  for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
    if (!bytes_equal(name, rdzv_str(globals[i].name)) || !bytes_equal(module, rdzv_str(globals[i].module))) continue;
    *result = (struct pickle_value){.kind = PICKLE_GLOBAL, .number = globals[i].global};
    return true;
  }
  return pickle_fail(machine, "it asks for '%s.%s', which is not part of a rendezvous state and is not run",
                     bytes_quote(module).text, bytes_quote(name).text);
}

bool pickle_newobj(struct pickle_machine *machine, struct pickle_value class_, struct pickle_value arguments,
                   struct pickle_value *result) {
  const bool state = class_.kind == PICKLE_GLOBAL && class_.number == GLOBAL_STATE;
  const bool node = class_.kind == PICKLE_GLOBAL && class_.number == GLOBAL_NODE;
  if ((!state && !node) || arguments.kind != PICKLE_TUPLE || arguments.len != 0)
    return pickle_fail(machine, "no object can be made this way");
  void *object = pickle_alloc(machine, state ? sizeof(struct pickle_state) : sizeof(struct pickle_node));
  if (!object) return false;
  if (state) {
    *result = (struct pickle_value){.kind = PICKLE_STATE, .state = object};
    *result->state = (struct pickle_state){0};
  } else {
    *result = (struct pickle_value){.kind = PICKLE_NODE, .node = object};
    *result->node = (struct pickle_node){0};
  }
  return true;
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

typedef bool pickle_call(struct pickle_machine *machine, const struct pickle_value *arguments, size_t count,
                         struct pickle_value *result);

static bool call_datetime(struct pickle_machine *machine, const struct pickle_value *arguments, size_t count,
                          struct pickle_value *result) {
  if (count < 1 || count > 2 || arguments[0].kind != PICKLE_BYTES || arguments[0].len != DATETIME_PACKED)
    return pickle_fail(machine, "a datetime is not made of %d bytes", DATETIME_PACKED);
  if (count == 2 && arguments[1].kind != PICKLE_TIMEZONE)
    return pickle_fail(machine, "the time zone of a datetime is %s", pickle_kind_name(arguments[1].kind));
  *result =
      (struct pickle_value){.kind = count == 2 ? PICKLE_AWARE : PICKLE_NAIVE, .len = datetime_fold(arguments[0].bytes)};
  return datetime_unpack(arguments[0].bytes, &result->number) ||
         pickle_fail(machine, "the bytes '%s' are not a datetime", bytes_quote(pickle_bytes(&arguments[0])).text);
}

static bool call_timezone(struct pickle_machine *machine, const struct pickle_value *arguments, size_t count,
                          struct pickle_value *result) {
  if (count != 1 || arguments[0].kind != PICKLE_TIMEDELTA)
    return pickle_fail(machine, "a time zone is not made of one timedelta");
  *result = (struct pickle_value){.kind = PICKLE_TIMEZONE};
  return true;
}

static bool call_timedelta(struct pickle_machine *machine, const struct pickle_value *arguments, size_t count,
                           struct pickle_value *result) {
  bool zero = count == 3; /* days, seconds, microseconds */
  for (size_t i = 0; zero && i < count; i++) zero = arguments[i].kind == PICKLE_INT && arguments[i].number == 0;
  if (!zero) return pickle_fail(machine, "a timedelta is not 0: times are in UTC");
  *result = (struct pickle_value){.kind = PICKLE_TIMEDELTA};
  return true;
}

/* The items are copied, so that the list can go on growing; the memory that all objects may need bounds the copies. */
static bool call_set(struct pickle_machine *machine, const struct pickle_value *arguments, size_t count,
                     struct pickle_value *result) {
  if (count != 1 || arguments[0].kind != PICKLE_LIST) return pickle_fail(machine, "a set is not made of one list");
  struct pickle_items *items = pickle_alloc(machine, sizeof *items);
  if (!items) return false;
  *items = (struct pickle_items){0};
  const struct pickle_items *list = arguments[0].items;
  for (const struct pickle_chunk *chunk = list->first; chunk; chunk = chunk->next)
    if (!pickle_extend(machine, items, chunk->values, chunk->count)) return false;
  *result = (struct pickle_value){.kind = PICKLE_SET, .items = items};
  return true;
}

static bool call_bytes(struct pickle_machine *machine, const struct pickle_value *arguments, size_t count,
                       struct pickle_value *result) {
  (void)arguments;
  if (count != 0) return pickle_fail(machine, "the bytes constructor has arguments");
  *result = (struct pickle_value){.kind = PICKLE_BYTES, .bytes = (const uint8_t *)""};
  return true;
}

/* encode(text, "latin1"): each character is the byte of its number. */
static bool call_encode(struct pickle_machine *machine, const struct pickle_value *arguments, size_t count,
                        struct pickle_value *result) {
  const bool known = count == 2 && arguments[0].kind == PICKLE_STR && arguments[1].kind == PICKLE_STR &&
                     bytes_equal(pickle_bytes(&arguments[1]), rdzv_str("latin1"));
  if (!known) return pickle_fail(machine, "bytes are not encoded as latin1");
  rdzv_bytes text = pickle_bytes(&arguments[0]);
  uint8_t *bytes = pickle_alloc(machine, text.len + 1);
  if (!bytes) return false;
  uint32_t len = 0;
  while (text.len > 0) {
    const uint32_t point = utf8_next(&text);
    if (point > 0xff) return pickle_fail(machine, "bytes that are encoded as latin1 have a character outside latin1");
    bytes[len++] = (uint8_t)point;
  }
  *result = (struct pickle_value){.kind = PICKLE_BYTES, .len = len, .bytes = bytes};
  return true;
}

bool pickle_reduce(struct pickle_machine *machine, struct pickle_value callable, struct pickle_value arguments,
                   struct pickle_value *result) {
  static pickle_call *const calls[] = {
      [GLOBAL_DATETIME] = call_datetime, [GLOBAL_TIMEZONE] = call_timezone, [GLOBAL_TIMEDELTA] = call_timedelta,
      [GLOBAL_SET] = call_set,           [GLOBAL_BYTES] = call_bytes,       [GLOBAL_ENCODE] = call_encode,
  };
  if (callable.kind != PICKLE_GLOBAL || arguments.kind != PICKLE_TUPLE || !calls[callable.number])
    return pickle_fail(machine, "%s is called with %s", pickle_kind_name(callable.kind),
                       pickle_kind_name(arguments.kind));
  return calls[callable.number](machine, arguments.tuple, arguments.len, result);
}

/* ---- attributes ----------------------------------------------------------------------------------------------- */

static bool set_addr(struct pickle_machine *machine, struct pickle_node *node, rdzv_bytes name,
                     const struct pickle_value *value) {
  if (value->kind != PICKLE_STR)
    return pickle_fail(machine, "attribute '%s' of a node is %s, not a str", bytes_quote(name).text,
                       pickle_kind_name(value->kind));
  node->addr = pickle_bytes(value);
  return true;
}

static bool set_number(struct pickle_machine *machine, int64_t *number, rdzv_bytes name,
                       const struct pickle_value *value) {
  if (value->kind != PICKLE_INT)
    return pickle_fail(machine, "attribute '%s' of a node is %s, not an int of 64 bits", bytes_quote(name).text,
                       pickle_kind_name(value->kind));
  *number = value->number;
  return true;
}

/* Nodes are compared by all their attributes: to take one that has another for one that has not would be wrong. */
static bool build_node(struct pickle_machine *machine, struct pickle_node *node,
                       const struct pickle_items *attributes) {
  enum { ADDR = 1, FQDN = 2, PID = 4, LOCAL_ID = 8 };
  unsigned seen = 0;
  struct pickle_walk walk = pickle_walk(attributes);
  for (const struct pickle_value *key, *value; (key = pickle_next(&walk)) && (value = pickle_next(&walk));) {
    const rdzv_bytes name = key->kind == PICKLE_STR ? pickle_bytes(key) : rdzv_str("");
    const unsigned is = bytes_equal(name, rdzv_str("addr"))       ? ADDR
                        : bytes_equal(name, rdzv_str("fqdn"))     ? FQDN
                        : bytes_equal(name, rdzv_str("pid"))      ? PID
                        : bytes_equal(name, rdzv_str("local_id")) ? LOCAL_ID
                                                                  : 0;
    if (is == 0)
      return pickle_fail(machine, "a node has the attribute '%s', which no known PyTorch has", bytes_quote(name).text);
    const bool set = is & (ADDR | FQDN) ? set_addr(machine, node, name, value)
                                        : set_number(machine, is == PID ? &node->pid : &node->local_id, name, value);
    if (!set) return false;
    seen |= is;
  }
  if (seen != (ADDR | PID | LOCAL_ID) && seen != (FQDN | PID | LOCAL_ID))
    return pickle_fail(machine, "unexpected attributes of a node (not 'addr' or 'fqdn', 'pid' and 'local_id')");
  node->fqdn = seen & FQDN;
  node->built = true;
  return true;
}

static bool build_state(struct pickle_machine *machine, struct pickle_state *state,
                        const struct pickle_items *attributes) {
  state->built = true;
  for (const struct pickle_chunk *chunk = attributes->first; chunk; chunk = chunk->next)
    if (!pickle_extend(machine, &state->attributes, chunk->values, chunk->count)) return false;
  return true;
}

bool pickle_build(struct pickle_machine *machine, struct pickle_value object, struct pickle_value attributes) {
  const bool state = object.kind == PICKLE_STATE && !object.state->built;
  const bool node = object.kind == PICKLE_NODE && !object.node->built;
  if (!state && !node) return pickle_fail(machine, "%s gets attributes", pickle_kind_name(object.kind));
  if (attributes.kind != PICKLE_DICT)
    return pickle_fail(machine, "the attributes of an object are %s, not a dict", pickle_kind_name(attributes.kind));
  if (attributes.items->count / 2 > PICKLE_MAX_ATTRIBUTES)
    return pickle_fail(machine, "an object has over %d attributes", PICKLE_MAX_ATTRIBUTES);
  return state ? build_state(machine, object.state, attributes.items)
               : build_node(machine, object.node, attributes.items);
}
