/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store in etcd, by its v3 API (names.h has the layout).
 *
 *   etcd3.c   handles: open, clone, free; the table of operations
 *   commit.c  a write, done exactly once
 *   write.c   set, add, append, compare and set, delete
 *   read.c    one look: check, versions, lists, counts
 *   wait.c    waits for keys, by watches; get
 *   queue.c   queues
 *   lease.c   the lease of a store that does not outlive its users
 *   names.c   the layout
 *
 * Failure modes: a member is gone or has no leader: the client asks another one, until the deadline. The answer to a
 * write is lost: it is repeated on a condition that holds once, and found out (commit.h). The history of a watch is
 * gone: the key is read again. etcd lost its data, or the lease ended: RDZV_E_DATA_LOST, once for each handle.
 */
#ifndef RDZV_STORE_ETCD3_ETCD3_STORE_H
#define RDZV_STORE_ETCD3_ETCD3_STORE_H

#include "etcd/v3/v3.h"
#include "store/etcd3/commit.h"
#include "store/etcd3/names.h"
#include "store/store.h"

struct etcd3_store_lease;

/* What a handle and its clones share. */
struct etcd3_store_shared {
  atomic_int handles;
  struct etcd_client *client;
  char *prefix;                    /* begins with a slash and does not end with one */
  struct etcd3_store_lease *lease; /* NULL: keys stay */
  char text[640];
};

struct etcd3_store {
  rdzv_store base;
  struct etcd3_store_shared *shared;
  struct etcd3 *etcd;
  struct etcd3_writer writer;
};

static inline struct etcd3_store *etcd3_store_of(rdzv_store *store) { return (struct etcd3_store *)store; }
static inline const char *etcd3_store_prefix(rdzv_store *store) { return etcd3_store_of(store)->shared->prefix; }

/* A store below the path, with a client that it takes over, also on failure. lease_ms: how long keys outlive the last
 * handle; 0: for good. */
int etcd3_store_open(struct etcd_client *client, const char *prefix, int64_t timeout_ms, int64_t lease_ms,
                     int cancel_fd, const rdzv_log *log, rdzv_store **out, rdzv_error *error);

/* The etcd call of a request that does not block; and of the reads of a call that waits, whose own deadline counts. */
struct etcd_call etcd3_store_quick_call(rdzv_store *store, const struct store_call *call);
struct etcd_call etcd3_store_waiting_call(rdzv_store *store, const struct store_call *call);

/* The error of the operation `what` on that key, after a code of etcd3's or an RDZV_E code. */
int etcd3_store_fail(rdzv_store *store, int code, const char *what, rdzv_bytes key, const struct store_call *call);

/* ---- read.c ---- */

/* Reads the key. *reply is to be freed after 0. */
int etcd3_store_read(rdzv_store *store, rdzv_bytes key, const struct etcd_call *call, struct etcd3_reply *reply);

/* Which of the keys are there, or are queues that are not empty: at most ETCD3_STORE_LOOKED. */
enum { ETCD3_STORE_LOOKED = ETCD3_MAX_OPS / 2 };
int etcd3_store_look(rdzv_store *store, const rdzv_bytes *keys, size_t count, const struct etcd_call *call, bool *there,
                     int64_t *revision);

/* Value and version of the first key found; of none if there is none. */
int etcd3_store_give(struct etcd3_result *found, rdzv_value *out, uint64_t *version, rdzv_error *error);

/* ---- lease.c ---- */
int etcd3_store_lease_open(struct etcd3_store_shared *shared, int64_t lease_ms, struct etcd3_store_lease **out,
                           rdzv_error *error);
void etcd3_store_lease_close(struct etcd3_store_lease *lease);

/* Its id, which is found in etcd or made there. NULL: 0. */
int etcd3_store_lease_id(struct etcd3_store_lease *lease, const struct etcd_call *call, int64_t *id);

/* It has ended: another is to be made. */
void etcd3_store_lease_forget(struct etcd3_store_lease *lease, int64_t id);

/* ---- the operations ---- */
STORE_BASIC_OPS(STORE_OP_DECLARE, etcd3_store)
STORE_QUEUE_OPS(STORE_OP_DECLARE, etcd3_store)
STORE_VERSION_OPS(STORE_OP_DECLARE, etcd3_store)

#endif
