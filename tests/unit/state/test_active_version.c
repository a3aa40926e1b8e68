/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared state of the first-generation rendezvous: as PyTorch writes it, as we do, and what is neither. */
#include "state/gen1/active_version.h"
#include "unit.h"

static struct active_version must_read(const char *text) {
  struct active_version active;
  rdzv_error error = {0};
  if (active_read(text, &active, &error) < 0) fail_msg("%s: %s", text, error.message);
  return active;
}

/* Reads the text and frees it. */
static struct active_version take(char *text) {
  assert_non_null(text);
  struct active_version active = must_read(text);
  assert_string_equal(active.text, text);
  free(text);
  return active;
}

static void test_reads_what_pytorch_writes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    enum active_status status;
    const char *version;
    size_t participants, keep_alives;
    int64_t waiting;
  } cases[] = {
      {"{\"status\": \"setup\"}", ACTIVE_SETUP, "", 0, 0, 0},
      {"{\"status\": \"joinable\", \"version\": \"1\", \"participants\": []}", ACTIVE_JOINABLE, "1", 0, 0, 0},
      {"{\"status\": \"joinable\", \"version\": \"12\", \"participants\": [0, 1]}", ACTIVE_JOINABLE, "12", 2, 0, 0},
      {"{\"status\": \"frozen\", \"version\": \"3\", \"participants\": [0, 1], \"keep_alives\": [\"/r/rank_1\"]}",
       ACTIVE_FROZEN, "3", 2, 1, 0},
      {"{\"status\": \"final\", \"version\": \"3\", \"participants\": [0], \"keep_alives\": [\"/r/rank_0\"], "
       "\"num_workers_waiting\": 4}",
       ACTIVE_FINAL, "3", 1, 1, 4},
      {"{\"status\": \"closed\"}", ACTIVE_CLOSED, "", 0, 0, 0},
      {"{\"status\": \"closed\", \"version\": \"3\", \"participants\": [0], \"num_workers_waiting\": 0}", ACTIVE_CLOSED,
       "3", 1, 0, 0},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct active_version active = must_read(cases[i].text);
    assert_int_equal(active.status, cases[i].status);
    assert_string_equal(active.version, cases[i].version);
    assert_int_equal(active.participants, cases[i].participants);
    assert_int_equal(active.keep_alives, cases[i].keep_alives);
    assert_int_equal(active.waiting, cases[i].waiting);
    assert_string_equal(active.text, cases[i].text);
    active_free(&active);
    active_free(&active);
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
    struct active_version active;
    rdzv_error error = {0};
    assert_error(active_read(texts[i], &active, &error), RDZV_E_CORRUPT, &error, "state of the rendezvous in etcd");
    assert_null(active.json);
    assert_null(active.text);
    assert_code(active_read(texts[i], &active, NULL), RDZV_E_CORRUPT);
  }
}

static void test_a_round_from_setup_to_final(void **state) {
  (void)state;
  bool frozen, final;
  struct active_version setup = take(active_setup("me")), joinable = take(active_joinable("7"));
  assert_int_equal(setup.status, ACTIVE_SETUP);
  assert_string_equal(joinable.version, "7");
  struct active_version one = take(active_join(&joinable, 3, "a", &frozen));
  assert_false(frozen);
  struct active_version two = take(active_join(&one, 3, "b", &frozen));
  assert_false(frozen);
  assert_int_equal(two.participants, 2);
  struct active_version cold = take(active_freeze(&two));
  assert_int_equal(cold.status, ACTIVE_FROZEN);
  assert_int_equal(cold.keep_alives, 0);
  struct active_version half = take(active_confirm(&cold, "/v_7/rank_1", &final));
  assert_false(final);
  assert_int_equal(half.status, ACTIVE_FROZEN);
  struct active_version all = take(active_confirm(&half, "/v_7/rank_0", &final));
  assert_true(final);
  assert_int_equal(all.status, ACTIVE_FINAL);
  assert_int_equal(all.waiting, 0);
  assert_string_equal(active_keep_alive(&all, 0), "/v_7/rank_1");
  assert_string_equal(active_keep_alive(&all, 1), "/v_7/rank_0");
  assert_null(active_keep_alive(&all, 2));
  struct active_version heard = take(active_announce(&all));
  assert_int_equal(heard.waiting, 1);
  assert_int_equal(heard.status, ACTIVE_FINAL);
  struct active_version closed = take(active_close(&heard, NULL));
  assert_int_equal(closed.status, ACTIVE_CLOSED);
  assert_string_equal(closed.version, "7");
  struct active_version *each[] = {&setup, &joinable, &one, &two, &cold, &half, &all, &heard, &closed};
  for (size_t i = 0; i < COUNT_OF(each); i++) active_free(each[i]);
}

