/* SPDX-License-Identifier: BSD-3-Clause */
#include "value_json.h"

#include "base/buf.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

/* ---- writing -------------------------------------------------------------------------------------------------- */

/* {"$name": value}; takes the value, which may be NULL, over. */
static json_t *tagged(const char *name, json_t *value) {
  json_t *object = json_object();
  if (json_object_set_new(object, name, value) == 0) return object;
  json_decref(object);
  return NULL;
}

static json_t *hex(const struct pyvalue *value) {
  static const char digits[] = "0123456789abcdef";
  char *text = malloc(2 * value->count + 1);
  if (!text) return NULL;
  for (size_t i = 0; i < value->count; i++) {
    text[2 * i] = digits[value->bytes[i] >> 4];
    text[2 * i + 1] = digits[value->bytes[i] & 15];
  }
  json_t *json = json_stringn_nocheck(text, 2 * value->count);
  free(text);
  return json;
}

static json_t *write_float(double real) {
  if (isnan(real)) return tagged("$float", json_string("nan"));
  if (isinf(real)) return tagged("$float", json_string(real > 0 ? "inf" : "-inf"));
  return json_real(real);
}

static json_t *write_list(const struct pyvalue *items, size_t count) {
  json_t *array = json_array();
  for (size_t i = 0; array && i < count; i++)
    if (json_array_append_new(array, value_json_write(&items[i])) < 0) {
      json_decref(array);
      return NULL;
    }
  return array;
}

static json_t *write_pairs(const struct pyvalue *dict) {
  json_t *array = json_array();
  for (size_t i = 0; array && i < dict->count; i += 2)
    if (json_array_append_new(array, write_list(&dict->items[i], 2)) < 0) {
      json_decref(array);
      return NULL;
    }
  return array;
}

static bool is_member_name(const struct pyvalue *key) {
  return key->kind == PYVALUE_STR && (key->count == 0 || (key->bytes[0] != '$' && !memchr(key->bytes, 0, key->count)));
}

static json_t *write_dict(const struct pyvalue *dict) {
  for (size_t i = 0; i < dict->count; i += 2)
    if (!is_member_name(&dict->items[i])) return tagged("$dict", write_pairs(dict));
  json_t *object = json_object();
  for (size_t i = 0; object && i < dict->count; i += 2)
    if (json_object_set_new_nocheck(object, (const char *)dict->items[i].bytes, value_json_write(&dict->items[i + 1])) <
        0) {
      json_decref(object);
      return NULL;
    }
  return object;
}

