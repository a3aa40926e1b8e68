/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/waiting.h"

#include "base/log.h"
#include "base/siphash.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- when a line goes to the log ------------------------------------------------------------------------------ */

void waiting_pace_begin(struct waiting_pace *pace, int64_t now) {
  *pace = (struct waiting_pace){.first = now + WAITING_QUIET_MS, .gap = WAITING_CHANGE_MS};
}

void waiting_pace_fail(struct waiting_pace *pace, int64_t now) {
  const int64_t soon = now + WAITING_FAILED_MS;
  if (!pace->has_failed && soon < pace->first) pace->first = soon;
  pace->has_failed = true;
}

int64_t waiting_pace_due(const struct waiting_pace *pace, bool changed) {
  if (!pace->has_said) return pace->first;
  return pace->said + (changed ? pace->gap : WAITING_REPEAT_MS);
}

void waiting_pace_say(struct waiting_pace *pace, int64_t now, bool changed) {
  const int64_t twice = 2 * pace->gap < WAITING_REPEAT_MS ? 2 * pace->gap : WAITING_REPEAT_MS;
  const int64_t half = pace->gap / 2 > WAITING_CHANGE_MS ? pace->gap / 2 : WAITING_CHANGE_MS;
  if (pace->has_said) pace->gap = changed ? twice : half;
  pace->has_said = true;
  pace->said = now;
}

/* ---- the wait ------------------------------------------------------------------------------------------------- */

enum { REFRESH_MS = 1000, LONG_PHASE_MS = 1000 };

struct text {
  char text[WAITING_ABOUT_SIZE + WAITING_CAUSE_SIZE + 2];
  bool is_cause;
};

static bool is_long(const struct waiting *waiting, int64_t now) { return now - waiting->phase_began >= LONG_PHASE_MS; }

/* A phase that has just begun is part of the next try, which the last one's cause is still the news of. */
static struct text text_of(const struct waiting *waiting, int64_t now) {
  struct text text;
  const bool has_phase = waiting->phase[0] && (!waiting->cause[0] || is_long(waiting, now));
  const char *detail = has_phase ? waiting->phase : waiting->cause;
  text.is_cause = !has_phase && waiting->cause[0];
  snprintf(text.text, sizeof text.text, "%s%s%s", waiting->about, waiting->about[0] && *detail ? ": " : "", detail);
  return text;
}

static uint64_t hash_of(const struct text *text) {
  static const struct siphash_seed seed = {{0, 0}};
  return siphash(&seed, text->text, strlen(text->text));
}

static int64_t due(const struct waiting *waiting, int64_t now) {
  const struct waiting_pace *pace = &waiting->pace;
  if (!pace->has_said) return waiting_pace_due(pace, true);
  const struct text text = text_of(waiting, now);
  int64_t at = waiting_pace_due(pace, hash_of(&text) != waiting->said);
  if (waiting->refresh) {
    const int64_t change = waiting_pace_due(pace, true), next = waiting->refreshed + REFRESH_MS;
    const int64_t look = change > next ? change : next;
    if (look < at) at = look;
  }
  const bool will_be_long = waiting->phase[0] && waiting->cause[0] && !is_long(waiting, now);
  const int64_t is_long_at = waiting->phase_began + LONG_PHASE_MS;
  return will_be_long && is_long_at < at ? is_long_at : at;
}

static void say(struct waiting *waiting, const struct text *text, int64_t now) {
  char left[64] = "";
  const int64_t seconds = waiting->until > now ? (waiting->until - now + 999) / 1000 : 0;
  if (waiting->until != INT64_MAX)
    snprintf(left, sizeof left, text->is_cause ? "; trying for %lld s more" : "; %lld s left", (long long)seconds);
  if (text->is_cause) waiting->warned = true;
  if (text->text[0])
    log_line(&waiting->log, text->is_cause ? RDZV_LOG_WARNING : waiting->level, "%s%s", text->text, left);
}

void waiting_tick(struct waiting *waiting) {
  if (!waiting) return;
  const int64_t now = clock_now_ms();
  if (now < due(waiting, now)) return;
  if (waiting->refresh) waiting->refresh(waiting, waiting->user);
  waiting->refreshed = now;
  const struct text text = text_of(waiting, now);
  const uint64_t hash = hash_of(&text);
  const bool changed = hash != waiting->said;
  if (now < waiting_pace_due(&waiting->pace, changed)) return;
  waiting_pace_say(&waiting->pace, now, changed);
  waiting->said = hash;
  say(waiting, &text, now);
}

deadline waiting_until(struct waiting *waiting, deadline until) {
  if (!waiting) return until;
  const int64_t at = due(waiting, clock_now_ms());
  return at < until ? at : until;
}

void waiting_begin(struct waiting *waiting, const rdzv_log *log, deadline until) {
  if (!waiting) return;
  waiting->log = *log;
  waiting->level = RDZV_LOG_WARNING;
  waiting->until = until;
  waiting->refresh = NULL;
  waiting->refreshed = 0;
  waiting->about[0] = '\0';
  waiting->said = 0;
  waiting_clear(waiting);
  waiting_pace_begin(&waiting->pace, clock_now_ms());
}

void waiting_clear(struct waiting *waiting) {
  if (!waiting) return;
  waiting->phase[0] = waiting->cause[0] = '\0';
  waiting->warned = false;
  waiting->failed_ms = 0;
}

void waiting_succeed(struct waiting *waiting, const char *format, ...) {
  if (waiting && waiting->warned) {
    char text[WAITING_ABOUT_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_line(&waiting->log, RDZV_LOG_WARNING, "%s after %lld s", text,
             (long long)(clock_now_ms() - waiting->failed_ms + 999) / 1000);
  }
  waiting_clear(waiting);
}

void waiting_about(struct waiting *waiting, const char *format, ...) {
  if (!waiting) return;
  va_list args;
  va_start(args, format);
  vsnprintf(waiting->about, sizeof waiting->about, format, args);
  va_end(args);
}

void waiting_for(struct waiting *waiting, const char *format, ...) {
  if (!waiting) return;
  va_list args;
  va_start(args, format);
  vsnprintf(waiting->phase, sizeof waiting->phase, format, args);
  va_end(args);
  waiting->phase_began = clock_now_ms();
  waiting_tick(waiting);
}

void waiting_fail(struct waiting *waiting, const char *format, ...) {
  if (!waiting) return;
  va_list args;
  va_start(args, format);
  vsnprintf(waiting->cause, sizeof waiting->cause, format, args);
  va_end(args);
  waiting->phase[0] = '\0';
  if (waiting->failed_ms == 0) waiting->failed_ms = clock_now_ms();
  waiting_pace_fail(&waiting->pace, clock_now_ms());
  waiting_tick(waiting);
}
