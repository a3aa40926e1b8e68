/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared state of the first-generation rendezvous: as PyTorch writes it, as we do, and what is neither. */
#include "state/gen1/state.h"
#include "unit.h"

static struct gen1_state must_read(const char *text) {
  struct gen1_state active;
  rdzv_error error = {0};
  if (gen1_state_read(text, &active, &error) < 0) fail_msg("%s: %s", text, error.message);
  return active;
}

/* Reads the text and frees it. */
static struct gen1_state take(char *text) {
  assert_non_null(text);
  struct gen1_state active = must_read(text);
  assert_string_equal(active.text, text);
  free(text);
  return active;
}

static void test_reads_what_pytorch_writes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    enum gen1_status status;
    const char *round;
    size_t participants, keep_alives;
    int64_t waiting;
  } cases[] = {
      {"{\"status\": \"setup\"}", GEN1_STATUS_SETUP, "", 0, 0, 0},
      {"{\"status\": \"joinable\", \"version\": \"1\", \"participants\": []}", GEN1_STATUS_JOINABLE, "1", 0, 0, 0},
      {"{\"status\": \"joinable\", \"version\": \"12\", \"participants\": [0, 1]}", GEN1_STATUS_JOINABLE, "12", 2, 0,
       0},
      {"{\"status\": \"frozen\", \"version\": \"3\", \"participants\": [0, 1], \"keep_alives\": [\"/r/rank_1\"]}",
       GEN1_STATUS_FROZEN, "3", 2, 1, 0},
      {"{\"status\": \"final\", \"version\": \"3\", \"participants\": [0], \"keep_alives\": [\"/r/rank_0\"], "
       "\"num_workers_waiting\": 4}",
       GEN1_STATUS_FINAL, "3", 1, 1, 4},
      {"{\"status\": \"closed\"}", GEN1_STATUS_CLOSED, "", 0, 0, 0},
      {"{\"status\": \"closed\", \"version\": \"3\", \"participants\": [0], \"num_workers_waiting\": 0}",
       GEN1_STATUS_CLOSED, "3", 1, 0, 0},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct gen1_state active = must_read(cases[i].text);
    assert_int_equal(active.status, cases[i].status);
    assert_string_equal(active.round, cases[i].round);
    assert_int_equal(active.participants, cases[i].participants);
    assert_int_equal(active.keep_alives, cases[i].keep_alives);
    assert_int_equal(active.waiting, cases[i].waiting);
    assert_string_equal(active.text, cases[i].text);
    gen1_state_free(&active);
    gen1_state_free(&active);
  }
}

static void test_refuses_what_is_none(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",
      "x",
      "[]",
      "null",
      "{}",
      "{\"status\": \"ready\"}",
      "{\"status\": 1}",
      "{\"status\": \"joinable\"}",
      "{\"status\": \"joinable\", \"version\": 1, \"participants\": []}",
      "{\"status\": \"joinable\", \"version\": \"\", \"participants\": []}",
      "{\"status\": \"joinable\", \"version\": \"1x\", \"participants\": []}",
      "{\"status\": \"joinable\", \"version\": \"-1\", \"participants\": []}",
      "{\"status\": \"joinable\", \"version\": \"123456789012345678901234\", \"participants\": []}",
      "{\"status\": \"joinable\", \"version\": \"1\"}",
      "{\"status\": \"joinable\", \"version\": \"1\", \"participants\": {}}",
      "{\"status\": \"joinable\", \"version\": \"1\", \"participants\": [\"0\"]}",
      "{\"status\": \"frozen\", \"version\": \"1\", \"participants\": [0]}",
      "{\"status\": \"frozen\", \"version\": \"1\", \"participants\": [0], \"keep_alives\": [0]}",
      "{\"status\": \"final\", \"version\": \"1\", \"participants\": [0], \"keep_alives\": [\"k\"]}",
      "{\"status\": \"final\", \"version\": \"1\", \"participants\": [0], \"keep_alives\": [\"k\"], "
      "\"num_workers_waiting\": -1}",
      "{\"status\": \"final\", \"version\": \"1\", \"participants\": [0], \"keep_alives\": [\"k\"], "
      "\"num_workers_waiting\": \"1\"}",
  };
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct gen1_state active;
    rdzv_error error = {0};
    assert_error(gen1_state_read(texts[i], &active, &error), RDZV_E_CORRUPT, &error, "state of the rendezvous in etcd");
    assert_null(active.json);
    assert_null(active.text);
    assert_code(gen1_state_read(texts[i], &active, NULL), RDZV_E_CORRUPT);
  }
}

