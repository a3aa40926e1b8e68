/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a key of etcd, makes a new value of the old one, and writes it if the key is still as it was read; again where
 * another writer was faster. */
#ifndef RDZV_ETCD_V2_MODIFY_H
#define RDZV_ETCD_V2_MODIFY_H

#include "etcd/v2/v2.h"

/* Makes the new value of the old one; NULL: there is no such key. 0: *value is written, and freed. 1: nothing is
 * written. Negative: fails with that code. Called for each try. */
typedef int etcd_change(void *argument, const struct etcd_node *old, char **value, rdzv_error *error);

struct etcd_modification {
  const char *key;
  unsigned get;        /* flags of the read: ETCD_GET_… */
  struct etcd_put put; /* how to write; the value and the condition are filled in */
  int64_t request_ms;  /* for each request; 0: until the deadline of all */
  bool repeatable;     /* may be done twice: a write of unknown outcome is read again */
  etcd_change *change;
  void *argument;
};

/* 0: written, and *index, which may be NULL, is the key's new one. 1: the change wanted nothing written.
 * RDZV_E_TIMEOUT: other writers were faster each time. RDZV_E_UNSUPPORTED: there is a directory at the path.
 * ETCD_V2_NOT_A_DIR: the path leads through a key. */
int etcd_modify(struct etcd_client *client, const struct etcd_modification *what, const struct etcd_call *call,
                uint64_t *index);

#endif
