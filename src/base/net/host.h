/* SPDX-License-Identifier: BSD-3-Clause */
/* This machine: is a host name ours, by which address do other machines reach us, which port is free. */
#ifndef RDZV_BASE_NET_HOST_H
#define RDZV_BASE_NET_HOST_H

#include "base/net/endpoint.h"
#include "base/wait/flag.h"

enum { HOST_NAME_SIZE = 256 };

/* The host name of this machine, from the kernel. */
void host_name(char out[HOST_NAME_SIZE]);

/* Is it "localhost" or a loopback address? Looks no name up. */
bool host_is_loopback(const char *host);

/* Where to listen for clients that know us by that host: at the one address of the host that is on this machine, as far
 * as is known. Else at "*", which is all of them: where the name is a loopback address here alone (Debian gives a
 * machine's own name 127.0.1.1), an address that is translated on its way, or several addresses of this machine. */
struct host_bind {
  char address[HOST_NAME_SIZE];
  const char *why; /* it is "*": a clause for the log; else NULL */
};
void host_bind(const struct endpoint *endpoint, deadline until, const struct flag *cancel, struct host_bind *out);

/* Does the endpoint name this machine? Compares the addresses of the name with those of our interfaces, so an alias is
 * recognised, too. `why` is a clause for the log: "'node0' is this machine's host name". A name that cannot be resolved
 * is not ours. */
struct host_match {
  bool ours;
  char why[2 * HOST_NAME_SIZE + 128];
};
struct host_match host_match(const struct endpoint *endpoint, deadline until, const struct flag *cancel);

/* The address by which machines that can reach the endpoint reach us: the source address of a connection to it. If that
 * is loopback and the endpoint is not (Debian gives a machine's own name 127.0.1.1), the first address of another
 * interface. endpoint may be NULL. */
void host_own_address(const struct endpoint *endpoint, deadline until, const struct flag *cancel,
                      char out[HOST_NAME_SIZE]);

/* Binds a free TCP port. The socket keeps the kernel from giving the port to others, while a server that binds with
 * SO_REUSEADDR can still have it. RDZV_E_IO. */
int host_reserve_port(int *fd, int *port, rdzv_error *error);

/* The same for another port than the one that *fd holds (-1: none), which is released on success only. */
int host_renew_port(int *fd, int *port, rdzv_error *error);

#endif
