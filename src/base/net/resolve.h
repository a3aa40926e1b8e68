/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_NET_RESOLVE_H
#define RDZV_BASE_NET_RESOLVE_H

#include "base/net/endpoint.h"
#include "base/wait/flag.h"

#include <netdb.h>

/* The stream addresses of an endpoint, to be freed with freeaddrinfo. A literal is never looked up. A resolver that
 * does not answer costs at most the deadline: the look-up is left behind in a thread that ends by itself.
 * RDZV_E_ADDRESS, RDZV_E_TIMEOUT, RDZV_E_CANCELED, RDZV_E_NO_MEMORY, RDZV_E_IO. */
int resolve(const struct endpoint *endpoint, deadline until, const struct flag *cancel, struct addrinfo **out,
            rdzv_error *error);

#endif
