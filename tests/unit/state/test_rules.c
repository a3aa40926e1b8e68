/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules by table: a row for every row of the operations in shared/facts/dynamic-rendezvous.md, and its edges. We
 * are node 'm', between min 2 and max 3 nodes, unless the row says otherwise. */
#include "invariants.h"
#include "judge_by_wall.h"
#include "rules_world.h"
#include "state/summary.h"

static struct rendezvous_settings settings_of(void) {
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = 2;
  settings.max_nodes = 3;
  return settings;
}

enum operation { JOIN, EXIT, CLOSE, KEEP_ALIVE, LEAVE };
enum { COMPLETE = 1, CLOSED = 2, CALLED = 4, OVER = 8, DUE = 16, LATE = 32, TOO_LATE = 64, NO_SPARES = 128 };

struct row {
  const char *why;
  enum operation operation;
  const char *state;
  unsigned flags;
  enum rendezvous_action action;
  const char *after; /* NULL: as before */
};

static const struct row rows[] = {
    {"closed: a newcomer is refused", JOIN, "p:ab", CLOSED, ACTION_ERROR_CLOSED, NULL},
    {"closed: a participant is refused, too", JOIN, "p:am", CLOSED | COMPLETE, ACTION_ERROR_CLOSED, NULL},
    {"closed: a spare may go in peace", JOIN, "p:abc r:m", CLOSED | COMPLETE, ACTION_ERROR_GRACEFUL_EXIT, NULL},
    {"a spare waits while the round is full", JOIN, "p:abc r:m", COMPLETE, ACTION_SYNC, NULL},
    {"a spare keeps itself alive", JOIN, "p:abc r:m", COMPLETE | DUE, ACTION_KEEP_ALIVE, NULL},
    {"a spare has no deadline", JOIN, "p:abc r:m", COMPLETE | TOO_LATE, ACTION_SYNC, NULL},
    {"a spare goes for a free place", JOIN, "p:ab r:m", COMPLETE, ACTION_REMOVE_FROM_REDUNDANCY_LIST, "p:a0b0"},
    {"complete with us: done", JOIN, "p:am", COMPLETE, ACTION_FINISH, NULL},
    {"done comes before the deadline", JOIN, "p:am", COMPLETE | TOO_LATE, ACTION_FINISH, NULL},
    {"past the deadline a participant takes itself out", JOIN, "p:am", LATE, ACTION_REMOVE_FROM_PARTICIPANTS, "p:a"},
    {"past the deadline one who waits does", JOIN, "p:ab w:m", LATE | COMPLETE, ACTION_REMOVE_FROM_WAIT_LIST, "p:a0b0"},
    {"past the deadline one outside fails", JOIN, "p:a", LATE, ACTION_ERROR_TIMEOUT, NULL},
    {"past the grace a participant fails", JOIN, "p:am", TOO_LATE, ACTION_ERROR_TIMEOUT, NULL},
    {"past the grace one who waits fails", JOIN, "p:ab w:m", TOO_LATE | COMPLETE, ACTION_ERROR_TIMEOUT, NULL},
    {"complete without us, with room: wait", JOIN, "p:ab", COMPLETE, ACTION_ADD_TO_WAIT_LIST, "p:a0b0 w:m"},
    {"complete and full: be a spare", JOIN, "p:abc", COMPLETE, ACTION_ADD_TO_REDUNDANCY_LIST, "p:a0b0c0 r:m"},
    {"complete and full before 2.3: wait outside", JOIN, "p:abc", COMPLETE | NO_SPARES, ACTION_SYNC, NULL},
    {"one who waits goes on waiting", JOIN, "p:ab w:m", COMPLETE, ACTION_SYNC, NULL},
    {"one who waits beside a full round, too", JOIN, "p:abc w:m", COMPLETE, ACTION_SYNC, NULL},
    {"one who waits keeps itself alive", JOIN, "p:ab w:m", COMPLETE | DUE, ACTION_KEEP_ALIVE, NULL},
    {"the first participant", JOIN, "", 0, ACTION_ADD_TO_PARTICIPANTS, "p:m"},
    {"the one that makes it enough calls the last call", JOIN, "p:a", 0, ACTION_ADD_TO_PARTICIPANTS, "p:am"},
    {"the one that makes it full completes", JOIN, "p:az", CALLED, ACTION_ADD_TO_PARTICIPANTS, "p:a0m1z2"},
    {"who waited comes in from the wait list", JOIN, "p:a w:mx", 0, ACTION_ADD_TO_PARTICIPANTS, "p:am w:x"},
    {"a participant waits for others", JOIN, "p:m", 0, ACTION_SYNC, NULL},
    {"a participant waits for the last call to end", JOIN, "p:am", CALLED, ACTION_SYNC, NULL},
    {"a participant keeps itself alive", JOIN, "p:am", CALLED | DUE, ACTION_KEEP_ALIVE, NULL},
    {"the last call is over", JOIN, "p:am", CALLED | OVER, ACTION_MARK_RENDEZVOUS_COMPLETE, "p:a0m1"},
    {"completing comes before keeping alive", JOIN, "p:am", CALLED | OVER | DUE, ACTION_MARK_RENDEZVOUS_COMPLETE,
     "p:a0m1"},
    {"without a deadline nothing is over", JOIN, "p:am", OVER, ACTION_SYNC, NULL},
    {"too few never complete", JOIN, "p:m", CALLED | OVER, ACTION_SYNC, NULL},
    {"too many never complete", JOIN, "p:abcm", CALLED | OVER, ACTION_SYNC, NULL},

    {"exit takes a participant out", EXIT, "p:am", COMPLETE, ACTION_REMOVE_FROM_PARTICIPANTS, "p:a0"},
    {"the last one out begins the next round", EXIT, "p:m w:x", COMPLETE, ACTION_REMOVE_FROM_PARTICIPANTS, "w:x"},
    {"exit below min ends the last call", EXIT, "p:am", CALLED, ACTION_REMOVE_FROM_PARTICIPANTS, "p:a"},
    {"exit of one who waits is done", EXIT, "p:ab w:m", COMPLETE, ACTION_FINISH, NULL},
    {"exit of one outside is done", EXIT, "p:ab", COMPLETE | LATE, ACTION_FINISH, NULL},
    {"exit can be too late", EXIT, "p:am", LATE, ACTION_ERROR_TIMEOUT, NULL},

    {"close", CLOSE, "p:ab", COMPLETE, ACTION_MARK_RENDEZVOUS_CLOSED, NULL},
    {"closed is closed", CLOSE, "p:ab", CLOSED | LATE, ACTION_FINISH, NULL},
    {"close can be too late", CLOSE, "p:ab", LATE, ACTION_ERROR_TIMEOUT, NULL},

    {"keep alive when due", KEEP_ALIVE, "p:am", COMPLETE | DUE, ACTION_KEEP_ALIVE, NULL},
    {"keep alive is done when not due", KEEP_ALIVE, "p:am", COMPLETE | LATE, ACTION_FINISH, NULL},
    {"keep alive can be too late", KEEP_ALIVE, "p:am", DUE | LATE, ACTION_ERROR_TIMEOUT, NULL},
    {"who was evicted does not come back by a heartbeat", KEEP_ALIVE, "p:ab", DUE, ACTION_FINISH, NULL},

    {"leave as a participant", LEAVE, "p:abm", COMPLETE, ACTION_REMOVE_FROM_PARTICIPANTS, "p:a0b0"},
    {"leave the wait list", LEAVE, "p:ab w:m", COMPLETE, ACTION_REMOVE_FROM_WAIT_LIST, "p:a0b0"},
    {"leave the redundancy list", LEAVE, "p:abc r:m", COMPLETE, ACTION_REMOVE_FROM_REDUNDANCY_LIST, "p:a0b0c0"},
    {"leave from outside is done", LEAVE, "p:ab", COMPLETE | LATE, ACTION_FINISH, NULL},
    {"leave can be too late", LEAVE, "p:am", LATE, ACTION_ERROR_TIMEOUT, NULL},
};

