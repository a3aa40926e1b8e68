/* SPDX-License-Identifier: BSD-3-Clause */
/* The cell over a c10d store, the same for every kind of store: with versions, with the text as token, over a file. */
#include "cells.h"

/* ---- the key and what is in it -------------------------------------------------------------------------------- */

/* The key is PyTorch's, and where there is no state it holds PyTorch's sentinel; for nobody is it a state. */
static void test_no_state_is_the_sentinel_under_pytorchs_key(void **state) {
  struct cells *cells = *state;
  uint64_t token = 77;
  assert_get(cells->raw, RUN_KEY, "Y2FuaW1hZGFt");
  assert_cell(cells->cell, &token, "");
  assert_int_equal(token, 0);
  assert_cell(cells->other, &token, "");
  assert_get(cells->raw, RUN_KEY, "Y2FuaW1hZGFt");
}

/* What is written is base64, and what PyTorch writes is read; bytes of 0 are bytes as others. */
static void test_the_value_is_base64(void **state) {
  struct cells *cells = *state;
  uint64_t token;
  assert_cell(cells->cell, &token, "");
  assert_set(cells->cell, "foo\0b", &token, true, "");
  assert_get(cells->raw, RUN_KEY, "Zm9vAGI=");
  assert_cell(cells->other, &token, "foo\0b");
  must_set(cells->raw, RUN_KEY, "Zm9vYmFy");
  assert_cell(cells->cell, &token, "foobar");
  assert_cell(cells->other, &token, "foobar");
}

/* A cell that is opened where there is a state leaves it there. */
static void test_opening_leaves_a_state_alone(void **state) {
  struct cells *cells = *state;
  uint64_t token;
  assert_cell(cells->cell, &token, "");
  assert_set(cells->cell, "s", &token, true, "");
  rdzv_store *store = another(cells->store);
  rdzv_backend *late = cell_in(cells, store);
  assert_cell(late, &token, "s");
  close_cell(&late);
  rdzv_store_free(store);
}

static void test_a_run_id_is_needed(void **state) {
  struct cells *cells = *state;
  rdzv_backend *cell;
  rdzv_error error;
  assert_error(c10d_open(cells->store, NULL, "", &(rdzv_log){0}, &cell, &error), RDZV_E_INVALID, &error,
               "the run id is empty");
}

static void test_it_says_where_it_is(void **state) {
  struct cells *cells = *state;
  const char *text = cells->cell->ops->describe(cells->cell);
  assert_string_equal(cells->cell->ops->name, "c10d");
  if (strncmp(text, "c10d ", 5) != 0) fail_msg("%s", text);
  if (cells->server) assert_non_null(strstr(text, rdzv_server_address(cells->server)));
  if (cells->path[0]) assert_non_null(strstr(text, cells->path));
  assert_null(strstr(text, "served by this process"));
}

/* ---- fencing -------------------------------------------------------------------------------------------------- */

/* Who has no token writes only where there is no state; nobody needs to have read before. */
static void test_without_a_token_only_the_first_writes(void **state) {
  struct cells *cells = *state;
  uint64_t first = 0, second = 0;
  assert_set(cells->cell, "one", &first, true, "");
  assert_set(cells->other, "two", &second, false, "one");
  assert_true(second != 0);
  second = 0;
  assert_set(cells->cell, "three", &second, false, "one");
  assert_int_equal(second, first);
}

/* A token is good for the version that it names, once; who is late gets what is there, and its token. */
static void test_a_stale_token_does_not_write(void **state) {
  struct cells *cells = *state;
  uint64_t mine, theirs, old;
  assert_cell(cells->cell, &mine, "");
  assert_cell(cells->other, &theirs, "");
  assert_set(cells->cell, "a", &mine, true, "");
  old = mine;
  assert_set(cells->other, "b", &theirs, false, "a");
  assert_set(cells->other, "b", &theirs, true, "");
  assert_set(cells->cell, "c", &mine, false, "b");
  assert_set(cells->cell, "c", &mine, true, "");
  assert_set(cells->cell, "d", &old, false, "c"); /* of a version that it has seen replaced itself */
  assert_int_equal(old, mine);
  assert_cell(cells->other, &theirs, "c");
}

