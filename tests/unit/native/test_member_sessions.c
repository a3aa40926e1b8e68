/* SPDX-License-Identifier: BSD-3-Clause */
/* The session of one native node: when it connects again, beats, what it tells, how it ends. */
#include "member_world.h"

/* ---- the connection ------------------------------------------------------------------------------------------- */

static void test_resume(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  lose(&world, RDZV_E_CONNECTION);
  assert_doing(&world, MEMBER_DO_CONNECT);
  assert_told(&world, 0);
  event(&world, MEMBER_EV_CONNECTED);
  assert_doing(&world, MEMBER_DO_RESUME);
  assert_int_equal(world.update.join.session.epoch, 2);
  step(&world, (struct member_event){.kind = MEMBER_EV_RESUMED, .number = 1});
  assert_doing(&world, 0);
  tell(&world, ENGINE_NEWS_PARTICIPANT_DIED, 3);
  assert_told(&world, ENGINE_NEWS_PARTICIPANT_DIED);
  assert_string_equal(world.update.told.dead.text, "n_1_0");
}

/* A session that is over, or a server that was restarted. */
static void test_evicted(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  lose(&world, RDZV_E_CONNECTION);
  event(&world, MEMBER_EV_CONNECTED);
  refuse(&world, MEMBER_DO_RESUME, RDZV_E_STALE);
  assert_told(&world, ENGINE_NEWS_EVICTED);
  assert_int_equal(world.update.told.round, 3);
  assert_int_equal(run_until(&world, START_MS + 60000), 0); /* nothing more to do */
  event(&world, MEMBER_EV_ASK_JOIN);
  assert_doing(&world, MEMBER_DO_JOIN); /* on the same connection */
  assert_int_equal(world.update.join.first_round, 4);
  assert_int_equal(world.update.join.session.epoch, 1);
}

/* A RESUME that is refused for now is no reason to go. */
/* A join that was sent behind the RESUME begins the session again, with its token: it has nothing to fear. */
static void test_join_behind_a_resume(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  lose(&world, RDZV_E_CONNECTION);
  event(&world, MEMBER_EV_CONNECTED);
  assert_doing(&world, MEMBER_DO_RESUME);
  event(&world, MEMBER_EV_ASK_JOIN);
  assert_doing(&world, MEMBER_DO_JOIN);
  refuse(&world, MEMBER_DO_RESUME, RDZV_E_STALE);
  assert_doing(&world, 0);
  assert_told(&world, 0);
  answer_join(&world, 2, 4);
  assert_told(&world, ENGINE_NEWS_JOINED);
}

static void test_resume_refused_for_now(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  lose(&world, RDZV_E_CONNECTION);
  event(&world, MEMBER_EV_CONNECTED);
  refuse(&world, MEMBER_DO_RESUME, RDZV_E_NO_MEMORY);
  assert_told(&world, 0);
  assert_true(world.update.doing & MEMBER_DO_DROP);
  if (!(world.update.doing & MEMBER_DO_CONNECT)) assert_true(run_until(&world, START_MS + 1000) & MEMBER_DO_CONNECT);
}

/* The first try at once, several within the grace, and then fewer; many nodes do not all come in the same moment. */
static void test_back_off(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  int within_grace = 0, in_a_minute = 0;
  lose(&world, RDZV_E_CONNECTION);
  while (world.now.mono_ms < START_MS + 60000) {
    if (world.update.doing & MEMBER_DO_CONNECT) {
      within_grace += world.now.mono_ms < START_MS + NATIVE_TIMES_DEFAULT.grace_ms;
      in_a_minute++;
      lose(&world, RDZV_E_CONNECTION);
    } else {
      world.now.mono_ms = world.update.until_ms;
      event(&world, MEMBER_EV_TIMER);
    }
  }
  assert_in_range(within_grace, 3, 6);
  assert_in_range(in_a_minute, 30, 80);
  int at_once = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    begin(&world);
    world.member.pace.random = i;
    world.member.config.settings.max_nodes = 4000;
    event(&world, MEMBER_EV_ASK_JOIN);
    event(&world, MEMBER_EV_CONNECTED);
    lose(&world, RDZV_E_CONNECTION);
    if (world.update.doing & MEMBER_DO_CONNECT)
      at_once++;
    else
      assert_in_range(world.update.until_ms, START_MS + 1, START_MS + 4000 / 64);
  }
  assert_in_range(at_once, 1, 60);
}

/* ---- beats ---------------------------------------------------------------------------------------------------- */

