/* SPDX-License-Identifier: BSD-3-Clause */
/* States for the tests of the rules, from a short text. */
#ifndef RDZV_TESTS_RULES_WORLD_H
#define RDZV_TESTS_RULES_WORLD_H

#include "state/rendezvous.h"
#include "unit.h"

#define NOW_MS INT64_C(1000000)
#define NOW_US (INT64_C(1790000000) * 1000000)
#define SECOND INT64_C(1000000)
static const struct moment NOW = {NOW_MS, NOW_US};

static inline struct node_desc node_of(const char *name) { return (struct node_desc){.addr = name, .pid = 1}; }

static inline struct state_node *put(struct rendezvous_state *state, const char *name, unsigned kinds, int64_t age_ms) {
  const struct node_desc node = node_of(name);
  struct state_node *member;
  assert_code(state_insert(state, &node, &member, NULL), 0);
  state_set_kinds(state, member, kinds);
  member->last_heartbeat = NOW_US - age_ms * 1000;
  return member;
}

/* Members by name, each one letter behind a sign: p participants, w waiting, r redundant: "p:ab w:c". All have just
 * sent a heartbeat. */
static inline struct rendezvous_state state_of(const char *text) {
  struct rendezvous_state state = STATE_EMPTY;
  unsigned kind = 0;
  for (; *text; text++) {
    if (text[1] == ':') {
      kind = *text == 'p' ? NODE_PARTICIPANT : *text == 'w' ? NODE_WAITING : NODE_SPARE;
      text++;
    } else if (*text != ' ') {
      put(&state, (char[]){*text, '\0'}, kind, 0);
    }
  }
  return state;
}

/* The other way round, with a rank behind each participant of a complete round: "p:a0b1 w:c". */
struct state_text {
  char text[256];
};
static inline struct state_text text_of(const struct rendezvous_state *state) {
  static const struct {
    unsigned kind;
    const char *sign;
  } signs[] = {{NODE_PARTICIPANT, "p:"}, {NODE_WAITING, "w:"}, {NODE_SPARE, "r:"}};
  struct state_text text = {""};
  char *at = text.text;
  for (size_t s = 0; s < COUNT_OF(signs); s++) {
    bool any = false;
    for (size_t i = 0; i < state->count; i++) {
      const struct state_node *member = &state->nodes[i];
      if (!(member->kinds & signs[s].kind)) continue;
      if (!any) at += sprintf(at, "%s%s", at == text.text ? "" : " ", signs[s].sign);
      at += sprintf(at, "%s", member->desc.addr);
      if (signs[s].kind == NODE_PARTICIPANT && state->complete) at += sprintf(at, "%d", (int)member->rank);
      any = true;
    }
  }
  return text;
}

#endif
