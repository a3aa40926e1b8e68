/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks the server which nodes there are: for a status, for the log line of a long wait, and for the participants of a
 * round. */
#include "base/error.h"
#include "base/wait/waiting.h"
#include "handler/dynamic/native/native.h"
#include "handler/result.h"
#include "handler/status.h"
#include "state/summary.h"
#include "store/run_keys.h"
#include "store/store.h"
#include "wire/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LINE_MS = 1000,                 /* for what only makes a log line better */
  SOME_DEADLINE = WORLD_LEFT + 1, /* of a last call that the server has called */
};

/* ---- asking --------------------------------------------------------------------------------------------------- */

static int ask(rdzv_store *store, const char *run_id, uint64_t round, enum wire_native_kind kind,
               const struct flag *cancel, rdzv_value *out, rdzv_bytes *body, rdzv_error *error) {
  const int64_t timeout_ms = rdzv_store_get_timeout(store);
  struct store_call call = {timeout_ms, deadline_after(timeout_ms), cancel ? cancel : &store->cancel, error};
  const int result = tcp_node_query(store, run_id, round, out, &call);
  if (result < 0) return result;
  *body = (rdzv_bytes){out->data + 1, out->len - 1};
  if (out->len > 0 && (uint8_t)out->data[0] == kind) return 0;
  rdzv_value_free(out);
  return error_set(error, RDZV_E_PROTOCOL, "the server answers a question for nodes with something else");
}

/* A handle for one look. */
static int open_look(struct native *native, int64_t timeout_ms, rdzv_store **out, rdzv_error *error) {
  const int result = tcp_store_clone_idle(native->store, 0, out, error);
  if (result == 0) rdzv_store_set_request_timeout(*out, timeout_ms, NULL);
  return result;
}

/* ---- the status ----------------------------------------------------------------------------------------------- */

static bool add_node(struct status *status, const struct wire_native_node *from) {
  rdzv_node_status *node = &status->nodes[rdzv_status_node_count(&status->base)];
  *node = (rdzv_node_status){.node = strdup(node_text(&from->desc).text),
                             .kind = status_kind(from->kinds),
                             .rank = -1,
                             .heartbeat_age_ms = from->heard_ms,
                             .way = from->way == NATIVE_WAY_NATIVE ? RDZV_NODE_WAY_NATIVE
                                    : from->way == NATIVE_WAY_SWAP ? RDZV_NODE_WAY_SWAP
                                                                   : RDZV_NODE_WAY_TORCH,
                             .trip_us = from->trip_us};
  if (!node->node) return false;
  if (status->base.complete && node->kind == RDZV_NODE_KIND_PARTICIPANT) node->rank = from->rank;
  status_count(&status->base, node->kind);
  return true;
}

static int read_nodes(struct wire_native_reader *reader, struct status *status, rdzv_error *error) {
  struct wire_native_node node;
  int result;
  status->nodes = calloc(reader->count + 1, sizeof *status->nodes);
  if (!status->nodes) return error_no_memory(error);
  while ((result = wire_native_read_node(reader, &node, error)) == 1)
    if (node.kinds && !add_node(status, &node)) return error_no_memory(error);
  if (result == 0) status_sort(status);
  return result;
}

static const char *phase_of(const struct wire_native_status *from, size_t nodes) {
  return rendezvous_phase_name(from->closed                       ? PHASE_CLOSED
                               : from->complete                   ? PHASE_COMPLETE
                               : nodes == 0 && from->ended_us > 0 ? PHASE_ENDED
                               : from->call_left_ms >= 0          ? PHASE_LAST_CALL
                                                                  : PHASE_GATHERING);
}

/* `still`: NULL if it is not known. */
static void set_end(rdzv_status *status, const struct wire_native_status *from, size_t nodes,
                    const struct status_still *still) {
  if (!from->exists || from->ended_us <= 0) return;
  status->died = from->died;
  if (!from->died || nodes == 0)
    status_set_end(status, from->ended_by, from->ended_us);
  else if (still)
    status_set_silent(status, still, from->ended_by, from->ended_us);
}

