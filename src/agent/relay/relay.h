/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A relay to the workers' store: a port on loopback, whose connections are carried over protected connections to the
 * agent of rank 0. Workers that know nothing of TLS reach the store by it, and no other process reaches it unprotected.
 *
 *   a worker -- plain, 127.0.0.1 --> relay -- TLS --> the workers' store
 *
 * Each connection has a thread, which connects, and then passes bytes in both directions as they come. While the store
 * is not there yet the thread tries again, as long as the worker waits. What a worker has sent before it closed
 * arrives.
 */
#ifndef RDZV_AGENT_RELAY_RELAY_H
#define RDZV_AGENT_RELAY_RELAY_H

#include <rdzv/error.h>
#include <rdzv/handler.h>
#include <rdzv/log.h>

struct relay;

/* Listens, and begins to serve. The log has to outlive the relay. */
int relay_open(const char *host, int port, const rdzv_protection *protection, const rdzv_log *log, struct relay **out,
               rdzv_error *error);
int relay_port(const struct relay *relay);

/* Ends all connections. NULL is ignored. */
void relay_close(struct relay *relay);

#endif
