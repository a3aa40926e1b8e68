/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine, event by event, with a cell beside it. We are node 'm', between 2 and 3 nodes. */
#include "rules_world.h"
#include "state/engine/engine.h"

struct world {
  struct engine engine;
  struct engine_update update;
  struct rendezvous_state cell;
  uint64_t token; /* 0: there is no state yet */
  struct moment now;
};

static struct world *begin(const char *state, bool complete) {
  struct world *world = test_calloc(1, sizeof *world);
  struct engine_config config = {.node = node_of("m"), .settings = RENDEZVOUS_SETTINGS_DEFAULT, .seed = 7};
  config.settings.min_nodes = 2;
  config.settings.max_nodes = 3;
  config.settings.join_timeout = 60000;
  engine_init(&world->engine, &config);
  world->cell = state_of(state);
  world->cell.complete = complete;
  world->token = *state ? 1 : 0;
  world->now = NOW;
  if (complete) assert_code(rendezvous_assign_ranks(&world->cell, RANK_ORDER_TORCH, NULL), 0);
  return world;
}

static void end(struct world *world) {
  engine_free(&world->engine);
  state_free(&world->cell);
  test_free(world);
}

static void step(struct world *world, struct engine_event event) {
  rdzv_error error;
  event.now = world->now;
  assert_code(engine_step(&world->engine, &event, &world->update, &error), 0);
}

static void ask(struct world *world, enum engine_event_kind what) { step(world, (struct engine_event){.kind = what}); }

static void pass(struct world *world, int64_t ms) {
  world->now.mono_ms += ms;
  world->now.wall_us += ms * 1000;
}

/* The cell's state as an answer. */
static void answer(struct world *world, enum engine_event_kind kind) {
  struct rendezvous_state state;
  assert_true(state_copy(&state, &world->cell));
  step(world, (struct engine_event){.kind = kind, .state = world->token ? &state : NULL, .token = world->token});
  state_free(&state);
}

static void swap(struct world *world) {
  assert_int_equal(world->update.request, ENGINE_DO_SWAP);
  assert_int_equal(world->update.token, world->token);
  state_free(&world->cell);
  assert_true(state_copy(&world->cell, world->update.state));
  step(world, (struct engine_event){.kind = ENGINE_EV_SWAP_WON, .token = ++world->token});
}

/* Does what the engine asks for until it waits, or has nothing to do. */
static void settle(struct world *world) {
  unsigned happened = world->update.news;
  for (int i = 0; i < 100; i++) {
    if (world->update.request == ENGINE_DO_READ)
      answer(world, ENGINE_EV_STATE_READ);
    else if (world->update.request == ENGINE_DO_SWAP)
      swap(world);
    else
      break;
    happened |= world->update.news;
  }
  world->update.news = happened;
}

/* Somebody else writes. */
static struct state_node *other(struct world *world, const char *name, unsigned kind) {
  struct state_node *member = put(&world->cell, name, kind, 0);
  member->last_heartbeat = world->now.wall_us;
  world->token++;
  return member;
}

static void gone(struct world *world, const char *name) {
  const struct node_desc node = node_of(name);
  state_remove(&world->cell, state_find(&world->cell, &node));
  world->token++;
}

static void beat(struct world *world, const char *name) {
  const struct node_desc node = node_of(name);
  state_find(&world->cell, &node)->last_heartbeat = world->now.wall_us;
  world->token++;
}

/* A member of round 0, with a and z. */
static struct world *joined(void) {
  struct world *world = begin("p:az", false);
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  assert_int_equal(world->update.news, ENGINE_NEWS_JOINED);
  return world;
}

/* Where there is no state yet, it is created; then the first one waits for others. */
static void test_the_first_node_creates_the_state(void **unused) {
  (void)unused;
  struct world *world = begin("", false);
  ask(world, ENGINE_EV_ASK_JOIN);
  assert_int_equal(world->update.request, ENGINE_DO_READ);
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.request, ENGINE_DO_SWAP);
  assert_int_equal(world->update.token, 0);
  settle(world);
  assert_int_equal(world->update.request, ENGINE_DO_WAIT);
  assert_int_equal(world->update.token, 1);
  assert_string_equal(text_of(&world->cell).text, "p:m");
  end(world);
}

