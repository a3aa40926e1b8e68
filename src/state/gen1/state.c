/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/gen1/state.h"

#include "base/error.h"
#include "state/differences.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SETUP "rdzv_setup"
#define JOINS "rdzv_joins"
#define SETTINGS DIFFERENCES_ATTRIBUTE
#define REASON "rdzv_reason"

static const char *const names[] = {"setup", "joinable", "frozen", "final", "closed"};

const char *gen1_status_name(enum gen1_status status) { return names[status]; }

enum rendezvous_phase gen1_state_phase(const struct gen1_state *state, int64_t min) {
  switch (state->status) {
    case GEN1_STATUS_SETUP: return PHASE_GATHERING;
    case GEN1_STATUS_JOINABLE:
      return min == 0 || (int64_t)state->participants < min ? PHASE_GATHERING : PHASE_LAST_CALL;
    case GEN1_STATUS_FROZEN: return PHASE_LAST_CALL;
    case GEN1_STATUS_FINAL: return PHASE_COMPLETE;
    case GEN1_STATUS_CLOSED: break;
  }
  return PHASE_CLOSED;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

static int fail_corrupt(const char *what, rdzv_error *error) {
  return error_set(error, RDZV_E_CORRUPT, "the state of the rendezvous in etcd is corrupt: %s", what);
}

static int read_status(const json_t *json, enum gen1_status *out, rdzv_error *error) {
  const char *name = json_string_value(json_object_get(json, "status"));
  for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++) {
    if (strcmp(names[i], name) != 0) continue;
    *out = (enum gen1_status)i;
    return 0;
  }
  return fail_corrupt("its status is unknown", error);
}

static int read_round(const json_t *json, struct gen1_state *out, rdzv_error *error) {
  const char *round = json_string_value(json_object_get(json, "version"));
  const bool needed = out->status != GEN1_STATUS_SETUP && out->status != GEN1_STATUS_CLOSED;
  if (!round) return needed ? fail_corrupt("it has no version", error) : 0;
  const size_t len = strlen(round);
  if (len == 0 || len >= sizeof out->round || strspn(round, "0123456789") != len)
    return fail_corrupt("its version is not a number", error);
  memcpy(out->round, round, len + 1);
  return 0;
}

/* A list of that name; where it is needed, it must be there. */
static int read_list(const json_t *json, const char *name, bool needed, bool texts, size_t *count, rdzv_error *error) {
  const json_t *list = json_object_get(json, name), *item;
  size_t i;
  *count = 0;
  if (!list && !needed) return 0;
  if (!json_is_array(list)) return fail_corrupt("participants or keep_alives is not a list", error);
  json_array_foreach(list, i, item) {
    if (texts ? !json_is_string(item) : !json_is_integer(item))
      return fail_corrupt("a list has an item of the wrong type", error);
  }
  *count = json_array_size(list);
  return 0;
}

static int read_waiting(const json_t *json, struct gen1_state *out, rdzv_error *error) {
  const json_t *value = json_object_get(json, "num_workers_waiting");
  out->waiting = value ? (int64_t)json_integer_value(value) : 0;
  const bool missing = !value && out->status == GEN1_STATUS_FINAL;
  if (missing || (value && !json_is_integer(value)) || out->waiting < 0)
    return fail_corrupt("num_workers_waiting is not a number", error);
  return 0;
}

static int read_all(struct gen1_state *out, rdzv_error *error) {
  const json_t *json = out->json;
  if (!json_is_object(json)) return fail_corrupt("it is not an object", error);
  int result = read_status(json, &out->status, error);
  const bool listed =
      out->status == GEN1_STATUS_JOINABLE || out->status == GEN1_STATUS_FROZEN || out->status == GEN1_STATUS_FINAL;
  const bool confirmed = out->status == GEN1_STATUS_FROZEN || out->status == GEN1_STATUS_FINAL;
  if (result == 0) result = read_round(json, out, error);
  if (result == 0) result = read_list(json, "participants", listed, false, &out->participants, error);
  if (result == 0) result = read_list(json, "keep_alives", confirmed, true, &out->keep_alives, error);
  return result == 0 ? read_waiting(json, out, error) : result;
}

int gen1_state_read(const char *text, struct gen1_state *out, rdzv_error *error) {
  json_error_t reason;
  *out = (struct gen1_state){0};
  if (strlen(text) > GEN1_STATE_MAX_BYTES) return fail_corrupt("it is too long", error);
  out->json = json_loads(text, 0, &reason);
  if (!out->json)
    return error_set(error, RDZV_E_CORRUPT, "the state of the rendezvous in etcd is not JSON: %s", reason.text);
  int result = read_all(out, error);
  if (result == 0 && !(out->text = strdup(text))) result = error_no_memory(error);
  if (result < 0) gen1_state_free(out);
  return result;
}

void gen1_state_free(struct gen1_state *state) {
  json_decref(state->json);
  free(state->text);
  *state = (struct gen1_state){0};
}

const char *gen1_state_keep_alive(const struct gen1_state *state, size_t at) {
  return json_string_value(json_array_get(json_object_get(state->json, "keep_alives"), at));
}

const char *gen1_state_reason(const struct gen1_state *state) {
  return json_string_value(json_object_get(state->json, REASON));
}

bool gen1_state_is_set_up_by(const struct gen1_state *state, const char *nonce) {
  const char *who = json_string_value(json_object_get(state->json, SETUP));
  return state->status == GEN1_STATUS_SETUP && who && strcmp(who, nonce) == 0;
}

