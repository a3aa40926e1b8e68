/* SPDX-License-Identifier: BSD-3-Clause */
/* How the keys of a store are named in etcd, and what a listing of them says. Pure. */
#ifndef RDZV_STORE_ETCD_KEYS_H
#define RDZV_STORE_ETCD_KEYS_H

#include "etcd/v2/read.h"

#include <rdzv/bytes.h>

/* The path of a key, to be freed. RDZV_E_INVALID: the key is empty. */
int etcd_key_path(const char *prefix, rdzv_bytes key, char **out, rdzv_error *error);

/* Calls the visitor with each key below the node. Nodes that are not a key of the store are left out. */
typedef int etcd_visit_key(void *argument, rdzv_bytes key, rdzv_error *error);
int etcd_visit_keys(const char *prefix, const struct etcd_node *node, etcd_visit_key *visitor, void *argument,
                    rdzv_error *error);

/* ---- visitors ---- */
int etcd_count_key(void *int64, rdzv_bytes key, rdzv_error *error);

struct etcd_key_list {
  rdzv_value *keys;
  size_t count, cap;
};
int etcd_list_key(void *key_list, rdzv_bytes key, rdzv_error *error);

/* Are all of the keys there? */
struct etcd_key_check {
  rdzv_bytes *keys; /* in order, each once */
  bool *found;
  size_t count, missing;
};

/* Borrows what the keys point to. False: no memory. */
bool etcd_key_check_open(struct etcd_key_check *check, const rdzv_bytes *keys, size_t count);
void etcd_key_check_close(struct etcd_key_check *check);
int etcd_check_key(void *key_check, rdzv_bytes key, rdzv_error *error);

#endif
