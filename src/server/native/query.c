/* SPDX-License-Identifier: BSD-3-Clause */
/* NODE_QUERY: the state of a run and its nodes. For a run without native nodes, its key has them. */
#include "base/error.h"
#include "base/text/utf8.h"
#include "server/native/native.h"
#include "state/differences.h"
#include "state/ending.h"
#include "wire/native.h"

#include <inttypes.h>
#include <stdio.h>

/* What is asked about. */
struct subject {
  char id[NATIVE_MAX_RUN_ID + 1];
  struct moment now;
  const struct coordinator_run *run; /* NULL: it has no native nodes */
  const struct rendezvous_state *state;
  struct rendezvous_state decoded; /* without native nodes */
  enum torch_layout layout;
  bool exists;
};

static int find(struct rdzv_server *server, rdzv_bytes id, struct subject *subject, rdzv_error *error) {
  rdzv_bytes text;
  *subject = (struct subject){.now = natives_now(), .decoded = STATE_EMPTY, .layout = TORCH_NEWEST};
  const int result = natives_take_id(id, subject->id, error);
  if (result < 0) return result;
  subject->run = coordinator_find(server->natives->coordinator, subject->id, id.len);
  subject->state = subject->run ? coordinator_run_state(subject->run) : &subject->decoded;
  subject->exists = subject->run != NULL;
  if (subject->run) {
    subject->layout = coordinator_run_layout(subject->run);
    return 0;
  }
  natives_get(server, subject->id, RUN_PART_STATE, &text);
  return natives_decode(text, TORCH_NEWEST, &subject->exists, &subject->decoded, &subject->layout, error);
}

/* By the clock of the node, where there is nothing else. */
static struct coordinator_sight see(const struct subject *subject, const struct state_node *node) {
  if (subject->run) return coordinator_see(subject->run, node, subject->now);
  const int64_t age = (subject->now.wall_us - node->last_heartbeat) / 1000;
  return (struct coordinator_sight){.way = node->ours ? NATIVE_WAY_SWAP : NATIVE_WAY_TORCH,
                                    .heard_ms = node->last_heartbeat == DATETIME_NONE ? -1
                                                : age < 0                             ? 0
                                                                                      : age,
                                    .trip_us = -1};
}

static struct wire_native_node describe(const struct subject *subject, const struct state_node *node) {
  const struct coordinator_sight sight = see(subject, node);
  return (struct wire_native_node){.desc = node->desc,
                                   .rank = node->rank,
                                   .kinds = node->kinds,
                                   .way = sight.way,
                                   .heard_ms = sight.heard_ms,
                                   .trip_us = sight.trip_us};
}

/* Writes the nodes of these kinds. */
static void add_nodes(struct wire_native_writer *writer, const struct subject *subject,
                      const struct rendezvous_state *state, unsigned kinds) {
  for (size_t i = 0; i < state->count; i++) {
    if (!(state->nodes[i].kinds & kinds)) continue;
    const struct wire_native_node node = describe(subject, &state->nodes[i]);
    wire_native_add(writer, &node);
  }
  wire_native_end(writer);
}

static size_t count_nodes(const struct rendezvous_state *state, unsigned kinds) {
  size_t count = 0;
  for (size_t i = 0; i < state->count; i++) count += (state->nodes[i].kinds & kinds) != 0;
  return count;
}

static int64_t call_left(const struct subject *subject) {
  if (subject->run) return coordinator_run_call_left(subject->run, subject->now);
  if (rendezvous_phase(subject->state) != PHASE_LAST_CALL) return -1;
  const int64_t left = (subject->state->deadline - subject->now.wall_us) / 1000;
  return left > 0 ? left : 0;
}