/* The result: rank, size, round, members. Then it waits until the heartbeat is due, and renews it. */
static void test_a_member_keeps_itself_alive(void **unused) {
  (void)unused;
  struct world *world = joined();
  assert_int_equal(world->update.rank, 1);
  assert_int_equal(world->update.world_size, 3);
  assert_int_equal(world->update.round, 0);
  assert_int_equal(world->update.request, ENGINE_DO_WAIT);
  assert_int_equal(world->update.until_ms, NOW_MS + 5000);
  const struct node_desc self = node_of("m");
  for (int i = 1; i < 20; i++) {
    pass(world, 5000);
    beat(world, "a");
    beat(world, "z");
    ask(world, ENGINE_EV_TIMER);
    settle(world);
    assert_int_equal(state_find(&world->cell, &self)->last_heartbeat, world->now.wall_us);
  }
  end(world);
}

/* Our own wall clock is set back by an hour: heartbeats go on by the monotonic one. */
static void test_a_clock_set_back_does_not_stop_heartbeats(void **unused) {
  (void)unused;
  struct world *world = joined();
  const struct node_desc self = node_of("m");
  world->now.wall_us -= 3600 * SECOND;
  pass(world, 5000);
  ask(world, ENGINE_EV_TIMER);
  settle(world);
  assert_int_equal(state_find(&world->cell, &self)->last_heartbeat, world->now.wall_us);
  end(world);
}

/* A lost swap backs off, more with each, then reads before it tries again. */
static void test_a_lost_swap_backs_off(void **unused) {
  (void)unused;
  struct world *world = begin("p:a", false);
  world->engine.config.settings.max_nodes = 1000;
  int64_t longest = 0;
  ask(world, ENGINE_EV_ASK_JOIN);
  for (int i = 0; i < 40; i++) {
    if (world->update.request == ENGINE_DO_BACK_OFF) {
      const int64_t wait = world->update.until_ms - world->now.mono_ms;
      assert_true(wait > 0 && wait <= 10 * 1000);
      longest = wait > longest ? wait : longest;
      pass(world, wait);
      ask(world, ENGINE_EV_TIMER);
    } else if (world->update.request == ENGINE_DO_READ) {
      answer(world, ENGINE_EV_STATE_READ);
    } else {
      assert_int_equal(world->update.request, ENGINE_DO_SWAP);
      pass(world, 10);
      answer(world, ENGINE_EV_SWAP_LOST);
    }
  }
  assert_true(longest > 1000);
  end(world);
}

/* A heartbeat that is overdue by two thirds of the dead time tries again at once, however often it loses. */
static void test_an_overdue_heartbeat_does_not_back_off(void **unused) {
  (void)unused;
  struct world *world = joined();
  pass(world, 10001);
  ask(world, ENGINE_EV_TIMER);
  assert_int_equal(world->update.request, ENGINE_DO_READ);
  answer(world, ENGINE_EV_STATE_READ);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(world->update.request, ENGINE_DO_SWAP);
    pass(world, 10);
    beat(world, "a");
    answer(world, ENGINE_EV_SWAP_LOST);
  }
  end(world);
}

/* What happened to a swap without an answer, the state tells: here it took effect. */
static void test_a_lost_answer_is_found_out(void **unused) {
  (void)unused;
  struct world *world = begin("p:az", false);
  const rdzv_error error = {.code = RDZV_E_OUTCOME_UNKNOWN, .message = "the wire broke"};
  ask(world, ENGINE_EV_ASK_JOIN);
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.request, ENGINE_DO_SWAP);
  state_free(&world->cell);
  assert_true(state_copy(&world->cell, world->update.state));
  world->token++;
  step(world, (struct engine_event){.kind = ENGINE_EV_STORE_ERROR, .error = &error});
  assert_int_equal(world->update.request, ENGINE_DO_BACK_OFF);
  pass(world, world->update.until_ms - world->now.mono_ms);
  ask(world, ENGINE_EV_TIMER);
  settle(world);
  assert_int_equal(world->update.news, ENGINE_NEWS_JOINED);
  assert_int_equal(world->token, 2); /* and no heartbeat was written on top */
  end(world);
}

