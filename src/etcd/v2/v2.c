/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/v2/v2.h"

#include "base/error.h"
#include "etcd/path.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  CUT_OFF_MS = 20, /* before the next try, where one was cut off */
  LOOK_BACK_MS = 3000,
};

bool etcd_v2_is_lost_race(int code) {
  return code == ETCD_V2_COMPARE_FAILED || code == ETCD_V2_EXISTS || code == ETCD_V2_NOT_FOUND;
}

int etcd_v2_unexpected(int code) {
  if (code <= 0) return code;
  return etcd_v2_is_lost_race(code) ? RDZV_E_STALE : RDZV_E_PROTOCOL;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

/* A form or a query that grows; once memory is out it stays so. */
struct form {
  struct buf text;
  bool failed;
};

static void add_text(struct form *form, const char *text) {
  form->failed = form->failed || !buf_append(&form->text, text, strlen(text));
}

static void add(struct form *form, const char *name, const char *value) {
  char *escaped = http_escape(rdzv_str(value));
  if (form->text.len > 0) add_text(form, "&");
  add_text(form, name);
  add_text(form, "=");
  if (escaped)
    add_text(form, escaped);
  else
    form->failed = true;
  free(escaped);
}

static void add_number(struct form *form, const char *name, uint64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, number);
  add(form, name, text);
}

