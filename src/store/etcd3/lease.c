/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lease of a store that does not outlive its users: all keys have it, and each process keeps it alive while it has
 * a handle. The first writer makes it and writes its id down, under the lease itself; the others find it there. A
 * process that has not written yet does not know it, and has no thread for it.
 */
#include "base/error.h"
#include "base/wait/thread.h"
#include "etcd/client/renewal.h"
#include "store/etcd3/etcd3_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEAST_RENEW_MS = 500, RETRY_MS = 1000, REVOKE_MS = 2000 };

struct etcd3_store_lease {
  struct etcd3 *etcd; /* of the thread, and of a caller that looks for the lease */
  rdzv_value key;
  int64_t ttl_s;
  pthread_mutex_t lock; /* guards the rest; held while it is looked for */
  struct flag stop;     /* also wakes the thread; opened with it */
  pthread_t thread;
  bool started;
  _Atomic int64_t first_ms; /* when it is renewed first; 0: at once, since others made it some time ago */
  _Atomic int64_t id;       /* 0: not known */
};

/* ---- keeping it ----------------------------------------------------------------------------------------------- */

static struct renewal renewal_of(const struct etcd3_store_lease *lease) {
  const int64_t third = lease->ttl_s * 1000 / 3;
  return (struct renewal){.every_ms = third < LEAST_RENEW_MS ? LEAST_RENEW_MS : third, .again_ms = RETRY_MS};
}

static void *keep(void *argument) {
  struct etcd3_store_lease *lease = argument;
  const struct renewal renewal = renewal_of(lease);
  for (deadline next = lease->first_ms; flag_pause(&lease->stop, next) == 0;) {
    const int64_t id = lease->id, sent = clock_now_ms();
    const struct etcd_call call = {deadline_after(lease->ttl_s * 1000), &lease->stop, NULL};
    /* That it is gone is found out, and told, by the next write. */
    const int result = id != 0 ? etcd3_lease_keep_alive(lease->etcd, id, &call, NULL) : 0;
    next = renewal_next(&renewal, sent, clock_now_ms(), result >= 0);
  }
  return NULL;
}

/* From when it is known; with the lock held. */
static int start_keeping(struct etcd3_store_lease *lease, rdzv_error *error) {
  if (lease->started) return 0;
  const int result = !lease->stop.state ? flag_open(&lease->stop, error) : 0;
  if (result < 0) return result;
  const int errnum = thread_start(&lease->thread, keep, lease);
  lease->started = errnum == 0;
  return errnum == 0 ? 0 : error_errno(error, RDZV_E_NO_MEMORY, errnum, "cannot start a thread");
}

int etcd3_store_lease_open(struct etcd3_store_shared *shared, int64_t lease_ms, struct etcd3_store_lease **out,
                           rdzv_error *error) {
  struct etcd3_store_lease *lease = calloc(1, sizeof *lease);
  if (!lease) return error_no_memory(error);
  lease->stop = FLAG_NONE;
  lease->ttl_s = (lease_ms + 999) / 1000;
  lease->key = etcd3_name(shared->prefix, "/lease", "");
  pthread_mutex_init(&lease->lock, NULL);
  const int result =
      lease->key.data ? etcd3_open(etcd_share(shared->client), &lease->etcd, error) : error_no_memory(error);
  if (result < 0)
    etcd3_store_lease_close(lease);
  else
    *out = lease;
  return result;
}

void etcd3_store_lease_close(struct etcd3_store_lease *lease) {
  if (!lease) return;
  if (lease->started) {
    flag_raise(&lease->stop);
    pthread_join(lease->thread, NULL);
  }
  flag_close(&lease->stop);
  etcd3_close(lease->etcd);
  rdzv_value_free(&lease->key);
  pthread_mutex_destroy(&lease->lock);
  free(lease);
}

void etcd3_store_lease_forget(struct etcd3_store_lease *lease, int64_t id) {
  atomic_compare_exchange_strong(&lease->id, &id, 0);
}

/* ---- finding it ----------------------------------------------------------------------------------------------- */

static bool read_id(const struct etcd3_result *result, int64_t *id) {
  if (result->kv_count != 1) return false;
  *id = result->kvs[0].lease; /* it is under itself */
  return *id != 0;
}

/* Writes ours down, unless another was faster, whose it is then. */
static int settle(struct etcd3_store_lease *lease, int64_t ours, const struct etcd_call *call, int64_t *id) {
  char text[24];
  const struct etcd3_keys key = {rdzv_value_bytes(&lease->key), {0}};
  snprintf(text, sizeof text, "%" PRIx64, ours);
  const struct etcd3_compare absent = {key, ETCD3_TARGET_CREATE, ETCD3_EQUAL, 0, {0}};
  const struct etcd3_op put = {ETCD3_OP_PUT, {.put = {key.key, rdzv_str(text), ours, false}}};
  const struct etcd3_op look = {ETCD3_OP_RANGE, {.range = {.keys = key}}};
  const struct etcd3_txn txn = {&absent, 1, &put, 1, &look, 1, ETCD3_REPEAT_FENCED};
  struct etcd3_reply reply;
  int result = etcd3_txn(lease->etcd, &txn, call, &reply);
  if (result != 0) return result;
  *id = ours;
  if (!reply.succeeded && (reply.count != 1 || !read_id(&reply.results[0], id)))
    result = error_set(call->error, RDZV_E_CORRUPT, "'%s' in etcd is not a lease", lease->key.data);
  etcd3_reply_free(&reply);
  return result;
}

static int make(struct etcd3_store_lease *lease, const struct etcd_call *call, int64_t *id) {
  struct etcd3_lease ours;
  const struct renewal renewal = renewal_of(lease);
  const int64_t sent = clock_now_ms();
  int result = etcd3_lease_grant(lease->etcd, lease->ttl_s, call, &ours);
  if (result != 0) return result;
  result = settle(lease, ours.id, call, id);
  if (result == 0 && *id == ours.id) {
    lease->first_ms = renewal_next(&renewal, sent, clock_now_ms(), true);
    return 0;
  }
  const struct etcd_call end = {deadline_after(REVOKE_MS), call->cancel, NULL};
  etcd3_lease_revoke(lease->etcd, ours.id, &end); /* of no use; else it ends by itself */
  return result;
}

static int look(struct etcd3_store_lease *lease, const struct etcd_call *call, int64_t *id) {
  const struct etcd3_range range = {.keys = {rdzv_value_bytes(&lease->key), {0}}};
  struct etcd3_reply reply;
  const int result = etcd3_range(lease->etcd, &range, call, &reply);
  if (result != 0) return result;
  const bool there = read_id(&reply.results[0], id);
  etcd3_reply_free(&reply);
  return there ? 0 : make(lease, call, id);
}

int etcd3_store_lease_id(struct etcd3_store_lease *lease, const struct etcd_call *call, int64_t *id) {
  *id = lease ? atomic_load(&lease->id) : 0;
  if (!lease || *id != 0) return 0;
  pthread_mutex_lock(&lease->lock);
  *id = lease->id;
  int result = *id != 0 ? 0 : look(lease, call, id);
  if (result == 0) lease->id = *id; /* which the thread renews */
  if (result == 0) result = start_keeping(lease, call->error);
  if (result < 0) lease->id = 0;
  pthread_mutex_unlock(&lease->lock);
  return result;
}
