/* SPDX-License-Identifier: BSD-3-Clause */
/* What has happened to a round, kept until the user asks. */
#ifndef RDZV_HANDLER_CHANGE_H
#define RDZV_HANDLER_CHANGE_H

#include <rdzv/handler.h>

/* All zero: nothing has happened. */
struct rdzv_change {
  unsigned what; /* RDZV_CHANGE_… */
  char **nodes;  /* that left or died */
  size_t count;
};

/* Adds a node that left or died. Without memory for its name it is not named. */
void change_add_node(struct rdzv_change *change, const char *node);

/* Moves what has happened into an object for the user, and begins again. RDZV_E_NO_MEMORY: it stays. */
int change_take(struct rdzv_change *change, rdzv_change **out, rdzv_error *error);

/* Forgets what has happened. */
void change_clear(struct rdzv_change *change);

#endif
