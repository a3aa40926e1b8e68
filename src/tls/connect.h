/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's side of a handshake on a connected socket, with a deadline. */
#ifndef RDZV_TLS_CONNECT_H
#define RDZV_TLS_CONNECT_H

#include "base/wait/flag.h"
#include "tls/stream.h"

/* The end of the handshake is left in tls_output: it is to leave with the first bytes, in one segment. The server waits
 * for it some seconds. `host` is the server's, if the client's names have none for its certificate. RDZV_E_PROTOCOL: an
 * end has not proved what it has to. RDZV_E_CONNECTION, RDZV_E_TIMEOUT, RDZV_E_CANCELED, and errors of the files. */
int tls_connect(struct tls_client *client, int fd, const char *host, deadline until, const struct flag *cancel,
                struct tls_stream **out, rdzv_error *error);

#endif