json_t *value_json_write(const struct pyvalue *value) {
  switch (value->kind) {
    case PYVALUE_NONE: return json_null();
    case PYVALUE_BOOL: return json_boolean(value->truth);
    case PYVALUE_INT: return json_integer(value->number);
    case PYVALUE_LONG: return tagged("$long", hex(value));
    case PYVALUE_FLOAT: return write_float(value->real);
    case PYVALUE_STR: return json_stringn_nocheck((const char *)value->bytes, value->count);
    case PYVALUE_BYTES: return tagged("$bytes", hex(value));
    case PYVALUE_TUPLE: return tagged("$tuple", write_list(value->items, value->count));
    case PYVALUE_LIST: return write_list(value->items, value->count);
    case PYVALUE_SET: return tagged("$set", write_list(value->items, value->count));
    case PYVALUE_DICT: return write_dict(value);
  }
  return NULL;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

struct reader {
  struct pyvalue_budget *budget;
  rdzv_error *error;
};

static int bad(const struct reader *reader, const char *why) {
  return error_set(reader->error, RDZV_E_CORRUPT, "%s", why);
}

static int spend(const struct reader *reader, size_t count, size_t bytes, int depth) {
  if (depth > PYVALUE_MAX_DEPTH || count > reader->budget->count || bytes > reader->budget->bytes)
    return error_set(reader->error, RDZV_E_CORRUPT, "it has over %d values or %d bytes, or is over %d deep",
                     PYVALUE_MAX_COUNT, PYVALUE_MAX_BYTES, PYVALUE_MAX_DEPTH);
  reader->budget->count -= count;
  reader->budget->bytes -= bytes;
  return 0;
}

static int read_value(const struct reader *reader, const json_t *json, int depth, struct pyvalue *value);

static int make_items(const struct reader *reader, enum pyvalue_kind kind, size_t count, int depth,
                      struct pyvalue *value) {
  const int result = spend(reader, count, 0, depth);
  if (result < 0) return result;
  return pyvalue_make_items(value, kind, count) ? 0 : error_no_memory(reader->error);
}

static int make_bytes(const struct reader *reader, enum pyvalue_kind kind, rdzv_bytes bytes, struct pyvalue *value) {
  const int result = spend(reader, 0, bytes.len, 0);
  if (result < 0) return result;
  return pyvalue_make_bytes(value, kind, bytes) ? 0 : error_no_memory(reader->error);
}

static int read_list(const struct reader *reader, const json_t *json, enum pyvalue_kind kind, int depth,
                     struct pyvalue *value) {
  if (!json_is_array(json)) return bad(reader, "a list is none");
  int result = make_items(reader, kind, json_array_size(json), depth, value);
  for (size_t i = 0; result == 0 && i < value->count; i++) {
    result = read_value(reader, json_array_get(json, i), depth + 1, &value->items[i]);
    if (result == 0 && kind == PYVALUE_SET && !pyvalue_is_hashable(&value->items[i]))
      result = bad(reader, "a set has a list, set or dict in it");
  }
  return result;
}

static int read_pairs(const struct reader *reader, const json_t *json, int depth, struct pyvalue *value) {
  if (!json_is_array(json)) return bad(reader, "the pairs of a dict are no list");
  int result = make_items(reader, PYVALUE_DICT, 2 * json_array_size(json), depth, value);
  for (size_t i = 0; result == 0 && i < value->count; i += 2) {
    const json_t *pair = json_array_get(json, i / 2);
    if (json_array_size(pair) != 2) return bad(reader, "a pair of a dict is none");
    result = read_value(reader, json_array_get(pair, 0), depth + 1, &value->items[i]);
    if (result == 0) result = read_value(reader, json_array_get(pair, 1), depth + 1, &value->items[i + 1]);
    if (result == 0 && !pyvalue_is_hashable(&value->items[i]))
      result = bad(reader, "a key of a dict has a list, set or dict in it");
  }
  return result;
}

static int read_object(const struct reader *reader, json_t *json, int depth, struct pyvalue *value) {
  int result = make_items(reader, PYVALUE_DICT, 2 * json_object_size(json), depth, value);
  const char *name;
  json_t *member;
  size_t i = 0;
  json_object_foreach(json, name, member) {
    if (result == 0 && name[0] == '$') result = bad(reader, "a name begins with '$' and means nothing");
    if (result == 0) result = make_bytes(reader, PYVALUE_STR, rdzv_str(name), &value->items[i++]);
    if (result == 0) result = read_value(reader, member, depth + 1, &value->items[i++]);
  }
  return result;
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static int read_hex(const struct reader *reader, const json_t *json, enum pyvalue_kind kind, struct pyvalue *value) {
  const size_t len = json_string_length(json); /* 0 for what is no string */
  const char *text = json_string_value(json);
  if (!text || len % 2 != 0) return bad(reader, "bytes are not pairs of hexadecimal digits");
  const int result = make_bytes(reader, kind, (rdzv_bytes){text, len / 2}, value);
  if (result < 0) return result;
  for (size_t i = 0; i < value->count; i++) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return bad(reader, "bytes are not pairs of hexadecimal digits");
    value->bytes[i] = (uint8_t)(high << 4 | low);
  }
  return 0;
}

static int read_long(const struct reader *reader, const json_t *json, struct pyvalue *value) {
  const int result = read_hex(reader, json, PYVALUE_LONG, value);
  if (result < 0) return result;
  rdzv_bytes bytes = {value->bytes, value->count};
  int64_t number;
  if (pyint_load(&bytes, &number)) {
    pyvalue_free(value);
    *value = (struct pyvalue){.kind = PYVALUE_INT, .number = number};
  } else {
    value->count = bytes.len;
  }
  return 0;
}

static int read_float(const struct reader *reader, const json_t *json, struct pyvalue *value) {
  const char *text = json_is_string(json) ? json_string_value(json) : "";
  const bool nan = strcmp(text, "nan") == 0, minus = strcmp(text, "-inf") == 0;
  if (!nan && !minus && strcmp(text, "inf") != 0) return bad(reader, "a float is neither 'nan' nor 'inf' nor '-inf'");
  *value = (struct pyvalue){.kind = PYVALUE_FLOAT, .real = nan ? NAN : minus ? -INFINITY : INFINITY};
  return 0;
}

static int read_tagged(const struct reader *reader, json_t *json, int depth, struct pyvalue *value) {
  const json_t *inner;
  if ((inner = json_object_get(json, "$tuple"))) return read_list(reader, inner, PYVALUE_TUPLE, depth, value);
  if ((inner = json_object_get(json, "$set"))) return read_list(reader, inner, PYVALUE_SET, depth, value);
  if ((inner = json_object_get(json, "$dict"))) return read_pairs(reader, inner, depth, value);
  if ((inner = json_object_get(json, "$bytes"))) return read_hex(reader, inner, PYVALUE_BYTES, value);
  if ((inner = json_object_get(json, "$long"))) return read_long(reader, inner, value);
  if ((inner = json_object_get(json, "$float"))) return read_float(reader, inner, value);
  return read_object(reader, json, depth, value);
}

/* On failure *value is something to be freed. */
static int read_value(const struct reader *reader, const json_t *json, int depth, struct pyvalue *value) {
  *value = (struct pyvalue){0};
  switch (json_typeof(json)) {
    case JSON_NULL: return 0;
    case JSON_TRUE: *value = (struct pyvalue){.kind = PYVALUE_BOOL, .truth = true}; return 0;
    case JSON_FALSE: *value = (struct pyvalue){.kind = PYVALUE_BOOL}; return 0;
    case JSON_INTEGER: *value = (struct pyvalue){.kind = PYVALUE_INT, .number = json_integer_value(json)}; return 0;
    case JSON_REAL: *value = (struct pyvalue){.kind = PYVALUE_FLOAT, .real = json_real_value(json)}; return 0;
    case JSON_STRING:
      return make_bytes(reader, PYVALUE_STR, (rdzv_bytes){json_string_value(json), json_string_length(json)}, value);
    case JSON_ARRAY: return read_list(reader, json, PYVALUE_LIST, depth, value);
    case JSON_OBJECT: break;
  }
  json_t *object = (json_t *)json; /* jansson walks objects by pointers that are not const */
  return json_object_size(object) == 1 ? read_tagged(reader, object, depth, value)
                                       : read_object(reader, object, depth, value);
}

int value_json_read(const json_t *json, struct pyvalue_budget *budget, struct pyvalue *value, rdzv_error *error) {
  const struct reader reader = {budget, error};
  const int result = read_value(&reader, json, 0, value);
  if (result < 0) pyvalue_free(value);
  return result;
}