static void test_a_round_from_setup_to_final(void **state) {
  (void)state;
  bool frozen, final;
  struct gen1_state setup = take(gen1_state_setup("me")), joinable = take(gen1_state_joinable("7"));
  assert_int_equal(setup.status, GEN1_STATUS_SETUP);
  assert_string_equal(joinable.round, "7");
  struct gen1_state one =
      take(gen1_state_join(&joinable, &(struct gen1_joiner){.nonce = "a", .max_nodes = 3}, &frozen));
  assert_false(frozen);
  struct gen1_state two = take(gen1_state_join(&one, &(struct gen1_joiner){.nonce = "b", .max_nodes = 3}, &frozen));
  assert_false(frozen);
  assert_int_equal(two.participants, 2);
  struct gen1_state cold = take(gen1_state_freeze(&two));
  assert_int_equal(cold.status, GEN1_STATUS_FROZEN);
  assert_int_equal(cold.keep_alives, 0);
  struct gen1_state half = take(gen1_state_confirm(&cold, "/v_7/rank_1", &final));
  assert_false(final);
  assert_int_equal(half.status, GEN1_STATUS_FROZEN);
  struct gen1_state all = take(gen1_state_confirm(&half, "/v_7/rank_0", &final));
  assert_true(final);
  assert_int_equal(all.status, GEN1_STATUS_FINAL);
  assert_int_equal(all.waiting, 0);
  assert_string_equal(gen1_state_keep_alive(&all, 0), "/v_7/rank_1");
  assert_string_equal(gen1_state_keep_alive(&all, 1), "/v_7/rank_0");
  assert_null(gen1_state_keep_alive(&all, 2));
  struct gen1_state heard = take(gen1_state_announce(&all));
  assert_int_equal(heard.waiting, 1);
  assert_int_equal(heard.status, GEN1_STATUS_FINAL);
  struct gen1_state closed = take(gen1_state_close(&heard, NULL));
  assert_int_equal(closed.status, GEN1_STATUS_CLOSED);
  assert_string_equal(closed.round, "7");
  struct gen1_state *each[] = {&setup, &joinable, &one, &two, &cold, &half, &all, &heard, &closed};
  for (size_t i = 0; i < COUNT_OF(each); i++) gen1_state_free(each[i]);
}

static void test_the_last_that_there_is_room_for_freezes(void **state) {
  (void)state;
  bool frozen = false;
  struct gen1_state joinable = take(gen1_state_joinable("1"));
  struct gen1_state full =
      take(gen1_state_join(&joinable, &(struct gen1_joiner){.nonce = "a", .max_nodes = 1}, &frozen));
  assert_true(frozen);
  assert_int_equal(full.status, GEN1_STATUS_FROZEN);
  assert_int_equal(full.participants, 1);
  gen1_state_free(&joinable);
  gen1_state_free(&full);
}

static void test_ranks_are_the_order_of_joining(void **state) {
  (void)state;
  bool frozen;
  struct gen1_state active = take(gen1_state_joinable("1"));
  for (int i = 0; i < 3; i++) {
    struct gen1_state next =
        take(gen1_state_join(&active, &(struct gen1_joiner){.nonce = &"abc"[i], .max_nodes = 9}, &frozen));
    gen1_state_free(&active);
    active = next;
  }
  assert_non_null(strstr(active.text, "[0, 1, 2]"));
  gen1_state_free(&active);
}

/* Who wrote, and does not know whether it was done, finds out. */
static void test_nodes_find_what_they_did(void **state) {
  (void)state;
  bool frozen, final;
  struct gen1_state setup = take(gen1_state_setup("a")), joinable = take(gen1_state_joinable("1"));
  assert_true(gen1_state_is_set_up_by(&setup, "a"));
  assert_false(gen1_state_is_set_up_by(&setup, "b") || gen1_state_is_set_up_by(&joinable, "a"));
  assert_int_equal(gen1_state_rank_of(&joinable, "a"), -1);
  struct gen1_state one =
      take(gen1_state_join(&joinable, &(struct gen1_joiner){.nonce = "a", .max_nodes = 2}, &frozen));
  struct gen1_state two = take(gen1_state_join(&one, &(struct gen1_joiner){.nonce = "b", .max_nodes = 2}, &frozen));
  struct gen1_state half = take(gen1_state_confirm(&two, "k", &final)),
                    all = take(gen1_state_confirm(&half, "l", &final));
  struct gen1_state *each[] = {&one, &two, &half};
  for (size_t i = 0; i < COUNT_OF(each); i++) {
    assert_int_equal(gen1_state_rank_of(each[i], "a"), 0);
    assert_int_equal(gen1_state_rank_of(each[i], "b"), i == 0 ? -1 : 1);
    assert_int_equal(gen1_state_rank_of(each[i], ""), -1);
    gen1_state_free(each[i]);
  }
  assert_null(strstr(all.text, "rdzv_")); /* all know */
  gen1_state_free(&all);
  gen1_state_free(&setup);
  gen1_state_free(&joinable);
}

