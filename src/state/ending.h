/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a run ended: which node closed it, or left last, and when. An attribute of the state that PyTorch nodes
 * carry along: rdzv_end: {"node": "host_12_0", "at": 1790000000.25}, seconds since 1970 by the clock of the node, or of
 * the server that acts for it. A run that all nodes have left goes on when a node joins; the attribute goes then.
 */
#ifndef RDZV_STATE_ENDING_H
#define RDZV_STATE_ENDING_H

#include "state/state.h"

#define ENDING_ATTRIBUTE "rdzv_end"

/* Without memory nothing is noted. The node may have an empty address: it is not known. */
void ending_note(struct rendezvous_state *state, const struct node_desc *node, int64_t wall_us);
void ending_forget(struct rendezvous_state *state);

struct ending {
  const char *node; /* the state's; "": it is not known */
  int64_t at_us;
};

/* False: the run has not ended, or it is not known how. */
bool ending_read(const struct rendezvous_state *state, struct ending *out);

#endif
