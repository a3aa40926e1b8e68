/* SPDX-License-Identifier: BSD-3-Clause */
/* Servers of other protocols, by what they answer: a port of another protocol does not become ours by waiting. */
#ifndef RDZV_BASE_NET_FOREIGN_H
#define RDZV_BASE_NET_FOREIGN_H

#include "base/net/endpoint.h"
#include "base/wait/clock.h"
#include "base/wait/flag.h"

#include <rdzv/bytes.h>

enum foreign { FOREIGN_UNKNOWN = 0, FOREIGN_ETCD, FOREIGN_HTTP, FOREIGN_TLS, FOREIGN_SSH };

/* Asks a server what it is, on connections of its own, for 2 s at most. */
enum foreign foreign_ask(const struct endpoint *endpoint, deadline until, const struct flag *cancel);

/* Which server begins an answer like this? */
enum foreign foreign_recognize(rdzv_bytes answer);

/* What is asked, one question (0 or 1) for each connection: HTTP, and TLS. A TCPStore closes it. */
rdzv_bytes foreign_question(int which);

#endif
