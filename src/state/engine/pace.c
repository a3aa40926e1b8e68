/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/engine/pace.h"

enum {
  FIRST_ERROR_MS = 50,
  LAST_ERROR_MS = 2000,
  MOST_DOUBLINGS = 16,
  FEW = 8,
  CROWD = 256,
  SPREAD_MS = 300,
  PERMIT_MS = 60000,
  LONGEST_TRIP_MS = 200, /* a request that takes longer met an outage, which says nothing of the next one */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

uint64_t pace_random(struct pace *pace) { /* splitmix64 */
  uint64_t bits = pace->random += UINT64_C(0x9e3779b97f4a7c15);
  bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
  return bits ^ bits >> 31;
}

int64_t pace_jitter(struct pace *pace, int64_t window_ms) {
  return window_ms > 0 ? (int64_t)(pace_random(pace) % (uint64_t)window_ms) : 0;
}

void pace_measure(struct pace *pace, int64_t took_ms) {
  took_ms = least(took_ms, LONGEST_TRIP_MS);
  pace->trip_ms = pace->trip_ms == 0 ? took_ms : (3 * pace->trip_ms + took_ms) / 4;
  if (pace->trip_ms < 1) pace->trip_ms = 1;
}

int64_t pace_before_join(struct pace *pace, const struct rendezvous_settings *settings) {
  if (settings->max_nodes <= FEW) return 0;
  return pace_jitter(pace, least(SPREAD_MS, most(pace->trip_ms, 1) * settings->max_nodes / 2));
}

/* How many nodes may be trying: while the round gathers, one for each free place; then each node that keeps alive. */
static int64_t crowd(const struct rendezvous_settings *settings, const struct rendezvous_state *state) {
  const int64_t places = settings->max_nodes - (int64_t)state->num_participants;
  return most(4, state->complete ? (int64_t)state->count : places);
}

int64_t pace_after_loss(struct pace *pace, const struct rendezvous_settings *settings,
                        const struct rendezvous_state *state, bool has_heartbeat) {
  if (pace->losses < MOST_DOUBLINGS) pace->losses++;
  const int64_t others = crowd(settings, state);
  const int64_t trips = least((INT64_C(1) << 2 * pace->losses) * (1 + others / 32), others);
  const int64_t window = most(pace->trip_ms, 1) * trips;
  return pace_jitter(pace, has_heartbeat ? least(window, settings->keep_alive_interval / 2) : window);
}

int64_t pace_permit(const struct rendezvous_settings *settings, bool has_heartbeat) {
  return has_heartbeat ? rendezvous_dead_time(settings) / 3 : PERMIT_MS;
}

int64_t pace_after_error(struct pace *pace) {
  const int64_t window = least((int64_t)FIRST_ERROR_MS << pace->errors, LAST_ERROR_MS);
  if (pace->errors < MOST_DOUBLINGS) pace->errors++;
  return window / 2 + pace_jitter(pace, window / 2);
}

int64_t pace_keep_alive(const struct rendezvous_settings *settings, const struct rendezvous_state *state) {
  const int64_t interval = settings->keep_alive_interval, slowest = rendezvous_dead_time(settings) * 3 / 5;
  const int64_t wanted = interval + interval * (int64_t)state->count / CROWD;
  return state->count <= CROWD || wanted < interval ? interval : most(interval, least(wanted, slowest));
}

int64_t pace_rest(const struct rendezvous_settings *settings, const struct rendezvous_state *state, int64_t swap_ms) {
  const int64_t count = (int64_t)state->count, missing = settings->min_nodes - (int64_t)state->num_participants;
  const int64_t gathering = swap_ms > 0 && missing > 0 ? missing * swap_ms : count / 4;
  return least(state->complete ? count * 2 : gathering, settings->keep_alive_interval / 2);
}
