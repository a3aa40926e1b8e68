/* SPDX-License-Identifier: BSD-3-Clause */
/* When a wait says a line: the pace by a virtual clock, and what the lines say. */
#include "base/wait/flag.h"
#include "base/wait/waiting.h"
#include "unit.h"

enum { STEP_MS = 10, MOST_LINES = 64, BEGAN = 1000000 };

struct spoken {
  int64_t at[MOST_LINES];
  size_t count;
};

/* A wait of `until_ms`: `text` tells what it would say at a time, negative while no try has failed. */
static struct spoken speak(int64_t until_ms, int (*text)(int64_t ms)) {
  struct spoken spoken = {.count = 0};
  struct waiting_pace pace;
  int said = -1;
  waiting_pace_begin(&pace, BEGAN);
  for (int64_t ms = 0; ms < until_ms; ms += STEP_MS) {
    const int now = text(ms);
    const bool changed = now != said;
    if (now >= 0) waiting_pace_fail(&pace, BEGAN + ms);
    if (BEGAN + ms < waiting_pace_due(&pace, changed)) continue;
    waiting_pace_say(&pace, BEGAN + ms, changed);
    said = now;
    if (spoken.count < MOST_LINES) spoken.at[spoken.count++] = ms;
  }
  return spoken;
}

static void assert_spoken(const struct spoken *spoken, const int64_t *times, size_t count) {
  assert_int_equal(spoken->count, count);
  for (size_t i = 0; i < count; i++) assert_int_equal(spoken->at[i], times[i]);
}

static int never_fails(int64_t ms) {
  (void)ms;
  return -1;
}

static int fails_at_once(int64_t ms) {
  (void)ms;
  return 0;
}

static int fails_late(int64_t ms) { return ms < 2000 ? -1 : 0; }
static int changes_once(int64_t ms) { return ms < 10000 ? 0 : 1; }
static int changes_soon(int64_t ms) { return ms < 1000 ? 0 : 1; }
static int goes_to_and_fro(int64_t ms) { return (int)(ms / STEP_MS) % 2; }

/* Three seconds of nothing, one line; then every thirty. */
static void test_a_wait_without_failure_speaks_after_3_s(void **state) {
  (void)state;
  const struct spoken spoken = speak(70000, never_fails);
  assert_spoken(&spoken, (const int64_t[]){3000, 33000, 63000}, 3);
}

/* The first failure is told within a second, and not at once: it may be over in a moment. */
static void test_the_first_failure_is_told_within_a_second(void **state) {
  (void)state;
  const struct spoken soon = speak(40000, fails_at_once), late = speak(5000, fails_late);
  assert_spoken(&soon, (const int64_t[]){500, 30500}, 2);
  assert_spoken(&late, (const int64_t[]){2500}, 1);
}

/* A wait that is over before its first line is due was silent. */
static void test_a_short_wait_is_silent(void **state) {
  (void)state;
  assert_int_equal(speak(3000, never_fails).count, 0);
  assert_int_equal(speak(500, fails_at_once).count, 0);
}

/* Another text is told when it comes, but not sooner than 3 s after the line before. */
static void test_a_change_is_told_soon(void **state) {
  (void)state;
  const struct spoken later = speak(20000, changes_once), soon = speak(20000, changes_soon);
  assert_spoken(&later, (const int64_t[]){500, 10000}, 2);
  assert_spoken(&soon, (const int64_t[]){500, 3500}, 2);
}

/* A text that goes to and fro does not flood the log: 30 lines in 600 s. */
static void test_a_text_to_and_fro_is_told_ever_less_often(void **state) {
  (void)state;
  const struct spoken spoken = speak(600000, goes_to_and_fro);
  assert_in_range(spoken.count, 20, 30);
  for (size_t i = 1; i < spoken.count; i++) {
    const int64_t gap = spoken.at[i] - spoken.at[i - 1];
    assert_in_range(gap, 3000, 30000 + STEP_MS);
  }
}

/* ---- what the lines say --------------------------------------------------------------------------------------- */

struct heard {
  char line[2048];
  rdzv_log_level level;
  int count;
};

static void hear(void *user, rdzv_log_level level, const char *line) {
  struct heard *heard = user;
  snprintf(heard->line, sizeof heard->line, "%s", line);
  heard->level = level;
  heard->count++;
}

/* A wait that began so long ago, with its first line due. */
static struct waiting begun(struct heard *heard, int64_t ago_ms, int64_t left_ms) {
  const rdzv_log log = {.size = sizeof log, .write = hear, .user = heard, .level = RDZV_LOG_DEBUG};
  struct waiting waiting;
  *heard = (struct heard){.count = 0};
  waiting_begin(&waiting, &log, left_ms < 0 ? INT64_MAX : deadline_after(left_ms));
  waiting.pace.first -= ago_ms;
  return waiting;
}

static void test_a_line_has_what_why_and_how_long(void **state) {
  (void)state;
  struct heard heard;
  struct waiting waiting = begun(&heard, WAITING_QUIET_MS, 90000);
  waiting_about(&waiting, "waiting for rank %d", 0);
  waiting_fail(&waiting, "refused (is it up?)");
  assert_string_equal(heard.line, "waiting for rank 0: refused (is it up?); trying for 90 s more");
  assert_int_equal(heard.level, RDZV_LOG_WARNING);
  assert_int_equal(heard.count, 1);
  waiting_fail(&waiting, "refused (is it up?)");
  assert_int_equal(heard.count, 1);
}

