/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/v3/read.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/text/base64.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces --------------------------------------------------------------------------------------------------- */

static int fail_read(const char *what, rdzv_error *error) {
  return error_set(error, RDZV_E_PROTOCOL, "cannot read etcd's answer: %s", what);
}

static json_t *parse(rdzv_bytes body, rdzv_error *error) {
  json_error_t reason;
  json_t *json = json_loadb(body.data ? body.data : "", body.len, JSON_DISABLE_EOF_CHECK, &reason);
  if (!json) error_set(error, RDZV_E_PROTOCOL, "etcd's answer is not JSON: %s", reason.text);
  if (json && !json_is_object(json)) {
    json_decref(json);
    fail_read("it is not an object", error);
    return NULL;
  }
  return json;
}

/* A number of 64 bits is a string; one that is 0 is not there. An unsigned one above the half is negative here. */
static bool take_number(const json_t *object, const char *name, int64_t *out) {
  const json_t *value = json_object_get(object, name);
  const char *text = json_string_value(value);
  char *end = NULL;
  *out = 0;
  if (!value) return true;
  if (json_is_integer(value)) return *out = (int64_t)json_integer_value(value), true;
  if (!text || !*text || strlen(text) > 20 || text[strspn(text, "-0123456789")]) return false;
  *out = *text == '-' ? (int64_t)strtoll(text, &end, 10) : (int64_t)strtoull(text, &end, 10);
  return *end == '\0';
}

static bool take_bytes(const json_t *object, const char *name, rdzv_value *out, bool *memory) {
  const json_t *value = json_object_get(object, name);
  bool valid = true;
  if (value && !json_is_string(value)) return false;
  const rdzv_bytes text = {value ? json_string_value(value) : "", value ? json_string_length(value) : 0};
  if (text.len == 0)
    *memory = value_copy(out, NULL, 0);
  else
    *memory = base64_decode_value(text, out, &valid);
  return *memory && valid;
}

static int64_t revision_of(const json_t *answer) {
  int64_t revision;
  return take_number(json_object_get(answer, "header"), "revision", &revision) ? revision : 0;
}

/* ---- keys ----------------------------------------------------------------------------------------------------- */

static void free_kv(struct etcd3_kv *kv) {
  rdzv_value_free(&kv->key);
  rdzv_value_free(&kv->value);
}

void etcd3_reply_free(struct etcd3_reply *reply) {
  for (size_t i = 0; i < reply->count; i++) {
    for (size_t k = 0; k < reply->results[i].kv_count; k++) free_kv(&reply->results[i].kvs[k]);
    free(reply->results[i].kvs);
  }
  free(reply->results);
  *reply = (struct etcd3_reply){0};
}

/* What is read is in *out also on failure, to be freed. */
static int read_kv(const json_t *object, struct etcd3_kv *out, rdzv_error *error) {
  bool memory = true;
  if (!json_is_object(object)) return fail_read("a key is not an object", error);
  if (!take_bytes(object, "key", &out->key, &memory) || !take_bytes(object, "value", &out->value, &memory))
    return memory ? fail_read("a key or value is not base64", error) : error_no_memory(error);
  if (!take_number(object, "create_revision", &out->create_revision) ||
      !take_number(object, "mod_revision", &out->mod_revision) || !take_number(object, "version", &out->version) ||
      !take_number(object, "lease", &out->lease))
    return fail_read("a revision is not a number", error);
  return 0;
}

static int read_kvs(const json_t *list, struct etcd3_result *out, rdzv_error *error) {
  if (!list) return 0;
  if (!json_is_array(list)) return fail_read("the keys are not a list", error);
  const size_t count = json_array_size(list);
  out->kvs = calloc(count + 1, sizeof *out->kvs);
  if (!out->kvs) return error_no_memory(error);
  for (size_t i = 0; i < count; i++) {
    out->kv_count = i + 1;
    const int result = read_kv(json_array_get(list, i), &out->kvs[i], error);
    if (result < 0) return result;
  }
  return 0;
}

