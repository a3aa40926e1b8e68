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

/* The error of the operation `what` on that key, after a code of etcd's or of ours. */
int etcd_store_fail(rdzv_store *store, int code, const char *what, rdzv_bytes key, const struct store_call *call);

/* ---- read.c ---- */

/* The value of a node. RDZV_E_CORRUPT: it is not base64. */
int etcd_store_decode(const struct etcd_node *node, rdzv_value *out, rdzv_error *error);

/* What the calls on versions give for a key that does not exist. */
int etcd_store_give_absent(rdzv_value *out, uint64_t *version, rdzv_error *error);

int etcd_store_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call);
int etcd_store_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                           struct store_call *call);
int etcd_store_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                            struct store_call *call);
int etcd_store_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call);
int etcd_store_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                         struct store_call *call);
int etcd_store_check_one(rdzv_store *store, rdzv_bytes key, bool *there, struct store_call *call);

/* ---- write.c ---- */
int etcd_store_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
int etcd_store_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                         struct store_call *call);
int etcd_store_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call);
int etcd_store_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
int etcd_store_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                           struct store_call *call);
int etcd_store_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                   bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call);
int etcd_store_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call);

/* ---- list.c ---- */
int etcd_store_num_keys(rdzv_store *store, int64_t *count, struct store_call *call);
int etcd_store_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call);
int etcd_store_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call);

#endif