static int read_status(rdzv_bytes body, const struct status_still *still, rdzv_status **out, rdzv_error *error) {
  struct wire_native_reader reader;
  struct wire_native_status from;
  int result = wire_native_read_status(&reader, body, &from, error);
  if (result < 0) return result;
  struct status *status = calloc(1, sizeof *status);
  if (!status) return error_no_memory(error);
  status->base =
      (rdzv_status){.exists = from.exists,
                    .round = from.exists ? from.round : 0,
                    .phase = from.exists ? phase_of(&from, reader.count) : rendezvous_phase_name(PHASE_GATHERING),
                    .complete = from.exists && from.complete,
                    .closed = from.exists && from.closed,
                    .deadline_left_ms = from.exists ? from.call_left_ms : -1,
                    .min_nodes = from.min_nodes,
                    .max_nodes = from.max_nodes,
                    .layout = torch_traits(from.exists ? from.layout : TORCH_NEWEST)->version,
                    .reason = "",
                    .ended_by = ""};
  set_end(&status->base, &from, reader.count, still);
  if (from.exists && from.closed && *from.reason) status_set_reason(&status->base, strdup(from.reason));
  result = read_nodes(&reader, status, error);
  if (result < 0)
    rdzv_status_free(&status->base);
  else
    *out = &status->base;
  return result;
}

/* ---- a change ------------------------------------------------------------------------------------------------- */

/* Waits until the state is another than the one seen last, and notes it as seen. With the call held. */
static int see(struct native *native, rdzv_store *store, int64_t wait_ms, const struct flag *cancel,
               rdzv_error *error) {
  struct store_call call = {wait_ms, deadline_after(wait_ms), cancel ? cancel : &store->cancel, error};
  uint64_t version = native->view.version;
  rdzv_value value;
  char *key = run_key(native->run_id, RUN_PART_STATE);
  if (!key) return error_no_memory(error);
  const rdzv_bytes bytes = rdzv_str(key);
  int result = wait_ms > 0 ? store->ops->wait_changed(store, bytes, version, &value, &version, &call)
                           : store->ops->get_version(store, bytes, &value, &version, &call);
  free(key);
  if (result == 0) {
    rdzv_value_free(&value);
    native->view.version = version;
    status_look(&native->view.still, version);
  }
  return result == RDZV_E_TIMEOUT ? 0 : result;
}

static int look(struct native *native, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                rdzv_error *error) {
  const struct rendezvous_settings *settings = driver_settings(&native->base);
  rdzv_store *store;
  rdzv_value value;
  rdzv_bytes body;
  int result = open_look(native, settings->close_timeout, &store, error);
  if (result < 0) return result;
  if (wait_ms != DRIVER_LOOK_ASIDE) result = see(native, store, wait_ms, cancel, error);
  if (result == 0)
    result = ask(store, native->run_id, WIRE_NATIVE_QUERY_STATUS, WIRE_NATIVE_STATUS, cancel, &value, &body, error);
  if (result == 0) {
    result = read_status(body, wait_ms != DRIVER_LOOK_ASIDE ? &native->view.still : NULL, out, error);
    rdzv_value_free(&value);
  }
  rdzv_store_free(store);
  return result;
}

int native_look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                rdzv_error *error) {
  struct native *native = (struct native *)driver;
  rdzv_error own = {0};
  const bool aside = wait_ms == DRIVER_LOOK_ASIDE; /* which does not wait for another look to see a change */
  if (!aside) pthread_mutex_lock(&native->view.call);
  const int result = look(native, wait_ms < INT32_MAX ? wait_ms : INT32_MAX, cancel, out, &own);
  if (!aside) pthread_mutex_unlock(&native->view.call);
  if (result == RDZV_E_CANCELED) return error_set(error, result, "cannot read the state of the rendezvous: canceled");
  if (result < 0 && error) {
    *error = own;
    if (result == RDZV_E_CORRUPT)
      error_prefix(error, result, "the state of the rendezvous at %s is corrupt", native->text);
    error_prefix(error, result, "cannot read the state of the rendezvous");
  }
  return result;
}

