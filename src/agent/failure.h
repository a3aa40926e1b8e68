/* SPDX-License-Identifier: BSD-3-Clause */
/* Failed workers: what is known of them, and the text of it for the other agents. */
#ifndef RDZV_AGENT_FAILURE_H
#define RDZV_AGENT_FAILURE_H

#include "agent/worker/group.h"

#include <rdzv/agent.h>

struct failures {
  rdzv_worker_failure *list; /* in the order of time */
  size_t count;
};

/* "exit code 3", "killed by signal 9 (SIGKILL)". */
void end_text(int exit_code, int signal, char out[64]);

/* Collects the failed workers of the group, and reads their error files. Replaces the list. False: no memory. */
bool failures_collect(struct failures *failures, const struct worker_group *group);

/* The text for the store, to be freed; NULL: no memory. It has no log lines, which may be long. */
char *failure_write(const rdzv_worker_failure *failure);

/* Puts a failure that an agent published in front, unless it is in the list. A text that cannot be read is ignored. */
void failures_add_told(struct failures *failures, const char *text);

void failures_free(struct failures *failures);

#endif
