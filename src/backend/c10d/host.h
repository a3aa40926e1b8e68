/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides which node serves a c10d store, and on which address. backend/c10d/store.h carries them out.
 *
 *   rendezvous c10d     the node that option is_host names. Without the option, a node on the machine that the endpoint
 *                       names: the first one to bind the port. The others find the port taken, and are clients.
 *   rendezvous static   rank 0. A port that is taken belongs to another job, and is an error.
 *   the workers' store  the agent of group rank 0, on MASTER_PORT.
 *   rdzv list, reset    no process: they are clients of a store that is there.
 */
#ifndef RDZV_BACKEND_C10D_HOST_H
#define RDZV_BACKEND_C10D_HOST_H

#include "base/net/endpoint.h"
#include "base/net/host.h"

#include <rdzv/server.h>

/* Option is_host. */
enum c10d_is_host { C10D_HOST_AUTO, C10D_HOST_YES, C10D_HOST_NO };

struct c10d_host {
  bool is_host;
  bool is_told;                                  /* by the option: the node serves or fails */
  char why[sizeof((struct host_match *)0)->why]; /* a clause for the log */
};

/* Is this process to serve the store at the endpoint? Looks the name up where the option does not say. */
struct c10d_host c10d_host_decide(const struct endpoint *endpoint, enum c10d_is_host option, const struct flag *cancel);

/* Where the host reaches its own server: at the address it listens on, whatever the endpoint's name resolves to. */
void c10d_host_own_endpoint(rdzv_server *server, char out[ENDPOINT_TEXT_SIZE]);

#endif