/* A node beats as often as it said, and wants an answer at least each third of the dead time; the answer's time is told
 * with the next beat. */
static void test_beats(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  int beats = 0, answers = 0;
  int64_t heard = START_MS;
  bool told_trip = false;
  while (world.now.mono_ms < START_MS + 60000) {
    assert_true(world.update.until_ms > world.now.mono_ms);
    world.now.mono_ms = world.update.until_ms;
    event(&world, MEMBER_EV_TIMER);
    assert_int_equal(world.update.doing & ~(unsigned)MEMBER_DO_BEAT, 0);
    if (!(world.update.doing & MEMBER_DO_BEAT)) continue;
    beats++;
    told_trip |= world.update.trip_us == 250;
    if (!(world.update.wants_answer)) continue;
    answers++;
    assert_true(world.now.mono_ms - heard <= DEAD_MS / 3);
    heard = world.now.mono_ms;
    step(&world, (struct member_event){.kind = MEMBER_EV_BEAT, .trip_us = 250});
  }
  assert_in_range(beats, 29, 31);
  assert_in_range(answers, 12, 16);
  assert_true(told_trip);
}

/* While it waits for its round a node beats, too; one that has left does not. */
static void test_who_beats(void **state) {
  (void)state;
  struct world world;
  begin_to_join(&world);
  assert_true(run_until(&world, START_MS + 3000) & MEMBER_DO_BEAT);
  event(&world, MEMBER_EV_ASK_LEAVE);
  assert_doing(&world, MEMBER_DO_LEAVE);
  event(&world, MEMBER_EV_LEFT);
  assert_told(&world, ENGINE_NEWS_LEFT);
  assert_int_equal(run_until(&world, START_MS + 60000), 0);
}

/* A server that is silent for two thirds of the dead time is asked on another connection. */
static void test_silence(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  while (!(world.update.doing & MEMBER_DO_DROP)) {
    world.now.mono_ms = world.update.until_ms;
    event(&world, MEMBER_EV_TIMER);
  }
  assert_in_range(world.now.mono_ms, START_MS + DEAD_MS * 2 / 3, START_MS + DEAD_MS * 2 / 3 + 10);
  assert_true(world.update.doing & MEMBER_DO_CONNECT);
  assert_told(&world, 0);
}

/* Time in which we did not run is not the server's silence. */
static void test_a_pause_of_ours(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  after(&world, 3600 * 1000);
  assert_doing(&world, MEMBER_DO_BEAT);
  assert_true(world.update.wants_answer);
}

/* ---- news ----------------------------------------------------------------------------------------------------- */

static void test_news(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  tell(&world, ENGINE_NEWS_SOMEONE_WAITS, 2); /* of another round */
  assert_told(&world, 0);
  tell(&world, ENGINE_NEWS_JOINED | ENGINE_NEWS_SOMEONE_WAITS, 3); /* what no server tells is not taken */
  assert_told(&world, ENGINE_NEWS_SOMEONE_WAITS);
  tell(&world, ENGINE_NEWS_PARTICIPANT_LEFT, 3);
  assert_told(&world, ENGINE_NEWS_PARTICIPANT_LEFT);
  assert_string_equal(world.update.told.left.text, "n_1_0");
  assert_non_null(world.update.news);
  tell(&world, ENGINE_NEWS_EVICTED, 3);
  assert_told(&world, ENGINE_NEWS_EVICTED);
  tell(&world, ENGINE_NEWS_IS_CLOSED, 3);
  assert_told(&world, 0);
  event(&world, MEMBER_EV_ASK_JOIN);
  assert_doing(&world, MEMBER_DO_JOIN);
  assert_int_equal(world.update.join.number, 2);
}

/* ---- leaving, closing, stopping ------------------------------------------------------------------------------- */

static void test_leave(void **state) {
  (void)state;
  struct world world;
  begin(&world);
  event(&world, MEMBER_EV_ASK_LEAVE); /* nothing to leave */
  assert_told(&world, ENGINE_NEWS_LEFT);
  assert_doing(&world, 0);

  join(&world, 3);
  event(&world, MEMBER_EV_ASK_LEAVE);
  assert_doing(&world, MEMBER_DO_LEAVE);
  lose(&world, RDZV_E_CONNECTION); /* was it done? */
  event(&world, MEMBER_EV_CONNECTED);
  assert_doing(&world, MEMBER_DO_RESUME);
  refuse(&world, MEMBER_DO_RESUME, RDZV_E_STALE);
  assert_told(&world, ENGINE_NEWS_LEFT);

  join(&world, 3);
  event(&world, MEMBER_EV_ASK_LEAVE);
  lose(&world, RDZV_E_CONNECTION);
  event(&world, MEMBER_EV_CONNECTED);
  step(&world, (struct member_event){.kind = MEMBER_EV_RESUMED, .number = 1}); /* it was not */
  assert_doing(&world, MEMBER_DO_LEAVE);
  event(&world, MEMBER_EV_LEFT);
  assert_told(&world, ENGINE_NEWS_LEFT);
  event(&world, MEMBER_EV_ASK_JOIN); /* another place, another token */
  assert_doing(&world, MEMBER_DO_JOIN);
  assert_int_equal(world.update.join.session.epoch, 1);
  assert_int_equal(world.update.join.number, 2);
}