static int read_result(const json_t *object, enum etcd3_op_kind kind, struct etcd3_result *out, rdzv_error *error) {
  out->kind = kind;
  out->more = json_is_true(json_object_get(object, "more"));
  if (!json_is_object(object)) return fail_read("a result is not an object", error);
  if (!take_number(object, kind == ETCD3_OP_DELETE ? "deleted" : "count", &out->count) || out->count < 0)
    return fail_read("a count is not a number", error);
  if (kind == ETCD3_OP_PUT) return 0;
  return read_kvs(json_object_get(object, kind == ETCD3_OP_RANGE ? "kvs" : "prev_kvs"), out, error);
}

static int read_response(const json_t *object, struct etcd3_result *out, rdzv_error *error) {
  static const char *const names[] = {[ETCD3_OP_RANGE] = "response_range",
                                      [ETCD3_OP_PUT] = "response_put",
                                      [ETCD3_OP_DELETE] = "response_delete_range"};
  for (int kind = ETCD3_OP_RANGE; kind <= ETCD3_OP_DELETE; kind++) {
    const json_t *response = json_object_get(object, names[kind]);
    if (response) return read_result(response, (enum etcd3_op_kind)kind, out, error);
  }
  return fail_read("a response is of no known kind", error);
}

static int end_reply(int result, json_t *json, struct etcd3_reply *reply) {
  json_decref(json);
  if (result < 0) etcd3_reply_free(reply);
  return result;
}

static bool room_for(struct etcd3_reply *reply, size_t count) {
  reply->results = calloc(count + 1, sizeof *reply->results);
  reply->count = reply->results ? count : 0;
  return reply->results;
}

int etcd3_read_result(rdzv_bytes body, enum etcd3_op_kind kind, struct etcd3_reply *reply, rdzv_error *error) {
  *reply = (struct etcd3_reply){0};
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  reply->revision = revision_of(json);
  reply->succeeded = true;
  if (!room_for(reply, 1)) return end_reply(error_no_memory(error), json, reply);
  return end_reply(read_result(json, kind, &reply->results[0], error), json, reply);
}

int etcd3_read_txn(rdzv_bytes body, struct etcd3_reply *reply, rdzv_error *error) {
  *reply = (struct etcd3_reply){0};
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  const json_t *responses = json_object_get(json, "responses");
  reply->revision = revision_of(json);
  reply->succeeded = json_is_true(json_object_get(json, "succeeded"));
  if (responses && !json_is_array(responses))
    return end_reply(fail_read("the responses are not a list", error), json, reply);
  const size_t count = json_array_size(responses);
  int result = count > ETCD3_MAX_OPS     ? fail_read("there are too many responses", error)
               : !room_for(reply, count) ? error_no_memory(error)
                                         : 0;
  for (size_t i = 0; i < count && result == 0; i++)
    result = read_response(json_array_get(responses, i), &reply->results[i], error);
  return end_reply(result, json, reply);
}

/* ---- leases --------------------------------------------------------------------------------------------------- */

/* Of a stream: what the message holds. */
static const json_t *inner(const json_t *json) {
  const json_t *result = json_object_get(json, "result");
  return result ? result : json;
}

int etcd3_read_lease(rdzv_bytes body, struct etcd3_lease *lease, rdzv_error *error) {
  *lease = (struct etcd3_lease){0};
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  const json_t *answer = inner(json);
  const bool read = take_number(answer, "ID", &lease->id) && take_number(answer, "TTL", &lease->ttl_s) &&
                    take_number(answer, "grantedTTL", &lease->granted_s) && lease->id != 0;
  json_decref(json);
  if (read) return 0;
  *lease = (struct etcd3_lease){0};
  return fail_read("it is not about a lease", error);
}

/* ---- watches -------------------------------------------------------------------------------------------------- */

void etcd3_events_free(struct etcd3_events *events) {
  for (size_t i = 0; i < events->count; i++) free_kv(&events->list[i].kv);
  free(events->list);
  *events = (struct etcd3_events){0};
}

void etcd3_message_free(struct etcd3_message *message) {
  etcd3_events_free(&message->events);
  *message = (struct etcd3_message){0};
}

