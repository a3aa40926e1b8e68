/* SPDX-License-Identifier: BSD-3-Clause */
/* The first-generation rendezvous: several nodes, one etcd, no clock. */
#include "gen1_world.h"

static void join_all(struct world *world, const char *who) {
  for (; *who; who++) join(world, *who - '0');
}

static void test_one_alone(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  join(&world, 0);
  run_for(&world, 100);
  assert_round(&world, "0");
  assert_int_equal(world.nodes[0].joined_at, 1000); /* nothing sleeps */
  assert_int_equal(world.expires, INT64_MAX);
  assert_int_equal(world.dirs, 1);
  end_world(&world);
}

static void test_a_full_round_does_not_wait_for_the_last_call(void **state) {
  (void)state;
  struct world world = world_of(2, 3);
  join_all(&world, "012");
  run_for(&world, 2000);
  assert_round(&world, "012");
  end_world(&world);
}

static void test_last_call(void **state) {
  (void)state;
  struct world world = world_of(2, 4);
  world.settings.last_call_timeout = 20000; /* longer than the state lives unless it is refreshed */
  join_all(&world, "01");
  run_for(&world, 15000);
  assert_false(world.nodes[0].joined);
  join(&world, 2);
  run_for(&world, 4000);
  assert_false(world.nodes[0].joined);
  run_for(&world, 2000);
  assert_round(&world, "012");
  assert_int_equal(world.nodes[2].rank, 2); /* in the order of joining */
  assert_in_range(world.nodes[0].joined_at, 21000, 21500);
  end_world(&world);
}

static void test_too_few_wait_without_an_end_but_the_deadline(void **state) {
  (void)state;
  struct world world = world_of(3, 3);
  join_all(&world, "01");
  run_for(&world, 59000);
  assert_false(world.nodes[0].failed || world.nodes[1].failed);
  run_for(&world, 2000);
  for (int i = 0; i < 2; i++)
    assert_error(world.nodes[i].error.code, RDZV_E_TIMEOUT, &world.nodes[i].error, "2 of at least 3 nodes");
  assert_int_equal(world.nodes[0].update.request, GEN1_DO_IDLE);
  end_world(&world);
}

static void test_who_comes_to_a_full_round_waits(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join_all(&world, "01");
  run_for(&world, 500);
  assert_round(&world, "01");
  join(&world, 2);
  run_for(&world, 5000);
  assert_false(world.nodes[2].joined || world.nodes[2].failed);
  assert_non_null(strstr(world.active, "\"num_workers_waiting\": 1"));
  assert_false(world.nodes[0].someone_waits || world.nodes[1].someone_waits); /* there is no room for it */
  run_for(&world, 60000);
  assert_error(world.nodes[2].error.code, RDZV_E_TIMEOUT, &world.nodes[2].error, "is final");
  assert_false(world.nodes[0].evicted);
  end_world(&world);
}

/* A frozen round has no room, either. */
static void test_who_comes_to_a_frozen_round_waits(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join_all(&world, "01");
  break_next(&world, 1, GEN1_DO_LEASE, LOST);
  join(&world, 2);
  run_for(&world, 3000);
  assert_round(&world, "01");
  assert_false(world.nodes[2].joined);
  end_world(&world);
}

static void test_members_admit_who_waits(void **state) {
  (void)state;
  struct world world = world_of(2, 3);
  join_all(&world, "01");
  run_for(&world, 5000);
  assert_round(&world, "01");
  join(&world, 2);
  run_for(&world, 2000);
  assert_true(world.nodes[0].someone_waits && world.nodes[1].someone_waits);
  join_all(&world, "01"); /* they let their leases go, so the old round is free at once */
  run_for(&world, 5000);
  assert_round(&world, "012");
  assert_string_equal(world.nodes[0].round, "2");
  end_world(&world);
}

/* ---- nodes that differ ---------------------------------------------------------------------------------------- */

static void join_with(struct world *world, int at, int64_t min, int64_t max) {
  world->settings.min_nodes = min;
  world->settings.max_nodes = max;
  join(world, at);
  run_for(world, 1);
}