/* As much of a text as is UTF-8. */
static void copy_reason(rdzv_bytes from, char reason[NATIVE_MAX_REASON + 1]) {
  size_t len = 0, character;
  const size_t most = from.len < NATIVE_MAX_REASON ? from.len : NATIVE_MAX_REASON;
  const char *text = from.data;
  while (len < most && text[len] && (character = utf8_length(text + len, most - len)) > 0) len += character;
  bytes_copy(reason, text, len);
  reason[len] = '\0';
}

static int64_t age_seen(const void *argument, const struct state_node *node) { return see(argument, node).heard_ms; }

/* The coordinator notes the death of native nodes; other nodes have heartbeats in the state. */
static struct ending find_end(const struct subject *subject, struct ending_silence *silence) {
  struct ending ending;
  const bool is_over = subject->state->closed || subject->state->count == 0;
  if (!subject->run && ending_is_silence(subject->state, age_seen, subject, subject->now.wall_us, silence))
    return (struct ending){silence->node.text, silence->at_us, true};
  return is_over && ending_read(subject->state, &ending) ? ending : (struct ending){.node = ""};
}

static void put_status(struct rdzv_server *server, const struct subject *subject) {
  enum { ALL = NODE_PARTICIPANT | NODE_WAITING | NODE_SPARE };
  struct wire_native_writer writer;
  char reason[NATIVE_MAX_REASON + 1] = "";
  rdzv_bytes stored;
  struct ending_silence silence;
  const struct ending ending = find_end(subject, &silence);
  int64_t min_nodes = 0, max_nodes = 0;
  differences_nnodes(subject->state, &min_nodes, &max_nodes);
  if (subject->state->closed && natives_get(server, subject->id, RUN_PART_REASON, &stored) != 0)
    copy_reason(stored, reason);
  const struct wire_native_status status = {.exists = subject->exists,
                                            .complete = subject->state->complete,
                                            .closed = subject->state->closed,
                                            .round = subject->state->round,
                                            .call_left_ms = call_left(subject),
                                            .layout = subject->layout,
                                            .reason = reason,
                                            .min_nodes = min_nodes,
                                            .max_nodes = max_nodes,
                                            .ended_us = ending.at_us,
                                            .ended_by = ending.node,
                                            .died = ending.died};
  wire_native_begin_status(&writer, &server->aside, &status, count_nodes(subject->state, ALL));
  add_nodes(&writer, subject, subject->state, ALL);
}

static int put_members(struct rdzv_server *server, const struct subject *subject, int64_t round, rdzv_error *error) {
  const struct rendezvous_state *state = subject->run ? coordinator_world(subject->run, round) : NULL;
  struct wire_native_writer writer;
  if (!state && subject->state->complete && subject->state->round == round) state = subject->state;
  if (!state)
    return error_set(error, RDZV_E_STALE, "the members of round %" PRId64 " of run '%s' are not known", round,
                     subject->id);
  wire_native_begin_members(&writer, &server->aside, round, count_nodes(state, NODE_PARTICIPANT));
  add_nodes(&writer, subject, state, NODE_PARTICIPANT);
  return 0;
}

int natives_query(struct conn *conn, const struct wire_request *request, struct wire_writer *out) {
  (void)out;
  struct rdzv_server *server = conn->server;
  struct subject subject;
  rdzv_error error;
  int result = find(server, request->key, &subject, &error);
  if (result == 0 && request->number == WIRE_NATIVE_QUERY_STATUS)
    put_status(server, &subject);
  else if (result == 0)
    result = put_members(server, &subject, (int64_t)request->number, &error);
  if (result == 0 && server->aside.buf.len > server->limits.max_value + WIRE_NATIVE_HEAD_BYTES) {
    server->aside.buf.len = 0;
    result = error_set(&error, RDZV_E_LIMIT, "the nodes of run '%s' do not fit into an answer", subject.id);
  }
  state_free(&subject.decoded);
  if (result < 0)
    natives_refuse(conn, request->op, request->number, result, error.message);
  else
    natives_send(conn, false);
  return 0;
}
