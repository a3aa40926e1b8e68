/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream sockets with deadlines: every call returns by its deadline or when canceled. Sockets are non-blocking and
 * close-on-exec. */
#ifndef RDZV_BASE_NET_NET_H
#define RDZV_BASE_NET_NET_H

#include "base/net/endpoint.h"
#include "base/wait/flag.h"

#include <rdzv/bytes.h>
#include <stddef.h>
#include <sys/socket.h>

/* Connects to one of the endpoint's addresses: both families side by side, the next address 250 ms after the one
 * before or as soon as that has failed; the first that answers wins. One pass, no retries. On failure the message
 * names each address and its cause. RDZV_E_CONNECTION, RDZV_E_ADDRESS, RDZV_E_TIMEOUT, RDZV_E_CANCELED. */
int net_connect(const struct endpoint *endpoint, deadline until, const struct flag *cancel, int *fd, rdzv_error *error);

/* Sends all of it. *sent tells how much, also on failure. RDZV_E_CONNECTION, RDZV_E_TIMEOUT, RDZV_E_CANCELED. */
int net_send(int fd, const void *data, size_t len, deadline until, const struct flag *cancel, size_t *sent,
             rdzv_error *error);

/* Receives at least one byte. The peer's close is RDZV_E_CONNECTION. */
int net_recv(int fd, void *data, size_t cap, deadline until, const struct flag *cancel, size_t *got, rdzv_error *error);

/* Asks a server whose protocol is not known: connects, sends the question, and gives the beginning of what is
 * answered, within a second, and the rest that follows soon. Gives its length; 0: no answer. */
size_t net_ask(const struct endpoint *endpoint, rdzv_bytes question, char *answer, size_t cap, deadline until,
               const struct flag *cancel);

/* "1.2.3.4:80" or "[::1]:80"; never a name. */
void net_format(const struct sockaddr *address, char out[ENDPOINT_TEXT_SIZE]);

/* The port of an IPv4 or IPv6 address, else 0. */
int net_port(const struct sockaddr *address);

/* No delay for small segments, and probes so that a peer whose machine is gone is found out within a minute. */
void net_tune(int fd);

#endif
