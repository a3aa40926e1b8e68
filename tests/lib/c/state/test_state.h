/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of states share: states made by hand, and pickles made of their opcodes. */
#ifndef RDZV_TESTS_TEST_STATE_H
#define RDZV_TESTS_TEST_STATE_H

#include "base/buf.h"
#include "state/pickle/read.h"
#include "state/pickle/write.h"
#include "state_equal.h"
#include "unit.h"

/* ---- states --------------------------------------------------------------------------------------------------- */

static inline struct state_node *put_member(struct rendezvous_state *state, const char *addr, int64_t pid,
                                            int64_t local_id, unsigned kinds) {
  struct state_node *member = NULL;
  assert_code(state_insert(state, &(struct node_desc){addr, pid, local_id}, &member, NULL), 0);
  state_set_kinds(state, member, kinds);
  return member;
}

/* One of everything: kinds, ranks, times, somebody with a heartbeat only, and two nodes of one host. */
static inline struct rendezvous_state sample_state(void) {
  struct rendezvous_state state = STATE_EMPTY;
  state.round = 70000;
  state.complete = true;
  state.deadline = INT64_C(1794772840999999);
  put_member(&state, "b", 300, 0, NODE_PARTICIPANT)->rank = 1;
  put_member(&state, "a", 1, 0, NODE_PARTICIPANT)->last_heartbeat = DATETIME_MAX;
  put_member(&state, "b", 300, 1, NODE_WAITING)->last_heartbeat = INT64_C(1794772800000001);
  put_member(&state, "n\u0153ud", INT64_C(1) << 40, INT64_MIN, NODE_SPARE)->last_heartbeat = DATETIME_MIN;
  put_member(&state, "alone", -70000, 65536, 0)->last_heartbeat = 0;
  put_member(&state, "", 0, 0, NODE_PARTICIPANT | NODE_WAITING | NODE_SPARE)->last_heartbeat = -1;
  return state;
}

/* ---- pickles -------------------------------------------------------------------------------------------------- */

/* A str of which the length is given as one character. */
#define STR(len, text) "\x8c" len text
#define TORCH_MODULE "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
#define NODE_CLASS "c" TORCH_MODULE "\n_NodeDesc\n"
#define STATE_CLASS "c" TORCH_MODULE "\n_RendezvousState\n"
#define NEW ")\x81"

/* A node of that one-letter address, pid 1, local_id 0. */
#define NODE_(name, letter) \
  NODE_CLASS NEW "}(" STR("\4", name) STR("\1", letter) STR("\3", "pid") "K\1" \
                            STR("\x08", "local_id") "K\0" "ub"
#define NODE(letter) NODE_("addr", letter)

#define NAIVE(seconds) "cdatetime\ndatetime\nC\x0a\x07\xea\x0b\x0f\x0c\0" seconds "\0\0\7\x85R"
#define UTC "cdatetime\ntimezone\ncdatetime\ntimedelta\nK\0K\0K\0\x87R\x85R"
#define AWARE(seconds) "cdatetime\ndatetime\nC\x0a\x07\xea\x0b\x0f\x0c\0" seconds "\0\0\7" UTC "\x86R"

struct attribute {
  const char *name;
  rdzv_bytes code; /* the opcodes that push its value; NULL: left out */
};

/* A pickle of an empty state of layout 2.3, with some attributes other than usual, and others added. */
static inline struct buf state_pickle(const struct attribute *other, size_t count) {
  struct attribute all[32] = {{"round", BYTES("K\0")},
                              {"complete", BYTES("\x89")},
                              {"deadline", BYTES("N")},
                              {"closed", BYTES("\x89")},
                              {"participants", BYTES("}")},
                              {"wait_list", BYTES("\x8f")},
                              {"redundancy_list", BYTES("\x8f")},
                              {"last_heartbeats", BYTES("}")}};
  size_t total = 8;
  for (size_t i = 0; i < count; i++) {
    size_t at = 0;
    while (at < total && strcmp(all[at].name, other[i].name) != 0) at++;
    assert_true(at < COUNT_OF(all));
    all[at] = other[i];
    if (at == total) total++;
  }
  struct buf out = {0};
  assert_true(buf_append(&out, "\x80\4" STATE_CLASS NEW "}(", sizeof "\x80\4" STATE_CLASS NEW "}(" - 1));
  for (size_t i = 0; i < total; i++) {
    if (!all[i].code.data) continue;
    const uint8_t head[] = {0x8c, (uint8_t)strlen(all[i].name)};
    assert_true(buf_append(&out, head, 2) && buf_append(&out, all[i].name, head[1]));
    assert_true(buf_append(&out, all[i].code.data, all[i].code.len));
  }
  assert_true(buf_append(&out, "ub.", 3));
  return out;
}

/* Reads a copy of exactly len bytes, so that a sanitizer sees any read beyond them. */
static inline int read_exactly(const void *data, size_t len, struct rendezvous_state *state,
                               struct torch_layouts *layouts, rdzv_error *error) {
  uint8_t *copy = malloc(len ? len : 1);
  assert_non_null(copy);
  bytes_copy(copy, data, len);
  const int result = pickle_read((rdzv_bytes){copy, len}, state, layouts, error);
  free(copy);
  return result;
}

/* Must be refused as corrupt, by a sentence that has `part` in it. */
static inline void assert_refused(rdzv_bytes pickle, const char *part) {
  struct rendezvous_state state;
  struct torch_layouts layouts;
  rdzv_error error = {0};
  const int result = read_exactly(pickle.data, pickle.len, &state, &layouts, &error);
  if (result == 0) state_free(&state);
  assert_error(result, RDZV_E_CORRUPT, &error, part);
  assert_non_null(strstr(error.message, "cannot read the rendezvous state: "));
}

/* A state with this one attribute other than usual must be refused. */
static inline void assert_attribute_refused(const char *name, rdzv_bytes code, const char *part) {
  struct buf pickle = state_pickle(&(struct attribute){name, code}, 1);
  assert_refused((rdzv_bytes){pickle.data, pickle.len}, part);
  buf_free(&pickle);
}

/* Must be read. The caller frees the state. */
static inline struct rendezvous_state read_state(rdzv_bytes pickle, struct torch_layouts *layouts) {
  struct rendezvous_state state;
  rdzv_error error = {0};
  const int result = read_exactly(pickle.data, pickle.len, &state, layouts, &error);
  if (result < 0) fail_msg("%s", error.message);
  return state;
}

static inline struct rendezvous_state read_attributes(const struct attribute *other, size_t count,
                                                      struct torch_layouts *layouts) {
  struct buf pickle = state_pickle(other, count);
  struct rendezvous_state state = read_state((rdzv_bytes){pickle.data, pickle.len}, layouts);
  buf_free(&pickle);
  return state;
}

static inline struct buf write_state(const struct rendezvous_state *state, enum torch_layout layout) {
  struct buf out = {0};
  rdzv_error error = {0};
  if (pickle_write(state, layout, &out, &error) < 0) fail_msg("%s", error.message);
  return out;
}

/* Written in that layout and read again, the state is equal, and the layout is among those that it shows. */
static inline void assert_survives(const struct rendezvous_state *state, enum torch_layout layout) {
  struct buf pickle = write_state(state, layout);
  struct torch_layouts layouts;
  struct rendezvous_state again = read_state((rdzv_bytes){pickle.data, pickle.len}, &layouts);
  assert_true(state_equal(state, &again));
  assert_in_range(layout, layouts.oldest, layouts.newest);
  state_free(&again);
  buf_free(&pickle);
}

#endif