static void test_the_later_of_two_that_clash_fails(void **state) {
  (void)state;
  struct world world = world_of(3, 4);
  join_with(&world, 0, 3, 4);
  join_with(&world, 1, 1, 2);
  run_for(&world, 100);
  assert_error(world.nodes[1].error.code, RDZV_E_LIMIT, &world.nodes[1].error,
               "the --nnodes ranges of these nodes do not overlap: 'n0' has nnodes=3:4, this node 1:2 (use the same "
               "values on all nodes)");
  assert_non_null(strstr(world.nodes[1].warning.text, "'n0' has nnodes=3:4, this node 1:2"));
  assert_null(strstr(world.active, "n1")); /* it has not joined */
  join_with(&world, 2, 3, 4);
  join_with(&world, 3, 3, 4);
  run_for(&world, 5000);
  assert_round(&world, "023");
  end_world(&world);
}

static void test_a_node_that_clashes_with_a_final_round_fails(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join_all(&world, "01");
  run_for(&world, 100);
  assert_round(&world, "01");
  join_with(&world, 2, 3, 3);
  run_for(&world, 100);
  assert_error(world.nodes[2].error.code, RDZV_E_LIMIT, &world.nodes[2].error, "has nnodes=2:2, this node 3:3");
  assert_false(world.nodes[0].evicted || world.nodes[0].someone_waits);
  end_world(&world);
}

static void test_a_clash_with_a_dead_node_does_not_last(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join_with(&world, 0, 3, 3);
  die(&world, 0);
  run_for(&world, LEASE_MS);
  join_with(&world, 1, 2, 2);
  join_with(&world, 2, 2, 2);
  run_for(&world, 20000);
  assert_round(&world, "12");
  end_world(&world);
}

static void test_overlapping_numbers_are_told_of(void **state) {
  (void)state;
  struct world world = world_of(2, 3);
  join_with(&world, 0, 2, 3);
  join_with(&world, 1, 2, 4);
  run_for(&world, 5000);
  assert_round(&world, "01");
  assert_non_null(strstr(world.nodes[0].warning.text, "'n1' has nnodes=2:4, this node 2:3"));
  assert_non_null(strstr(world.nodes[1].warning.text, "'n0' has nnodes=2:3, this node 2:4"));
  end_world(&world);
}

/* Nodes without entries, as PyTorch's: the size of the round is all that is known. */
static void join_unnamed(struct world *world, int at, int64_t min, int64_t max) {
  world->settings.min_nodes = min;
  world->settings.max_nodes = max;
  add_node(world, at);
  world->nodes[at].machine.settings.name = NULL;
  join(world, at);
  run_for(world, 1);
}

static void test_a_round_below_the_minimum_is_not_accepted(void **state) {
  (void)state;
  struct world world = world_of(1, 2);
  join_unnamed(&world, 0, 3, 4);
  join_unnamed(&world, 1, 1, 2);
  run_for(&world, 5000);
  assert_false(world.nodes[0].joined || world.nodes[1].joined);
  assert_error(world.nodes[0].error.code, RDZV_E_LIMIT, &world.nodes[0].error,
               "round 1 has 2 nodes, and this node has nnodes=3:4");
  run_for(&world, 20000); /* the frozen round expires */
  assert_round(&world, "1");
  end_world(&world);
}

static void test_a_round_above_the_maximum_is_not_accepted(void **state) {
  (void)state;
  struct world world = world_of(1, 2);
  join_unnamed(&world, 0, 2, 2);
  for (int i = 1; i < 3; i++) join_unnamed(&world, i, 3, 3);
  run_for(&world, 5000);
  assert_false(world.nodes[0].joined || world.nodes[1].joined || world.nodes[2].joined);
  assert_error(world.nodes[0].error.code, RDZV_E_LIMIT, &world.nodes[0].error,
               "round 1 has 3 nodes, and this node has nnodes=2:2");
  end_world(&world);
}

static void test_a_dead_member_is_told_of_and_replaced(void **state) {
  (void)state;
  struct world world = world_of(3, 3);
  join_all(&world, "012");
  run_for(&world, 1000);
  assert_round(&world, "012");
  char key[512];
  lease_key(NULL, world.nodes[1].round, world.nodes[1].rank, key);
  die(&world, 1);
  run_for(&world, 9000);
  assert_string_equal(world.nodes[0].died, "");
  run_for(&world, 3000);
  assert_string_equal(world.nodes[0].died, key);
  assert_string_equal(world.nodes[2].died, key);
  join_all(&world, "023");
  run_for(&world, 5000);
  assert_round(&world, "023");
  end_world(&world);
}