static enum rendezvous_action decide(enum operation operation, const struct rendezvous_context *context) {
  switch (operation) {
    case JOIN: return decide_join(context);
    case EXIT: return decide_exit(context);
    case CLOSE: return decide_close(context);
    case KEEP_ALIVE: return decide_keep_alive(context);
    default: return decide_leave(context);
  }
}

static struct rendezvous_context context_of(const struct row *row, struct rendezvous_state *state,
                                            struct rendezvous_settings *settings, const struct node_desc *node) {
  *settings = settings_of();
  settings->has_redundancy_list = !(row->flags & NO_SPARES);
  state->complete = row->flags & COMPLETE;
  state->closed = row->flags & CLOSED;
  if (row->flags & (CALLED)) state->deadline = NOW_US + SECOND;
  struct rendezvous_context context = {node, state, settings, NOW, NOW_MS, false, false, 0, CLASH_NONE};
  context.keep_alive_due = row->flags & DUE;
  context.last_call_over = row->flags & OVER;
  if (row->flags & LATE) context.deadline_ms -= 1;
  if (row->flags & TOO_LATE) context.deadline_ms -= RENDEZVOUS_ROLLBACK_MS + 1;
  return context;
}

static void check_row(const struct row *row) {
  struct rendezvous_state state = state_of(row->state);
  struct rendezvous_settings settings;
  const struct node_desc node = node_of("m");
  struct rendezvous_context context = context_of(row, &state, &settings, &node);
  const struct state_text before = text_of(&state);
  const enum rendezvous_action action = decide(row->operation, &context);
  if (action != row->action)
    fail_msg("%s: %s, not %s", row->why, rendezvous_action_name(action), rendezvous_action_name(row->action));
  assert_code(rendezvous_apply(&context, action, NULL), 0);
  const struct state_text after = text_of(&state);
  if (strcmp(after.text, row->after ? row->after : before.text) != 0)
    fail_msg("%s: the state is '%s', not '%s'", row->why, after.text, row->after ? row->after : before.text);
  state_free(&state);
}

