/* SPDX-License-Identifier: BSD-3-Clause */
#include "server/session.h"
#include "unit.h"

struct fixture {
  struct budget budget;
  struct sessions sessions;
  char conns[4]; /* their addresses are connections */
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  if (!f) return -1;
  f->budget.max = 1 << 20;
  sessions_init(&f->sessions, &f->budget, (struct siphash_seed){{1, 2}});
  *state = f;
  return 0;
}

/* All memory is given back in any case. */
static int teardown(void **state) {
  struct fixture *f = *state;
  sessions_free(&f->sessions);
  const int result = f->budget.used == 0 ? 0 : -1;
  free(f);
  return result;
}

static struct session *open_one(struct fixture *f, int conn) {
  struct session *session = session_open(&f->sessions, &f->conns[conn]);
  assert_non_null(session);
  return session;
}

struct token {
  uint8_t bytes[WIRE_TOKEN_BYTES];
};

static struct token token_of(const struct fixture *f, const struct session *session) {
  struct token token;
  session_token(&f->sessions, session, token.bytes);
  return token;
}

static int find(struct fixture *f, const struct token *token, uint64_t epoch, struct session **out) {
  return session_find(&f->sessions, (rdzv_bytes){token->bytes, sizeof token->bytes}, epoch, out);
}

static void set_once(struct fixture *f, struct session *session, uint64_t number) {
  session_done(&f->sessions, session, number, WIRE_OP_SET, 0);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static void test_a_number_is_done_once(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0);
  assert_int_equal(session_judge(session, 1, WIRE_OP_SET), SESSION_NEW);
  set_once(f, session, 1);
  assert_int_equal(session_judge(session, 1, WIRE_OP_SET), SESSION_REPEATED);
  assert_int_equal(session_judge(session, 2, WIRE_OP_SET), SESSION_NEW);
  set_once(f, session, 5); /* the client may give up on some */
  assert_int_equal(session_judge(session, 5, WIRE_OP_SET), SESSION_REPEATED);
  assert_int_equal(session_judge(session, 6, WIRE_OP_SET), SESSION_NEW);
}

static void test_a_number_below_the_last_or_of_another_kind_is_wrong(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0);
  set_once(f, session, 7);
  assert_int_equal(session_judge(session, 6, WIRE_OP_SET), SESSION_WRONG);
  assert_int_equal(session_judge(session, 0, WIRE_OP_SET), SESSION_WRONG);
  assert_int_equal(session_judge(session, 7, WIRE_OP_ADD), SESSION_WRONG);
}

static void test_a_write_without_effect_is_done_again(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0);
  assert_int_equal(session_judge(session, 1, WIRE_OP_QUEUE_POP), SESSION_NEW); /* it found nothing */
  assert_int_equal(session_judge(session, 1, WIRE_OP_QUEUE_POP), SESSION_NEW);
}

/* A pop that waited is done after a write that was sent behind it: the later number stays. */
static void test_an_older_number_that_is_done_late_does_not_count(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0);
  set_once(f, session, 2);
  assert_true(session_took(&f->sessions, session, 1, WIRE_OP_QUEUE_POP_WAIT, 0, BYTES("late")));
  assert_int_equal(session_judge(session, 2, WIRE_OP_SET), SESSION_REPEATED);
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

static void assert_repeats(const struct session *session, const struct wire_request *request, rdzv_bytes expected) {
  struct wire_writer out = {0};
  session_repeat(session, request, &out);
  assert_int_equal(out.buf.len, expected.len);
  assert_memory_equal(out.buf.data, expected.data, expected.len);
  buf_free(&out.buf);
}