/* Nobody of the round is left to see that a member is dead: who waits does, and takes the round away. */
static void test_who_waits_takes_a_dead_round_away(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join_all(&world, "01");
  run_for(&world, 1000);
  die(&world, 0);
  die(&world, 1);
  join_all(&world, "23");
  run_for(&world, 8000);
  assert_false(world.nodes[2].joined);
  run_for(&world, 6000);
  assert_round(&world, "23");
  end_world(&world);
}

/* The one that makes the last call is gone: its state expires, and the others begin anew. */
static void test_death_during_the_last_call(void **state) {
  (void)state;
  struct world world = world_of(2, 4);
  world.settings.last_call_timeout = 20000;
  join_all(&world, "01");
  run_for(&world, 2000);
  assert_true(world.nodes[1].machine.calls_last);
  die(&world, 1);
  join(&world, 2);
  run_for(&world, 45000);
  assert_round(&world, "02");
  end_world(&world);
}

static void test_death_before_it_confirms(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join(&world, 0);
  run_for(&world, 100);
  join(&world, 1);
  while (world.nodes[1].update.request != GEN1_DO_LEASE) serve_node(&world, 1);
  die(&world, 1);
  join(&world, 2);
  run_for(&world, 30000);
  assert_round(&world, "02");
  end_world(&world);
}

static void test_death_during_setup(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  join(&world, 0);
  while (world.nodes[0].update.request != GEN1_DO_MAKE_DIR) serve_node(&world, 0);
  die(&world, 0);
  join(&world, 1);
  run_for(&world, 4000);
  assert_false(world.nodes[1].joined);
  run_for(&world, 3000);
  assert_round(&world, "1");
  end_world(&world);
}

static void test_closed(void **state) {
  (void)state;
  struct world world = world_of(2, 3);
  join_all(&world, "01");
  run_for(&world, 4000);
  assert_round(&world, "01");
  ask_close(&world, 0);
  run_for(&world, 2000);
  assert_true(world.nodes[0].closed && world.nodes[0].is_closed && world.nodes[1].is_closed);
  join(&world, 2);
  run_for(&world, 100);
  assert_error(world.nodes[2].error.code, RDZV_E_CLOSED, &world.nodes[2].error, "closed");
  ask_close(&world, 3); /* it is */
  run_for(&world, 100);
  assert_true(world.nodes[3].closed);
  end_world(&world);
}

static void test_closed_while_nodes_gather(void **state) {
  (void)state;
  struct world world = world_of(3, 3);
  join_all(&world, "01");
  run_for(&world, 1000);
  ask_close(&world, 2);
  run_for(&world, 1000);
  assert_true(world.nodes[2].closed);
  for (int i = 0; i < 2; i++) assert_code(world.nodes[i].error.code, RDZV_E_CLOSED);
  end_world(&world);
}

static void test_closing_what_is_not_there(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  ask_close(&world, 0);
  run_for(&world, 100);
  assert_true(world.nodes[0].closed);
  assert_string_equal(world.active, "{\"status\": \"closed\"}");
  end_world(&world);
}

static void test_a_lost_swap_is_tried_again(void **state) {
  (void)state;
  struct world world = world_of(3, 3);
  join_all(&world, "012");
  for (int i = 0; i < 3; i++) break_next(&world, i, GEN1_DO_SWAP, REFUSED);
  run_for(&world, 8000); /* the first was that of setup, which then lives 5 s */
  assert_round(&world, "012");
  end_world(&world);
}

/* Whatever request of whomever is lost, or done without an answer: soon there is one round of all, the first. What was
 * done unknowingly is found, and not done again. */
static void try_fault(enum gen1_request request, enum fault fault, int at) {
  struct world world = world_of(3, 3);
  join_all(&world, "012");
  break_next(&world, at, request, fault);
  run_for(&world, 1000);
  assert_round(&world, "012");
  end_world(&world);
}