static void test_the_last_that_there_is_room_for_freezes(void **state) {
  (void)state;
  bool frozen = false;
  struct active_version joinable = take(active_joinable("1"));
  struct active_version full = take(active_join(&joinable, 1, "a", &frozen));
  assert_true(frozen);
  assert_int_equal(full.status, ACTIVE_FROZEN);
  assert_int_equal(full.participants, 1);
  active_free(&joinable);
  active_free(&full);
}

static void test_ranks_are_the_order_of_joining(void **state) {
  (void)state;
  bool frozen;
  struct active_version active = take(active_joinable("1"));
  for (int i = 0; i < 3; i++) {
    struct active_version next = take(active_join(&active, 9, &"abc"[i], &frozen));
    active_free(&active);
    active = next;
  }
  assert_non_null(strstr(active.text, "[0, 1, 2]"));
  active_free(&active);
}

/* Who wrote, and does not know whether it was done, finds out. */
static void test_nodes_find_what_they_did(void **state) {
  (void)state;
  bool frozen, final;
  struct active_version setup = take(active_setup("a")), joinable = take(active_joinable("1"));
  assert_true(active_is_set_up_by(&setup, "a"));
  assert_false(active_is_set_up_by(&setup, "b") || active_is_set_up_by(&joinable, "a"));
  assert_int_equal(active_rank_of(&joinable, "a"), -1);
  struct active_version one = take(active_join(&joinable, 2, "a", &frozen));
  struct active_version two = take(active_join(&one, 2, "b", &frozen));
  struct active_version half = take(active_confirm(&two, "k", &final)), all = take(active_confirm(&half, "l", &final));
  struct active_version *each[] = {&one, &two, &half};
  for (size_t i = 0; i < COUNT_OF(each); i++) {
    assert_int_equal(active_rank_of(each[i], "a"), 0);
    assert_int_equal(active_rank_of(each[i], "b"), i == 0 ? -1 : 1);
    assert_int_equal(active_rank_of(each[i], ""), -1);
    active_free(each[i]);
  }
  assert_null(strstr(all.text, "rdzv_")); /* all know */
  active_free(&all);
  active_free(&setup);
  active_free(&joinable);
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
    struct active_version active = must_read(text);
    assert_true(active_rank_of(&active, "a") < 0);
    struct active_version joined = take(active_join(&active, 2, "a", &frozen));
    assert_int_equal(active_rank_of(&joined, "a"), 1);
    active_free(&active);
    active_free(&joined);
  }
  struct active_version odd = must_read("{\"status\": \"setup\", \"rdzv_setup\": 1}");
  assert_false(active_is_set_up_by(&odd, "1"));
  active_free(&odd);
}

/* What another version of PyTorch may have put there. */
static void test_unknown_members_survive(void **state) {
  (void)state;
  bool frozen, final;
  struct active_version first = must_read(
      "{\"status\": \"joinable\", \"version\": \"1\", \"participants\": [], \"x\": {\"y\": [1.5, null, \"\\u00e9\"]}}");
  struct active_version joined = take(active_join(&first, 1, "a", &frozen));
  struct active_version done = take(active_confirm(&joined, "k", &final));
  struct active_version heard = take(active_announce(&done)), closed = take(active_close(&heard, NULL));
  struct active_version *each[] = {&joined, &done, &heard, &closed};
  for (size_t i = 0; i < COUNT_OF(each); i++) {
    assert_non_null(strstr(each[i]->text, "\"x\": {\"y\": [1.5, null, \"\xc3\xa9\"]}"));
    active_free(each[i]);
  }
  active_free(&first);
}

static void test_closing_nothing(void **state) {
  (void)state;
  struct active_version closed = take(active_close(NULL, NULL));
  assert_int_equal(closed.status, ACTIVE_CLOSED);
  active_free(&closed);
}

static void test_too_long(void **state) {
  (void)state;
  const size_t len = ACTIVE_MAX_BYTES + 1;
  char *text = malloc(len + 1);
  struct active_version active;
  rdzv_error error;
  assert_non_null(text);
  memset(text, ' ', len);
  text[len] = '\0';
  assert_error(active_read(text, &active, &error), RDZV_E_CORRUPT, &error, "too long");
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