static void test_a_wait_without_end_tells_no_time(void **state) {
  (void)state;
  struct heard heard;
  struct waiting waiting = begun(&heard, WAITING_QUIET_MS, -1);
  waiting.level = RDZV_LOG_INFO;
  waiting_for(&waiting, "looking up '%s'", "node0");
  assert_string_equal(heard.line, "looking up 'node0'");
  assert_int_equal(heard.level, RDZV_LOG_INFO);
}

/* The next try has begun, but what went wrong with the last one is still the news. */
static void test_a_new_phase_does_not_hide_the_cause(void **state) {
  (void)state;
  struct heard heard;
  struct waiting waiting = begun(&heard, 0, -1);
  waiting_fail(&waiting, "refused");
  waiting_for(&waiting, "connecting");
  waiting.pace.first -= WAITING_QUIET_MS;
  waiting_tick(&waiting);
  assert_string_equal(heard.line, "refused");
  waiting.phase_began -= 1000;
  waiting.pace.said -= WAITING_CHANGE_MS;
  waiting_tick(&waiting);
  assert_string_equal(heard.line, "connecting");
}

/* The cause of a try is over with it; what the wait is about is not. */
static void test_what_is_cleared_is_not_said(void **state) {
  (void)state;
  struct heard heard;
  struct waiting waiting = begun(&heard, 0, -1);
  waiting_about(&waiting, "waiting for a key");
  waiting_fail(&waiting, "refused");
  waiting_clear(&waiting);
  waiting.pace.first -= WAITING_QUIET_MS;
  waiting_tick(&waiting);
  assert_string_equal(heard.line, "waiting for a key");
}

/* Whatever warns of a failure also says when it is over, once; a failure that was not told of is not. */
static void test_a_failure_that_was_told_is_told_to_be_over(void **state) {
  (void)state;
  struct heard heard;
  struct waiting waiting = begun(&heard, 0, -1);
  waiting_fail(&waiting, "refused");
  waiting_succeed(&waiting, "connected to '%s'", "node0");
  assert_int_equal(heard.count, 0);
  waiting.pace.first -= WAITING_QUIET_MS;
  waiting_fail(&waiting, "refused");
  waiting.failed_ms -= 4000;
  waiting_succeed(&waiting, "connected to '%s'", "node0");
  assert_int_equal(heard.count, 2);
  assert_int_equal(heard.level, RDZV_LOG_WARNING);
  assert_memory_equal(heard.line, "connected to 'node0' after ", 27);
  waiting_succeed(&waiting, "connected to '%s'", "node0");
  assert_int_equal(heard.count, 2);
}

static void count_up(struct waiting *waiting, void *user) { waiting_about(waiting, "%d have joined", ++*(int *)user); }

/* Whoever has to look for what there is to say is asked when a line may be due, at most once a second. */
static void test_a_refreshed_text_is_asked_for_when_due(void **state) {
  (void)state;
  struct heard heard;
  int asked = 0;
  struct waiting waiting = begun(&heard, 0, -1);
  waiting.refresh = count_up;
  waiting.user = &asked;
  waiting_tick(&waiting);
  assert_int_equal(asked, 0);
  waiting.pace.first -= WAITING_QUIET_MS;
  waiting_tick(&waiting);
  waiting_tick(&waiting);
  assert_int_equal(asked, 1);
  assert_string_equal(heard.line, "1 have joined");
  waiting.pace.said -= WAITING_CHANGE_MS;
  waiting.refreshed -= 1000;
  waiting_tick(&waiting);
  assert_string_equal(heard.line, "2 have joined");
}

/* Every wait on a flag that tells says its line while it waits, not when it is over. */
static void test_a_pause_speaks_while_it_lasts(void **state) {
  (void)state;
  struct heard heard;
  struct waiting waiting = begun(&heard, WAITING_QUIET_MS - 50, -1);
  const struct flag telling = flag_with(NULL, &waiting);
  waiting_about(&waiting, "waiting for nothing");
  assert_code(flag_pause(&telling, deadline_after(10)), 0);
  assert_int_equal(heard.count, 0);
  assert_code(flag_pause(&telling, deadline_after(200)), 0);
  assert_int_equal(heard.count, 1);
  assert_string_equal(heard.line, "waiting for nothing");
}

/* All functions take a wait that nobody wants to hear of. */
static void test_no_wait_is_fine(void **state) {
  (void)state;
  waiting_begin(NULL, NULL, 0);
  waiting_about(NULL, "x");
  waiting_for(NULL, "x");
  waiting_fail(NULL, "x");
  waiting_clear(NULL);
  waiting_succeed(NULL, "x");
  waiting_tick(NULL);
  assert_int_equal(waiting_until(NULL, 7), 7);
  assert_null(flag_waiting(NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_wait_without_failure_speaks_after_3_s),
      cmocka_unit_test(test_the_first_failure_is_told_within_a_second),
      cmocka_unit_test(test_a_short_wait_is_silent),
      cmocka_unit_test(test_a_change_is_told_soon),
      cmocka_unit_test(test_a_text_to_and_fro_is_told_ever_less_often),
      cmocka_unit_test(test_a_line_has_what_why_and_how_long),
      cmocka_unit_test(test_a_wait_without_end_tells_no_time),
      cmocka_unit_test(test_a_new_phase_does_not_hide_the_cause),
      cmocka_unit_test(test_what_is_cleared_is_not_said),
      cmocka_unit_test(test_a_failure_that_was_told_is_told_to_be_over),
      cmocka_unit_test(test_a_refreshed_text_is_asked_for_when_due),
      cmocka_unit_test(test_a_pause_speaks_while_it_lasts),
      cmocka_unit_test(test_no_wait_is_fine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
