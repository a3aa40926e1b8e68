/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for the agent in a library that was built with RDZV_AGENT=OFF. */
#include "base/error.h"

#include <rdzv/agent.h>

static int fail_absent(rdzv_error *error) {
  return error_set(error, RDZV_E_UNSUPPORTED, "this librdzv was built without the agent (RDZV_AGENT=OFF)");
}

int rdzv_agent_open(const rdzv_agent_options *options, rdzv_agent **out, rdzv_error *error) {
  (void)options, (void)out;
  return fail_absent(error);
}

/* No agent exists here, so none of these has anything to do. */
int rdzv_agent_run(rdzv_agent *agent, rdzv_agent_result **out, rdzv_error *error) {
  (void)agent, (void)out;
  return fail_absent(error);
}

void rdzv_agent_stop(rdzv_agent *agent, int signal) { (void)agent, (void)signal; }

void rdzv_agent_suspend(rdzv_agent *agent, bool suspended) { (void)agent, (void)suspended; }

rdzv_handler *rdzv_agent_handler(rdzv_agent *agent) {
  (void)agent;
  return NULL;
}

size_t rdzv_agent_failed_attempt_count(const rdzv_agent *agent) {
  (void)agent;
  return 0;
}

const rdzv_worker_failure *rdzv_agent_failed_attempt(const rdzv_agent *agent, size_t index) {
  (void)agent, (void)index;
  return NULL;
}

void rdzv_agent_free(rdzv_agent *agent) { (void)agent; }

size_t rdzv_agent_result_failure_count(const rdzv_agent_result *result) {
  (void)result;
  return 0;
}

const rdzv_worker_failure *rdzv_agent_result_failure(const rdzv_agent_result *result, size_t index) {
  (void)result, (void)index;
  return NULL;
}

void rdzv_agent_result_free(rdzv_agent_result *result) { (void)result; }

const char *rdzv_worker_state_name(rdzv_worker_state state) {
  (void)state;
  return "";
}

const char *rdzv_agent_state_name(rdzv_agent_state state) {
  (void)state;
  return "";
}