/* What a key was that is gone. */
static int read_before(const json_t *object, struct etcd3_kv *kv, rdzv_error *error) {
  struct etcd3_kv before = {0};
  const int result = read_kv(object, &before, error);
  if (result == 0) {
    before.mod_revision = kv->mod_revision;
    const struct etcd3_kv now = *kv;
    *kv = before;
    before = now;
  }
  free_kv(&before);
  return result;
}

static int read_event(const json_t *object, struct etcd3_event *out, rdzv_error *error) {
  const json_t *type = json_object_get(object, "type");
  const char *name = json_string_value(type);
  out->deleted = (name && strcmp(name, "DELETE") == 0) || json_integer_value(type) == 1;
  const int result = read_kv(json_object_get(object, "kv"), &out->kv, error);
  const json_t *before = json_object_get(object, "prev_kv");
  return result < 0 || !out->deleted || !before ? result : read_before(before, &out->kv, error);
}

static int read_events(const json_t *list, struct etcd3_events *out, rdzv_error *error) {
  if (!list) return 0;
  if (!json_is_array(list)) return fail_read("the events are not a list", error);
  const size_t count = json_array_size(list);
  out->list = calloc(count + 1, sizeof *out->list);
  if (!out->list) return error_no_memory(error);
  for (size_t i = 0; i < count; i++) {
    out->count = i + 1;
    const int result = read_event(json_array_get(list, i), &out->list[i], error);
    if (result < 0) return result;
  }
  return 0;
}

int etcd3_read_message(rdzv_bytes line, struct etcd3_message *message, rdzv_error *error) {
  *message = (struct etcd3_message){0};
  json_t *json = parse(line, error);
  if (!json) return RDZV_E_PROTOCOL;
  const json_t *answer = json_object_get(json, "result");
  const char *reason = json_string_value(json_object_get(answer, "cancel_reason"));
  int result = json_is_object(answer) && take_number(answer, "watch_id", &message->id) &&
                       take_number(answer, "compact_revision", &message->compacted)
                   ? read_events(json_object_get(answer, "events"), &message->events, error)
                   : fail_read("it is not a watch message", error);
  message->revision = message->events.revision = revision_of(answer);
  message->created = json_is_true(json_object_get(answer, "created"));
  message->canceled = json_is_true(json_object_get(answer, "canceled"));
  snprintf(message->reason, sizeof message->reason, "%s", reason ? reason : "");
  json_decref(json);
  if (result < 0) etcd3_message_free(message);
  return result;
}

/* ---- the cluster ---------------------------------------------------------------------------------------------- */

/* Only etcd 3.5 and later reports alarms. */
static void take_alarms(const json_t *errors, struct etcd3_status *status) {
  for (size_t i = 0; i < json_array_size(errors); i++) {
    const char *text = json_string_value(json_array_get(errors, i));
    status->no_space = status->no_space || (text && strstr(text, "NOSPACE"));
    status->corrupt = status->corrupt || (text && strstr(text, "CORRUPT"));
  }
}

int etcd3_read_status(rdzv_bytes body, struct etcd3_status *status, rdzv_error *error) {
  *status = (struct etcd3_status){0};
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  const char *version = json_string_value(json_object_get(json, "version"));
  int64_t leader = 0;
  const bool read = version && take_number(json, "leader", &leader) && take_number(json, "dbSize", &status->db_size);
  snprintf(status->version, sizeof status->version, "%s", version ? version : "");
  status->leader = (uint64_t)leader;
  status->revision = revision_of(json);
  take_alarms(json_object_get(json, "errors"), status);
  json_decref(json);
  if (read) return 0;
  *status = (struct etcd3_status){0};
  return fail_read("it is not a status", error);
}

static bool add_urls(const json_t *urls, struct buf *list) {
  for (size_t i = 0; i < json_array_size(urls); i++) {
    const char *url = json_string_value(json_array_get(urls, i));
    if (!url) continue;
    if (!buf_append(list, ",", list->len > 0) || !buf_append(list, url, strlen(url))) return false;
  }
  return true;
}