static void test_each_write_is_answered_as_it_was(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0);
  const struct wire_request none = {0}, swap = {.desired = BYTES("new")};
  const struct {
    enum wire_op op;
    uint64_t result;
    const struct wire_request *request;
    rdzv_bytes answer;
  } cases[] = {
      {WIRE_OP_SET, 0, &none, BYTES("\0")},
      {WIRE_OP_MULTI_SET, 0, &none, BYTES("\0")},
      {WIRE_OP_APPEND, 0, &none, BYTES("\0")},
      {WIRE_OP_QUEUE_PUSH, 0, &none, BYTES("\0")},
      {WIRE_OP_ADD, 258, &none, BYTES("\0\2\1\0\0\0\0\0\0")},
      {WIRE_OP_DELETE_KEY, 1, &none, BYTES("\0\1\0\0\0\0\0\0\0")},
      {WIRE_OP_COMPARE_SET, 0, &swap, BYTES("\0\3\0\0\0\0\0\0\0new")},
      {WIRE_OP_COMPARE_SET_VERSION, 9, &none, BYTES("\0\1\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    session_done(&f->sessions, session, i + 1, cases[i].op, cases[i].result);
    assert_repeats(session, cases[i].request, cases[i].answer);
  }
}

/* What a pop took is there as long as it is the last write. */
static void test_a_popped_value_is_kept_until_the_next_write(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0);
  const struct wire_request none = {0};
  const size_t before = f->budget.used;
  assert_true(session_took(&f->sessions, session, 1, WIRE_OP_QUEUE_POP, 3, BYTES("item")));
  assert_repeats(session, &none, BYTES("\0\3\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0item"));
  assert_true(session_took(&f->sessions, session, 2, WIRE_OP_QUEUE_POP_WAIT, 0, BYTES("next one")));
  assert_repeats(session, &none, BYTES("\0\x8\0\0\0\0\0\0\0next one"));
  assert_int_equal(f->budget.used, before + 8);
  set_once(f, session, 3);
  assert_int_equal(f->budget.used, before);
  assert_true(session_took(&f->sessions, session, 4, WIRE_OP_QUEUE_POP, 1, BYTES("")));
  assert_repeats(session, &none, BYTES("\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
}

/* ---- connections ----------------------------------------------------------------------------------------------- */

static void test_a_session_is_taken_from_its_connection(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0), *found;
  const struct token token = token_of(f, session);
  assert_code(find(f, &token, 1, &found), 0);
  assert_ptr_equal(found, session);
  assert_ptr_equal(session_attach(&f->sessions, session, 1, &f->conns[1]), &f->conns[0]);
  assert_ptr_equal(session_attach(&f->sessions, session, 2, &f->conns[2]), &f->conns[1]);
}

/* A takeover that arrives late, after a later one, is none. */
static void test_an_older_takeover_is_refused(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0), *found;
  const struct token token = token_of(f, session);
  session_attach(&f->sessions, session, 2, &f->conns[1]);
  assert_code(find(f, &token, 1, &found), RDZV_E_STALE);
  assert_code(find(f, &token, 2, &found), RDZV_E_STALE);
  assert_code(find(f, &token, 3, &found), 0);
  assert_code(find(f, &token, 0, &found), RDZV_E_PROTOCOL);
}

/* That is known also of a session that has done nothing, as long as anything is known of it. */
static void test_a_session_that_was_taken_over_does_not_begin_again(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0), *found;
  const struct token token = token_of(f, session);
  session_attach(&f->sessions, session, 2, &f->conns[1]);
  session_leave(&f->sessions, session, 1000);
  assert_code(find(f, &token, 1, &found), RDZV_E_STALE);
  assert_code(find(f, &token, 3, &found), 0);
  sessions_forget(&f->sessions, 1001);
  assert_code(find(f, &token, 1, &found), RDZV_E_OUTCOME_UNKNOWN);
}

static void test_a_session_outlives_its_connection_for_a_while(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0), *found;
  const struct token token = token_of(f, session);
  set_once(f, session, 1);
  for (uint64_t epoch = 1; epoch <= 3; epoch++) { /* it may come and go */
    session_leave(&f->sessions, session, 1000);
    sessions_forget(&f->sessions, 1000);
    assert_code(find(f, &token, epoch, &found), 0);
    assert_ptr_equal(found, session);
    assert_null(session_attach(&f->sessions, session, epoch, &f->conns[1]));
    sessions_forget(&f->sessions, INT64_MAX); /* it has a connection: nothing to forget */
  }
  session_leave(&f->sessions, session, 2000);
  sessions_forget(&f->sessions, 2001);
  assert_code(find(f, &token, 1, &found), RDZV_E_OUTCOME_UNKNOWN);
}

/* Nothing is lost with a session that never wrote, so it may come back at any time, with the first write on its way. */
static void test_a_session_that_never_wrote_begins_again(void **state) {
  struct fixture *f = *state;
  struct session *session = open_one(f, 0), *found;
  const struct token token = token_of(f, session);
  session_leave(&f->sessions, session, 0);
  assert_int_equal(f->budget.used, 0);
  assert_code(find(f, &token, 1, &found), 0);
  assert_int_equal(session_judge(found, 1, WIRE_OP_SET), SESSION_NEW);
  assert_null(session_attach(&f->sessions, found, 1, &f->conns[1]));
}