static void test_any_fault_while_joining(void **state) {
  (void)state;
  static const enum gen1_request requests[] = {GEN1_DO_READ,     GEN1_DO_CREATE, GEN1_DO_COUNT,
                                               GEN1_DO_MAKE_DIR, GEN1_DO_SWAP,   GEN1_DO_LEASE};
  for (size_t i = 0; i < COUNT_OF(requests); i++)
    for (int at = 0; at < 3; at++) {
      try_fault(requests[i], LOST, at);
      try_fault(requests[i], DONE_UNHEARD, at);
    }
}

/* The n-th swap is the one that is not heard of: joining, freezing, confirming. The round takes as long as it would. */
static void test_any_swap_unheard(void **state) {
  (void)state;
  for (int skip = 0; skip < 4; skip++)
    for (int at = 0; at < 3; at++) {
      struct world world = world_of(2, 4);
      join_all(&world, "012");
      int swaps = 0;
      for (int64_t end = world.now + 40000; world.now < end && !world.nodes[at].fault;) {
        expire(&world);
        const int due = pick_due(&world);
        if (due == at && world.nodes[at].update.request == GEN1_DO_SWAP && swaps++ == skip)
          break_next(&world, at, GEN1_DO_SWAP, DONE_UNHEARD);
        if (due >= 0) serve_node(&world, due);
        if (due >= 0) continue;
        const int64_t next = next_time(&world);
        if (next > end) break;
        world.now = next;
      }
      run_for(&world, 5000);
      assert_round(&world, "012");
      assert_string_equal(world.nodes[at].round, "1");
      end_world(&world);
    }
}

/* Who stopped while it was in, and joins again, has its place still. */
static void test_a_place_is_taken_up_again(void **state) {
  (void)state;
  struct world world = world_of(3, 3);
  join_all(&world, "01");
  run_for(&world, 1000);
  step(&world, 0, (struct gen1_event){.kind = GEN1_EV_ASK_STOP});
  join_all(&world, "02");
  run_for(&world, 1000);
  assert_round(&world, "012");
  assert_int_equal(world.nodes[0].rank, 0);
  end_world(&world);
}

/* It makes the last call, though it does not know at first that it is in. */
static void test_the_last_call_of_one_who_was_not_answered(void **state) {
  (void)state;
  struct world world = world_of(2, 4);
  world.settings.last_call_timeout = 20000; /* longer than the state lives unless it is refreshed */
  join(&world, 0);
  run_for(&world, 100);
  join(&world, 1);
  break_next(&world, 1, GEN1_DO_SWAP, DONE_UNHEARD);
  run_for(&world, 15000);
  join(&world, 2);
  run_for(&world, 6000);
  assert_round(&world, "012");
  assert_string_equal(world.nodes[0].round, "1");
  end_world(&world);
}

/* etcd comes back empty and counts from 1, so that no watch ever sees anything: all notice, and begin anew. */
static void test_etcd_forgets(void **state) {
  (void)state;
  struct world member = world_of(1, 2), gathers = world_of(3, 3), waits = world_of(2, 2);
  member.settings.last_call_timeout = 100;
  join(&member, 0);
  join_all(&gathers, "01");
  join_all(&waits, "01");
  run_for(&waits, 1000);
  join(&waits, 2);
  struct world *each[] = {&member, &gathers, &waits};
  for (size_t i = 0; i < COUNT_OF(each); i++) {
    run_for(each[i], 1000);
    wipe(each[i]);
    run_for(each[i], LONGEST_WATCH_MS + 2000);
  }
  assert_true(member.nodes[0].evicted && waits.nodes[0].evicted && waits.nodes[1].evicted);
  join(&gathers, 2);
  join(&waits, 0);
  run_for(&gathers, 1000);
  run_for(&waits, 1000);
  assert_round(&gathers, "012");
  assert_round(&waits, "02");
  for (size_t i = 0; i < COUNT_OF(each); i++) end_world(each[i]);
}

