/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/waiting_pace.h"

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