/* Every row decides and does what it says. */
static void test_every_row(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(rows); i++) check_row(&rows[i]);
}

/* Deadlines are not past at their own moment: PyTorch compares with >. */
static void test_a_deadline_holds_to_its_last_moment(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:m");
  struct rendezvous_settings settings = settings_of();
  const struct node_desc node = node_of("m");
  struct rendezvous_context context = {&node, &state, &settings, NOW, NOW_MS, false, false, 0, CLASH_NONE};
  assert_int_equal(decide_join(&context), ACTION_SYNC);
  context.deadline_ms = NOW_MS - RENDEZVOUS_ROLLBACK_MS;
  assert_int_equal(decide_join(&context), ACTION_REMOVE_FROM_PARTICIPANTS);
  state_free(&state);
}

/* By the wall clock: a heartbeat is due at exactly the interval, a last call is over only after its deadline. */
static void test_wall_clock_edges(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:a");
  struct rendezvous_settings settings = settings_of();
  const struct node_desc node = node_of("m");
  struct rendezvous_context context = {&node, &state, &settings, NOW, NOW_MS, true, true, 0, CLASH_NONE};
  judge_by_wall(&context);
  assert_false(context.keep_alive_due);
  put(&state, "m", NODE_PARTICIPANT, 5000);
  state.deadline = NOW_US;
  judge_by_wall(&context);
  assert_true(context.keep_alive_due);
  assert_false(context.last_call_over);
  state_find(&state, &node)->last_heartbeat++;
  state.deadline--;
  judge_by_wall(&context);
  assert_false(context.keep_alive_due);
  assert_true(context.last_call_over);
  state_free(&state);
}

