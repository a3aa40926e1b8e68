/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/log.h"
#include "base/wait/thread.h"
#include "etcd/client/renewal.h"
#include "keep/etcd/place.h"

#include <inttypes.h>
#include <time.h>

enum {
  RENEWALS = 4,   /* in the time of a lease */
  MARGIN = 20,    /* a part of the lease: clocks of machines run at different speeds */
  RETRY_MS = 100, /* after etcd refused a renewal */
  REVOKE_MS = 1000,
};

/* Unlike the clock of deadlines, it counts the time in which the machine sleeps. */
static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* etcd counts from when it got the request, which was sent at `sent`. */
static void extend(struct place_lease *lease, int64_t sent) {
  atomic_store(&lease->until, sent + lease->ttl_ms - lease->ttl_ms / MARGIN);
}

int place_lease_grant(struct place_lease *lease, int64_t ttl_ms, const struct etcd_call *call) {
  struct etcd3_lease granted;
  const int64_t sent = now_ms(), asked = clock_now_ms();
  const int result = etcd3_lease_grant(lease->etcd, (ttl_ms + 999) / 1000, call, &granted);
  if (result != 0) return result;
  lease->id = granted.id;
  lease->ttl_ms = granted.ttl_s * 1000;
  lease->asked_ms = asked;
  extend(lease, sent);
  return 0;
}

static void lose(struct place_lease *lease, const char *why) {
  if (atomic_exchange(&lease->is_lost, true)) return;
  flag_raise(lease->halt);
  log_line(lease->log, RDZV_LOG_ERROR, "no longer the active server of %s: %s", lease->where, why);
}

bool place_lease_holds(struct place_lease *lease) {
  if (atomic_load(&lease->is_lost)) return false;
  if (now_ms() < atomic_load(&lease->until)) return true;
  lose(lease, "it could not renew its lease in time (it was paused, or etcd does not answer)");
  return false;
}

/* A server that only reads would not notice by its commits that another one can become active. */
static void look_at_key(struct place_lease *lease, const struct etcd_call *call) {
  const struct etcd3_range range = {.keys = {.key = rdzv_str(lease->key)}};
  struct etcd3_reply reply;
  if (etcd3_range(lease->etcd, &range, call, &reply) != 0) return; /* the next renewal looks again */
  if (!place_is_own(lease, &reply.results[0])) lose(lease, "another program deleted or changed its key in etcd");
  etcd3_reply_free(&reply);
}

static void *keep(void *argument) {
  struct place_lease *lease = argument;
  const struct renewal renewal = {.every_ms = lease->ttl_ms / RENEWALS, .again_ms = RETRY_MS};
  deadline next = renewal_next(&renewal, lease->asked_ms, clock_now_ms(), true);
  while (flag_pause(&lease->stop, next) == 0) {
    rdzv_error error = {0};
    const int64_t sent = now_ms(), asked = clock_now_ms(), left = atomic_load(&lease->until) - sent;
    const struct etcd_call call = {deadline_after(left > 0 ? left : 0), &lease->stop, &error};
    if (!place_lease_holds(lease)) break;
    const int result = etcd3_lease_keep_alive(lease->etcd, lease->id, &call, NULL);
    if (result == 0) extend(lease, sent);
    if (result == 0) look_at_key(lease, &call);
    if (result == ETCD3_LEASE_GONE) lose(lease, "its lease has ended");
    next = renewal_next(&renewal, asked, clock_now_ms(), result == 0);
  }
  return NULL;
}

int place_lease_keep(struct place_lease *lease, rdzv_error *error) {
  const int result = flag_open(&lease->stop, error);
  if (result < 0) return result;
  const int errnum = thread_start(&lease->thread, keep, lease);
  lease->started = errnum == 0;
  return errnum == 0 ? 0 : error_errno(error, RDZV_E_NO_MEMORY, errnum, "cannot start the thread of the lease");
}

void place_lease_end(struct place_lease *lease) {
  if (lease->started) {
    flag_raise(&lease->stop);
    pthread_join(lease->thread, NULL);
  }
  flag_close(&lease->stop);
  lease->stop = FLAG_NONE;
  lease->started = false;
  const struct etcd_call call = {deadline_after(REVOKE_MS), NULL, NULL};
  if (lease->id != 0) etcd3_lease_revoke(lease->etcd, lease->id, &call);
  lease->id = 0;
}
