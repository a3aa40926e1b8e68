/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend/c10d/host.h"

#include "base/wait/waiting.h"

#include <stdio.h>
#include <string.h>

enum { RESOLVE_MS = 5000 }; /* to look the endpoint's name up; the connection has its own time */

struct c10d_host c10d_host_decide(const struct endpoint *endpoint, enum c10d_is_host option,
                                  const struct flag *cancel) {
  if (option != C10D_HOST_AUTO)
    return (struct c10d_host){.is_host = option == C10D_HOST_YES, .is_told = true, .why = "option is_host says so"};
  const struct host_match match = host_match(endpoint, deadline_after(RESOLVE_MS), cancel);
  waiting_clear(flag_waiting(cancel));
  struct c10d_host host = {.is_host = match.ours};
  snprintf(host.why, sizeof host.why, "%s", match.why);
  return host;
}

void c10d_host_own_endpoint(rdzv_server *server, char out[ENDPOINT_TEXT_SIZE]) {
  struct endpoint bound;
  const bool known = endpoint_parse(rdzv_server_address(server), 0, &bound, NULL) == 0;
  const bool any = !known || strcmp(bound.host, "::") == 0 || strcmp(bound.host, "0.0.0.0") == 0;
  endpoint_format(any ? "127.0.0.1" : bound.host, rdzv_server_port(server), out);
}
