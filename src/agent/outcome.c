/* SPDX-License-Identifier: BSD-3-Clause */
/* How a run ended, for the caller of rdzv_agent_run. */
#include "agent/agent.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { LOST_OUTPUT = 7 /* exit code, as in rdzv(1): input or output failed */ };

struct agent_outcome {
  rdzv_agent_result base; /* first */
  struct failures failures;
  char *reason, *log_dir, *lost_to;
};

rdzv_agent_state outcome_state(const rdzv_agent *agent) {
  switch (agent->supervisor.outcome) {
    case SUPERVISOR_OUTCOME_SUCCEEDED: return RDZV_AGENT_SUCCEEDED;
    case SUPERVISOR_OUTCOME_LEFT: return RDZV_AGENT_LEFT;
    default: return RDZV_AGENT_FAILED;
  }
}

static int exit_code_of(const rdzv_agent *agent, uint64_t lost) {
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_SUCCEEDED) return lost > 0 ? LOST_OUTPUT : 0;
  if (agent->supervisor.outcome == SUPERVISOR_OUTCOME_LEFT) return 128 + agent->supervisor.signal;
  const int code = agent->failures.count > 0 ? agent->failures.list[0].exit_code & 255 : 0;
  return code ? code : 1;
}

int outcome_make(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error) {
  struct agent_outcome *outcome = calloc(1, sizeof *outcome);
  if (!outcome) return error_no_memory(error);
  const bool succeeded = agent->supervisor.outcome == SUPERVISOR_OUTCOME_SUCCEEDED;
  outcome->reason = strdup(agent->reason);
  outcome->log_dir = strdup(agent->log_dir.run);
  char lost_to[PATH_MAX + 128];
  outcome->base.lost_bytes = pump_lost(agent->streams.pump, lost_to, sizeof lost_to);
  outcome->base.lost_to = outcome->lost_to = strdup(lost_to);
  outcome->base.exit_code = exit_code_of(agent, outcome->base.lost_bytes);
  if (!succeeded) {
    outcome->failures = agent->failures;
    agent->failures = (struct failures){0};
  }
  outcome->base.state = outcome_state(agent);
  outcome->base.restarts = agent->supervisor.restarts;
  outcome->base.reason = outcome->reason;
  outcome->base.log_dir = outcome->log_dir;
  if (!outcome->reason || !outcome->log_dir || !outcome->lost_to) {
    rdzv_agent_result_free(&outcome->base);
    return error_no_memory(error);
  }
  *out = &outcome->base;
  return 0;
}

size_t rdzv_agent_failed_attempt_count(const rdzv_agent *agent) { return agent->history.count; }

const rdzv_worker_failure *rdzv_agent_failed_attempt(const rdzv_agent *agent, size_t index) {
  return index < agent->history.count ? &agent->history.list[index] : NULL;
}

size_t rdzv_agent_result_failure_count(const rdzv_agent_result *base) {
  return ((const struct agent_outcome *)base)->failures.count;
}

const rdzv_worker_failure *rdzv_agent_result_failure(const rdzv_agent_result *base, size_t index) {
  const struct failures *failures = &((const struct agent_outcome *)base)->failures;
  return index < failures->count ? &failures->list[index] : NULL;
}

void rdzv_agent_result_free(rdzv_agent_result *base) {
  struct agent_outcome *outcome = (struct agent_outcome *)base;
  if (!outcome) return;
  failures_free(&outcome->failures);
  free(outcome->reason);
  free(outcome->log_dir);
  free(outcome->lost_to);
  free(outcome);
}
