/* SPDX-License-Identifier: BSD-3-Clause */
/* How one native node joins: what it sends, sends again and takes for an answer. */
#include "member_world.h"

/* ---- joining -------------------------------------------------------------------------------------------------- */

static void test_one_join_one_answer(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world);
  const struct native_join *sent = &world.update.join;
  assert_string_equal(sent->run_id, "job");
  assert_string_equal(sent->session.node.addr, "m");
  assert_int_equal(sent->session.epoch, 1);
  assert_int_equal(sent->number, 1);
  assert_string_equal(sent->master_addr, "10.0.0.7");
  assert_int_equal(sent->master_port, 4711);
  assert_string_equal(sent->workers.role, "trainer");
  assert_int_equal(sent->workers.local_world_size, 8);
  assert_int_equal(sent->settings.join_timeout, 600000);
  answer_join(&world, 1, 3);
  assert_told(&world, ENGINE_NEWS_JOINED);
  assert_int_equal(world.update.told.round, 3);
  assert_int_equal(world.update.told.rank, 1);
  assert_int_equal(world.update.told.world_size, 2);
  assert_non_null(world.update.joined);
  assert_doing(&world, 0);
}

/* The next join is on the same connection, and says which rounds are over. */
static void test_the_next_join(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  event(&world, MEMBER_EV_ASK_JOIN);
  assert_doing(&world, MEMBER_DO_JOIN);
  assert_int_equal(world.update.join.number, 2);
  assert_int_equal(world.update.join.session.epoch, 1);
  assert_int_equal(world.update.join.first_round, 4);
  answer_join(&world, 1, 3); /* of the join before */
  assert_told(&world, 0);
  answer_join(&world, 2, 4);
  assert_told(&world, ENGINE_NEWS_JOINED);
}

/* Its answer may be lost with the connection: the same join again, with a higher epoch and the time that is left. */
static void test_a_join_is_sent_again(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world);
  uint8_t token[NATIVE_TOKEN_BYTES];
  memcpy(token, world.update.join.session.token, sizeof token);
  world.now.mono_ms += 1000;
  lose(&world, RDZV_E_CONNECTION);
  assert_doing(&world, MEMBER_DO_CONNECT); /* at once */
  event(&world, MEMBER_EV_CONNECTED);
  assert_doing(&world, MEMBER_DO_JOIN);
  assert_int_equal(world.update.join.number, 1);
  assert_int_equal(world.update.join.session.epoch, 2);
  assert_memory_equal(world.update.join.session.token, token, sizeof token);
  assert_int_equal(world.update.join.settings.join_timeout, 599000);
}

static void test_refused_for_now(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world);
  refuse(&world, MEMBER_DO_JOIN, RDZV_E_IN_USE);
  assert_doing(&world, 0);
  assert_told(&world, 0);
  assert_true(world.update.until_ms > START_MS && world.update.until_ms < START_MS + 1000);
  assert_true(run_until(&world, START_MS + 1000) & MEMBER_DO_JOIN);
  assert_int_equal(world.member.joins, 1);
  refuse(&world, MEMBER_DO_JOIN, RDZV_E_IN_USE);
  world.now.mono_ms = START_MS + 600001;
  event(&world, MEMBER_EV_TIMER);
  assert_told(&world, ENGINE_NEWS_FAILED);
  assert_code(world.update.told.error.code, RDZV_E_IN_USE);
  assert_int_equal(world.update.told.failed, ENGINE_EV_ASK_JOIN);
}

static void test_refused_for_good(void **state) {
  (void)state;
  static const int codes[] = {RDZV_E_CLOSED, RDZV_E_GRACEFUL_EXIT, RDZV_E_TIMEOUT, RDZV_E_INVALID, RDZV_E_LIMIT};
  for (size_t i = 0; i < COUNT_OF(codes); i++) {
    struct world world;
    begin_to_join(&world);
    refuse(&world, MEMBER_DO_JOIN, codes[i]);
    assert_told(&world, ENGINE_NEWS_FAILED);
    assert_code(world.update.told.error.code, codes[i]);
    assert_string_equal(world.update.told.error.message + strlen(world.update.told.error.message) - 2, "no");
    assert_int_equal(run_until(&world, START_MS + 700000), 0);
  }
}

