/* SPDX-License-Identifier: BSD-3-Clause */
#include "state_json.h"

#include "base/error.h"
#include "datetime_text.h"
#include "state/pickle/build.h"
#include "value_json.h"

/* The lists, in the order they are written, and what a member of each is; the last is for those who are in no other. */
static const struct {
  const char *name;
  unsigned kind;
} lists[] = {{"participants", NODE_PARTICIPANT},
             {"wait_list", NODE_WAITING},
             {"redundancy_list", NODE_SPARE},
             {"last_heartbeats", 0}};
enum { LISTS = sizeof lists / sizeof lists[0] };

static const char *const others[] = {"round", "complete", "closed", "deadline"};

static bool is_known(const char *name) {
  for (size_t i = 0; i < LISTS; i++)
    if (strcmp(name, lists[i].name) == 0) return true;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (strcmp(name, others[i]) == 0) return true;
  return false;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

/* NULL: no memory. Times have been checked. */
static json_t *write_time(int64_t time) {
  char text[DATETIME_TEXT + 1];
  return datetime_format(time, text) ? json_stringn_nocheck(text, DATETIME_TEXT) : json_null();
}

static json_t *write_member(const struct state_node *member, unsigned kind) {
  json_t *node = json_object(), *object = json_object();
  int failed = json_object_set_new_nocheck(node, "addr", json_string_nocheck(member->desc.addr));
  failed |= json_object_set_new_nocheck(node, "pid", json_integer(member->desc.pid));
  failed |= json_object_set_new_nocheck(node, "local_id", json_integer(member->desc.local_id));
  failed |= json_object_set_new_nocheck(object, "node", node);
  if (kind == NODE_PARTICIPANT) failed |= json_object_set_new_nocheck(object, "rank", json_integer(member->rank));
  failed |= json_object_set_new_nocheck(object, "last_heartbeat", write_time(member->last_heartbeat));
  if (member->ours) failed |= json_object_set_new_nocheck(object, "ours", json_true());
  if (!failed) return object;
  json_decref(object);
  return NULL;
}

static bool is_listed(const struct state_node *member, unsigned kind) {
  return kind != 0 ? (member->kinds & kind) != 0 : member->kinds == 0 && member->last_heartbeat != DATETIME_NONE;
}

static json_t *write_list(const struct rendezvous_state *state, unsigned kind) {
  json_t *array = json_array();
  for (size_t i = 0; array && i < state->count; i++) {
    if (!is_listed(&state->nodes[i], kind)) continue;
    if (json_array_append_new(array, write_member(&state->nodes[i], kind)) == 0) continue;
    json_decref(array);
    return NULL;
  }
  return array;
}

static bool write_lists(const struct rendezvous_state *state, json_t *object) {
  for (size_t i = 0; i < LISTS; i++) {
    json_t *list = write_list(state, lists[i].kind);
    if (list && lists[i].kind == 0 && json_array_size(list) == 0)
      json_decref(list);
    else if (json_object_set_new_nocheck(object, lists[i].name, list) < 0)
      return false;
  }
  return true;
}

static bool write_object(const struct rendezvous_state *state, json_t *object) {
  int failed = json_object_set_new_nocheck(object, "round", json_integer(state->round));
  failed |= json_object_set_new_nocheck(object, "complete", json_boolean(state->complete));
  failed |= json_object_set_new_nocheck(object, "closed", json_boolean(state->closed));
  failed |= json_object_set_new_nocheck(object, "deadline", write_time(state->deadline));
  if (failed || !write_lists(state, object)) return false;
  for (size_t i = 0; i < state->extra.count; i++) {
    const struct pynamed *extra = &state->extra.items[i];
    if (json_object_set_new_nocheck(object, extra->name, value_json_write(&extra->value)) < 0) return false;
  }
  return true;
}

static bool is_time(int64_t time) { return time == DATETIME_NONE || (time >= DATETIME_MIN && time <= DATETIME_MAX); }

static bool has_times(const struct rendezvous_state *state) {
  bool fine = is_time(state->deadline);
  for (size_t i = 0; fine && i < state->count; i++) fine = is_time(state->nodes[i].last_heartbeat);
  return fine;
}

struct output {
  struct buf *buf;
  bool no_memory; /* jansson does not pass every failure on */
};

static int append(const char *data, size_t len, void *user) {
  struct output *output = user;
  if (!buf_append(output->buf, data, len)) output->no_memory = true;
  return output->no_memory ? -1 : 0;
}

int state_json_write(const struct rendezvous_state *state, struct buf *out, rdzv_error *error) {
  if (!has_times(state))
    return error_set(error, RDZV_E_INVALID,
                     "cannot write the rendezvous state: a time is before the year 1 or after 9999");
  const size_t before = out->len;
  struct output output = {.buf = out};
  json_t *object = json_object();
  const bool written =
      object && write_object(state, object) && json_dump_callback(object, append, &output, JSON_COMPACT) == 0;
  json_decref(object);
  const size_t len = out->len - before;
  if (written && !output.no_memory && len <= STATE_JSON_MAX_BYTES) return 0;
  out->len = before;
  if (!written || output.no_memory) return error_no_memory(error);
  return error_set(error, RDZV_E_LIMIT, "cannot write the rendezvous state: %zu bytes, over the limit of %d", len,
                   STATE_JSON_MAX_BYTES);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* The member of that name; NULL with the error set: it is missing or of another type. */
static const json_t *get(const json_t *object, const char *name, json_type type, rdzv_error *error) {
  const json_t *value = json_object_get(object, name);
  const bool fits = value && (json_typeof(value) == type || (type == JSON_TRUE && json_is_false(value)));
  if (fits) return value;
  error_set(error, RDZV_E_CORRUPT, value ? "'%s' is of another type" : "'%s' is missing", name);
  return NULL;
}

static int read_int(const json_t *object, const char *name, int64_t *number, rdzv_error *error) {
  const json_t *value = get(object, name, JSON_INTEGER, error);
  if (!value) return RDZV_E_CORRUPT;
  *number = json_integer_value(value);
  return 0;
}

static int read_bool(const json_t *object, const char *name, bool *truth, rdzv_error *error) {
  const json_t *value = get(object, name, JSON_TRUE, error);
  if (!value) return RDZV_E_CORRUPT;
  *truth = json_is_true(value);
  return 0;
}

static int read_time(const json_t *object, const char *name, int64_t *time, rdzv_error *error) {
  const json_t *value = json_object_get(object, name);
  if (json_is_null(value)) return 0;
  if (!json_is_string(value) || !datetime_parse(json_string_value(value), json_string_length(value), time))
    return error_set(error, RDZV_E_CORRUPT, "'%s' is neither null nor a time as \"2026-11-15T20:00:00.000000Z\"", name);
  return 0;
}

/* NULL: failed. */
static struct state_entry *read_node(const json_t *object, struct state_builder *builder, int *code,
                                     rdzv_error *error) {
  const json_t *node = get(object, "node", JSON_OBJECT, error);
  const json_t *addr = node ? get(node, "addr", JSON_STRING, error) : NULL;
  int64_t pid = 0, local_id = 0;
  *code = RDZV_E_CORRUPT;
  if (!addr || read_int(node, "pid", &pid, error) < 0 || read_int(node, "local_id", &local_id, error) < 0) return NULL;
  if (json_object_size(node) != 3) {
    error_set(error, RDZV_E_CORRUPT, "a node has more than 'addr', 'pid' and 'local_id'");
    return NULL;
  }
  const rdzv_bytes text = {json_string_value(addr), json_string_length(addr)};
  return state_builder_add(builder, text, pid, local_id, code, error);
}

/* A member has no place for what we do not know: rather than lose it, we refuse it. */
static int read_member(const json_t *object, unsigned kind, struct state_builder *builder, rdzv_error *error) {
  if (!json_is_object(object)) return error_set(error, RDZV_E_CORRUPT, "a member is no object");
  int result;
  struct state_entry *entry = read_node(object, builder, &result, error);
  if (!entry) return result;
  result = read_time(object, "last_heartbeat", &entry->last_heartbeat, error);
  if (result == 0 && kind == NODE_PARTICIPANT) result = read_int(object, "rank", &entry->rank, error);
  if (result < 0) return result;
  entry->kinds |= kind;
  const json_t *ours = json_object_get(object, "ours");
  entry->ours = json_is_true(ours);
  if (json_object_size(object) != (kind == NODE_PARTICIPANT ? 3u : 2u) + (ours != NULL))
    return error_set(error, RDZV_E_CORRUPT, "a member has more than 'node', 'last_heartbeat', 'ours' and its 'rank'");
  return 0;
}

static int read_lists(const json_t *object, struct state_builder *builder, rdzv_error *error) {
  for (size_t i = 0; i < LISTS; i++) {
    if (lists[i].kind == 0 && !json_object_get(object, lists[i].name)) continue;
    const json_t *list = get(object, lists[i].name, JSON_ARRAY, error);
    if (!list) return RDZV_E_CORRUPT;
    state_builder_begin(builder);
    for (size_t at = 0; at < json_array_size(list); at++) {
      const int result = read_member(json_array_get(list, at), lists[i].kind, builder, error);
      if (result < 0) return error_prefix(error, result, "'%s', entry %zu", lists[i].name, at);
    }
  }
  return 0;
}

static int read_extra(json_t *object, struct pynames *extra, rdzv_error *error) {
  struct pyvalue_budget budget = PYVALUE_BUDGET;
  const char *name;
  json_t *member;
  json_object_foreach(object, name, member) {
    if (is_known(name)) continue;
    if (extra->count >= PYVALUE_MAX_NAMES || strlen(name) > PYVALUE_MAX_NAME)
      return error_set(error, RDZV_E_CORRUPT, "over %d unknown members, or one's name has over %d bytes",
                       PYVALUE_MAX_NAMES, PYVALUE_MAX_NAME);
    struct pyvalue value;
    const int result = value_json_read(member, &budget, &value, error);
    if (result < 0) return error_prefix(error, result, "'%s' cannot be kept", bytes_quote(rdzv_str(name)).text);
    if (!pynames_set(extra, name, &value)) {
      pyvalue_free(&value);
      return error_no_memory(error);
    }
  }
  return 0;
}

static int read_object(json_t *object, struct state_builder *builder, struct rendezvous_state *state,
                       rdzv_error *error) {
  if (!json_is_object(object)) return error_set(error, RDZV_E_CORRUPT, "it is no JSON object");
  int result = read_int(object, "round", &state->round, error);
  if (result == 0) result = read_bool(object, "complete", &state->complete, error);
  if (result == 0) result = read_bool(object, "closed", &state->closed, error);
  if (result == 0) result = read_time(object, "deadline", &state->deadline, error);
  if (result == 0) result = read_lists(object, builder, error);
  if (result == 0) result = state_builder_finish(builder, state, error);
  return result < 0 ? result : read_extra(object, &state->extra, error);
}

static json_t *load(rdzv_bytes text, int *result, rdzv_error *error) {
  if (text.len > STATE_JSON_MAX_BYTES) {
    *result = error_set(error, RDZV_E_CORRUPT, "%zu bytes, over the limit of %d", text.len, STATE_JSON_MAX_BYTES);
    return NULL;
  }
  json_error_t why;
  const char *data = text.len > 0 ? text.data : "";
  json_t *json = json_loadb(data, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
  if (json) return json;
  /* jansson has a code for it, and does not always use it; but what is wrong with a text it says. */
  if (json_error_code(&why) == json_error_out_of_memory || why.text[0] == '\0')
    *result = error_no_memory(error);
  else
    *result = error_set(error, RDZV_E_CORRUPT, "it is no JSON: %s", why.text);
  return NULL;
}

int state_json_read(rdzv_bytes json, struct rendezvous_state *state, rdzv_error *error) {
  int result = 0;
  json_t *object = load(json, &result, error);
  struct state_builder builder = {0};
  struct rendezvous_state made = STATE_EMPTY;
  if (object) result = read_object(object, &builder, &made, error);
  state_builder_free(&builder);
  json_decref(object);
  if (result < 0) {
    state_free(&made);
    return error_prefix(error, result, "cannot read the rendezvous state");
  }
  *state = made;
  return 0;
}
