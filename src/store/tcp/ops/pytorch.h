/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What several operations need at PyTorch's servers. Our own server has one request for each operation; at PyTorch's:
 * - SET, APPEND, MULTI_SET and QUEUE_PUSH have no answer (see tcp_ask_done);
 * - a WAIT may end although a key is absent (2.x with libuv, after a failed COMPARE_SET) or go on although it is there
 *   (1.x, and 2.x without libuv, after a COMPARE_SET): so it is sent again each second, and the keys are checked;
 * - 1.x cannot take a WAIT back, so the client checks the keys again and again instead;
 * - a GET of a key that was deleted since the WAIT is answered with an empty value or a closed connection. A
 *   COMPARE_SET that expects a value that was never written reads a key in one step, and tells an absent key from
 *   an empty value;
 * - a server closes the connection where it cannot do what it is asked to.
 */
#ifndef RDZV_STORE_TCP_OPS_PYTORCH_H
#define RDZV_STORE_TCP_OPS_PYTORCH_H

#include "store/tcp/call.h"
#include "store/tcp/message.h"

/* CHECK, which all servers answer alike: are all keys there? */
int tcp_ask_check(struct tcp_store *tcp, const struct tcp_args *args, bool *all);

/* Waits until the server says that the keys are there. They may be absent all the same. */
int pytorch_await(struct tcp_store *tcp, const struct tcp_args *args);

/* Waits until the keys are there. */
int pytorch_wait(struct tcp_store *tcp, const struct tcp_args *args);

/* Reads the values of keys that were there a moment ago. *all: they still were. */
int pytorch_read(struct tcp_store *tcp, const struct tcp_args *args, bool *all);

/* Waits until the keys are there and reads their values. */
int pytorch_get(struct tcp_store *tcp, const struct tcp_args *args);

/* RDZV_E_UNSUPPORTED if the server is PyTorch's of 1.x. `since` tells from when on PyTorch's has the operation. */
int pytorch_need_v2(struct tcp_store *tcp, const char *since);

/* What came late to PyTorch's 2.x servers. */
enum pytorch_newer { PYTORCH_QUEUES = 1 << 0, PYTORCH_LIST_KEYS = 1 << 1 };

/* Has the server shown that it knows such an operation? */
bool pytorch_has(const struct tcp_store *tcp, enum pytorch_newer what);

/* Tries a harmless operation that the server may not know. A server that does not know it closes the connection. Other
 * causes may close it, too, so only a server that first answers another request, and then closes, each time, does not
 * know the operation: RDZV_E_UNSUPPORTED. After a write the cause would be ambiguous, so call this before it. */
int pytorch_try_newer(struct tcp_store *tcp, enum pytorch_newer what, tcp_try *harmless, struct tcp_args *args,
                      const char *since);

#endif
