/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store in etcd: PyTorch's EtcdStore. Each key is a node below the prefix, named by the key's base64, with the
 * value's base64 in it; its modifiedIndex is the version. Where PyTorch reads the whole directory to get one key, this
 * reads that key, and watches it where it is not there yet.
 *
 *   etcd.c   handles: open, clone, free; the table of operations
 *   read.c   reads and waits
 *   write.c  writes, each on a condition
 *   list.c   what needs all keys
 *   keys.c   names of keys in etcd
 *
 * Failure modes: a member is gone or has no leader: the client asks another one, until the deadline. The answer to a
 * write on a condition is lost: RDZV_E_OUTCOME_UNKNOWN. The history of a watch is gone: the key is read again.
 */
#ifndef RDZV_STORE_ETCD_ETCD_STORE_H
#define RDZV_STORE_ETCD_ETCD_STORE_H

#include "etcd/v2/v2.h"
#include "store/etcd/keys.h"
#include "store/store.h"

/* What a handle and its clones share. */
struct etcd_store_shared {
  atomic_int handles;
  struct etcd_client *client;
  char *prefix; /* begins with a slash and does not end with one */
  char text[640];
};

struct etcd_store {
  rdzv_store base;
  struct etcd_store_shared *shared;
};

static inline struct etcd_store_shared *shared_of(rdzv_store *store) { return ((struct etcd_store *)store)->shared; }

/* The etcd call of a request that does not block. */
struct etcd_call etcd_store_quick_call(rdzv_store *store, const struct store_call *call);

/* The error of the operation `what` on that key, after a code of etcd's or an RDZV_E code. */
int etcd_store_fail(rdzv_store *store, int code, const char *what, rdzv_bytes key, const struct store_call *call);

/* ---- read.c ---- */

/* The value of a node. RDZV_E_CORRUPT: it is not base64. */
int etcd_store_decode(const struct etcd_node *node, rdzv_value *out, rdzv_error *error);

/* What the calls on versions give for a key that does not exist. */
int etcd_store_give_absent(rdzv_value *out, uint64_t *version, rdzv_error *error);

int etcd_store_check_one(rdzv_store *store, rdzv_bytes key, bool *there, struct store_call *call);

/* ---- etcd.c ---- */

/* A store below the path, with a client that it takes over, also on failure. */
int etcd_store_open(struct etcd_client *client, const char *prefix, int64_t timeout_ms, int cancel_fd,
                    const rdzv_log *log, rdzv_store **out, rdzv_error *error);

/* ---- the operations: read.c, write.c, list.c ---- */
STORE_BASIC_OPS(STORE_OP_DECLARE, etcd_store)
STORE_VERSION_OPS(STORE_OP_DECLARE, etcd_store)

#endif