/* A store that stays away fails the join at its deadline, with the store's own sentence; one that is broken at once. */
static void test_a_join_fails_with_the_stores_sentence(void **unused) {
  (void)unused;
  static const int codes[] = {RDZV_E_CONNECTION, RDZV_E_CORRUPT};
  for (size_t i = 0; i < COUNT_OF(codes); i++) {
    struct world *world = begin("", false);
    rdzv_error error = {.code = codes[i], .message = "the cause"};
    ask(world, ENGINE_EV_ASK_JOIN);
    while (!(world->update.news & ENGINE_NEWS_FAILED)) {
      assert_true(world->now.mono_ms <= NOW_MS + 70000);
      if (world->update.request == ENGINE_DO_READ) {
        step(world, (struct engine_event){.kind = ENGINE_EV_STORE_ERROR, .error = &error});
      } else {
        pass(world, world->update.until_ms - world->now.mono_ms);
        ask(world, ENGINE_EV_TIMER);
      }
    }
    assert_int_equal(world->update.failed, ENGINE_EV_ASK_JOIN);
    assert_error(world->update.error.code, codes[i], &world->update.error, "cannot join the rendezvous: the cause");
    assert_int_equal(world->now.mono_ms > NOW_MS + 60000, codes[i] == RDZV_E_CONNECTION);
    assert_int_equal(world->update.request, ENGINE_DO_NOTHING);
    end(world);
  }
}

/* A join that finds too few says who was there, and takes itself out. */
static void test_a_timeout_names_who_joined(void **unused) {
  (void)unused;
  struct world *world = begin("", false);
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  while (!(world->update.news & ENGINE_NEWS_FAILED)) {
    pass(world, world->update.until_ms - world->now.mono_ms);
    ask(world, ENGINE_EV_TIMER);
    settle(world);
    assert_true(world->now.mono_ms < NOW_MS + 70000);
  }
  assert_int_equal(world->update.error.code, RDZV_E_TIMEOUT);
  assert_non_null(strstr(world->update.error.message, "join timed out: 1 of at least 2 nodes joined"));
  assert_string_equal(text_of(&world->cell).text, "");
  end(world);
}

static void test_a_closed_rendezvous_refuses(void **unused) {
  (void)unused;
  struct world *world = begin("p:abc", true);
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  assert_string_equal(text_of(&world->cell).text, "p:a0b1c2 r:m");
  world->cell.closed = true;
  world->token++;
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, ENGINE_NEWS_FAILED);
  assert_int_equal(world->update.error.code, RDZV_E_GRACEFUL_EXIT);
  gone(world, "m");
  pass(world, 1000);
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  assert_int_equal(world->update.error.code, RDZV_E_CLOSED);
  end(world);
}

/* Notices for a member, each once. */
static void test_a_member_hears_of_changes(void **unused) {
  (void)unused;
  struct world *world = joined();
  gone(world, "z");
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, ENGINE_NEWS_PARTICIPANT_LEFT);
  assert_string_equal(world->update.left.text, "z_1_0");
  other(world, "x", NODE_WAITING);
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, ENGINE_NEWS_SOMEONE_WAITS);
  world->cell.closed = true;
  world->token++;
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, ENGINE_NEWS_IS_CLOSED);
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, 0);
  gone(world, "m");
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, ENGINE_NEWS_EVICTED);
  assert_int_equal(world->update.request, ENGINE_DO_NOTHING);
  end(world);
}

/* Of several that go in one step each is named, once. */
static void test_a_member_hears_of_all_that_are_gone(void **unused) {
  (void)unused;
  struct world *world = joined();
  gone(world, "z");
  answer(world, ENGINE_EV_STATE_READ);
  assert_string_equal(engine_gone(&world->engine, &world->update, NULL)->desc.addr, "z");
  gone(world, "a");
  answer(world, ENGINE_EV_STATE_READ);
  const struct engine_peer *only = engine_gone(&world->engine, &world->update, NULL);
  assert_string_equal(only->desc.addr, "a");
  assert_null(engine_gone(&world->engine, &world->update, only));
  end(world);
  world = joined();
  gone(world, "a");
  gone(world, "z");
  answer(world, ENGINE_EV_STATE_READ);
  const struct engine_peer *first = engine_gone(&world->engine, &world->update, NULL);
  const struct engine_peer *second = engine_gone(&world->engine, &world->update, first);
  assert_string_equal(first->desc.addr, "a");
  assert_string_equal(second->desc.addr, "z");
  assert_null(engine_gone(&world->engine, &world->update, second));
  answer(world, ENGINE_EV_STATE_READ);
  assert_null(engine_gone(&world->engine, &world->update, NULL));
  end(world);
}