/* ---- a log line ----------------------------------------------------------------------------------------------- */

static int read_state(rdzv_bytes body, struct rendezvous_state *state, int64_t *call_left_ms, rdzv_error *error) {
  struct wire_native_reader reader;
  struct wire_native_status from;
  struct wire_native_node node;
  int result = wire_native_read_status(&reader, body, &from, error);
  if (result < 0) return result;
  state->round = from.round;
  state->complete = from.complete;
  state->closed = from.closed;
  state->deadline = from.call_left_ms >= 0 ? SOME_DEADLINE : DATETIME_NONE; /* when it is, the server counts */
  *call_left_ms = from.call_left_ms;
  while ((result = wire_native_read_node(&reader, &node, error)) == 1) {
    struct state_node *added;
    result = state_insert(state, &node.desc, &added, error);
    if (result < 0) return result;
    state_set_kinds(state, added, node.kinds);
    added->rank = node.rank;
  }
  return result;
}

void native_tell_nodes(struct native *native, struct waiting *waiting, deadline until) {
  struct rendezvous_state state = STATE_EMPTY;
  const struct node_desc *node = &native->base.node;
  rdzv_store *store;
  rdzv_value value;
  rdzv_bytes body;
  if (open_look(native, LINE_MS, &store, NULL) < 0) return;
  rdzv_store_set_timeout(store, LINE_MS, NULL);
  if (ask(store, native->run_id, WIRE_NATIVE_QUERY_STATUS, WIRE_NATIVE_STATUS, NULL, &value, &body, NULL) == 0) {
    int64_t call_left_ms;
    const bool read = read_state(body, &state, &call_left_ms, NULL) == 0;
    const struct state_node *own = read ? state_find(&state, node) : NULL;
    if (own) waiting_about(waiting, "%s", summary_waiting(&state, driver_settings(&native->base), node).text);
    if (own && (own->kinds & NODE_SPARE)) waiting->until = INT64_MAX;
    if (own && (own->kinds & NODE_PARTICIPANT))
      waiting->until = call_left_ms >= 0 ? deadline_after(call_left_ms) : until;
    rdzv_value_free(&value);
  }
  state_free(&state);
  rdzv_store_free(store);
}

/* ---- the participants of a round ------------------------------------------------------------------------------ */

static int read_members(rdzv_bytes body, const struct round_result *result, struct rendezvous_state *state,
                        rdzv_error *error) {
  struct wire_native_reader reader;
  struct wire_native_node node;
  int64_t round;
  int outcome = wire_native_read_members(&reader, body, &round, error);
  if (outcome < 0) return outcome;
  while ((outcome = wire_native_read_node(&reader, &node, error)) == 1) {
    struct state_node *added;
    outcome = state_insert(state, &node.desc, &added, error);
    if (outcome < 0) return outcome;
    state_set_kinds(state, added, NODE_PARTICIPANT);
    added->rank = node.rank;
  }
  if (outcome == 0 && (round != result->base.round || (int64_t)state->num_participants != result->base.world_size))
    return error_set(error, RDZV_E_PROTOCOL, "the server has other participants of the round");
  return outcome;
}

int native_load_participants(struct round_result *result, rdzv_error *error) {
  struct rendezvous_state state = STATE_EMPTY;
  rdzv_value value;
  rdzv_bytes body;
  const uint64_t round = (uint64_t)result->base.round;
  int outcome = ask(result->store, result->run_id, round, WIRE_NATIVE_MEMBERS, NULL, &value, &body, error);
  if (outcome < 0) return error_prefix(error, outcome, "cannot get the participants of round %lld", (long long)round);
  outcome = read_members(body, result, &state, error);
  rdzv_value_free(&value);
  if (outcome == 0 && !result_add_participants(result, &state)) outcome = error_no_memory(error);
  state_free(&state);
  return outcome;
}
