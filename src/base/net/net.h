/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream sockets with deadlines. Each call returns by its deadline or when it is canceled. Sockets are non-blocking and
 * close-on-exec. */
#ifndef RDZV_BASE_NET_NET_H
#define RDZV_BASE_NET_NET_H

#include "base/net/endpoint.h"
#include "base/wait/flag.h"

#include <rdzv/bytes.h>
#include <stddef.h>
#include <sys/socket.h>

/* Connects to one of the addresses of the endpoint. Both families alternate; the next address is tried 250 ms after the
 * one before, or when that has failed, and the first that answers wins. Each address is tried once. On failure the
 * message names each address and its cause. RDZV_E_CONNECTION, RDZV_E_ADDRESS, RDZV_E_TIMEOUT, RDZV_E_CANCELED. */
int net_connect(const struct endpoint *endpoint, deadline until, const struct flag *cancel, int *fd, rdzv_error *error);

/* Sends all the bytes. *sent is how many were sent, also on failure. RDZV_E_CONNECTION, RDZV_E_TIMEOUT,
 * RDZV_E_CANCELED. */
int net_send(int fd, const void *data, size_t len, deadline until, const struct flag *cancel, size_t *sent,
             rdzv_error *error);

/* Receives at least one byte. Fails with RDZV_E_CONNECTION if the peer has closed the connection. */
int net_recv(int fd, void *data, size_t cap, deadline until, const struct flag *cancel, size_t *got, rdzv_error *error);

/* Asks a server of unknown protocol: connects, sends the question, and receives the answer as far as it begins within a
 * second and continues without a long pause. Returns its length; 0: no answer. */
size_t net_ask(const struct endpoint *endpoint, rdzv_bytes question, char *answer, size_t cap, deadline until,
               const struct flag *cancel);

/* "1.2.3.4:80" or "[::1]:80"; never a name. */
void net_format(const struct sockaddr *address, char out[ENDPOINT_TEXT_SIZE]);

/* The port of an IPv4 or IPv6 address, else 0. */
int net_port(const struct sockaddr *address);

/* Turns off delays of small segments, and turns on probes, so that a dead peer is detected within a minute. */
void net_tune(int fd);

#endif