/* A join right behind a leave does not wait for its answer, nor take it for anything. */
static void test_join_behind_a_leave(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  uint8_t token[NATIVE_TOKEN_BYTES];
  memcpy(token, world.member.token, sizeof token);
  event(&world, MEMBER_EV_ASK_LEAVE);
  event(&world, MEMBER_EV_ASK_JOIN);
  assert_doing(&world, MEMBER_DO_JOIN);
  assert_memory_not_equal(world.update.join.session.token, token, sizeof token);
  event(&world, MEMBER_EV_LEFT);
  assert_told(&world, 0);
  answer_join(&world, 2, 4);
  assert_told(&world, ENGINE_NEWS_JOINED);
}

static void test_close(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  step(&world, (struct member_event){.kind = MEMBER_EV_ASK_CLOSE, .reason = "done"});
  assert_doing(&world, MEMBER_DO_CLOSE);
  assert_string_equal(world.update.reason, "done");
  lose(&world, RDZV_E_CONNECTION);
  event(&world, MEMBER_EV_CONNECTED);
  assert_doing(&world, MEMBER_DO_RESUME | MEMBER_DO_CLOSE); /* again: twice does no harm */
  event(&world, MEMBER_EV_CLOSED);
  assert_told(&world, ENGINE_NEWS_CLOSE_DONE);
  tell(&world, ENGINE_NEWS_IS_CLOSED, 3); /* it stays in its round */
  assert_told(&world, ENGINE_NEWS_IS_CLOSED);

  begin(&world); /* by a node that never joined, and without a server */
  step(&world, (struct member_event){.kind = MEMBER_EV_ASK_CLOSE});
  assert_doing(&world, MEMBER_DO_CONNECT);
  lose(&world, RDZV_E_CONNECTION);
  world.now.mono_ms = START_MS + 30001;
  lose(&world, RDZV_E_CONNECTION);
  assert_told(&world, ENGINE_NEWS_FAILED);
  assert_int_equal(world.update.told.failed, ENGINE_EV_ASK_CLOSE);
  assert_code(world.update.told.error.code, RDZV_E_CONNECTION);
}

static void test_stop(void **state) {
  (void)state;
  struct world world;
  join(&world, 3);
  event(&world, MEMBER_EV_ASK_STOP);
  assert_doing(&world, MEMBER_DO_DROP);
  assert_told(&world, 0);
  assert_int_equal(run_until(&world, START_MS + 60000), 0);
}

/* Two failures are told one after the other. */
static void test_two_failures(void **state) {
  (void)state;
  struct world world;
  begin(&world);
  event(&world, MEMBER_EV_ASK_JOIN);
  event(&world, MEMBER_EV_ASK_CLOSE);
  lose(&world, RDZV_E_PROTOCOL);
  assert_told(&world, ENGINE_NEWS_FAILED);
  assert_int_equal(world.update.told.failed, ENGINE_EV_ASK_CLOSE);
  assert_int_equal(world.update.until_ms, START_MS);
  event(&world, MEMBER_EV_TIMER);
  assert_told(&world, ENGINE_NEWS_FAILED);
  assert_int_equal(world.update.told.failed, ENGINE_EV_ASK_JOIN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_evicted),
      cmocka_unit_test(test_join_behind_a_resume),
      cmocka_unit_test(test_resume_refused_for_now),
      cmocka_unit_test(test_back_off),
      cmocka_unit_test(test_beats),
      cmocka_unit_test(test_who_beats),
      cmocka_unit_test(test_silence),
      cmocka_unit_test(test_a_pause_of_ours),
      cmocka_unit_test(test_news),
      cmocka_unit_test(test_leave),
      cmocka_unit_test(test_join_behind_a_leave),
      cmocka_unit_test(test_close),
      cmocka_unit_test(test_stop),
      cmocka_unit_test(test_two_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