/* What others put under our names is not believed, and does not break a join. */
static void test_joins_that_are_none(void **state) {
  (void)state;
  static const char *const joins[] = {"7", "[]", "null", "{\"a\": \"0\"}", "{\"a\": -5}", "{\"a\": 1}", "{\"a\": 0.0}"};
  for (size_t i = 0; i < COUNT_OF(joins); i++) {
    char text[128];
    bool frozen;
    snprintf(text, sizeof text,
             "{\"status\": \"joinable\", \"version\": \"1\", \"participants\": [0], \"rdzv_joins\": %s}", joins[i]);
    struct gen1_state active = must_read(text);
    assert_true(gen1_state_rank_of(&active, "a") < 0);
    struct gen1_state joined =
        take(gen1_state_join(&active, &(struct gen1_joiner){.nonce = "a", .max_nodes = 2}, &frozen));
    assert_int_equal(gen1_state_rank_of(&joined, "a"), 1);
    gen1_state_free(&active);
    gen1_state_free(&joined);
  }
  struct gen1_state odd = must_read("{\"status\": \"setup\", \"rdzv_setup\": 1}");
  assert_false(gen1_state_is_set_up_by(&odd, "1"));
  gen1_state_free(&odd);
}

/* What another version of PyTorch may have put there. */
static void test_unknown_members_survive(void **state) {
  (void)state;
  bool frozen, final;
  struct gen1_state first = must_read(
      "{\"status\": \"joinable\", \"version\": \"1\", \"participants\": [], \"x\": {\"y\": [1.5, null, \"\\u00e9\"]}}");
  struct gen1_state joined =
      take(gen1_state_join(&first, &(struct gen1_joiner){.nonce = "a", .max_nodes = 1}, &frozen));
  struct gen1_state done = take(gen1_state_confirm(&joined, "k", &final));
  struct gen1_state heard = take(gen1_state_announce(&done)), closed = take(gen1_state_close(&heard, NULL));
  struct gen1_state *each[] = {&joined, &done, &heard, &closed};
  for (size_t i = 0; i < COUNT_OF(each); i++) {
    assert_non_null(strstr(each[i]->text, "\"x\": {\"y\": [1.5, null, \"\xc3\xa9\"]}"));
    gen1_state_free(each[i]);
  }
  gen1_state_free(&first);
}

static void test_closing_nothing(void **state) {
  (void)state;
  struct gen1_state closed = take(gen1_state_close(NULL, NULL));
  assert_int_equal(closed.status, GEN1_STATUS_CLOSED);
  gen1_state_free(&closed);
}

static void test_too_long(void **state) {
  (void)state;
  const size_t len = GEN1_STATE_MAX_BYTES + 1;
  char *text = malloc(len + 1);
  struct gen1_state active;
  rdzv_error error;
  assert_non_null(text);
  memset(text, ' ', len);
  text[len] = '\0';
  assert_error(gen1_state_read(text, &active, &error), RDZV_E_CORRUPT, &error, "too long");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads_what_pytorch_writes),
      cmocka_unit_test(test_refuses_what_is_none),
      cmocka_unit_test(test_a_round_from_setup_to_final),
      cmocka_unit_test(test_the_last_that_there_is_room_for_freezes),
      cmocka_unit_test(test_ranks_are_the_order_of_joining),
      cmocka_unit_test(test_nodes_find_what_they_did),
      cmocka_unit_test(test_joins_that_are_none),
      cmocka_unit_test(test_unknown_members_survive),
      cmocka_unit_test(test_closing_nothing),
      cmocka_unit_test(test_too_long),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
