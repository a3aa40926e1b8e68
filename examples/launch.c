/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts N workers of a program on this node, restarts them once if one fails, and says how it went:
 *
 *   launch N PROGRAM [ARG]... */
#include <rdzv/rdzv.h>
#include <stdio.h>

static void print_worker(void *user, const rdzv_worker_event *event) {
  (void)user;
  printf("worker %lld: %s\n", (long long)event->rank, rdzv_worker_state_name(event->state));
  fflush(stdout); /* before workers write to the same place */
}

static int fail(const rdzv_error *error) {
  fprintf(stderr, "launch: %s\n", error->message);
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: launch N PROGRAM [ARG]...\n"), 2;
  const rdzv_agent_options options = {.size = sizeof options,
                                      .standalone = true,
                                      .nproc_per_node = argv[1],
                                      .argv = (const char *const *)argv + 2,
                                      .max_restarts = 1,
                                      .on_worker = print_worker};
  rdzv_error error;
  rdzv_agent *agent;
  rdzv_agent_result *result;
  if (rdzv_agent_open(&options, &agent, &error) < 0) return fail(&error);
  const int status = rdzv_agent_run(agent, &result, &error);
  rdzv_agent_free(agent);
  if (status < 0) return fail(&error);

  printf("%s after %lld restarts\n", rdzv_agent_state_name(result->state), (long long)result->restarts);
  for (size_t i = 0; i < rdzv_agent_result_failure_count(result); i++) {
    const rdzv_worker_failure *failure = rdzv_agent_result_failure(result, i);
    printf("rank %lld: %s\n", (long long)failure->rank, failure->message);
  }
  const int code = result->exit_code;
  rdzv_agent_result_free(result);
  return code;
}