/* The last call is called by whoever makes the number sufficient, and by nobody after. */
static void test_last_call_is_called_once(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:a");
  struct rendezvous_settings settings = settings_of();
  settings.max_nodes = 9;
  const struct node_desc node = node_of("m"), other = node_of("x");
  struct rendezvous_context context = {&node, &state, &settings, NOW, NOW_MS, false, false, 0, CLASH_NONE};
  assert_code(rendezvous_apply(&context, ACTION_ADD_TO_PARTICIPANTS, NULL), 0);
  assert_int_equal(state.deadline, NOW_US + 30 * SECOND);
  context.node = &other;
  context.now.wall_us += SECOND;
  assert_code(rendezvous_apply(&context, ACTION_ADD_TO_PARTICIPANTS, NULL), 0);
  assert_int_equal(state.deadline, NOW_US + 30 * SECOND);
  assert_int_equal(state_find(&state, &other)->last_heartbeat, NOW_US + SECOND);
  state_free(&state);
}

static bool is_named(void *names, const struct state_node *member) { return strstr(names, member->desc.addr) != NULL; }

/* The dead go from every collection. A complete round stays complete until nobody is left, one that gathers loses its
 * last call below min. */
static void test_the_dead_are_removed(void **unused) {
  (void)unused;
  static const struct {
    const char *state, *dead, *after;
    unsigned flags;
    int64_t round;
    bool complete, called;
  } cases[] = {
      {"p:abc w:x r:y", "bxy", "p:a0c0", COMPLETE, 0, true, false},
      {"p:abc w:x", "abc", "w:x", COMPLETE, 1, false, false},
      {"p:abc", "a", "p:bc", CALLED, 0, false, true},
      {"p:abc", "ab", "p:c", CALLED, 0, false, false},
      {"p:a w:x", "x", "p:a0", COMPLETE, 0, true, false},
  };
  const struct rendezvous_settings settings = settings_of();
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct rendezvous_state state = state_of(cases[i].state);
    state.complete = cases[i].flags & COMPLETE;
    if (cases[i].flags & CALLED) state.deadline = NOW_US;
    assert_int_equal(rendezvous_sanitize(&state, &settings, is_named, (void *)cases[i].dead), strlen(cases[i].dead));
    assert_string_equal(text_of(&state).text, cases[i].after);
    assert_int_equal(state.round, cases[i].round);
    assert_int_equal(state.complete, cases[i].complete);
    const bool marked = state.complete && state.deadline == WORLD_LEFT;
    assert_int_equal(state.deadline != DATETIME_NONE && !marked, cases[i].called);
    state_free(&state);
  }
}

/* A round that somebody left is not whole any more, not even if the highest rank did: that is marked. */
static void test_a_round_that_was_left_is_not_whole(void **unused) {
  (void)unused;
  struct rendezvous_settings settings = settings_of();
  const struct node_desc node = node_of("m"), last = node_of("z");
  for (int marked = 0; marked <= 1; marked++) {
    settings.marks = marked;
    struct rendezvous_state state = state_of("p:az");
    struct rendezvous_context context = {&node, &state, &settings, NOW, NOW_MS, false, false, 0, CLASH_NONE};
    assert_code(rendezvous_apply(&context, ACTION_ADD_TO_PARTICIPANTS, NULL), 0);
    assert_true(world_is_whole(&state));
    context.node = &last;
    assert_code(rendezvous_apply(&context, ACTION_REMOVE_FROM_PARTICIPANTS, NULL), 0);
    assert_int_equal(world_is_whole(&state), !marked);
    context.node = &(struct node_desc){"a", 1, 0};
    assert_code(rendezvous_apply(&context, ACTION_REMOVE_FROM_PARTICIPANTS, NULL), 0);
    assert_false(world_is_whole(&state));
    assert_int_equal(state.deadline, marked ? WORLD_LEFT : DATETIME_NONE);
    context.node = &node;
    assert_code(rendezvous_apply(&context, ACTION_REMOVE_FROM_PARTICIPANTS, NULL), 0);
    assert_int_equal(state.round, 1);
    assert_int_equal(state.deadline, DATETIME_NONE);
    state_free(&state);
  }
}

