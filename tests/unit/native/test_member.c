/* SPDX-License-Identifier: BSD-3-Clause */
/* One native node: what it sends, when it connects again, and what it tells. We are node 'm_7_0'. */
#include "state/native/member.h"
#include "unit.h"

enum { START_MS = 100000, DEAD_MS = 15000 };

struct world {
  struct member member;
  struct member_update update;
  struct moment now;
};

static void begin(struct world *world) {
  struct member_config config = {.run_id = "job",
                                 .node = {"m", 7, 0},
                                 .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                 .times = NATIVE_TIMES_DEFAULT,
                                 .layout = TORCH_NEWEST,
                                 .secret = {{1, 2}}};
  *world = (struct world){.now = {START_MS, 0}};
  member_init(&world->member, &config);
}

static void step(struct world *world, struct member_event event) {
  event.now = world->now;
  member_step(&world->member, &event, &world->update);
}

static void event(struct world *world, enum member_event_kind kind) {
  step(world, (struct member_event){.kind = kind});
}

static void after(struct world *world, int64_t ms) {
  world->now.mono_ms += ms;
  event(world, MEMBER_EV_TIMER);
}

static void lose(struct world *world, int code) {
  rdzv_error error = {.code = code, .message = "it broke"};
  step(world, (struct member_event){.kind = MEMBER_EV_LOST, .error = &error});
}

static void refuse_number(struct world *world, enum member_request what, uint64_t number, int code) {
  rdzv_error error = {.code = code, .message = "no"};
  step(world, (struct member_event){.kind = MEMBER_EV_REFUSED, .refused = what, .number = number, .error = &error});
}

static void refuse(struct world *world, enum member_request what, int code) {
  const struct member *member = &world->member;
  refuse_number(world, what,
                what == MEMBER_DO_JOIN     ? member->joins
                : what == MEMBER_DO_RESUME ? member->epoch
                                           : 0,
                code);
}

static void answer_join(struct world *world, uint64_t number, int64_t round) {
  const struct native_joined joined = {
      .number = number, .round = round, .rank = 1, .world_size = 2, .all_native = true};
  step(world, (struct member_event){.kind = MEMBER_EV_JOINED, .joined = &joined});
}

static void tell(struct world *world, unsigned what, int64_t round) {
  struct native_news news = {.what = what, .round = round, .gone = 1, .named = 1, .nodes = {{"n", 1, 0}}};
  step(world, (struct member_event){.kind = MEMBER_EV_NEWS, .news = &news});
}

#define assert_doing(world, flags) assert_int_equal((world)->update.doing, (flags))
#define assert_told(world, flags) assert_int_equal((world)->update.told.news, (flags))

/* Runs the timers up to that time, without any answer, and gives what was done. */
static unsigned run_until(struct world *world, int64_t until_ms) {
  unsigned done = 0;
  while (world->update.until_ms <= until_ms) {
    world->now.mono_ms = world->update.until_ms > world->now.mono_ms ? world->update.until_ms : world->now.mono_ms;
    event(world, MEMBER_EV_TIMER);
    done |= world->update.doing;
  }
  world->now.mono_ms = until_ms;
  return done;
}

/* Asks, connects and sends the join. */
static void begin_to_join(struct world *world) {
  begin(world);
  step(world,
       (struct member_event){
           .kind = MEMBER_EV_ASK_JOIN, .master_addr = "10.0.0.7", .master_port = 4711, .workers = {"trainer", 8, 1}});
  assert_doing(world, MEMBER_DO_CONNECT);
  event(world, MEMBER_EV_CONNECTED);
  assert_doing(world, MEMBER_DO_JOIN);
}

static void join(struct world *world, int64_t round) {
  begin_to_join(world);
  answer_join(world, 1, round);
  assert_told(world, ENGINE_NEWS_JOINED);
}

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
      cmocka_unit_test(test_a_spare_survives_a_lost_connection),
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
      cmocka_unit_test(test_a_server_that_is_silent_at_the_deadline),
      cmocka_unit_test(test_asking_connects_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
