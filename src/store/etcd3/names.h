/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a store is laid out in etcd's v3 API, below its prefix. Pure.
 *
 *   PREFIX/keys/KEY              a value, as it is; its mod revision is the version
 *   PREFIX/queues/NAME/ITEM      an item of a queue: the one that was created first is its oldest. NAME has %2F for a
 *                                slash and the like
 *   PREFIX/writers/WRITER        the number of the last write of a handle (commit.h)
 *   PREFIX/lease                 the id of the lease that all keys have, where the store has one
 */
#ifndef RDZV_STORE_ETCD3_NAMES_H
#define RDZV_STORE_ETCD3_NAMES_H

#include "base/buf.h"

/* Each gives a text with a byte 0 behind it, to be freed; an empty one: no memory. */
rdzv_value etcd3_name_key(const char *prefix, rdzv_bytes key);
rdzv_value etcd3_name_queue(const char *prefix, rdzv_bytes key); /* what all its items begin with */
rdzv_value etcd3_name_item(const char *prefix, rdzv_bytes key, const char *item);
rdzv_value etcd3_name(const char *prefix, const char *folder, const char *name);

#endif