int64_t gen1_state_rank_of(const struct gen1_state *state, const char *nonce) {
  const json_t *rank = json_object_get(json_object_get(state->json, JOINS), nonce);
  const json_int_t number = json_is_integer(rank) ? json_integer_value(rank) : -1;
  return number < (json_int_t)state->participants ? number : -1;
}

static bool read_entry(const char *settings, const json_t *json, struct gen1_entry *out) {
  const json_t *rank = json_object_get(json, "rank");
  *out = (struct gen1_entry){settings, json_string_value(json_object_get(json, "node")),
                             json_is_integer(rank) ? json_integer_value(rank) : -1};
  return strlen(settings) < DIFFERENCES_SETTINGS_SIZE && out->node && out->rank >= 0;
}

size_t gen1_state_entries(const struct gen1_state *state, struct gen1_entry out[]) {
  size_t count = 0;
  const char *settings;
  json_t *entry;
  json_object_foreach(json_object_get(state->json, SETTINGS), settings, entry) {
    if (count < DIFFERENCES_MOST && read_entry(settings, entry, &out[count])) count++;
  }
  return count;
}

bool gen1_state_nnodes(const struct gen1_state *state, int64_t *min_nodes, int64_t *max_nodes) {
  struct gen1_entry entries[DIFFERENCES_MOST];
  return gen1_state_entries(state, entries) > 0 && differences_parse_nnodes(entries[0].settings, min_nodes, max_nodes);
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

/* Takes over the object. */
static char *text_of(json_t *json) {
  char *text = json ? json_dumps(json, 0) : NULL;
  json_decref(json);
  return text;
}

static json_t *copy_with(const struct gen1_state *state, enum gen1_status status) {
  json_t *json = state ? json_deep_copy(state->json) : json_object();
  if (json && json_object_set_new(json, "status", json_string(names[status])) == 0) return json;
  json_decref(json);
  return NULL;
}

char *gen1_state_setup(const char *nonce) {
  return text_of(json_pack("{s:s, s:s}", "status", names[GEN1_STATUS_SETUP], SETUP, nonce));
}

char *gen1_state_joinable(const char *round) {
  return text_of(
      json_pack("{s:s, s:s, s:[]}", "status", names[GEN1_STATUS_JOINABLE], "version", round, "participants"));
}

static bool add_join(json_t *json, const char *nonce, size_t rank) {
  json_t *joins = json_object_get(json, JOINS);
  if (!json_is_object(joins) && json_object_set_new(json, JOINS, joins = json_object()) != 0) return false;
  return json_object_set_new(joins, nonce, json_integer((json_int_t)rank)) == 0;
}

/* A name that is not UTF-8 has no entry. */
static void add_entry(json_t *json, const struct gen1_joiner *joiner, size_t rank) {
  json_t *entries = json_object_get(json, SETTINGS);
  if (!joiner->settings) return;
  if (!json_is_object(entries) && json_object_set_new(json, SETTINGS, entries = json_object()) != 0) return;
  if (!json_object_get(entries, joiner->settings) && json_object_size(entries) >= DIFFERENCES_MOST) return;
  json_t *entry = json_pack("{s:s, s:I}", "node", joiner->node, "rank", (json_int_t)rank);
  if (entry) json_object_set_new(entries, joiner->settings, entry);
}

char *gen1_state_join(const struct gen1_state *state, const struct gen1_joiner *joiner, bool *frozen) {
  const size_t rank = state->participants;
  *frozen = (int64_t)rank + 1 >= joiner->max_nodes;
  json_t *json = copy_with(state, *frozen ? GEN1_STATUS_FROZEN : GEN1_STATUS_JOINABLE);
  bool done = json && add_join(json, joiner->nonce, rank) &&
              json_array_append_new(json_object_get(json, "participants"), json_integer((json_int_t)rank)) == 0;
  if (done) add_entry(json, joiner, rank);
  if (done && *frozen) done = json_object_set_new(json, "keep_alives", json_array()) == 0;
  if (done) return text_of(json);
  json_decref(json);
  return NULL;
}

char *gen1_state_freeze(const struct gen1_state *state) {
  json_t *json = copy_with(state, GEN1_STATUS_FROZEN);
  if (json && json_object_set_new(json, "keep_alives", json_array()) == 0) return text_of(json);
  json_decref(json);
  return NULL;
}

char *gen1_state_confirm(const struct gen1_state *state, const char *key, bool *final) {
  *final = state->keep_alives + 1 >= state->participants;
  json_t *json = copy_with(state, *final ? GEN1_STATUS_FINAL : GEN1_STATUS_FROZEN);
  bool done = json && json_array_append_new(json_object_get(json, "keep_alives"), json_string(key)) == 0;
  if (done && *final) {
    done = json_object_set_new(json, "num_workers_waiting", json_integer(0)) == 0;
    json_object_del(json, JOINS); /* all know their ranks */
  }
  if (done) return text_of(json);
  json_decref(json);
  return NULL;
}

char *gen1_state_announce(const struct gen1_state *state) {
  json_t *json = copy_with(state, state->status);
  if (json && json_object_set_new(json, "num_workers_waiting", json_integer(state->waiting + 1)) == 0)
    return text_of(json);
  json_decref(json);
  return NULL;
}

/* A reason that is not UTF-8 is left out. */
char *gen1_state_close(const struct gen1_state *state, const char *reason) {
  json_t *json = copy_with(state, GEN1_STATUS_CLOSED), *text = json && reason ? json_string(reason) : NULL;
  if (!text || json_object_set_new(json, REASON, text) == 0) return text_of(json);
  json_decref(json);
  return NULL;
}
