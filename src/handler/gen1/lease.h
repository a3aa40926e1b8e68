/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What expires in etcd unless it is renewed: one thread renews it all, each after half of its time. A renewal that
 * fails is tried again every second.
 *
 *   HELD --> SILENT  etcd has not answered for as long as it lasts: others must take it for gone
 *   SILENT --> HELD  it answers again, and has it still
 *   any --> LOST     it is gone, or another's. A directory is made anew instead
 */
#ifndef RDZV_HANDLER_GEN1_LEASE_H
#define RDZV_HANDLER_GEN1_LEASE_H

#include "etcd/client.h"
#include "handler/events.h"

struct etcd_lease {
  const char *key;
  const char *value; /* by which it is ours; NULL: whatever it has */
  int64_t ttl_s;
  bool dir;
  int64_t asked_ms; /* when we last asked for it, with success; 0: not yet, so it is renewed at once */
};

enum etcd_lease_state { ETCD_LEASE_STATE_HELD, ETCD_LEASE_STATE_SILENT, ETCD_LEASE_STATE_LOST };

/* One renewal. 0; what etcd says; a negative code. */
int etcd_lease_renew(struct etcd_client *client, const struct etcd_lease *lease, const struct etcd_call *call);

struct etcd_leases;

enum { ETCD_LEASE_RUN, ETCD_LEASE_RANK, ETCD_LEASE_SLOTS };

/* The lease in that slot is in that state now; `since_ms`: when it was held for sure; `cause`: of SILENT. It is called
 * by the thread, with a lock held that all calls below take. */
typedef void etcd_lease_told(void *user, int slot, enum etcd_lease_state state, int64_t since_ms,
                             const rdzv_error *cause);

/* The client and the events are borrowed. */
int etcd_leases_open(struct etcd_client *client, struct events *events, etcd_lease_told *told, void *user,
                     struct etcd_leases **out, rdzv_error *error);
void etcd_leases_close(struct etcd_leases *leases);

/* Renews that from here on, in place of what was in `slot`, of which nothing is told any more; NULL: nothing. Copies
 * it. False: no memory. */
bool etcd_leases_set(struct etcd_leases *leases, int slot, const struct etcd_lease *lease);

#endif
