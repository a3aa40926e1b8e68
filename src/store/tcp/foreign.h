/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_STORE_TCP_FOREIGN_H
#define RDZV_STORE_TCP_FOREIGN_H

#include "base/net/foreign.h"

/* What a user who expected a store is told: "etcd answers there (is it meant? …)". Static storage; NULL for
 * FOREIGN_UNKNOWN. */
const char *tcp_foreign_text(enum foreign foreign);

#endif
