/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_STORE_ETCD_ETCD_H
#define RDZV_STORE_ETCD_ETCD_H

#include "etcd/client/client.h"
#include "store/store.h"

/* A store below the path, with a client that it takes over, also on failure. */
int etcd_store_open(struct etcd_client *client, const char *prefix, int64_t timeout_ms, int cancel_fd,
                    const rdzv_log *log, rdzv_store **out, rdzv_error *error);

#endif
