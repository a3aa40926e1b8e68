/* SPDX-License-Identifier: BSD-3-Clause */
/* Recognises servers of other protocols by their answers, so that a client need not wait for a store there. */
#ifndef RDZV_BASE_NET_FOREIGN_H
#define RDZV_BASE_NET_FOREIGN_H

#include "base/net/endpoint.h"
#include "base/wait/clock.h"
#include "base/wait/flag.h"

#include <rdzv/bytes.h>
#include <stdbool.h>

enum foreign { FOREIGN_UNKNOWN = 0, FOREIGN_ETCD, FOREIGN_HTTP, FOREIGN_TLS, FOREIGN_SSH };

/* Asks a server what it is, on separate connections, for at most 2 s. */
enum foreign foreign_ask(const struct endpoint *endpoint, deadline until, const struct flag *cancel);

/* Returns the server whose answers begin like this one. */
enum foreign foreign_recognize(rdzv_bytes answer);

/* The questions, one for each connection: 0 HTTP, 1 TLS. A TCPStore closes the connection. */
rdzv_bytes foreign_question(int which);

/* Are these bytes one of the questions? A client of this library asks a store that was silent for a while, too. */
bool foreign_is_question(rdzv_bytes bytes);

#endif
