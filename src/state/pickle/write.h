/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes a state as PyTorch pickles it, in protocol 4, which every Python 3 that has a PyTorch reads. */
#ifndef RDZV_STATE_PICKLE_WRITE_H
#define RDZV_STATE_PICKLE_WRITE_H

#include "base/buf.h"
#include "state/pickle/layout.h"
#include "state/state.h"

/*
 * Puts the pickle behind what is in `out`. Equal states give the same bytes: nodes come in their order, attributes that
 * are not PyTorch's behind those that are. On failure `out` has what it had.
 * RDZV_E_NO_MEMORY; RDZV_E_INVALID: a time is out of the range of Python's datetime; RDZV_E_UNSUPPORTED: there are
 * spares, and the layout has no place for them; RDZV_E_LIMIT: it would be longer than pickle_read takes.
 */
int pickle_write(const struct rendezvous_state *state, enum torch_layout layout, struct buf *out, rdzv_error *error);

#endif
