/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_TESTS_STATE_EQUAL_H
#define RDZV_TESTS_STATE_EQUAL_H

#include "state/state.h"

/* Do two states have the same nodes, in the same places, and the same attributes? */
bool state_equal(const struct rendezvous_state *a, const struct rendezvous_state *b);

#endif
