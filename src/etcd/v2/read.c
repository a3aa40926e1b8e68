/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/v2/read.h"

#include "base/error.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void free_node(struct etcd_node *node) {
  for (size_t i = 0; i < node->count; i++) free_node(&node->nodes[i]);
  free(node->nodes);
  free(node->key);
  free(node->value);
}

void etcd_result_free(struct etcd_result *result) {
  free_node(&result->node);
  *result = (struct etcd_result){0};
}

static int fail_read(const char *what, rdzv_error *error) {
  return error_set(error, RDZV_E_PROTOCOL, "cannot read etcd's answer: %s", what);
}

/* A number may be absent, and is not negative. */
static bool take_number(const json_t *object, const char *name, int64_t absent, int64_t *out) {
  const json_t *value = json_object_get(object, name);
  *out = value ? (int64_t)json_integer_value(value) : absent;
  return !value || (json_is_integer(value) && *out >= 0);
}

/* It is negative for a key that has expired but is not removed yet, as while there is no leader. */
static bool take_ttl(const json_t *object, int64_t *out) {
  const json_t *value = json_object_get(object, "ttl");
  const int64_t ttl = (int64_t)json_integer_value(value);
  *out = !value ? -1 : ttl > 0 ? ttl : 0;
  return !value || json_is_integer(value);
}

static bool take_text(const json_t *object, const char *name, char **out, bool *memory) {
  const json_t *value = json_object_get(object, name);
  if (value && !json_is_string(value)) return false;
  *out = strdup(value ? json_string_value(value) : "");
  *memory = *out != NULL;
  return *memory;
}

static int read_node(const json_t *object, int depth, struct etcd_node *out, rdzv_error *error);

static int read_children(const json_t *list, int depth, struct etcd_node *out, rdzv_error *error) {
  if (!json_is_array(list)) return fail_read("'nodes' is not a list", error);
  const size_t count = json_array_size(list);
  out->nodes = calloc(count + 1, sizeof *out->nodes);
  if (!out->nodes) return error_no_memory(error);
  for (size_t i = 0; i < count; i++) {
    out->count = i + 1;
    const int result = read_node(json_array_get(list, i), depth + 1, &out->nodes[i], error);
    if (result < 0) return result;
  }
  return 0;
}

/* What is read is in *out also on failure, to be freed. */
static int read_node(const json_t *object, int depth, struct etcd_node *out, rdzv_error *error) {
  int64_t created, modified;
  bool memory = true;
  if (!json_is_object(object)) return fail_read("a node is not an object", error);
  if (depth > ETCD_MAX_DEPTH) return fail_read("directories are nested too deeply", error);
  if (!take_text(object, "key", &out->key, &memory) || !take_text(object, "value", &out->value, &memory))
    return memory ? fail_read("a key or value is not a string", error) : error_no_memory(error);
  if (!take_number(object, "createdIndex", 0, &created) || !take_number(object, "modifiedIndex", 0, &modified) ||
      !take_ttl(object, &out->ttl))
    return fail_read("an index or a time is not a number", error);
  out->created = (uint64_t)created;
  out->modified = (uint64_t)modified;
  out->dir = json_is_true(json_object_get(object, "dir"));
  const json_t *children = json_object_get(object, "nodes");
  return children ? read_children(children, depth, out, error) : 0;
}

static json_t *parse(rdzv_bytes body, rdzv_error *error) {
  json_error_t reason;
  json_t *json = json_loadb(body.data ? body.data : "", body.len, 0, &reason);
  if (!json) error_set(error, RDZV_E_PROTOCOL, "etcd's answer is not JSON: %s", reason.text);
  if (json && !json_is_object(json)) {
    json_decref(json);
    fail_read("it is not an object", error);
    return NULL;
  }
  return json;
}

int etcd_v2_read(rdzv_bytes body, struct etcd_result *out, rdzv_error *error) {
  *out = (struct etcd_result){0};
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  const char *action = json_string_value(json_object_get(json, "action"));
  int result = action ? 0 : fail_read("it names no action", error);
  if (action) {
    strncpy(out->action, action, sizeof out->action - 1);
    result = read_node(json_object_get(json, "node"), 0, &out->node, error);
  }
  json_decref(json);
  if (result < 0) etcd_result_free(out);
  return result;
}

int etcd_v2_read_error(rdzv_bytes body, int *code, uint64_t *index, rdzv_error *error) {
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  int64_t number = 0, at = 0;
  const bool read =
      take_number(json, "errorCode", 0, &number) && take_number(json, "index", 0, &at) && number > 0 && number < 1000;
  const char *message = json_string_value(json_object_get(json, "message"));
  const char *cause = json_string_value(json_object_get(json, "cause"));
  if (read) {
    *code = (int)number;
    *index = (uint64_t)at;
    error_set(error, RDZV_E_PROTOCOL, "etcd says: %s (%s), error %d", message ? message : "", cause ? cause : "",
              *code);
  } else {
    fail_read("it is not an error of etcd", error);
  }
  json_decref(json);
  return read ? 0 : RDZV_E_PROTOCOL;
}
