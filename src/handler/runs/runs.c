/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs of a store: backend c10d, and for all backends what is common. */
#include "handler/runs/runs.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/text/options.h"
#include "handler/dynamic/dynamic.h"
#include "store/run_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of ids --------------------------------------------------------------------------------------------- */

bool runs_add(struct runs *runs, const char *id, size_t len) {
  rdzv_value *more = realloc(runs->ids, (runs->count + 1) * sizeof *more);
  if (!more) return false;
  runs->ids = more;
  if (!value_copy(&runs->ids[runs->count], id, len)) return false;
  runs->count++;
  return true;
}

static int by_text(const void *a, const void *b) {
  return strcmp(((const rdzv_value *)a)->data, ((const rdzv_value *)b)->data);
}

/* ---- keys ----------------------------------------------------------------------------------------------------- */

static bool begins_with(rdzv_bytes key, const char *text) {
  return key.len >= strlen(text) && memcmp(key.data, text, strlen(text)) == 0;
}

/* In order. */
static bool has_key(const rdzv_value *keys, size_t count, const char *text, size_t len) {
  for (size_t from = 0, to = count; from < to;) {
    const size_t middle = from + (to - from) / 2;
    const int way = strncmp(keys[middle].data, text, len);
    if (way == 0 && keys[middle].data[len] == '\0') return true;
    if (way < 0)
      from = middle + 1;
    else
      to = middle;
  }
  return false;
}

/* Is it the key of a state? A run id may have dots in it, too, so that only the keys together tell. */
static bool is_state(const rdzv_value *keys, size_t count, const char *key) {
  const char *prefix = run_key_prefix(RUN_PART_STATE);
  if (!begins_with(rdzv_str(key), prefix) || !key[strlen(prefix)]) return false;
  for (const char *dot = key + strlen(prefix); (dot = strchr(dot, '.')); dot++)
    if (run_key_is_round(rdzv_str(dot)) && has_key(keys, count, key, (size_t)(dot - key))) return false;
  return true;
}

/* Those whose states are keys of the store. */
static int list_store(rdzv_store *store, void *argument, rdzv_error *error) {
  struct runs *out = argument;
  const size_t prefix = strlen(run_key_prefix(RUN_PART_STATE));
  rdzv_value *keys;
  size_t count;
  int result = rdzv_store_list_keys(store, &keys, &count, error);
  if (result < 0) return error_prefix(error, result, "cannot list the runs of the store");
  if (count > 1) qsort(keys, count, sizeof *keys, by_text);
  for (size_t i = 0; i < count && result == 0; i++)
    if (is_state(keys, count, keys[i].data) && !runs_add(out, keys[i].data + prefix, strlen(keys[i].data) - prefix))
      result = error_no_memory(error);
  rdzv_values_free(keys, count);
  return result;
}

/* ---- removing ------------------------------------------------------------------------------------------------- */

static int remove_key(rdzv_store *store, const char *key, size_t *removed, rdzv_error *error) {
  const rdzv_bytes bytes = rdzv_str(key);
  bool there = false, deleted = false;
  rdzv_value value;
  while ((rdzv_store_features(store) & RDZV_FEATURE_QUEUES) &&
         rdzv_store_queue_pop(store, bytes, false, &value, NULL) == 0)
    rdzv_value_free(&value);
  int result = rdzv_store_check(store, &bytes, 1, &there, error);
  if (result == 0 && there) result = rdzv_store_delete_key(store, bytes, &deleted, error);
  if (result == 0) *removed += there;
  return result;
}

static int remove_rounds(rdzv_store *store, const char *state_key, size_t *removed, rdzv_error *error) {
  rdzv_value *keys;
  size_t count;
  int result = rdzv_store_list_keys(store, &keys, &count, error);
  if (result < 0) return result == RDZV_E_UNSUPPORTED ? 0 : result;
  for (size_t i = 0; i < count && result == 0; i++)
    if (strlen(keys[i].data) == keys[i].len && begins_with(rdzv_value_bytes(&keys[i]), state_key) &&
        run_key_is_round(rdzv_str(keys[i].data + strlen(state_key))))
      result = remove_key(store, keys[i].data, removed, error);
  rdzv_values_free(keys, count);
  return result;
}

static int remove_part(rdzv_store *store, const char *run_id, enum run_part part, size_t *removed, rdzv_error *error) {
  char *key = run_key(run_id, part);
  const int result = key ? remove_key(store, key, removed, error) : error_no_memory(error);
  free(key);
  return result;
}

/* The state last: until then it is found by a later try. */
int runs_remove_store(rdzv_store *store, const char *run_id, size_t *removed, rdzv_error *error) {
  char *state_key = run_key(run_id, RUN_PART_STATE);
  int result = state_key ? remove_rounds(store, state_key, removed, error) : error_no_memory(error);
  free(state_key);
  for (int part = RUN_PART_BELL; part < RUN_PARTS && result == 0; part++)
    result = remove_part(store, run_id, (enum run_part)part, removed, error);
  return result == 0 ? remove_part(store, run_id, RUN_PART_STATE, removed, error) : result;
}

struct removal {
  const char *run_id;
  size_t count;
};

static int remove_run(rdzv_store *store, void *argument, rdzv_error *error) {
  struct removal *removal = argument;
  return runs_remove_store(store, removal->run_id, &removal->count, error);
}

/* ---- the calls ------------------------------------------------------------------------------------------------ */

static bool is_c10d(const rdzv_params *params) { return strcmp(params->backend, "c10d") == 0; }

static int check(const rdzv_params *given, bool needs_id, rdzv_params *params, rdzv_log *log, rdzv_error *error) {
  rdzv_params own;
  int result = options_take(&own, sizeof own, given, "rdzv_params", error);
  if (result < 0) return result;
  if (!needs_id) own.run_id = "any";
  result = params_check(&own, params, log, error);
  if (result < 0) return result;
  if (!is_c10d(params) && strncmp(params->backend, "etcd", 4) != 0)
    return error_set(error, RDZV_E_UNSUPPORTED, "backend '%s' has no runs to look at", params->backend);
  return 0;
}

int rdzv_runs_list(const rdzv_params *given, rdzv_value **out, size_t *count, rdzv_error *error) {
  if (!given || !out || !count) return error_null(error, "rdzv_runs_list", !given ? "params" : !out ? "out" : "count");
  rdzv_params params;
  rdzv_log log;
  struct runs runs = {0};
  int result = check(given, false, &params, &log, error);
  if (result < 0) return result;
  if (is_c10d(&params)) {
    result = c10d_use_store(&params, list_store, &runs, error);
  } else {
    result = runs_list_etcd(&params, &runs, error);
  }
  if (result < 0) {
    rdzv_values_free(runs.ids, runs.count);
    return result;
  }
  if (runs.count > 1) qsort(runs.ids, runs.count, sizeof *runs.ids, by_text);
  *out = runs.ids;
  *count = runs.count;
  return 0;
}

int rdzv_runs_remove(const rdzv_params *given, size_t *removed, rdzv_error *error) {
  if (!given || !removed) return error_null(error, "rdzv_runs_remove", given ? "removed" : "params");
  rdzv_params params;
  rdzv_log log;
  int result = check(given, true, &params, &log, error);
  if (result < 0) return result;
  struct removal removal = {.run_id = params.run_id};
  if (is_c10d(&params)) {
    result = c10d_use_store(&params, remove_run, &removal, error);
  } else {
    result = runs_remove_etcd(&params, &removal.count, error);
  }
  if (result < 0) return error_prefix(error, result, "cannot remove run '%s'", params.run_id);
  *removed = removal.count;
  return 0;
}
