/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/engine/silence.h"

void silence_end(struct silence *silence, int64_t now_ms) { *silence = (struct silence){.looked_ms = now_ms}; }

int64_t silence_look(struct silence *silence, const struct rendezvous_settings *settings, int64_t now_ms) {
  const int64_t gap = now_ms - silence->looked_ms, most = silence_look_interval(settings);
  silence->lasted_ms += gap < most ? gap : most;
  silence->looked_ms = now_ms;
  return silence->lasted_ms;
}

int64_t silence_wake(const struct silence *silence, const struct rendezvous_settings *settings) {
  const int64_t left = rendezvous_dead_time(settings) - silence->lasted_ms, interval = silence_look_interval(settings);
  return silence->looked_ms + (left > 0 && left < interval ? left : interval);
}