/* And the members have another round, of the same number, before one who waits looks: it says again that it waits. */
static void test_etcd_forgets_who_waits(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join_all(&world, "01");
  run_for(&world, 1000);
  join(&world, 2);
  run_for(&world, 1000);
  wipe(&world);
  join_all(&world, "01");
  run_for(&world, 1000);
  assert_round(&world, "01");
  assert_non_null(strstr(world.active, "\"num_workers_waiting\": 0"));
  run_for(&world, LONGEST_WATCH_MS);
  assert_non_null(strstr(world.active, "\"num_workers_waiting\": 1"));
  end_world(&world);
}

/* A quiet time makes up for noise. */
static void test_after_noise_changes_are_heard_soon(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  join(&world, 0);
  run_for(&world, 1000);
  for (int i = 0; i < 20; i++) {
    world.whole_index = ++world.index;
    run_for(&world, 1000);
  }
  assert_int_equal(world.nodes[0].machine.pause, 1000);
  run_for(&world, LONGEST_WATCH_MS + 1000);
  assert_int_equal(world.nodes[0].machine.pause, 0);
  write_active(&world, NULL, 0);
  run_for(&world, 20);
  assert_true(world.nodes[0].evicted);
  end_world(&world);
}

/* A keep-alive that may not be there must not be what others look for. */
static void test_no_confirmation_without_a_lease(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join_all(&world, "01");
  break_next(&world, 1, GEN1_DO_LEASE, LOST);
  run_for(&world, 5000);
  assert_round(&world, "01");
  assert_true(world.nodes[0].has_lease && world.nodes[1].has_lease);
  assert_string_equal(world.nodes[0].died, "");
  end_world(&world);
}

static void test_errors_that_do_not_pass_end_the_call(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  const rdzv_error refused = {.code = RDZV_E_INVALID, .message = "user or password are wrong"};
  join(&world, 0);
  step(&world, 0, (struct gen1_event){.kind = GEN1_EV_ERROR, .error = &refused});
  assert_error(world.nodes[0].error.code, RDZV_E_INVALID, &world.nodes[0].error, "password");
  assert_int_equal(world.nodes[0].update.failed, GEN1_EV_ASK_JOIN);
  ask_close(&world, 0);
  step(&world, 0, (struct gen1_event){.kind = GEN1_EV_ERROR, .error = &refused});
  assert_int_equal(world.nodes[0].update.failed, GEN1_EV_ASK_CLOSE);
  assert_int_equal(world.nodes[0].update.request, GEN1_DO_IDLE);
  end_world(&world);
}

static void test_errors_without_an_end_time_out(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  const rdzv_error lost = {.code = RDZV_E_CONNECTION, .message = "no answer"};
  join(&world, 0);
  int events = 0;
  while (!world.nodes[0].failed && events < 2000) {
    const struct gen1_update *update = &world.nodes[0].update;
    const bool pauses = update->request == GEN1_DO_PAUSE;
    if (pauses) world.now = update->until_ms;
    step(&world, 0, (struct gen1_event){.kind = pauses ? GEN1_EV_TIMER : GEN1_EV_ERROR, .error = &lost});
    events++;
  }
  assert_code(world.nodes[0].error.code, RDZV_E_TIMEOUT);
  assert_in_range(world.now, 61000, 66000);
  assert_in_range(events, 10, 500); /* it does not hammer */
  end_world(&world);
}

static void test_what_is_corrupt_is_said_and_looked_at_again(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  rdzv_error error = {0};
  struct gen1_update update;
  join(&world, 0);
  const struct gen1_event bad = {.kind = GEN1_EV_STATE, .text = "{\"status\": 7}", .now_ms = 1000};
  assert_error(gen1_step(&world.nodes[0].machine, &bad, &update, &error), RDZV_E_CORRUPT, &error, "status");
  step(&world, 0, (struct gen1_event){.kind = GEN1_EV_TIMER});
  assert_int_equal(world.nodes[0].update.request, GEN1_DO_READ);
  run_for(&world, 100);
  assert_round(&world, "0");
  end_world(&world);
}

static void test_stopping(void **state) {
  (void)state;
  struct world world = world_of(2, 2);
  join(&world, 0);
  run_for(&world, 100);
  step(&world, 0, (struct gen1_event){.kind = GEN1_EV_ASK_STOP});
  assert_int_equal(world.nodes[0].update.request, GEN1_DO_IDLE);
  assert_int_equal(world.nodes[0].update.happened, 0);
  end_world(&world);
}