/* A token that was never given is none. */
static void test_a_wrong_token_never_writes(void **state) {
  struct cells *cells = *state;
  uint64_t token, wrong;
  assert_cell(cells->cell, &token, "");
  wrong = 4711;
  assert_set(cells->cell, "x", &wrong, false, "");
  assert_int_equal(wrong, 0);
  assert_set(cells->cell, "a", &token, true, "");
  wrong = token + 4711;
  assert_set(cells->cell, "x", &wrong, false, "a");
  assert_int_equal(wrong, token);
  wrong = UINT64_MAX;
  assert_set(cells->cell, "x", &wrong, false, "a");
  assert_cell(cells->cell, &token, "a");
}

/* Swaps of many: each number is written once. */
static void test_no_write_is_lost_among_two(void **state) {
  struct cells *cells = *state;
  rdzv_backend *both[] = {cells->cell, cells->other};
  uint64_t tokens[2] = {0, 0};
  int wins = 0;
  for (int i = 0; wins < 20 && i < 200; i++) {
    rdzv_value value;
    bool written = false;
    char text[16];
    const int who = i % 3 == 0;
    snprintf(text, sizeof text, "%d", wins + 1);
    assert_code(both[who]->ops->set(both[who], rdzv_str(text), 0, &tokens[who], &written, &value, NULL), 0);
    if (!written && tokens[who] != 0) assert_int_equal(atoi(value.data), wins);
    wins += written;
    rdzv_value_free(&value);
  }
  assert_int_equal(wins, 20);
  uint64_t token;
  assert_cell(cells->other, &token, "20");
}

/* ---- what others do to the key -------------------------------------------------------------------------------- */

static void test_corrupt_base64_is_told_and_passes(void **state) {
  struct cells *cells = *state;
  uint64_t token = 0, known;
  rdzv_value value = {0};
  rdzv_error error;
  bool written = false;
  assert_cell(cells->cell, &known, "");
  assert_set(cells->cell, "good", &known, true, "");
  static const char *const corrupt[] = {"no base64!", "Zm9", "Zm9v\n", "Zh==", "Zm9vZm9*"};
  for (size_t i = 0; i < COUNT_OF(corrupt); i++) {
    must_set(cells->raw, RUN_KEY, corrupt[i]);
    assert_error(cells->other->ops->get(cells->other, &value, &token, &error), RDZV_E_CORRUPT, &error, RUN_KEY);
  }
  must_set(cells->raw, RUN_KEY, "no base64!");
  token = known;
  assert_error(cells->cell->ops->set(cells->cell, BYTES("x"), 0, &token, &written, &value, &error), RDZV_E_CORRUPT,
               &error, "it is not base64");
  assert_false(written);
  assert_get(cells->raw, RUN_KEY, "no base64!");
  token = known;
  assert_error(cells->cell->ops->await_change(cells->cell, SOON_MS, &token, &value, &error), RDZV_E_CORRUPT, &error,
               RUN_KEY);
  must_set(cells->raw, RUN_KEY, "Zm9v");
  assert_cell(cells->cell, &token, "foo");
  assert_cell(cells->other, &token, "foo");
}

