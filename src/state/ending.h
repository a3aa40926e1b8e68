/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a run ended: which node closed it, left last or died last, and when. An attribute of the state that PyTorch nodes
 * carry along: rdzv_end: {"node": "host_12_0", "at": 1790000000.25, "died": True}, seconds since 1970 by the clock of
 * the node, or of the server that acts for it. A run that has no nodes goes on when a node joins; the attribute goes
 * then. Where no server notes the death of the last node, the state has its last heartbeat.
 */
#ifndef RDZV_STATE_ENDING_H
#define RDZV_STATE_ENDING_H

#include "state/summary.h"

#define ENDING_ATTRIBUTE "rdzv_end"

/* Without memory nothing is noted. The node may have an empty address: it is not known. */
void ending_note(struct rendezvous_state *state, const struct node_desc *node, bool died, int64_t wall_us);
void ending_forget(struct rendezvous_state *state);

struct ending {
  const char *node; /* the state's; "": it is not known */
  int64_t at_us;
  bool died; /* instead of leaving, or closing it */
};

/* False: the run has not ended, or it is not known how. */
bool ending_read(const struct rendezvous_state *state, struct ending *out);

/* The node that was heard last, and when. */
struct ending_silence {
  struct node_text node;
  int64_t at_us;
};

/* Is every node of an open run silent for longer than its dead time? `age` says when each was heard. Ages by the clocks
 * of the nodes may be wrong: the caller makes sure that the state does not change. */
bool ending_is_silence(const struct rendezvous_state *state, summary_age *age, const void *argument, int64_t wall_us,
                       struct ending_silence *out);

#endif
