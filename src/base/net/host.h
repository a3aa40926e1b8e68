/* SPDX-License-Identifier: BSD-3-Clause */
/* This machine among others: is a name ours, by which address do others reach us, which port is free. */
#ifndef RDZV_BASE_NET_HOST_H
#define RDZV_BASE_NET_HOST_H

#include "base/net/endpoint.h"
#include "base/wait/flag.h"

enum { HOST_NAME_SIZE = 256 };

/* The machine's own name, without asking anybody. */
void host_name(char out[HOST_NAME_SIZE]);

/* Is it "localhost", or a loopback address as text? No name is looked up. */
bool host_is_loopback(const char *host);

/* Is it this machine that the endpoint names? The addresses of the name are compared with those of our interfaces, so
 * an alias is found out, too. `why` is a clause for the log: "'node0' is this machine's host name". A name that cannot
 * be resolved is not ours. */
struct host_match {
  bool ours;
  char why[2 * HOST_NAME_SIZE + 128];
};
struct host_match host_match(const struct endpoint *endpoint, deadline until, const struct flag *cancel);

/* The address by which others that can reach the endpoint reach us: that which we would reach it from. Where that is
 * loopback, but the endpoint is not (Debian gives a machine's own name 127.0.1.1), the first other one that we have.
 * endpoint may be NULL. */
void host_own_address(const struct endpoint *endpoint, deadline until, const struct flag *cancel,
                      char out[HOST_NAME_SIZE]);

/* Binds a free TCP port. The socket keeps it from being given to others by chance, while a server that binds with
 * SO_REUSEADDR, as all do, can have it. RDZV_E_IO. */
int host_reserve_port(int *fd, int *port, rdzv_error *error);

/* The same, for another port than before: what *fd keeps, if it is not -1, is let go only then. On failure it stays. */
int host_renew_port(int *fd, int *port, rdzv_error *error);

#endif