/* A node that PyTorch put in two collections is taken out of the one it leaves. */
static void test_removal_is_from_one_collection(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:ab");
  put(&state, "m", NODE_PARTICIPANT | NODE_WAITING, 0);
  struct rendezvous_settings settings = settings_of();
  const struct node_desc node = node_of("m");
  struct rendezvous_context context = {&node, &state, &settings, NOW, NOW_MS, false, false, 0, CLASH_NONE};
  assert_code(rendezvous_apply(&context, ACTION_REMOVE_FROM_PARTICIPANTS, NULL), 0);
  assert_string_equal(text_of(&state).text, "p:ab w:m");
  assert_int_equal(state_find(&state, &node)->last_heartbeat, DATETIME_NONE);
  state_free(&state);
}

/* What a join that fails says: how many, how many were needed, who, and who was heard when; longest silent first. */
static void test_the_report_names_names(void **unused) {
  (void)unused;
  struct rendezvous_settings settings = settings_of();
  settings.min_nodes = 9;
  struct rendezvous_state state = state_of("p:ab w:c");
  struct liveness liveness = {0};
  const struct node_desc node = node_of("m");
  assert_code(liveness_observe(&liveness, &settings, &node, &state, NOW, NULL), 0);
  state.nodes[1].last_heartbeat++;
  const struct moment later = {NOW_MS + 4000, NOW_US + 4 * SECOND};
  assert_code(liveness_observe(&liveness, &settings, &node, &state, later, NULL), 0);
  assert_string_equal(summary_joined(&state, &settings, &liveness, NOW_MS + 4000).text,
                      "2 of at least 9 nodes joined: 'a_1_0' (heard 4 s ago), 'b_1_0' (heard 0 s ago); 1 wait");
  liveness_free(&liveness);
  state_free(&state);
}

/* However many there are and however long their names, it ends with how many more there are. */
static void test_the_report_is_bounded(void **unused) {
  (void)unused;
  const struct rendezvous_settings settings = settings_of();
  struct liveness liveness = {0};
  for (int length = 1; length <= STATE_MAX_ADDR; length *= 4) {
    struct rendezvous_state state = STATE_EMPTY;
    for (int i = 0; i < 20; i++) {
      char name[STATE_MAX_ADDR + 1] = "";
      memset(name, 'a' + i, (size_t)length);
      put(&state, name, NODE_PARTICIPANT, 0);
    }
    const struct summary report = summary_joined(&state, &settings, &liveness, NOW_MS);
    assert_non_null(strstr(report.text, length > 400 ? " and 20 more" : " more"));
    state_free(&state);
  }
}

/* What a decision is made on, as a trace says it. */
static void test_the_condition_reads(void **unused) {
  (void)unused;
  struct rendezvous_state state = state_of("p:am w:c");
  struct rendezvous_settings settings = settings_of();
  const struct node_desc node = node_of("m");
  const struct rendezvous_context context = {&node, &state, &settings, NOW, NOW_MS, true, false, 0, CLASH_NONE};
  assert_string_equal(summary_condition(&context).text,
                      "round 0 gathering, 2 joined (2..3), 1 wait, this node is a participant, keep-alive due");
  state_free(&state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row),
      cmocka_unit_test(test_a_deadline_holds_to_its_last_moment),
      cmocka_unit_test(test_wall_clock_edges),
      cmocka_unit_test(test_last_call_is_called_once),
      cmocka_unit_test(test_the_dead_are_removed),
      cmocka_unit_test(test_a_round_that_was_left_is_not_whole),
      cmocka_unit_test(test_removal_is_from_one_collection),
      cmocka_unit_test(test_the_report_names_names),
      cmocka_unit_test(test_the_report_is_bounded),
      cmocka_unit_test(test_the_condition_reads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
