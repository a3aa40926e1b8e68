/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * etcd is gone for longer than leases last, and comes back on the same port without its data: who is a member hears of
 * the silence, and then that its place is lost; who joins, or waits for another's round, gets a fresh one. Nobody
 * hangs.
 */
#include "etcd_v1_scene.h"

enum { LEASE_MS = 10000, WATCH_MS = 10000 };

/* Also on the descriptor. */
static void assert_hears_of_silence(rdzv_handler *member, int64_t since) {
  struct heard change;
  rdzv_error error;
  assert_true(has_news(member, SOON_MS));
  const int64_t took = live_now_ms() - since;
  assert_error(hear(member, 0, &change, &error), RDZV_E_CONNECTION, &error, "cannot stay in the round");
  assert_non_null(strstr(error.message, "no answer for 1"));             /* 10 s, or some more */
  assert_non_null(strstr(error.message, rdzv_handler_describe(member))); /* from whom */
  assert_non_null(strstr(error.message, "Connection refused"));          /* and why */
  assert_true(took >= LEASE_MS / 2);
  assert_brief(took, LEASE_MS + 3000);
  assert_true(has_news(member, 0)); /* and it goes on */
  assert_code(hear(member, 0, &change, &error), RDZV_E_CONNECTION);
}

static void assert_evicted(rdzv_handler *member) {
  struct heard change;
  rdzv_error error;
  int code;
  while ((code = hear(member, SOON_MS, &change, &error)) == RDZV_E_CONNECTION) pause_ms(50);
  if (code < 0) fail_msg("%s", error.message);
  assert_int_equal(change.what, RDZV_CHANGE_EVICTED);
  assert_error(hear(member, 0, &change, &error), RDZV_E_INVALID, &error, "not in a round");
  assert_false(has_news(member, 0));
}

static void test_etcd_is_gone_and_comes_back_empty(void **state) {
  (void)state;
  rdzv_handler *member = open_node("member", 1, 1), *waits = open_node("member", 1, 1);
  rdzv_handler *early = open_node("gathers", 2, 2), *late = open_node("gathers", 2, 2);
  rdzv_result *result = must_join(member);
  struct call listens = {0}, early_next = {0}, waits_next = {0};
  begin(&early_next, do_next, early);
  begin(&waits_next, do_next, waits);
  await_waiting(member, 1);
  begin(&listens, do_wait_event, member);
  const int port = rdzv_etcd_process_port(etcd);
  const int64_t since = live_now_ms();
  stop_etcd(NULL);
  assert_code(finish(&listens), RDZV_E_CONNECTION);
  assert_hears_of_silence(member, since);
  rdzv_result_free(result);
  assert_int_equal(start_etcd_at(port), 0);
  const int64_t back = live_now_ms();
  assert_evicted(member);
  assert_code(finish(&waits_next), 0);
  result = must_join(late);
  assert_code(finish(&early_next), 0);
  assert_within(back, WATCH_MS + 5000);
  assert_int_equal(result->rank + early_next.result->rank, 1);
  assert_int_equal(waits_next.result->round, 1); /* the versions begin anew */
  rdzv_result_free(result);
  rdzv_result_free(early_next.result);
  rdzv_result_free(waits_next.result);
  rdzv_handler_free(member);
  rdzv_handler_free(waits);
  rdzv_handler_free(early);
  rdzv_handler_free(late);
}

/* A member whose place is given to another by the new etcd does not keep that one's key alive, nor take it away. */
static void test_the_place_is_anothers(void **state) {
  (void)state;
  rdzv_handler *first = open_node("place", 1, 1), *second = open_node("place", 1, 1);
  struct heard change;
  rdzv_result *result = must_join(first);
  const int port = rdzv_etcd_process_port(etcd);
  stop_etcd(NULL);
  assert_int_equal(start_etcd_at(port), 0);
  rdzv_result *other = must_join(second);
  assert_int_equal(other->round, 1);
  assert_int_equal(other->rank, 0);
  assert_evicted(first);
  assert_code(rdzv_handler_leave(first, NULL), 0);
  assert_code(hear(second, LEASE_MS / 2, &change, NULL), RDZV_E_TIMEOUT);
  rdzv_result_free(result);
  rdzv_result_free(other);
  rdzv_handler_free(first);
  rdzv_handler_free(second);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_etcd_is_gone_and_comes_back_empty),
      cmocka_unit_test(test_the_place_is_anothers),
  };
  if (!have_etcd()) return 77;
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