/* A member whose round is not there any more must not go on. */
static void test_evicted(void **state) {
  (void)state;
  struct world world = world_of(1, 2);
  world.settings.last_call_timeout = 100;
  join(&world, 0);
  run_for(&world, 1000);
  assert_round(&world, "0");
  write_active(&world, NULL, 0);
  run_for(&world, 2000);
  assert_true(world.nodes[0].evicted);
  end_world(&world);
}

/* A busy store below the round: members look at it at most a few times a second. */
static void test_noise_is_not_looked_at_each_time(void **state) {
  (void)state;
  struct world world = world_of(1, 1);
  join(&world, 0);
  run_for(&world, 1000);
  const int before = world.nodes[0].requests;
  for (int i = 0; i < 10000; i++) {
    world.whole_index = ++world.index;
    run_for(&world, 1);
  }
  assert_in_range(world.nodes[0].requests - before, 2, 200);
  end_world(&world);
}

/* In any order of requests: many nodes, one round, few requests each. */
static void test_many_in_any_order(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    struct world world = world_of(4, 10);
    world.random = seed;
    join_all(&world, "0123456789");
    run_for(&world, 30000);
    assert_round(&world, "0123456789");
    end_world(&world);
  }
}

/* Random faults, deaths of some and new nodes in their place: whoever says that it joined one round agrees on its
 * size and has a rank of its own. */
static void check_agreement(const struct world *world) {
  for (int i = 0; i < MAX_NODES; i++)
    for (int j = 0; j < i; j++) {
      const struct node *a = &world->nodes[i], *b = &world->nodes[j];
      if (!a->joined || !b->joined || strcmp(a->round, b->round) != 0) continue;
      assert_int_equal(a->world_size, b->world_size);
      assert_int_not_equal(a->rank, b->rank);
      assert_in_range(a->rank, 0, a->world_size - 1);
    }
}

static void test_storms(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    struct world world = world_of(2, 4);
    uint64_t random = seed * 7919;
    world.random = seed;
    join_all(&world, "0123");
    for (int i = 0; i < 40; i++) {
      random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
      const int at = (int)(random >> 33) % 4;
      const enum gen1_request request = (enum gen1_request)(1 + (random >> 40) % 8);
      break_next(&world, at, request, (enum fault)(1 + (random >> 50) % 3));
      run_for(&world, (int64_t)((random >> 20) % 3000));
      check_agreement(&world);
      if (world.nodes[at].evicted || world.nodes[at].died[0]) {
        world.nodes[at].died[0] = '\0';
        join(&world, at);
      }
    }
    end_world(&world);
  }
}

/* A participant of a round of many, and a listing of all keep-alives but that of the last rank. */
struct crowd {
  struct gen1_node machine;
  char *state;
  char (*names)[512];
  const char **keys;
  size_t count;
};

static struct crowd crowd_of(size_t count) {
  struct crowd crowd = {.count = count, .names = calloc(count, sizeof *crowd.names)};
  const struct gen1_settings settings = {1, (int64_t)count, .join_timeout = 60000};
  size_t size;
  FILE *text = open_memstream(&crowd.state, &size);
  crowd.keys = calloc(count, sizeof *crowd.keys);
  fprintf(text, "{\"status\": \"final\", \"version\": \"1\", \"num_workers_waiting\": 0, \"participants\": [0");
  for (size_t i = 1; i < count; i++) fprintf(text, ", %zu", i);
  fprintf(text, "], \"keep_alives\": [");
  for (size_t i = 0; i < count; i++) {
    lease_key(NULL, "1", (int64_t)i, crowd.names[i]);
    fprintf(text, "%s\"%s\"", i ? ", " : "", crowd.names[i]);
  }
  fprintf(text, "]}");
  fclose(text);
  gen1_node_init(&crowd.machine, &settings, 1, lease_key, NULL);
  return crowd;
}

