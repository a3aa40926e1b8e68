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

/* The first failure of each failed attempt, in the order of time: the first ones and the last ones of many. */
enum { HISTORY_FIRST = 8, HISTORY_MOST = 32 };

struct failure_history {
  rdzv_worker_failure list[HISTORY_MOST];
  size_t count;
};

/* Copies the failure, with the last line of its log. Without memory it is left out. */
void history_add(struct failure_history *history, const rdzv_worker_failure *failure);
void history_free(struct failure_history *history);

/* "exit code 3", "killed by signal 9 (SIGKILL)". */
void end_text(int exit_code, int signal, char out[64]);

/* Collects the failed workers of the group, and reads their error files. Replaces the list. False: no memory. */
bool failures_collect(struct failures *failures, const struct worker_group *group, int64_t attempt);

/* The text for the store, to be freed; NULL: no memory. `node` is the name of the agent's node. Of a long log it has
 * the last lines. */
char *failure_write(const rdzv_worker_failure *failure, const char *node);

/* A published failure in one sentence: "rank 1 on node0_4711_0 failed (exit code 5)". False: it cannot be read. */
bool failure_sentence(const char *text, char *out, size_t size);

/* Puts a failure that an agent published in front, unless it is in the list. A text that cannot be read is ignored. */
void failures_add_told(struct failures *failures, const char *text, int64_t attempt);

void failures_free(struct failures *failures);

#endif
