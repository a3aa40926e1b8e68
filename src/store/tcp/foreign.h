/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_STORE_TCP_FOREIGN_H
#define RDZV_STORE_TCP_FOREIGN_H

#include "base/net/foreign.h"

/* The text of an error for a server that is not a store: "etcd answers there, not a store (did you mean …)". NULL for
 * FOREIGN_UNKNOWN. */
const char *tcp_foreign_text(enum foreign foreign);

#endif