/* A store that has forgotten the key has no state: who writes with an old token is told so, and begins anew. */
static void test_a_key_that_is_lost_is_no_state(void **state) {
  struct cells *cells = *state;
  uint64_t token, before;
  bool deleted;
  assert_cell(cells->cell, &token, "");
  assert_set(cells->cell, "a", &token, true, "");
  before = token;
  assert_code(rdzv_store_delete_key(cells->raw, BYTES(RUN_KEY), &deleted, NULL), 0);
  assert_set(cells->cell, "b", &token, false, "");
  assert_int_equal(token, 0);
  assert_cell(cells->other, &token, "");
  token = before;
  assert_set(cells->cell, "b", &token, false, "");
  assert_set(cells->cell, "b", &token, true, "");
  assert_true(token != before);
  assert_cell(cells->other, &token, "b");
  assert_code(rdzv_store_delete_key(cells->raw, BYTES(RUN_KEY), &deleted, NULL), 0);
  assert_cell(cells->cell, &token, ""); /* read, instead of written, it is the same */
  assert_set(cells->cell, "c", &token, true, "");
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

/* What has changed already is told at once; what changes meanwhile, when it does; whoever writes, PyTorch too. */
static void test_a_change_is_heard(void **state) {
  struct cells *cells = *state;
  uint64_t token;
  assert_cell(cells->cell, &token, "");
  struct cell_call call = {.cell = cells->other, .timeout_ms = SOON_MS};
  cell_call_start(&call);
  assert_set(cells->cell, "a", &token, true, "");
  cell_call_end(&call);
  assert_code(call.result, 0);
  assert_bytes(rdzv_value_bytes(&call.value), "a");
  rdzv_value_free(&call.value);
  assert_brief(call.took_ms, SOON_MS / 2);
  const uint64_t known = call.token;
  cell_call_start(&call);
  must_set(cells->raw, RUN_KEY, "Yg==");
  cell_call_end(&call);
  assert_code(call.result, 0);
  assert_bytes(rdzv_value_bytes(&call.value), "b");
  rdzv_value_free(&call.value);
  assert_true(call.token != known);
  assert_set(cells->other, "c", &call.token, true, ""); /* the token that came is good */
}

static void test_a_change_that_was_before_is_told_at_once(void **state) {
  struct cells *cells = *state;
  uint64_t token, theirs;
  assert_cell(cells->cell, &token, "");
  assert_cell(cells->other, &theirs, "");
  assert_set(cells->cell, "a", &token, true, "");
  for (int i = 0; i < 2; i++) { /* and again, as often as it is asked with the old token */
    struct cell_call call = {.cell = cells->other, .timeout_ms = SOON_MS, .token = theirs};
    cell_call_run(&call);
    assert_code(call.result, 0);
    assert_bytes(rdzv_value_bytes(&call.value), "a");
    rdzv_value_free(&call.value);
  }
}

static void test_a_wait_without_a_change_times_out(void **state) {
  struct cells *cells = *state;
  struct cell_call call = {.cell = cells->cell, .timeout_ms = 30};
  uint64_t token;
  assert_cell(cells->cell, &call.token, "");
  cell_call_run(&call);
  assert_code(call.result, RDZV_E_TIMEOUT);
  assert_true(call.took_ms >= 29);
  assert_set(cells->cell, "a", &call.token, true, "");
  for (int timeout = 0; timeout <= 30; timeout += 30) {
    call.timeout_ms = timeout;
    token = call.token;
    cell_call_run(&call);
    assert_code(call.result, RDZV_E_TIMEOUT);
    assert_code(call.error.code, RDZV_E_TIMEOUT);
    assert_int_equal(call.token, token);
    assert_true(call.took_ms >= timeout - 1);
  }
}

/* A wake ends the wait that is under way, or else the next one, and only that. */
static void test_a_wake_ends_one_wait(void **state) {
  struct cells *cells = *state;
  struct cell_call call = {.cell = cells->cell, .timeout_ms = SOON_MS};
  assert_cell(cells->cell, &call.token, "");
  cells->cell->ops->wake(cells->cell); /* before it begins */
  cell_call_run(&call);
  assert_code(call.result, RDZV_E_CANCELED);
  for (int i = 0; i < 3; i++) { /* or while it is under way, whichever way the race goes */
    cell_call_start(&call);
    cells->cell->ops->wake(cells->cell);
    cell_call_end(&call);
    assert_code(call.result, RDZV_E_CANCELED);
    assert_brief(call.took_ms, SOON_MS / 2);
  }
  call.timeout_ms = 20;
  cell_call_run(&call);
  assert_code(call.result, RDZV_E_TIMEOUT);
  assert_set(cells->cell, "a", &call.token, true, ""); /* everything else works on */
}

/* Canceled is for good, for the call that is under way and for all later ones. */
static void test_a_cancel_is_for_good(void **state) {
  struct cells *cells = *state;
  struct cell_call call = {.cell = cells->cell, .timeout_ms = SOON_MS};
  rdzv_value value = {0};
  rdzv_error error;
  bool written;
  uint64_t token = 0;
  assert_cell(cells->cell, &call.token, "");
  cell_call_start(&call);
  cells->cell->ops->cancel(cells->cell);
  cell_call_end(&call);
  assert_code(call.result, RDZV_E_CANCELED);
  assert_code(cells->cell->ops->get(cells->cell, &value, &token, &error), RDZV_E_CANCELED);
  assert_code(cells->cell->ops->set(cells->cell, BYTES("x"), 0, &token, &written, &value, &error), RDZV_E_CANCELED);
  call.timeout_ms = 1000;
  cell_call_run(&call);
  assert_code(call.result, RDZV_E_CANCELED);
  if (cells->cell->ops->take_permit) {
    call.permit = true;
    cell_call_run(&call);
    assert_code(call.result, RDZV_E_CANCELED);
  }
  assert_cell(cells->other, &token, ""); /* of this one only */
}

/* ---- large states --------------------------------------------------------------------------------------------- */

static void set_large(rdzv_backend *cell, size_t len, char fill, unsigned flags, uint64_t *token) {
  char *state = test_malloc(len);
  rdzv_value value;
  rdzv_error error;
  bool written = false;
  memset(state, fill, len);
  if (cell->ops->set(cell, (rdzv_bytes){state, len}, flags, token, &written, &value, &error) < 0)
    fail_msg("%s", error.message);
  assert_true(written);
  assert_int_equal(value.len, 0);
  rdzv_value_free(&value);
  test_free(state);
}

/* A large state is not pushed; the bell rings for what is urgent, so that it is heard long before the next look (for
 * 300 kB after 6 seconds and more). */
static void test_a_large_state_is_heard_of_by_its_bell(void **state) {
  struct cells *cells = *state;
  uint64_t token;
  assert_cell(cells->cell, &token, "");
  set_large(cells->cell, 300000, 'a', RDZV_BACKEND_URGENT, &token);
  struct cell_call call = {.cell = cells->other, .timeout_ms = SOON_MS};
  cell_call_run(&call);
  assert_int_equal(call.value.len, 300000);
  rdzv_value_free(&call.value);
  for (char fill = 'b'; fill < 'd'; fill++) {
    cell_call_start(&call);
    set_large(cells->cell, 300000, fill, RDZV_BACKEND_URGENT, &token);
    cell_call_end(&call);
    assert_code(call.result, 0);
    assert_int_equal(call.value.len, 300000);
    assert_true(call.value.data[0] == fill && call.value.data[299999] == fill);
    rdzv_value_free(&call.value);
    assert_brief(call.took_ms, 4000);
  }
}

/* Without the bell, as when PyTorch writes, it is found by a look after a while. */
static void test_a_large_state_is_looked_at_now_and_then(void **state) {
  struct cells *cells = *state;
  uint64_t token;
  assert_cell(cells->cell, &token, "");
  set_large(cells->cell, 5000, 'a', 0, &token);
  struct cell_call call = {.cell = cells->other, .timeout_ms = SOON_MS};
  cell_call_run(&call);
  assert_int_equal(call.value.len, 5000);
  rdzv_value_free(&call.value);
  cell_call_start(&call);
  must_set(cells->raw, RUN_KEY, "Yg==");
  cell_call_end(&call);
  assert_code(call.result, 0);
  assert_bytes(rdzv_value_bytes(&call.value), "b");
  rdzv_value_free(&call.value);
}

/* ---- all kinds ------------------------------------------------------------------------------------------------ */

static int setup(void **state) {
  *state = cells_open(*(const enum store_kind *)*state);
  return 0;
}

static int teardown(void **state) {
  cells_close(*state);
  return 0;
}

static const struct {
  const char *name;
  CMUnitTestFunction test;
} cases[] = {
#define CASE(test) \
  { #test, test }
    CASE(test_no_state_is_the_sentinel_under_pytorchs_key),
    CASE(test_the_value_is_base64),
    CASE(test_opening_leaves_a_state_alone),
    CASE(test_a_run_id_is_needed),
    CASE(test_it_says_where_it_is),
    CASE(test_without_a_token_only_the_first_writes),
    CASE(test_a_stale_token_does_not_write),
    CASE(test_a_wrong_token_never_writes),
    CASE(test_no_write_is_lost_among_two),
    CASE(test_corrupt_base64_is_told_and_passes),
    CASE(test_a_key_that_is_lost_is_no_state),
    CASE(test_a_change_is_heard),
    CASE(test_a_change_that_was_before_is_told_at_once),
    CASE(test_a_wait_without_a_change_times_out),
    CASE(test_a_wake_ends_one_wait),
    CASE(test_a_cancel_is_for_good),
    CASE(test_a_large_state_is_heard_of_by_its_bell),
    CASE(test_a_large_state_is_looked_at_now_and_then),
};

int main(void) {
  static const enum store_kind kinds[] = {KIND_HASH, KIND_TCP, KIND_V1, KIND_V2, KIND_FILE};
  enum { TESTS = COUNT_OF(cases) * COUNT_OF(kinds) };
  static struct CMUnitTest tests[TESTS];
  static char names[TESTS][128];
  for (size_t i = 0; i < TESTS; i++) {
    const size_t kind = i / COUNT_OF(cases), which = i % COUNT_OF(cases);
    snprintf(names[i], sizeof names[i], "%s (%s)", cases[which].name, kind_names[kind]);
    tests[i] = (struct CMUnitTest){names[i], cases[which].test, setup, teardown, (void *)&kinds[kind]};
  }
  return _cmocka_run_group_tests("c10d", tests, TESTS, NULL, NULL);
}
