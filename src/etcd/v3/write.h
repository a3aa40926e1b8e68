/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of etcd's v3 API as JSON for its gateway. Pure. Each function appends to `out`, with a byte 0 behind that
 * `len` does not count. False: no memory. */
#ifndef RDZV_ETCD_V3_WRITE_H
#define RDZV_ETCD_V3_WRITE_H

#include "base/buf.h"
#include "etcd/v3/types.h"

bool etcd3_write_range(const struct etcd3_range *range, struct buf *out);
bool etcd3_write_put(const struct etcd3_put *put, struct buf *out);
bool etcd3_write_delete(const struct etcd3_delete *what, struct buf *out);
bool etcd3_write_txn(const struct etcd3_txn *txn, struct buf *out);

/* `ttl_s` 0: of a request that needs none. */
bool etcd3_write_lease(int64_t id, int64_t ttl_s, struct buf *out);

/* One more watch of a stream, with the number that its events carry. `removals`: only of keys that go, with what they
 * were. */
bool etcd3_write_watch(const struct etcd3_keys *keys, int64_t from, int64_t id, bool removals, struct buf *out);
bool etcd3_write_login(const char *user, const char *password, struct buf *out);

#endif
