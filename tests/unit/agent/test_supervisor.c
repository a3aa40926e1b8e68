/* SPDX-License-Identifier: BSD-3-Clause */
/* Every request meets every event; and every state that can be reached, each with every event, keeps the rules. */
#include "agent/supervisor.h"
#include "unit.h"

enum { REQUESTS = SUPERVISOR_DO_END + 1, KINDS = SUPERVISOR_EV_AGREED + 1 };

static const char *const request_names[] = {"JOIN",         "MONITOR", "STOP",  "KILL", "BACK_OFF",
                                            "EXIT_BARRIER", "LEAVE",   "CLOSE", "END"};

static bool step(struct supervisor *supervisor, enum supervisor_event_kind kind) {
  const struct supervisor_event event = {.kind = kind, .signal = kind == SUPERVISOR_EV_SIGNAL ? 15 : 0};
  return supervisor_step(supervisor, &event);
}

static struct supervisor after(int64_t max_restarts, const enum supervisor_event_kind *events, size_t count) {
  struct supervisor supervisor;
  supervisor_init(&supervisor, max_restarts);
  for (size_t i = 0; i < count; i++) step(&supervisor, events[i]);
  return supervisor;
}

#define AFTER(max, ...)                                           \
  after((max), (const enum supervisor_event_kind[]){__VA_ARGS__}, \
        sizeof((const enum supervisor_event_kind[]){__VA_ARGS__}) / sizeof(enum supervisor_event_kind))

/* ---- one step, from each request ------------------------------------------------------------------------------ */

