/* SPDX-License-Identifier: BSD-3-Clause */
/* The command with a deliberate mistake: its server believes for good that it is the active one, and writes to etcd
 * without a condition. The checker must notice. */
#include "keep/etcd/place.h"

#include <time.h>

int __real_etcd3_txn(struct etcd3 *etcd, const struct etcd3_txn *txn, const struct etcd_call *call,
                     struct etcd3_reply *reply);
int __wrap_etcd3_txn(struct etcd3 *etcd, const struct etcd3_txn *txn, const struct etcd_call *call,
                     struct etcd3_reply *reply);
int __wrap_etcd3_lease_keep_alive(struct etcd3 *etcd, int64_t id, const struct etcd_call *call, int64_t *ttl_s);
bool __wrap_place_is_own(const struct place_lease *lease, const struct etcd3_result *active);
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

/* A write of the active server has three conditions. */
int __wrap_etcd3_txn(struct etcd3 *etcd, const struct etcd3_txn *txn, const struct etcd_call *call,
                     struct etcd3_reply *reply) {
  struct etcd3_txn free = *txn;
  if (txn->compare_count == 3) free.compare_count = 0;
  return __real_etcd3_txn(etcd, &free, call, reply);
}

int __real_etcd3_lease_keep_alive(struct etcd3 *etcd, int64_t id, const struct etcd_call *call, int64_t *ttl_s);

/* A lease that has ended counts as kept. */
int __wrap_etcd3_lease_keep_alive(struct etcd3 *etcd, int64_t id, const struct etcd_call *call, int64_t *ttl_s) {
  __real_etcd3_lease_keep_alive(etcd, id, call, ttl_s);
  return 0;
}

/* So does a key of another server. */
bool __wrap_place_is_own(const struct place_lease *lease, const struct etcd3_result *active) {
  (void)lease;
  (void)active;
  return true;
}

/* The clock of the lease stands still, so that it never ends. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
  if (clock != CLOCK_BOOTTIME) return __real_clock_gettime(clock, now);
  *now = (struct timespec){0};
  return 0;
}