/* But once it, or a later one, has written and is forgotten, nobody can tell. */
static void test_late_bytes_of_a_forgotten_session_do_not_begin_it_again(void **state) {
  struct fixture *f = *state;
  struct session *first = open_one(f, 0), *second = open_one(f, 1), *third = open_one(f, 2), *found;
  const struct token tokens[] = {token_of(f, first), token_of(f, second), token_of(f, third)};
  session_leave(&f->sessions, first, 0);
  set_once(f, second, 1);
  session_leave(&f->sessions, second, 0);
  session_leave(&f->sessions, third, 0);
  sessions_forget(&f->sessions, INT64_MAX);
  assert_code(find(f, &tokens[0], 1, &found), RDZV_E_OUTCOME_UNKNOWN);
  assert_code(find(f, &tokens[1], 1, &found), RDZV_E_OUTCOME_UNKNOWN);
  assert_code(find(f, &tokens[2], 1, &found), 0);
}

static void test_a_token_that_was_not_given_out_is_refused(void **state) {
  struct fixture *f = *state;
  struct session *found;
  const struct token good = token_of(f, open_one(f, 0));
  for (size_t i = 0; i < sizeof good.bytes; i++) {
    struct token bad = good;
    bad.bytes[i] ^= 1;
    assert_code(find(f, &bad, 1, &found), RDZV_E_PROTOCOL);
  }
  assert_code(session_find(&f->sessions, (rdzv_bytes){good.bytes, 15}, 1, &found), RDZV_E_PROTOCOL);
  assert_code(session_find(&f->sessions, (rdzv_bytes){0}, 1, &found), RDZV_E_PROTOCOL);
}

/* ---- limits ---------------------------------------------------------------------------------------------------- */

static void test_the_oldest_without_a_connection_makes_room(void **state) {
  struct fixture *f = *state;
  struct session *oldest = open_one(f, 0), *found;
  const struct token token = token_of(f, oldest);
  set_once(f, oldest, 1);
  session_leave(&f->sessions, oldest, 0);
  f->budget.max = f->budget.used;
  struct session *next = open_one(f, 1);
  assert_code(find(f, &token, 1, &found), RDZV_E_OUTCOME_UNKNOWN);
  assert_null(session_open(&f->sessions, &f->conns[2])); /* one that is connected does not */
  const struct token of_next = token_of(f, next);
  assert_code(find(f, &of_next, 1, &found), 0);
}

static void test_their_number_is_bounded(void **state) {
  struct fixture *f = *state;
  f->budget.max = SIZE_MAX;
  for (int i = 0; i <= SESSIONS_KEPT; i++) {
    struct session *session = open_one(f, 0);
    set_once(f, session, 1);
    session_leave(&f->sessions, session, i);
  }
  assert_int_equal(f->sessions.left_count, SESSIONS_KEPT);
  assert_int_equal(f->sessions.forgotten, 1);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(test_a_number_is_done_once),
      WITH_FIXTURE(test_a_number_below_the_last_or_of_another_kind_is_wrong),
      WITH_FIXTURE(test_a_write_without_effect_is_done_again),
      WITH_FIXTURE(test_an_older_number_that_is_done_late_does_not_count),
      WITH_FIXTURE(test_each_write_is_answered_as_it_was),
      WITH_FIXTURE(test_a_popped_value_is_kept_until_the_next_write),
      WITH_FIXTURE(test_a_session_is_taken_from_its_connection),
      WITH_FIXTURE(test_an_older_takeover_is_refused),
      WITH_FIXTURE(test_a_session_that_was_taken_over_does_not_begin_again),
      WITH_FIXTURE(test_a_session_outlives_its_connection_for_a_while),
      WITH_FIXTURE(test_a_session_that_never_wrote_begins_again),
      WITH_FIXTURE(test_late_bytes_of_a_forgotten_session_do_not_begin_it_again),
      WITH_FIXTURE(test_a_token_that_was_not_given_out_is_refused),
      WITH_FIXTURE(test_the_oldest_without_a_connection_makes_room),
      WITH_FIXTURE(test_their_number_is_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