static void find_dead(void *argument) {
  struct crowd *crowd = argument;
  struct gen1_update update;
  for (size_t i = 0; i < crowd->count; i++) crowd->keys[i] = crowd->names[crowd->count - 1 - i];
  crowd->machine.phase = GEN1_PHASE_PARTICIPANT;
  crowd->machine.who[0] = '\0';
  snprintf(crowd->machine.round, sizeof crowd->machine.round, "1");
  const struct gen1_event state = {.kind = GEN1_EV_STATE, .now_ms = 1, .text = crowd->state},
                          listed = {.kind = GEN1_EV_LISTED,
                                    .now_ms = 1,
                                    .keys = crowd->keys + 1,
                                    .key_count = crowd->count - 1};
  assert_int_equal(gen1_step(&crowd->machine, &state, &update, NULL), 0);
  assert_int_equal(update.request, GEN1_DO_LIST);
  assert_int_equal(gen1_step(&crowd->machine, &listed, &update, NULL), 0);
  assert_int_equal(update.happened, GEN1_HAPPENED_PARTICIPANT_DIED);
  assert_string_equal(update.who, crowd->names[crowd->count - 1]);
}

static void crowd_free(struct crowd *crowd) {
  gen1_node_free(&crowd->machine);
  free(crowd->state);
  free(crowd->names);
  free(crowd->keys);
}

/* Each keep-alive of a round is looked for in the listing, whatever its order. */
static void test_finding_the_dead_is_not_quadratic(void **state) {
  (void)state;
  struct crowd few = crowd_of(1000), many = crowd_of(4000);
  assert_not_quadratic(growth_time(find_dead, &few), growth_time(find_dead, &many));
  crowd_free(&few);
  crowd_free(&many);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_alone),
      cmocka_unit_test(test_a_full_round_does_not_wait_for_the_last_call),
      cmocka_unit_test(test_last_call),
      cmocka_unit_test(test_too_few_wait_without_an_end_but_the_deadline),
      cmocka_unit_test(test_who_comes_to_a_full_round_waits),
      cmocka_unit_test(test_who_comes_to_a_frozen_round_waits),
      cmocka_unit_test(test_members_admit_who_waits),
      cmocka_unit_test(test_the_later_of_two_that_clash_fails),
      cmocka_unit_test(test_a_node_that_clashes_with_a_final_round_fails),
      cmocka_unit_test(test_a_clash_with_a_dead_node_does_not_last),
      cmocka_unit_test(test_overlapping_numbers_are_told_of),
      cmocka_unit_test(test_a_round_below_the_minimum_is_not_accepted),
      cmocka_unit_test(test_a_round_above_the_maximum_is_not_accepted),
      cmocka_unit_test(test_a_dead_member_is_told_of_and_replaced),
      cmocka_unit_test(test_who_waits_takes_a_dead_round_away),
      cmocka_unit_test(test_death_during_the_last_call),
      cmocka_unit_test(test_death_before_it_confirms),
      cmocka_unit_test(test_death_during_setup),
      cmocka_unit_test(test_closed),
      cmocka_unit_test(test_closed_while_nodes_gather),
      cmocka_unit_test(test_closing_what_is_not_there),
      cmocka_unit_test(test_a_lost_swap_is_tried_again),
      cmocka_unit_test(test_any_fault_while_joining),
      cmocka_unit_test(test_any_swap_unheard),
      cmocka_unit_test(test_a_place_is_taken_up_again),
      cmocka_unit_test(test_the_last_call_of_one_who_was_not_answered),
      cmocka_unit_test(test_etcd_forgets),
      cmocka_unit_test(test_etcd_forgets_who_waits),
      cmocka_unit_test(test_no_confirmation_without_a_lease),
      cmocka_unit_test(test_errors_that_do_not_pass_end_the_call),
      cmocka_unit_test(test_errors_without_an_end_time_out),
      cmocka_unit_test(test_what_is_corrupt_is_said_and_looked_at_again),
      cmocka_unit_test(test_stopping),
      cmocka_unit_test(test_evicted),
      cmocka_unit_test(test_noise_is_not_looked_at_each_time),
      cmocka_unit_test(test_after_noise_changes_are_heard_soon),
      cmocka_unit_test(test_many_in_any_order),
      cmocka_unit_test(test_storms),
      cmocka_unit_test(test_finding_the_dead_is_not_quadratic),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