/* The join was given up, and another one is under way, when its refusal comes. */
static void test_a_late_refusal_is_of_another_join(void **state) {
  (void)state;
  static const int codes[] = {RDZV_E_CLOSED, RDZV_E_TIMEOUT, RDZV_E_STALE, RDZV_E_IN_USE};
  for (size_t i = 0; i < COUNT_OF(codes); i++) {
    struct world world;
    begin_to_join(&world);
    event(&world, MEMBER_EV_ASK_LEAVE);
    event(&world, MEMBER_EV_ASK_JOIN);
    assert_int_equal(world.update.join.number, 2);
    refuse_number(&world, MEMBER_DO_JOIN, 1, codes[i]);
    assert_told(&world, 0);
    assert_doing(&world, 0);
    answer_join(&world, 2, 0);
    assert_told(&world, ENGINE_NEWS_JOINED);
  }
}

/* A server that could not read the join cannot say which one it was. */
static void test_a_refusal_without_a_number_counts(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world);
  refuse_number(&world, MEMBER_DO_JOIN, 0, RDZV_E_PROTOCOL);
  assert_told(&world, ENGINE_NEWS_FAILED);
}

static void test_a_late_refusal_of_a_resumption(void **state) {
  (void)state;
  struct world world;
  join(&world, 0);
  lose(&world, RDZV_E_CONNECTION);
  event(&world, MEMBER_EV_CONNECTED);
  assert_doing(&world, MEMBER_DO_RESUME);
  refuse_number(&world, MEMBER_DO_RESUME, 1, RDZV_E_STALE);
  assert_told(&world, 0);
  refuse_number(&world, MEMBER_DO_RESUME, 2, RDZV_E_STALE);
  assert_told(&world, ENGINE_NEWS_EVICTED);
}

/* A server that does not know the session any more: another one, and the rounds of before stay over. */
static void test_join_anew(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  event(&world, MEMBER_EV_ASK_JOIN);
  uint8_t token[NATIVE_TOKEN_BYTES];
  memcpy(token, world.update.join.session.token, sizeof token);
  refuse(&world, MEMBER_DO_JOIN, RDZV_E_STALE);
  assert_told(&world, 0);
  assert_doing(&world, MEMBER_DO_JOIN);
  assert_memory_not_equal(world.update.join.session.token, token, sizeof token);
  assert_int_equal(world.update.join.session.epoch, 1);
  assert_int_equal(world.update.join.number, 3);
  assert_int_equal(world.update.join.first_round, 4);
}

/* The answer to a join that was given up comes when another session has begun: it is not the answer to its join. */
static void test_an_answer_of_a_session_before(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world);
  event(&world, MEMBER_EV_ASK_LEAVE);
  assert_doing(&world, MEMBER_DO_LEAVE);
  event(&world, MEMBER_EV_ASK_JOIN);
  assert_doing(&world, MEMBER_DO_JOIN);
  answer_join(&world, 1, 3);
  assert_told(&world, 0);
  answer_join(&world, 2, 4);
  assert_told(&world, ENGINE_NEWS_JOINED);
}

/* Where there is no server, the join ends by its deadline, with the cause; a cause that will not pass ends it at once.
 * While the server is there, it knows when a join has to end. */
static void test_deadline_of_a_join(void **state) {
  (void)state;
  struct world world;
  begin(&world);
  event(&world, MEMBER_EV_ASK_JOIN);
  int tries = 0;
  while (!(world.update.told.news & ENGINE_NEWS_FAILED)) {
    if (world.update.doing & MEMBER_DO_CONNECT) {
      lose(&world, RDZV_E_CONNECTION);
      tries++;
    } else {
      world.now.mono_ms = world.update.until_ms;
      event(&world, MEMBER_EV_TIMER);
    }
  }
  assert_int_equal(world.now.mono_ms, START_MS + 600001);
  assert_in_range(tries, 300, 700); /* about one in one and a half seconds */
  assert_code(world.update.told.error.code, RDZV_E_CONNECTION);
  assert_string_equal(world.update.told.error.message, "cannot join the rendezvous: it broke");

  begin(&world);
  event(&world, MEMBER_EV_ASK_JOIN);
  lose(&world, RDZV_E_UNSUPPORTED);
  assert_told(&world, ENGINE_NEWS_FAILED);
  assert_code(world.update.told.error.code, RDZV_E_UNSUPPORTED);

  begin_to_join(&world); /* as a spare, say */
  for (int i = 0; i < 700; i++) {
    after(&world, 1000);
    assert_told(&world, 0);
    event(&world, MEMBER_EV_BEAT);
  }
}

