/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/place.h"

#include "base/error.h"
#include "base/log.h"
#include "base/net/host.h"

#include <rdzv/server.h>
#include <stdlib.h>
#include <string.h>

static bool is_loopback(const char *text) {
  struct endpoint endpoint;
  return endpoint_parse_to_serve(text, RDZV_DEFAULT_PORT, &endpoint, NULL) == 0 && host_is_loopback(endpoint.host);
}

/* What speaks for several machines; NULL: nothing. */
static const char *sign_of_several(const rdzv_params *params) {
  static const char *const variables[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "PBS_NUM_NODES"};
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
    const char *value = getenv(variables[i]);
    if (value && atoi(value) > 1) return variables[i];
  }
  return params->local_addr && !is_loopback(params->local_addr) ? "the local address" : NULL;
}

int place_check(const rdzv_params *params, const rdzv_log *log, rdzv_error *error) {
  const bool by_tcp =
      !params->backend || strcmp(params->backend, "c10d") == 0 || strcmp(params->backend, "static") == 0;
  const char *endpoint = params->endpoint && *params->endpoint ? params->endpoint : "localhost";
  if (!by_tcp || params->min_nodes < 2 || endpoint[0] == '/' || !is_loopback(endpoint)) return 0;
  const char *sign = sign_of_several(params);
  if (sign)
    return error_set(error, RDZV_E_INVALID,
                     "the endpoint '%s' is a loopback address, but %s says that the job has several machines (choose "
                     "an address that all nodes can reach)",
                     endpoint, sign);
  log_line(log, RDZV_LOG_INFO, "the endpoint '%s' is a loopback address: only nodes on this machine can join",
           endpoint);
  return 0;
}
