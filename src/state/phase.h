/* SPDX-License-Identifier: BSD-3-Clause */
/* How far a round has come. */
#ifndef RDZV_STATE_PHASE_H
#define RDZV_STATE_PHASE_H

#include "state/state.h"

enum rendezvous_phase {
  PHASE_GATHERING, /* fewer than min_nodes */
  PHASE_LAST_CALL, /* enough, and more may come until the deadline */
  PHASE_COMPLETE,
  PHASE_CLOSED,
};

enum rendezvous_phase rendezvous_phase(const struct rendezvous_state *state);
const char *rendezvous_phase_name(enum rendezvous_phase phase);

#endif