/* A server that does not answer, whatever it is asked, does not hold a join for longer than its time and a little. */
static void test_a_server_that_is_silent_at_the_deadline(void **state) {
  (void)state;
  struct world world;
  begin(&world);
  world.member.config.settings.join_timeout = 500;
  event(&world, MEMBER_EV_ASK_JOIN);
  event(&world, MEMBER_EV_CONNECTED);
  bool asked = false;
  while (!(world.update.told.news & ENGINE_NEWS_FAILED)) {
    assert_true(world.update.until_ms > world.now.mono_ms);
    world.now.mono_ms = world.update.until_ms;
    event(&world, MEMBER_EV_TIMER);
    asked |= (world.update.doing & MEMBER_DO_BEAT) && world.update.wants_answer;
  }
  assert_true(asked);
  assert_in_range(world.now.mono_ms, START_MS + 2500, START_MS + 5000);
  assert_code(world.update.told.error.code, RDZV_E_TIMEOUT);
}

/* Who asks anew does not wait for a try that a failure of before has put off. */
static void test_asking_connects_at_once(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  lose(&world, RDZV_E_CONNECTION);
  for (int i = 0; i < 20; i++) {
    if (!(world.update.doing & MEMBER_DO_CONNECT)) run_until(&world, world.update.until_ms);
    lose(&world, RDZV_E_CONNECTION);
  }
  assert_doing(&world, 0);
  event(&world, MEMBER_EV_ASK_JOIN);
  assert_doing(&world, MEMBER_DO_CONNECT);
}

/* A spare waits beyond the deadline. A lost connection does not end that, but a server that does not come back does. */
static void test_a_spare_survives_a_lost_connection(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world);
  for (int i = 0; i < 700; i++) {
    after(&world, 1000);
    event(&world, MEMBER_EV_BEAT);
  }
  lose(&world, RDZV_E_CONNECTION);
  assert_told(&world, 0);
  while (!(world.update.doing & MEMBER_DO_CONNECT)) after(&world, 1);
  event(&world, MEMBER_EV_CONNECTED);
  assert_doing(&world, MEMBER_DO_JOIN);
  assert_int_equal(world.update.join.number, 1);
  assert_int_equal(world.update.join.session.epoch, 2);
  lose(&world, RDZV_E_CONNECTION);
  const int64_t lost_ms = world.now.mono_ms;
  while (!(world.update.told.news & ENGINE_NEWS_FAILED)) {
    if (world.update.doing & MEMBER_DO_CONNECT)
      lose(&world, RDZV_E_CONNECTION);
    else
      after(&world, 100);
  }
  assert_in_range(world.now.mono_ms - lost_ms, 1, DEAD_MS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_join_one_answer),
      cmocka_unit_test(test_the_next_join),
      cmocka_unit_test(test_a_join_is_sent_again),
      cmocka_unit_test(test_refused_for_now),
      cmocka_unit_test(test_refused_for_good),
      cmocka_unit_test(test_a_late_refusal_is_of_another_join),
      cmocka_unit_test(test_a_refusal_without_a_number_counts),
      cmocka_unit_test(test_a_late_refusal_of_a_resumption),
      cmocka_unit_test(test_join_anew),
      cmocka_unit_test(test_an_answer_of_a_session_before),
      cmocka_unit_test(test_deadline_of_a_join),
      cmocka_unit_test(test_a_server_that_is_silent_at_the_deadline),
      cmocka_unit_test(test_asking_connects_at_once),
      cmocka_unit_test(test_a_spare_survives_a_lost_connection),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
