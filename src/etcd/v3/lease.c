/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "etcd/v3/call.h"
#include "etcd/v3/write.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

/* A request about a lease: its answer is read, unless `lease` is NULL. */
static int perform(struct etcd3 *etcd, const char *path, int64_t id, int64_t ttl_s, const struct etcd_call *call,
                   struct etcd3_lease *lease) {
  struct etcd3_request request = {.path = path, .repeat = ETCD3_REPEAT_FREELY};
  struct buf body = {0};
  request.made = etcd3_write_lease(id, ttl_s, &request.body);
  int result = etcd3_perform(etcd, request, call, &body, NULL);
  if (result == 0 && lease) result = etcd3_read_lease((rdzv_bytes){body.data, body.len}, lease, call->error);
  buf_free(&body);
  return result;
}

static int fail_gone(const struct etcd3 *etcd, int64_t id, rdzv_error *error) {
  error_set(error, RDZV_E_STALE, "etcd at %s: the lease %" PRIx64 " has ended", etcd_describe(etcd->client), id);
  return ETCD3_LEASE_GONE;
}

static int64_t random_id(void) {
  int64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != sizeof id) id = clock_wall_us();
  id &= INT64_MAX;
  return id == 0 ? 1 : id;
}

/* The id is unique: if the lease exists already, an earlier try was done. */
int etcd3_lease_grant(struct etcd3 *etcd, int64_t ttl_s, const struct etcd_call *call, struct etcd3_lease *lease) {
  const int64_t id = random_id();
  rdzv_error error = {0};
  const struct etcd_call own = {call->until, call->cancel, &error};
  int result = perform(etcd, "/v3/lease/grant", id, ttl_s, &own, lease);
  if (result == RDZV_E_PROTOCOL && strstr(error.message, "lease already exists")) {
    rdzv_error second;
    const struct etcd_call look = {call->until, call->cancel, &second};
    if (etcd3_lease_time_to_live(etcd, id, &look, lease) == 0) return 0;
    result = error.code = RDZV_E_OUTCOME_UNKNOWN; /* of that id; another will do */
  }
  if (result != 0 && call->error) *call->error = error;
  return result;
}

int etcd3_lease_keep_alive(struct etcd3 *etcd, int64_t id, const struct etcd_call *call, int64_t *ttl_s) {
  struct etcd3_lease lease;
  const int result = perform(etcd, "/v3/lease/keepalive", id, 0, call, &lease);
  if (result != 0) return result;
  if (lease.ttl_s <= 0) return fail_gone(etcd, id, call->error);
  if (ttl_s) *ttl_s = lease.ttl_s;
  return 0;
}

int etcd3_lease_revoke(struct etcd3 *etcd, int64_t id, const struct etcd_call *call) {
  const int result = perform(etcd, "/v3/lease/revoke", id, 0, call, NULL);
  return result == ETCD3_LEASE_GONE ? 0 : result;
}

int etcd3_lease_time_to_live(struct etcd3 *etcd, int64_t id, const struct etcd_call *call, struct etcd3_lease *lease) {
  const int result = perform(etcd, "/v3/lease/timetolive", id, 0, call, lease);
  if (result != 0) return result;
  return lease->ttl_s < 0 ? fail_gone(etcd, id, call->error) : 0;
}
