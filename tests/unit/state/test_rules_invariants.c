/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariants hold of good states and fail for each way of breaking one. Between 2 and 3 nodes. */
#include "invariants.h"
#include "rules_world.h"

static const struct rendezvous_settings *settings_of(void) {
  static struct rendezvous_settings settings;
  settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = 2;
  settings.max_nodes = 3;
  return &settings;
}

/* "0 complete p:ab", "1 called p:ab", "0 gathering p:a", "0 closed p:a": ranks in order. */
static struct rendezvous_state make(const char *text) {
  struct rendezvous_state state = state_of(strchr(text, ':') ? strchr(text, ':') - 1 : "");
  state.round = text[0] - '0';
  state.complete = strstr(text, "complete") != NULL;
  state.closed = strstr(text, "closed") != NULL;
  if (strstr(text, "called")) state.deadline = NOW_US;
  if (state.complete) assert_code(rendezvous_assign_ranks(&state, RANK_ORDER_TORCH, NULL), 0);
  return state;
}

static void expect(const char *broken, const char *part, const char *what) {
  if (part ? broken && strstr(broken, part) : !broken) return;
  fail_msg("%s: '%s', not '%s'", what, broken ? broken : "holds", part ? part : "holds");
}

static void test_states(void **unused) {
  (void)unused;
  static const struct {
    const char *state, *broken;
  } cases[] = {
      {"0 gathering p:a w:x r:y", NULL},
      {"0 called p:ab", NULL},
      {"3 complete p:abc r:y", NULL},
      {"3 complete p:a w:x", NULL}, /* the others left */
      {"0 closed p:a", NULL},
      {"0 gathering p:ab", "enough nodes have a last call"},
      {"0 called p:a", "too few nodes have no last call"},
      {"0 called p:abc", "a full round is complete"},
      {"0 complete", "has somebody in it"},
      {"0 complete called p:ab", "has no last call"},
      {"0 complete p:abcd", "at most max_nodes"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct rendezvous_state state = make(cases[i].state);
    expect(rendezvous_broken_invariant(&state, settings_of()), cases[i].broken, cases[i].state);
    state_free(&state);
  }
}

static void break_rank(struct rendezvous_state *state) { state->nodes[0].rank = 1; }
static void break_high_rank(struct rendezvous_state *state) { state->nodes[0].rank = 3; }
static void break_kinds(struct rendezvous_state *state) { state_set_kinds(state, &state->nodes[0], 3); }
static void break_kind(struct rendezvous_state *state) { state_set_kinds(state, &state->nodes[0], 0); }
static void break_heartbeat(struct rendezvous_state *state) { state->nodes[0].last_heartbeat = DATETIME_NONE; }
static void break_round(struct rendezvous_state *state) { state->round = -1; }

static void test_members(void **unused) {
  (void)unused;
  static const struct {
    const char *state, *broken;
    void (*break_it)(struct rendezvous_state *);
  } cases[] = {
      {"0 complete p:abc", "given twice", break_rank},
      {"0 complete p:abc", "below the size of the world", break_high_rank},
      {"0 called p:ab", "no ranks before", break_rank},
      {"0 called p:ab", "one collection", break_kinds},
      {"0 called p:ab", "one collection", break_kind},
      {"0 called p:ab", "has a heartbeat", break_heartbeat},
      {"0 called p:ab", "count from 0", break_round},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct rendezvous_state state = make(cases[i].state);
    cases[i].break_it(&state);
    expect(rendezvous_broken_invariant(&state, settings_of()), cases[i].broken, cases[i].state);
    state_free(&state);
  }
}

static void test_transitions(void **unused) {
  (void)unused;
  static const struct {
    const char *before, *after, *broken;
  } cases[] = {
      {"0 gathering p:a", "0 called p:ab", NULL},
      {"0 called p:ab", "0 gathering p:a", NULL},
      {"0 called p:ab", "0 complete p:ab", NULL},
      {"0 called p:ab", "0 complete p:abc", NULL},
      {"0 complete p:abc", "0 complete p:ab", "rank changes"}, /* make() ranked anew */
      {"0 complete p:ab", "0 complete p:a", NULL},
      {"0 complete p:a w:x", "1 gathering w:x", NULL},
      {"0 complete p:a", "1 gathering p:b", NULL},
      {"0 complete p:a", "0 closed complete p:a", NULL},
      {"0 closed p:ab", "0 called p:ab", "closed is final"},
      {"1 gathering p:a", "0 gathering p:a", "never go back"},
      {"0 complete p:a", "2 gathering p:a", NULL},
      {"0 gathering p:", "7 gathering p:a", NULL},
      {"0 gathering p:a", "7 called p:ab", NULL},
      {"0 gathering p:a", "7 gathering p:a", "from a node that comes in"},
      {"0 called p:ab", "1 gathering p:a", "from a node that comes in"},
      {"0 called p:ab", "7 closed p:abc", "does not follow"},
      {"0 complete p:ab", "0 called p:ab", "does not follow"},
      {"0 closed p:ab", "1 closed p:a", "from a node that comes in"},
      {"0 complete p:ac", "0 complete p:abc", "comes into a complete round"},
      {"0 called p:ab", "0 complete p:a", "min_nodes at least"},
      {"0 called p:ab", "0 complete p:abcd", "max_nodes at most"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct rendezvous_state before = make(cases[i].before), after = make(cases[i].after);
    if (i == 4) after.nodes[0].rank = 7;
    expect(rendezvous_broken_transition(&before, &after, settings_of()), cases[i].broken, cases[i].after);
    state_free(&before);
    state_free(&after);
  }
}

static void test_completion_has_no_gap(void **unused) {
  (void)unused;
  struct rendezvous_state before = make("0 called p:ab"), after = make("0 complete p:ab");
  after.nodes[1].rank = 2;
  expect(rendezvous_broken_transition(&before, &after, settings_of()), "below the size", "a gap");
  state_free(&before);
  state_free(&after);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_states),
      cmocka_unit_test(test_members),
      cmocka_unit_test(test_transitions),
      cmocka_unit_test(test_completion_has_no_gap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