/* The silent one is written off by us within the dead time and a bit, and that is told as a death. */
static void test_a_member_hears_of_a_death(void **unused) {
  (void)unused;
  struct world *world = joined();
  unsigned happened = 0;
  while (!happened) {
    assert_true(world->now.mono_ms < NOW_MS + 15000 + 300);
    pass(world, 100);
    beat(world, "a");
    answer(world, ENGINE_EV_STATE_READ);
    settle(world);
    happened = world->update.news;
    if (world->update.until_ms > world->now.mono_ms + 100) continue;
    pass(world, world->update.until_ms - world->now.mono_ms);
    ask(world, ENGINE_EV_TIMER);
    settle(world);
    happened |= world->update.news;
  }
  assert_int_equal(happened, ENGINE_NEWS_PARTICIPANT_DIED);
  assert_true(world->now.mono_ms > NOW_MS + 15000);
  assert_string_equal(world->update.dead.text, "z_1_0");
  assert_string_equal(text_of(&world->cell).text, "p:a0m1");
  end(world);
}

/* Nobody is a reason to begin anew while there is no room for it. */
static void test_who_waits_beside_a_full_round_is_not_told_of(void **unused) {
  (void)unused;
  struct world *world = joined();
  other(world, "x", NODE_WAITING);
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, 0);
  end(world);
}

/* ... and who is there itself becomes a spare, in one write. */
static void test_who_waits_in_vain_becomes_a_spare(void **unused) {
  (void)unused;
  struct world *world = begin("p:ab", true);
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  assert_string_equal(text_of(&world->cell).text, "p:a0b1 w:m");
  other(world, "c", NODE_PARTICIPANT)->rank = 2;
  const uint64_t before = world->token;
  answer(world, ENGINE_EV_STATE_READ);
  settle(world);
  assert_string_equal(text_of(&world->cell).text, "p:a0b1c2 r:m");
  assert_int_equal(world->token, before + 1);
  end(world);
}

/* From a round into the wait list, or into the next round, is one write, and is not done twice. */
static void test_joining_again_is_one_write(void **unused) {
  (void)unused;
  struct world *world = joined();
  uint64_t before = world->token;
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  assert_string_equal(text_of(&world->cell).text, "p:a0z2 w:m");
  assert_int_equal(world->token, before + 1);
  end(world);
  world = joined();
  gone(world, "a");
  gone(world, "z");
  before = world->token;
  pass(world, 1000);
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  assert_string_equal(text_of(&world->cell).text, "p:m");
  assert_int_equal(world->cell.round, 1);
  assert_int_equal(world->token, before + 1);
  assert_int_equal(world->update.request, ENGINE_DO_WAIT);
  end(world);
}

/* A round that somebody left before we read of it is not ours any more. */
static void test_a_round_that_was_left_is_not_entered(void **unused) {
  (void)unused;
  struct world *world = begin("p:a", false);
  ask(world, ENGINE_EV_ASK_JOIN);
  settle(world);
  other(world, "z", NODE_PARTICIPANT);
  world->cell.complete = true;
  world->cell.deadline = DATETIME_NONE;
  assert_code(rendezvous_assign_ranks(&world->cell, RANK_ORDER_TORCH, NULL), 0);
  gone(world, "z");
  world->cell.deadline = WORLD_LEFT;
  answer(world, ENGINE_EV_STATE_READ);
  settle(world);
  assert_int_equal(world->update.news, 0);
  assert_string_equal(text_of(&world->cell).text, "p:a0 w:m");
  end(world);
}

