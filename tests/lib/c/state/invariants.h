/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What must hold of the states that the rules make, for tests to check after every step. All nodes must have the same
 * settings, and no state may come from elsewhere.
 */
#ifndef RDZV_TESTS_INVARIANTS_H
#define RDZV_TESTS_INVARIANTS_H

#include "state/rendezvous.h"

/* What must hold of every state; NULL, or the sentence that does not. */
const char *rendezvous_broken_invariant(const struct rendezvous_state *state,
                                        const struct rendezvous_settings *settings);

/* What must hold of two states of which one was written right after the other: the dead removed, and one action. */
const char *rendezvous_broken_transition(const struct rendezvous_state *before, const struct rendezvous_state *after,
                                         const struct rendezvous_settings *settings);

#endif