/* What follows; SAME: the event changes nothing. */
enum { SAME = -1 };
static const int next[REQUESTS][KINDS] = {
    [SUPERVISOR_DO_JOIN] = {[SUPERVISOR_EV_STARTED] = SUPERVISOR_DO_MONITOR,
                            [SUPERVISOR_EV_JOIN_FAILED] = SUPERVISOR_DO_END,
                            [SUPERVISOR_EV_START_FAILED] = SUPERVISOR_DO_END, /* the first workers */
                            [SUPERVISOR_EV_ROUND_OVER] = SUPERVISOR_DO_JOIN,
                            [SUPERVISOR_EV_WORKER_FAILED] = SAME,
                            [SUPERVISOR_EV_WORKERS_DONE] = SAME,
                            [SUPERVISOR_EV_NODES] = SAME,
                            [SUPERVISOR_EV_CLOSED] = SAME,
                            [SUPERVISOR_EV_EVICTED] = SAME,
                            [SUPERVISOR_EV_STORE_LOST] = SAME,
                            [SUPERVISOR_EV_SIGNAL] = SUPERVISOR_DO_LEAVE,
                            [SUPERVISOR_EV_STOPPED] = SAME,
                            [SUPERVISOR_EV_DONE] = SAME,
                            [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_MONITOR] = {[SUPERVISOR_EV_STARTED] = SAME,
                               [SUPERVISOR_EV_JOIN_FAILED] = SAME,
                               [SUPERVISOR_EV_START_FAILED] = SAME,
                               [SUPERVISOR_EV_ROUND_OVER] = SAME,
                               [SUPERVISOR_EV_WORKER_FAILED] = SUPERVISOR_DO_STOP,
                               [SUPERVISOR_EV_WORKERS_DONE] = SUPERVISOR_DO_EXIT_BARRIER,
                               [SUPERVISOR_EV_NODES] = SUPERVISOR_DO_STOP,
                               [SUPERVISOR_EV_CLOSED] = SUPERVISOR_DO_STOP,
                               [SUPERVISOR_EV_EVICTED] = SUPERVISOR_DO_STOP,
                               [SUPERVISOR_EV_STORE_LOST] = SUPERVISOR_DO_STOP,
                               [SUPERVISOR_EV_SIGNAL] = SUPERVISOR_DO_LEAVE,
                               [SUPERVISOR_EV_STOPPED] = SAME,
                               [SUPERVISOR_EV_DONE] = SAME,
                               [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_STOP] =
        {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME,
         SAME, [SUPERVISOR_EV_SIGNAL] = SUPERVISOR_DO_LEAVE, /* for it was to JOIN */
         [SUPERVISOR_EV_STOPPED] = SUPERVISOR_DO_JOIN, [SUPERVISOR_EV_DONE] = SAME, [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_KILL] =
        {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME,
         SAME, [SUPERVISOR_EV_STOPPED] = SUPERVISOR_DO_END, [SUPERVISOR_EV_DONE] = SAME, [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_BACK_OFF] = {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME,
                                SAME, [SUPERVISOR_EV_SIGNAL] = SUPERVISOR_DO_LEAVE, [SUPERVISOR_EV_STOPPED] = SAME,
                                [SUPERVISOR_EV_DONE] = SUPERVISOR_DO_JOIN, [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_EXIT_BARRIER] =
        {SAME, SAME, SAME, SAME, SAME, SAME,
         SAME, [SUPERVISOR_EV_CLOSED] = SUPERVISOR_DO_END, [SUPERVISOR_EV_EVICTED] = SAME,
         [SUPERVISOR_EV_STORE_LOST] = SAME, [SUPERVISOR_EV_SIGNAL] = SUPERVISOR_DO_LEAVE,
         [SUPERVISOR_EV_STOPPED] = SAME, [SUPERVISOR_EV_DONE] = SUPERVISOR_DO_CLOSE, [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_LEAVE] = {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME,
                             SAME, [SUPERVISOR_EV_SIGNAL] = SUPERVISOR_DO_KILL, [SUPERVISOR_EV_STOPPED] = SAME,
                             [SUPERVISOR_EV_DONE] = SUPERVISOR_DO_STOP, [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_CLOSE] = {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME,
                             SAME, [SUPERVISOR_EV_DONE] = SUPERVISOR_DO_END, [SUPERVISOR_EV_AGREED] = SAME},
    [SUPERVISOR_DO_END] = {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME},
};

static struct supervisor standing_in(enum supervisor_request request) {
  switch (request) {
    case SUPERVISOR_DO_JOIN: return AFTER(1, SUPERVISOR_EV_STOPPED);
    case SUPERVISOR_DO_MONITOR: return AFTER(1, SUPERVISOR_EV_STARTED);
    case SUPERVISOR_DO_STOP: return AFTER(1, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_WORKER_FAILED);
    case SUPERVISOR_DO_KILL: return AFTER(1, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_SIGNAL, SUPERVISOR_EV_SIGNAL);
    case SUPERVISOR_DO_BACK_OFF:
      return AFTER(2, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_WORKER_FAILED, SUPERVISOR_EV_STOPPED, SUPERVISOR_EV_STARTED,
                   SUPERVISOR_EV_WORKER_FAILED, SUPERVISOR_EV_STOPPED);
    case SUPERVISOR_DO_EXIT_BARRIER: return AFTER(1, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_WORKERS_DONE);
    case SUPERVISOR_DO_LEAVE: return AFTER(1, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_SIGNAL);
    case SUPERVISOR_DO_CLOSE: return AFTER(1, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_WORKERS_DONE, SUPERVISOR_EV_DONE);
    case SUPERVISOR_DO_END: break;
  }
  return AFTER(1, SUPERVISOR_EV_JOIN_FAILED);
}

static void test_each_request_with_each_event(void **unused) {
  (void)unused;
  for (int request = 0; request < REQUESTS; request++)
    for (int kind = 0; kind < KINDS; kind++) {
      struct supervisor supervisor = standing_in((enum supervisor_request)request);
      assert_int_equal(supervisor.request, request);
      const bool changed = step(&supervisor, (enum supervisor_event_kind)kind);
      const int wanted = next[request][kind] == SAME ? request : next[request][kind];
      if ((int)supervisor.request != wanted || changed != (next[request][kind] != SAME))
        fail_msg("%s with event %d: %s%s", request_names[request], kind, request_names[supervisor.request],
                 changed ? "" : ", not new");
    }
}

/* ---- what it was stopped for ---------------------------------------------------------------------------------- */

static void test_what_follows_a_stop(void **unused) {
  (void)unused;
  static const struct {
    enum supervisor_event_kind why;
    int64_t max_restarts;
    enum supervisor_request then;
    enum supervisor_outcome outcome;
    int64_t restarts;
  } cases[] = {
      {SUPERVISOR_EV_WORKER_FAILED, 1, SUPERVISOR_DO_JOIN, SUPERVISOR_OUTCOME_SUCCEEDED, 1},
      {SUPERVISOR_EV_WORKER_FAILED, 0, SUPERVISOR_DO_CLOSE, SUPERVISOR_OUTCOME_FAILED, 0},
      {SUPERVISOR_EV_NODES, 1, SUPERVISOR_DO_JOIN, SUPERVISOR_OUTCOME_SUCCEEDED, 0},
      {SUPERVISOR_EV_EVICTED, 1, SUPERVISOR_DO_JOIN, SUPERVISOR_OUTCOME_SUCCEEDED, 0},
      {SUPERVISOR_EV_CLOSED, 1, SUPERVISOR_DO_END, SUPERVISOR_OUTCOME_CLOSED_ON_US, 0},
      {SUPERVISOR_EV_STORE_LOST, 1, SUPERVISOR_DO_END, SUPERVISOR_OUTCOME_NOT_JOINED, 0},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct supervisor supervisor =
        AFTER(cases[i].max_restarts, SUPERVISOR_EV_STARTED, cases[i].why, SUPERVISOR_EV_STOPPED);
    assert_int_equal(supervisor.request, cases[i].then);
    assert_int_equal(supervisor.restarts, cases[i].restarts);
    if (supervisor.request != SUPERVISOR_DO_JOIN) assert_int_equal(supervisor.outcome, cases[i].outcome);
  }
}

/* Whoever begins anew then would wait for those who never come. */
static void test_members_that_change_while_others_are_done_are_no_reason_to_stop(void **unused) {
  (void)unused;
  struct supervisor supervisor = AFTER(1, SUPERVISOR_EV_STARTED);
  assert_false(supervisor_step(&supervisor, &(struct supervisor_event){SUPERVISOR_EV_NODES, .others_done = true}));
  assert_int_equal(supervisor.request, SUPERVISOR_DO_MONITOR);
}

/* Restarts of other nodes count, and the count never goes back. */
static void test_the_most_restarts_of_all_agents_count(void **unused) {
  (void)unused;
  static const int64_t told[] = {2, 1, 3}, wanted[] = {2, 2, 3};
  struct supervisor supervisor;
  supervisor_init(&supervisor, 3);
  for (size_t i = 0; i < COUNT_OF(told); i++) {
    const struct supervisor_event event = {.kind = SUPERVISOR_EV_AGREED, .restarts = told[i]};
    assert_false(supervisor_step(&supervisor, &event));
    assert_int_equal(supervisor.request, SUPERVISOR_DO_JOIN);
    assert_int_equal(supervisor.restarts, wanted[i]);
  }
  step(&supervisor, SUPERVISOR_EV_STARTED);
  assert_false(supervisor_step(&supervisor, &(struct supervisor_event){.kind = SUPERVISOR_EV_AGREED, .restarts = 9}));
  assert_int_equal(supervisor.restarts, 3); /* too late */
  step(&supervisor, SUPERVISOR_EV_WORKER_FAILED);
  step(&supervisor, SUPERVISOR_EV_STOPPED);
  assert_int_equal(supervisor.request, SUPERVISOR_DO_CLOSE); /* the others have used them up */
}

static void test_each_failure_uses_up_one_restart_and_the_last_one_closes(void **unused) {
  (void)unused;
  struct supervisor supervisor;
  supervisor_init(&supervisor, 3);
  for (int64_t i = 1; i <= 3; i++) {
    step(&supervisor, SUPERVISOR_EV_STARTED);
    step(&supervisor, SUPERVISOR_EV_WORKER_FAILED);
    assert_int_equal(supervisor.restarts, i);
    assert_false(step(&supervisor, SUPERVISOR_EV_WORKER_FAILED)); /* another of the same attempt */
    assert_int_equal(supervisor.restarts, i);
    step(&supervisor, SUPERVISOR_EV_STOPPED);
    if (i > 1) step(&supervisor, SUPERVISOR_EV_DONE); /* BACK_OFF */
    assert_int_equal(supervisor.request, SUPERVISOR_DO_JOIN);
  }
  step(&supervisor, SUPERVISOR_EV_STARTED);
  step(&supervisor, SUPERVISOR_EV_WORKER_FAILED);
  step(&supervisor, SUPERVISOR_EV_STOPPED);
  assert_int_equal(supervisor.request, SUPERVISOR_DO_CLOSE);
  step(&supervisor, SUPERVISOR_EV_DONE);
  assert_int_equal(supervisor.request, SUPERVISOR_DO_END);
  assert_int_equal(supervisor.outcome, SUPERVISOR_OUTCOME_FAILED);
}

/* ---- how soon it starts again --------------------------------------------------------------------------------- */

/* Starts workers that run for so long and fail. Gives the delay before the next start; -1: there is none. */
static int64_t delay_after(struct supervisor *supervisor, int64_t *now_ms, int64_t ran_ms) {
  assert_int_equal(supervisor->request, SUPERVISOR_DO_JOIN);
  supervisor_step(supervisor, &(struct supervisor_event){SUPERVISOR_EV_STARTED, .now_ms = *now_ms});
  *now_ms += ran_ms;
  supervisor_step(supervisor, &(struct supervisor_event){SUPERVISOR_EV_WORKER_FAILED, .now_ms = *now_ms});
  step(supervisor, SUPERVISOR_EV_STOPPED);
  if (supervisor->request == SUPERVISOR_DO_CLOSE) return -1;
  if (supervisor->request != SUPERVISOR_DO_BACK_OFF) return 0;
  *now_ms += supervisor->delay_ms;
  step(supervisor, SUPERVISOR_EV_DONE);
  return supervisor->delay_ms;
}

static void test_the_first_restart_is_immediate_and_each_later_one_waits_twice_as_long(void **unused) {
  (void)unused;
  static const int64_t wanted[] = {0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000, -1};
  struct supervisor supervisor;
  int64_t now_ms = 12345;
  supervisor_init(&supervisor, COUNT_OF(wanted) - 1);
  for (size_t i = 0; i < COUNT_OF(wanted); i++) assert_int_equal(delay_after(&supervisor, &now_ms, 5), wanted[i]);
}

static void test_workers_that_ran_for_a_minute_begin_a_new_row(void **unused) {
  (void)unused;
  struct supervisor supervisor;
  int64_t now_ms = 1;
  supervisor_init(&supervisor, 100);
  for (int i = 0; i < 5; i++) delay_after(&supervisor, &now_ms, SUPERVISOR_STEADY_MS - 1);
  assert_int_equal(supervisor.delay_ms, 800);
  assert_int_equal(delay_after(&supervisor, &now_ms, SUPERVISOR_STEADY_MS), 0);
  assert_int_equal(delay_after(&supervisor, &now_ms, 5), 100);
}

/* The program was there when the job began. */
static void test_workers_that_cannot_be_started_again_use_up_a_restart(void **unused) {
  (void)unused;
  struct supervisor supervisor = AFTER(2, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_WORKER_FAILED, SUPERVISOR_EV_STOPPED);
  assert_true(step(&supervisor, SUPERVISOR_EV_START_FAILED));
  assert_int_equal(supervisor.request, SUPERVISOR_DO_STOP);
  assert_int_equal(supervisor.restarts, 2);
  step(&supervisor, SUPERVISOR_EV_STOPPED);
  assert_int_equal(supervisor.request, SUPERVISOR_DO_BACK_OFF);
  step(&supervisor, SUPERVISOR_EV_DONE);
  step(&supervisor, SUPERVISOR_EV_START_FAILED);
  step(&supervisor, SUPERVISOR_EV_STOPPED);
  assert_int_equal(supervisor.request, SUPERVISOR_DO_CLOSE);
  assert_int_equal(supervisor.outcome, SUPERVISOR_OUTCOME_FAILED);
}

/* ---- told to stop --------------------------------------------------------------------------------------------- */

static void test_the_last_signal_is_the_one_that_counts(void **unused) {
  (void)unused;
  struct supervisor supervisor = AFTER(1, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_SIGNAL);
  assert_int_equal(supervisor.signal, 15);
  supervisor_step(&supervisor, &(struct supervisor_event){SUPERVISOR_EV_SIGNAL, .signal = 2});
  assert_int_equal(supervisor.signal, 2);
  assert_int_equal(supervisor.outcome, SUPERVISOR_OUTCOME_LEFT);
}

/* A job that has failed does not become one that was left; but it can be hurried. */
static void test_a_signal_while_a_failed_job_is_stopped_changes_nothing_but_the_second_kills(void **unused) {
  (void)unused;
  struct supervisor supervisor = AFTER(0, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_WORKER_FAILED);
  assert_false(step(&supervisor, SUPERVISOR_EV_SIGNAL));
  assert_int_equal(supervisor.request, SUPERVISOR_DO_STOP);
  assert_true(step(&supervisor, SUPERVISOR_EV_SIGNAL));
  assert_int_equal(supervisor.request, SUPERVISOR_DO_KILL);
  step(&supervisor, SUPERVISOR_EV_STOPPED);
  assert_int_equal(supervisor.request, SUPERVISOR_DO_CLOSE);
  assert_int_equal(supervisor.outcome, SUPERVISOR_OUTCOME_FAILED);
}

static void test_a_signal_in_the_barrier_leaves(void **unused) {
  (void)unused;
  const struct supervisor supervisor = AFTER(0, SUPERVISOR_EV_STARTED, SUPERVISOR_EV_WORKERS_DONE, SUPERVISOR_EV_NODES,
                                             SUPERVISOR_EV_SIGNAL, SUPERVISOR_EV_DONE, SUPERVISOR_EV_STOPPED);
  assert_int_equal(supervisor.request, SUPERVISOR_DO_END);
  assert_int_equal(supervisor.outcome, SUPERVISOR_OUTCOME_LEFT);
}

/* ---- all that can be reached ---------------------------------------------------------------------------------- */

enum { MOST_STATES = 4096 };

struct node {
  struct supervisor state;
  int signals; /* so far, two stand for more */
  bool failed; /* beyond what can be restarted */
  bool closed; /* has passed CLOSE */
};

struct world {
  struct node nodes[MOST_STATES];
  size_t count;
};

static bool same(const struct node *a, const struct node *b) {
  const struct supervisor *x = &a->state, *y = &b->state;
  return x->request == y->request && x->outcome == y->outcome && x->signal == y->signal && x->restarts == y->restarts &&
         x->then == y->then && x->row == y->row && x->has_started == y->has_started && a->signals == b->signals &&
         a->failed == b->failed && a->closed == b->closed;
}

static void add(struct world *world, const struct node *node) {
  for (size_t i = 0; i < world->count; i++)
    if (same(&world->nodes[i], node)) return;
  assert_true(world->count < MOST_STATES);
  world->nodes[world->count++] = *node;
}

static void check(const struct node *before, const struct node *now, bool changed) {
  const struct supervisor *was = &before->state, *is = &now->state;
  assert_true(is->restarts >= was->restarts && is->restarts <= was->restarts + 1);
  assert_true(is->restarts <= is->max_restarts);
  assert_int_equal(is->max_restarts, was->max_restarts);
  if (was->request == SUPERVISOR_DO_END) { /* END is final, and so is how it went */
    assert_false(changed);
    assert_int_equal(is->request, SUPERVISOR_DO_END);
    assert_int_equal(is->outcome, was->outcome);
  }
  if (!changed) assert_int_equal(is->request, was->request);
  if (now->signals > 0) { /* nobody joins or watches who was told to stop */
    assert_true(is->request != SUPERVISOR_DO_JOIN && is->request != SUPERVISOR_DO_MONITOR);
    assert_true(is->request != SUPERVISOR_DO_EXIT_BARRIER);
    assert_int_not_equal(is->signal, 0);
  } else {
    assert_int_equal(is->signal, 0);
    assert_true(is->request != SUPERVISOR_DO_LEAVE);
    if (is->request == SUPERVISOR_DO_END) assert_int_not_equal(is->outcome, SUPERVISOR_OUTCOME_LEFT);
  }
  if (is->request == SUPERVISOR_DO_KILL) assert_int_equal(now->signals, 2);
  if (is->request == SUPERVISOR_DO_END && now->failed) { /* the others were told */
    assert_true(now->closed);
    assert_int_equal(is->outcome, SUPERVISOR_OUTCOME_FAILED);
  }
  if (is->request == SUPERVISOR_DO_END && is->outcome == SUPERVISOR_OUTCOME_SUCCEEDED) assert_true(now->closed);
  if (is->request == SUPERVISOR_DO_CLOSE) /* nobody closes for others because of a signal to him */
    assert_true(is->outcome == SUPERVISOR_OUTCOME_SUCCEEDED || is->outcome == SUPERVISOR_OUTCOME_FAILED);
}

static void follow(struct world *world, size_t which, const struct supervisor_event *event) {
  const struct node *before = &world->nodes[which];
  struct node now = *before;
  const bool changed = supervisor_step(&now.state, event);
  if (event->kind == SUPERVISOR_EV_SIGNAL && now.signals < 2) now.signals++;
  if ((event->kind == SUPERVISOR_EV_WORKER_FAILED && before->state.request == SUPERVISOR_DO_MONITOR) ||
      (event->kind == SUPERVISOR_EV_START_FAILED && before->state.request == SUPERVISOR_DO_JOIN &&
       before->state.has_started))
    now.failed = before->state.restarts == before->state.max_restarts;
  now.closed |= now.state.request == SUPERVISOR_DO_CLOSE;
  check(before, &now, changed);
  add(world, &now);
}

static void explore(int64_t max_restarts) {
  static struct world world;
  struct node first = {0};
  bool reached[REQUESTS] = {0};
  supervisor_init(&first.state, max_restarts);
  world.count = 0;
  add(&world, &first);
  for (size_t i = 0; i < world.count; i++) {
    reached[world.nodes[i].state.request] = true;
    for (int kind = 0; kind < KINDS; kind++)
      follow(&world, i, &(struct supervisor_event){(enum supervisor_event_kind)kind, .signal = 15});
    follow(&world, i, &(struct supervisor_event){SUPERVISOR_EV_NODES, .others_done = true});
  }
  for (int i = 0; i < REQUESTS; i++) assert_true(reached[i] || (i == SUPERVISOR_DO_BACK_OFF && max_restarts < 2));
}

static void test_whatever_happens_the_rules_are_kept(void **unused) {
  (void)unused;
  for (int64_t max_restarts = 0; max_restarts < 4; max_restarts++) explore(max_restarts);
}

/* Whatever it is asked to do, once that is done it comes nearer to the end: no request waits for nothing. */
static void test_who_is_told_to_stop_ends_in_a_few_steps(void **unused) {
  (void)unused;
  for (int request = 0; request < REQUESTS; request++) {
    struct supervisor supervisor = standing_in((enum supervisor_request)request);
    step(&supervisor, SUPERVISOR_EV_SIGNAL);
    for (int i = 0; i < 3 && supervisor.request != SUPERVISOR_DO_END; i++) {
      const bool stops = supervisor.request == SUPERVISOR_DO_STOP || supervisor.request == SUPERVISOR_DO_KILL;
      assert_true(step(&supervisor, stops ? SUPERVISOR_EV_STOPPED : SUPERVISOR_EV_DONE));
    }
    assert_int_equal(supervisor.request, SUPERVISOR_DO_END);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_request_with_each_event),
      cmocka_unit_test(test_what_follows_a_stop),
      cmocka_unit_test(test_members_that_change_while_others_are_done_are_no_reason_to_stop),
      cmocka_unit_test(test_the_most_restarts_of_all_agents_count),
      cmocka_unit_test(test_each_failure_uses_up_one_restart_and_the_last_one_closes),
      cmocka_unit_test(test_the_first_restart_is_immediate_and_each_later_one_waits_twice_as_long),
      cmocka_unit_test(test_workers_that_ran_for_a_minute_begin_a_new_row),
      cmocka_unit_test(test_workers_that_cannot_be_started_again_use_up_a_restart),
      cmocka_unit_test(test_the_last_signal_is_the_one_that_counts),
      cmocka_unit_test(test_a_signal_while_a_failed_job_is_stopped_changes_nothing_but_the_second_kills),
      cmocka_unit_test(test_a_signal_in_the_barrier_leaves),
      cmocka_unit_test(test_whatever_happens_the_rules_are_kept),
      cmocka_unit_test(test_who_is_told_to_stop_ends_in_a_few_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
