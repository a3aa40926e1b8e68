/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/phase.h"

#include "state/rendezvous.h"

enum rendezvous_phase rendezvous_phase(const struct rendezvous_state *state) {
  if (state->closed) return PHASE_CLOSED;
  if (state->complete) return PHASE_COMPLETE;
  return state->deadline == DATETIME_NONE || state->deadline == WORLD_LEFT ? PHASE_GATHERING : PHASE_LAST_CALL;
}

const char *rendezvous_phase_name(enum rendezvous_phase phase) {
  static const char *const names[] = {"gathering", "last call", "complete", "closed"};
  return names[phase];
}