int etcd3_read_members(rdzv_bytes body, char **list, rdzv_error *error) {
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  const json_t *members = json_object_get(json, "members");
  struct buf text = {0};
  bool memory = true;
  for (size_t i = 0; i < json_array_size(members) && memory; i++)
    memory = add_urls(json_object_get(json_array_get(members, i), "clientURLs"), &text);
  const bool read = json_is_array(members);
  json_decref(json);
  if (read && memory && buf_append(&text, "", 1)) {
    *list = (char *)text.data;
    return 0;
  }
  buf_free(&text);
  return read ? error_no_memory(error) : fail_read("it lists no members", error);
}

int etcd3_read_token(rdzv_bytes body, char token[ETCD3_TOKEN_SIZE], rdzv_error *error) {
  json_t *json = parse(body, error);
  if (!json) return RDZV_E_PROTOCOL;
  const char *text = json_string_value(json_object_get(json, "token"));
  const size_t len = text ? strlen(text) : 0;
  const bool read = len > 0 && len < ETCD3_TOKEN_SIZE && strcspn(text, "\r\n") == len;
  if (read) memcpy(token, text, len + 1);
  json_decref(json);
  return read ? 0 : fail_read("it has no token", error);
}

uint64_t etcd3_read_cluster(rdzv_bytes body) {
  static const char name[] = "\"cluster_id\"";
  const char *at = body.len > 0 ? memmem(body.data, body.len, name, sizeof name - 1) : NULL;
  char digits[24];
  size_t count = 0;
  if (!at) return 0;
  const char *end = (const char *)body.data + body.len;
  for (at += sizeof name - 1; at < end && strchr(": \"", *at) && *at; at++) continue;
  for (; at < end && *at >= '0' && *at <= '9' && count < sizeof digits - 1; at++) digits[count++] = *at;
  digits[count] = '\0';
  return strtoull(digits, NULL, 10);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

/* By its words: the codes of gRPC are too few. */
static enum etcd3_refusal refusal_of(const char *text) {
  static const struct {
    const char *words;
    enum etcd3_refusal refusal;
  } known[] = {
      {"has been compacted", ETCD3_REFUSAL_COMPACTED},
      {"future revision", ETCD3_REFUSAL_FUTURE},
      {"lease not found", ETCD3_REFUSAL_LEASE_GONE},
      {"lease already exists", ETCD3_REFUSAL_LEASE_EXISTS},
      {"space exceeded", ETCD3_REFUSAL_NO_SPACE},
      {"corrupt", ETCD3_REFUSAL_CORRUPT},
      {"too large", ETCD3_REFUSAL_TOO_LARGE},
      {"larger than max", ETCD3_REFUSAL_TOO_LARGE},
      {"too many operations", ETCD3_REFUSAL_TOO_LARGE},
      {"permission denied", ETCD3_REFUSAL_NO_PERMISSION},
      {"user name is empty", ETCD3_REFUSAL_NO_USER},
      {"invalid user ID or password", ETCD3_REFUSAL_LOGIN},
      {"authentication is not enabled", ETCD3_REFUSAL_NO_AUTH},
      {"invalid auth token", ETCD3_REFUSAL_TOKEN},
      {"revision of auth store is old", ETCD3_REFUSAL_TOKEN},
      {"too many requests", ETCD3_REFUSAL_BUSY},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strstr(text, known[i].words)) return known[i].refusal;
  return ETCD3_REFUSAL_OTHER;
}

/* Of a call {"error": text, "message": text, "code": n}, since etcd 3.6 without the first; of a stream {"error":
 * {...}}.
 */
bool etcd3_read_error(rdzv_bytes body, struct etcd3_error *out) {
  rdzv_error unused;
  json_t *json = parse(body, &unused);
  const json_t *error = json_object_get(json, "error"), *within = json_is_object(error) ? error : json;
  const char *message = json_string_value(json_object_get(within, "message"));
  if (!message) message = json_string_value(error);
  *out = (struct etcd3_error){.refusal = message ? refusal_of(message) : ETCD3_REFUSAL_OTHER};
  snprintf(out->text, sizeof out->text, "%s", message ? message : "");
  json_decref(json);
  return message != NULL;
}
