/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of a client's connection: to and from its socket, through TLS where the connection is protected. What is
 * sent is conn->out, what is received is appended to conn->in. */
#ifndef RDZV_STORE_TCP_IO_H
#define RDZV_STORE_TCP_IO_H

#include "store/tcp/conn.h"

/* The handshake, on a socket that was just connected. RDZV_E_PROTOCOL: an end has not proved what it has to.
 * RDZV_E_CONNECTION, RDZV_E_TIMEOUT, RDZV_E_CANCELED, and errors of the files. */
int tcp_io_begin(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error);
void tcp_io_end(struct tcp_conn *conn);

/* Sends all; conn->sent is true from the first byte on. */
int tcp_io_send(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error);

/* Receives at least one byte; `room` is how many are expected. */
int tcp_io_receive(struct tcp_conn *conn, size_t room, deadline until, const struct flag *cancel, rdzv_error *error);

/* The same without waiting: what the socket takes, and what it has. tcp_io_is_full: something is left to be sent. */
int tcp_io_send_some(struct tcp_conn *conn, rdzv_error *error);
int tcp_io_receive_some(struct tcp_conn *conn, size_t room, rdzv_error *error);
bool tcp_io_is_full(const struct tcp_conn *conn);

#endif
