/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: keys that expire unless they are renewed. One thread renews all leases of an owner, each after half of its
 * time. A renewal that fails is repeated every second.
 *
 *   HELD --> SILENT  etcd has not answered for as long as the lease lasts: other nodes must take the key for gone
 *   SILENT --> HELD  etcd answers again, and still has the key
 *   any --> LOST     the key is gone, or is another node's. A directory is created again instead
 */
#ifndef RDZV_ETCD_V2_LEASE_H
#define RDZV_ETCD_V2_LEASE_H

#include "etcd/client/client.h"

struct etcd_lease {
  const char *key;
  const char *value; /* the key is ours while it has that value; NULL: any value */
  int64_t ttl_s;
  bool dir;
  int64_t asked_ms; /* when it was last created or renewed; 0: not yet, so it is renewed at once */
};

enum etcd_lease_state { ETCD_LEASE_STATE_HELD, ETCD_LEASE_STATE_SILENT, ETCD_LEASE_STATE_LOST };

/* One renewal. Returns 0, a code of etcd's, or a negative code. */
int etcd_lease_renew(struct etcd_client *client, const struct etcd_lease *lease, const struct etcd_call *call);

struct etcd_leases;

enum { ETCD_LEASE_SLOTS = 2 };

/* Callbacks to the owner of leases, from the thread. */
struct etcd_lease_owner {
  void *user;

  /* The lease in that slot has entered that state. `since_ms`: when it was held for sure. `cause`: of SILENT. A lock is
   * held that all calls below take. */
  void (*told)(void *user, int slot, enum etcd_lease_state state, int64_t since_ms, const rdzv_error *cause);

  /* A line for people: a lease cannot be renewed, or is lost. No lock is held. */
  void (*said)(void *user, bool lost, const char *line);
};

/* Borrows the client. Copies the owner. */
int etcd_leases_open(struct etcd_client *client, const struct etcd_lease_owner *owner, struct etcd_leases **out,
                     rdzv_error *error);
void etcd_leases_close(struct etcd_leases *leases);

/* Renews that lease from here on, in place of the one in `slot`, which is no longer reported. NULL: none. Copies
 * it. False: no memory. */
bool etcd_leases_set(struct etcd_leases *leases, int slot, const struct etcd_lease *lease);

#endif
