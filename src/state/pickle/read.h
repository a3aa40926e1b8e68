/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads PyTorch's pickled state, protocols 2 to 5, of every layout in state/pickle/layout.h. Where Python's pickle
 * calls any function by name, this reader knows the classes that a state is made of, and refuses every other by name.
 * What it takes in time and memory is bounded by the length of the input and by these limits.
 */
#ifndef RDZV_STATE_PICKLE_READ_H
#define RDZV_STATE_PICKLE_READ_H

#include "state/pickle/layout.h"
#include "state/state.h"

enum {
  PICKLE_MAX_BYTES = 32 << 20,  /* of the whole pickle */
  PICKLE_MAX_MEMORY = 64 << 20, /* of all objects that it makes */
  PICKLE_MAX_STRING = 1 << 16,  /* bytes of one str, bytes or int */
  PICKLE_MAX_STACK = 1 << 16,   /* values that are not yet in an object; CPython puts them in by 1000 */
  PICKLE_MAX_MARKS = 128,       /* tuples, lists, dicts and sets in one another */
  PICKLE_MAX_MEMO = 1 << 20,
  PICKLE_MAX_ATTRIBUTES = 64, /* of one object */
};

/* Fills *state, which is not looked at before, and *layouts. RDZV_E_CORRUPT: it is no such pickle, the sentence says
 * where and why; RDZV_E_NO_MEMORY. Then both are as they were. */
int pickle_read(rdzv_bytes pickle, struct rendezvous_state *state, struct torch_layouts *layouts, rdzv_error *error);

#endif
