/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of a tcp store, for the table in tcp.c; store/store.h has their contracts. Each is whole in one place:
 * values.c, keys.c, queues.c or versions.c.
 */
#ifndef RDZV_STORE_TCP_OPS_OPS_H
#define RDZV_STORE_TCP_OPS_OPS_H

#include "store/store.h"

/* values.c */
int tcp_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
int tcp_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                  struct store_call *call);
int tcp_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
int tcp_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                    struct store_call *call);
int tcp_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call);
int tcp_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out, struct store_call *call);
int tcp_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call);

/* keys.c */
int tcp_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call);
int tcp_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call);
int tcp_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call);
int tcp_num_keys(rdzv_store *store, int64_t *count, struct store_call *call);
int tcp_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call);

/* queues.c */
int tcp_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
int tcp_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call);
int tcp_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call);

/* versions.c */
int tcp_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version, struct store_call *call);
int tcp_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes desired, bool *swapped,
                            rdzv_value *out, uint64_t *version, struct store_call *call);
int tcp_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                     struct store_call *call);

#endif