/* Leaving is not closing; closing leaves us a member, who hears of it. */
static void test_leave_and_close(void **unused) {
  (void)unused;
  struct world *world = joined();
  ask(world, ENGINE_EV_ASK_CLOSE);
  settle(world);
  assert_int_equal(world->update.news, ENGINE_NEWS_CLOSE_DONE | ENGINE_NEWS_IS_CLOSED);
  assert_true(world->cell.closed);
  world->cell.closed = false;
  world->token++;
  answer(world, ENGINE_EV_STATE_READ);
  ask(world, ENGINE_EV_ASK_LEAVE);
  settle(world);
  assert_int_equal(world->update.news, ENGINE_NEWS_LEFT);
  assert_int_equal(world->update.request, ENGINE_DO_NOTHING);
  assert_string_equal(text_of(&world->cell).text, "p:a0z2");
  assert_false(world->cell.closed);
  end(world);
}

/* Who stops just stops. */
static void test_stop_leaves_everything_as_it_is(void **unused) {
  (void)unused;
  struct world *world = joined();
  const uint64_t before = world->token;
  ask(world, ENGINE_EV_ASK_STOP);
  assert_int_equal(world->update.request, ENGINE_DO_NOTHING);
  pass(world, 60000);
  ask(world, ENGINE_EV_TIMER);
  assert_int_equal(world->update.request, ENGINE_DO_NOTHING);
  assert_int_equal(world->token, before);
  end(world);
}

/* At most one request is under way: what is asked meanwhile comes after it. */
static void test_asked_meanwhile_comes_after(void **unused) {
  (void)unused;
  struct world *world = begin("p:a", false);
  ask(world, ENGINE_EV_ASK_JOIN);
  assert_int_equal(world->update.request, ENGINE_DO_READ);
  ask(world, ENGINE_EV_ASK_LEAVE);
  assert_int_equal(world->update.request, ENGINE_DO_CONTINUE);
  ask(world, ENGINE_EV_TIMER);
  assert_int_equal(world->update.request, ENGINE_DO_CONTINUE);
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, ENGINE_NEWS_LEFT);
  end(world);
}

/* A state that vanished: we are no member of anything. */
static void test_a_state_that_vanished_is_an_eviction(void **unused) {
  (void)unused;
  struct world *world = joined();
  world->token = 0;
  answer(world, ENGINE_EV_STATE_READ);
  assert_int_equal(world->update.news, ENGINE_NEWS_EVICTED);
  end(world);
}

static void note_line(void *argument, const char *line) { snprintf(argument, 256, "%s", line); }

static void test_decisions_are_traced(void **unused) {
  (void)unused;
  char line[256] = "";
  struct world *world = begin("p:a", false);
  world->engine.config.trace = note_line;
  world->engine.config.argument = line;
  ask(world, ENGINE_EV_ASK_JOIN);
  answer(world, ENGINE_EV_STATE_READ);
  assert_string_equal(
      line, "round 0 gathering, 1 joined (2..3), this node is outside, keep-alive due -> ADD_TO_PARTICIPANTS");
  end(world);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_first_node_creates_the_state),
      cmocka_unit_test(test_a_member_keeps_itself_alive),
      cmocka_unit_test(test_a_clock_set_back_does_not_stop_heartbeats),
      cmocka_unit_test(test_a_lost_swap_backs_off),
      cmocka_unit_test(test_an_overdue_heartbeat_does_not_back_off),
      cmocka_unit_test(test_a_lost_answer_is_found_out),
      cmocka_unit_test(test_a_join_fails_with_the_stores_sentence),
      cmocka_unit_test(test_a_timeout_names_who_joined),
      cmocka_unit_test(test_a_closed_rendezvous_refuses),
      cmocka_unit_test(test_a_member_hears_of_changes),
      cmocka_unit_test(test_a_member_hears_of_all_that_are_gone),
      cmocka_unit_test(test_a_member_hears_of_a_death),
      cmocka_unit_test(test_who_waits_beside_a_full_round_is_not_told_of),
      cmocka_unit_test(test_who_waits_in_vain_becomes_a_spare),
      cmocka_unit_test(test_joining_again_is_one_write),
      cmocka_unit_test(test_a_round_that_was_left_is_not_entered),
      cmocka_unit_test(test_leave_and_close),
      cmocka_unit_test(test_stop_leaves_everything_as_it_is),
      cmocka_unit_test(test_asked_meanwhile_comes_after),
      cmocka_unit_test(test_a_state_that_vanished_is_an_eviction),
      cmocka_unit_test(test_decisions_are_traced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
