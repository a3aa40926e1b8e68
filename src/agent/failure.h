/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers that failed: what is known of them, and as text for the other agents. */
#ifndef RDZV_AGENT_FAILURE_H
#define RDZV_AGENT_FAILURE_H

#include "agent/worker/group.h"

#include <rdzv/agent.h>

struct failures {
  rdzv_worker_failure *list; /* the first in time first */
  size_t count;
};

/* "exit code 3", "killed by signal 9 (SIGKILL)". */
void end_text(int exit_code, int signal, char out[64]);

/* Those of the group that failed; a worker's error file is read. Replaces what was there. False: no memory. */
bool failures_collect(struct failures *failures, const struct group *group);

/* For the store, to be freed; NULL: no memory. `last_lines` are not told, they may be long. */
char *failure_write(const rdzv_worker_failure *failure);

/* Puts one that another agent told in front, unless it is ours. What cannot be read is left out. */
void failures_add_told(struct failures *failures, const char *text);

void failures_free(struct failures *failures);

#endif