/* "/v2/keys/a/b?query". The path is clean: for another one etcd answers with a redirect. NULL: no memory. */
static char *path_of(const char *key, struct form *query) {
  char *clean = etcd_path_clean(key), *escaped = clean ? http_escape(rdzv_str(clean)) : NULL, *path = NULL;
  add_text(query, "");
  if (!escaped || query->failed || !buf_append(&query->text, "", 1) ||
      asprintf(&path, "/v2/keys%s%s%s", escaped, query->text.len > 1 ? "?" : "", (const char *)query->text.data) < 0)
    path = NULL;
  free(clean);
  free(escaped);
  buf_free(&query->text);
  return path;
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static int fail_refused(const struct http_response *response, const char *key, const struct etcd_call *call) {
  int code = 0;
  uint64_t index;
  const rdzv_bytes body = {response->body.data, response->body.len};
  const int read = etcd_v2_read_error(body, &code, &index, call->error);
  if (response->status == 401)
    return error_set(call->error, RDZV_E_INVALID, "etcd denied access to '%s': wrong user or password (401)", key);
  if (response->status == 403 && read < 0)
    return error_set(call->error, RDZV_E_INVALID, "etcd denied access to '%s' (403)", key);
  if (response->status >= 300 && response->status < 400)
    return error_set(call->error, RDZV_E_PROTOCOL, "etcd answered with a redirect (%ld), which is not supported: '%s'",
                     response->status, key);
  if (response->status == 404 && read < 0)
    return error_set(call->error, RDZV_E_UNSUPPORTED,
                     "no v2 API at that address (404): is it etcd, started with --enable-v2?");
  if (read < 0) return error_prefix(call->error, read, "status %ld for '%s'", response->status, key);
  return code;
}

/* Performs the request, which needs no path, for the key with that query, which is freed. */
static int perform(struct etcd_client *client, const char *key, struct form *query, struct etcd_request request,
                   const struct etcd_call *call, struct etcd_result *result) {
  struct http_response response = {0};
  char *path = path_of(key, query);
  request.path = path;
  request.of_keys = true;
  int outcome = path ? etcd_perform(client, &request, call, &response) : error_no_memory(call->error);
  free(path);
  if (outcome < 0) return outcome;
  const rdzv_bytes body = {response.body.data, response.body.len};
  if (response.status != 200 && response.status != 201)
    outcome = fail_refused(&response, key, call);
  else if (request.blocks && body.len == 0) /* a watch that the server ended by its own clock */
    outcome = error_set(call->error, RDZV_E_TIMEOUT, "the watch of '%s' ended without an event", key);
  else
    outcome = etcd_v2_read(body, result, call->error);
  if (outcome > 0) *result = (struct etcd_result){0};
  if (outcome >= 0) result->index = response.etcd_index;
  buf_free(&response.body);
  return outcome;
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

int etcd_v2_get(struct etcd_client *client, const char *key, unsigned flags, const struct etcd_call *call,
                struct etcd_result *result) {
  struct form query = {0};
  if (flags & ETCD_GET_RECURSIVE) add(&query, "recursive", "true");
  if (flags & ETCD_GET_QUORUM) add(&query, "quorum", "true");
  return perform(client, key, &query, (struct etcd_request){.method = "GET"}, call, result);
}

static void fill_put(struct form *form, const struct etcd_put *put) {
  if (put->value) add(form, "value", put->value);
  if (put->ttl > 0) add_number(form, "ttl", (uint64_t)put->ttl);
  if (put->dir) add(form, "dir", "true");
  if (put->refresh) add(form, "refresh", "true");
  if (put->exist != ETCD_EXIST_ANY) add(form, "prevExist", put->exist == ETCD_EXIST_PRESENT ? "true" : "false");
  if (put->prev_value) add(form, "prevValue", put->prev_value);
  if (put->prev_index > 0) add_number(form, "prevIndex", put->prev_index);
}

static bool is_conditional(const struct etcd_put *put) {
  return put->prev_value || put->prev_index > 0 || put->exist == ETCD_EXIST_ABSENT;
}

/* The index of a key is never the same again, so a write on that condition is done once, however often it is asked
 * for. */
static bool is_fenced(const struct etcd_put *put) { return put->prev_index > 0 && put->value && !put->unique; }
static bool is_repeatable(const struct etcd_put *put) { return put->unique || is_fenced(put); }

static int put_once(struct etcd_client *client, const char *key, const struct etcd_put *put, unsigned tried,
                    rdzv_error *cause, const struct etcd_call *call, struct etcd_result *result) {
  struct form query = {0}, form = {0};
  fill_put(&form, put);
  const bool filled = !form.failed && buf_append(&form.text, "", 1);
  const struct etcd_request request = {.method = "PUT",
                                       .form = (const char *)form.text.data,
                                       .once = is_conditional(put),
                                       .resolvable = is_repeatable(put) || put->resolved,
                                       .tried = tried,
                                       .cause = cause};
  const int outcome = filled ? perform(client, key, &query, request, call, result) : error_no_memory(call->error);
  buf_free(&form.text);
  return outcome;
}

/* Was our write, whose answer got lost, done? 0: yes, and *result is what is there. */
static int look_after(struct etcd_client *client, const char *key, const struct etcd_put *put,
                      const struct etcd_call *call, struct etcd_result *result) {
  const int outcome = etcd_v2_get(client, key, ETCD_GET_QUORUM, call, result);
  if (outcome != 0) return outcome == ETCD_V2_NOT_FOUND ? ETCD_V2_COMPARE_FAILED : outcome;
  if (!result->node.dir && put->value && strcmp(result->node.value, put->value) == 0) return 0;
  etcd_result_free(result);
  return ETCD_V2_COMPARE_FAILED;
}

/* The same of a fenced write: the first change of the key after that index is ours, or our write was never done. It may
 * be overwritten by now. */
static int look_back(struct etcd_client *client, const char *key, const struct etcd_put *put,
                     const struct etcd_call *call, struct etcd_result *result) {
  const deadline until = deadline_sooner(call->until, deadline_after(LOOK_BACK_MS));
  const struct etcd_call own = {until, call->cancel, call->error};
  const int outcome = etcd_v2_watch(client, key, false, put->prev_index + 1, &own, result);
  if (outcome == RDZV_E_CANCELED) return outcome;
  if (outcome != 0)
    return error_set(call->error, RDZV_E_OUTCOME_UNKNOWN,
                     "it may or may not have taken effect: the answer was lost, and etcd's history does not show it");
  const bool same = strcmp(result->action, "compareAndSwap") == 0 && strcmp(result->node.value, put->value) == 0;
  if (same && put->by_anybody) return 0;
  etcd_result_free(result);
  if (!same) return ETCD_V2_COMPARE_FAILED;
  return error_set(
      call->error, RDZV_E_OUTCOME_UNKNOWN,
      "it may or may not have taken effect: the answer was lost, and another client may have written the same value");
}

/* A write that may have been done stays so, whatever the next try returns. */
static int fail_unsure(int outcome, const struct etcd_call *call) {
  if (outcome >= 0 || outcome == RDZV_E_CANCELED) return outcome;
  if (call->error) call->error->code = RDZV_E_OUTCOME_UNKNOWN;
  return RDZV_E_OUTCOME_UNKNOWN;
}

static int find_out(struct etcd_client *client, const char *key, const struct etcd_put *put,
                    const struct etcd_call *call, struct etcd_result *result) {
  return is_fenced(put) ? look_back(client, key, put, call, result) : look_after(client, key, put, call, result);
}

int etcd_v2_put(struct etcd_client *client, const char *key, const struct etcd_put *put, const struct etcd_call *call,
                struct etcd_result *result) {
  rdzv_error cause = {0};
  for (unsigned unsure = 0;; unsure++) {
    const int outcome = put_once(client, key, put, unsure, &cause, call, result);
    const bool again = outcome == RDZV_E_OUTCOME_UNKNOWN && is_repeatable(put) && deadline_left(call->until) > 0;
    if (again && flag_pause(call->cancel, deadline_after(jitter(CUT_OFF_MS))) == 0)
      continue; /* done once more it can only fail, if the first was done */
    if (unsure == 0) return outcome;
    return fail_unsure(etcd_v2_is_lost_race(outcome) ? find_out(client, key, put, call, result) : outcome, call);
  }
}

int etcd_v2_delete(struct etcd_client *client, const char *key, const struct etcd_delete *what,
                   const struct etcd_call *call, struct etcd_result *result) {
  struct form query = {0};
  if (what->dir) add(&query, "dir", "true");
  if (what->recursive) add(&query, "recursive", "true");
  if (what->prev_value) add(&query, "prevValue", what->prev_value);
  if (what->prev_index > 0) add_number(&query, "prevIndex", what->prev_index);
  return perform(client, key, &query, (struct etcd_request){.method = "DELETE", .once = true}, call, result);
}

/* The caller watches again at once; this keeps it from doing so in a busy loop. */
static int pause_before_next(int outcome, const struct etcd_call *call) {
  if (outcome != RDZV_E_TIMEOUT && outcome != ETCD_V2_INDEX_CLEARED && outcome != ETCD_V2_WATCHER_CLEARED)
    return outcome;
  const deadline next = deadline_after(jitter(CUT_OFF_MS));
  if (flag_pause(call->cancel, deadline_sooner(next, call->until)) == 0) return outcome;
  return error_set(call->error, RDZV_E_CANCELED, "the watch was canceled");
}

int etcd_v2_watch(struct etcd_client *client, const char *key, bool recursive, uint64_t from_index,
                  const struct etcd_call *call, struct etcd_result *result) {
  struct form query = {0};
  add(&query, "wait", "true");
  if (recursive) add(&query, "recursive", "true");
  if (from_index > 0) add_number(&query, "waitIndex", from_index);
  const struct etcd_request request = {.method = "GET", .blocks = true};
  return pause_before_next(perform(client, key, &query, request, call, result), call);
}

int etcd_v2_await(struct etcd_client *client, const char *key, bool recursive, uint64_t from_index,
                  const struct etcd_call *call) {
  struct etcd_result result;
  const int outcome = etcd_v2_watch(client, key, recursive, from_index, call, &result);
  if (outcome == 0) etcd_result_free(&result);
  if (outcome == ETCD_V2_INDEX_CLEARED || outcome == ETCD_V2_WATCHER_CLEARED) return 0;
  return outcome == RDZV_E_TIMEOUT && deadline_left(call->until) > 0 ? 0 : outcome;
}
