/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/wait/waiting.h"
#include "etcd/v3/call.h"

#define AGAIN "keeps a watch again"

/* The wait to report to: the caller's, or the client's voice, which is to be given back. NULL: another call speaks. */
static struct waiting *take(struct etcd3 *etcd, const struct etcd_call *call) {
  struct waiting *waiting = flag_waiting(call->cancel);
  return waiting ? waiting : etcd_voice_take(etcd->client, INT64_MAX);
}

static void give(struct etcd3 *etcd, struct waiting *waiting, bool over, const struct etcd_call *call) {
  const bool is_callers = waiting == flag_waiting(call->cancel);
  if (waiting && !is_callers) etcd_voice_give(etcd->client, over, AGAIN);
  if (over && is_callers) waiting_succeed(waiting, "etcd at %s " AGAIN, etcd_describe(etcd->client));
}

void etcd3_stream_ended(struct etcd3 *etcd, int64_t lasted_ms, const char *why, const struct etcd_call *call) {
  const bool soon = lasted_ms < ETCD3_LASTING_MS;
  pthread_mutex_lock(&etcd->lock);
  if (!soon) etcd->pauses = ETCD3_FIRST_PAUSE;
  etcd->next_stream = backoff_next(&etcd->pauses);
  pthread_mutex_unlock(&etcd->lock);
  if (!soon) return;
  struct waiting *waiting = take(etcd, call);
  waiting_fail(waiting, "etcd at %s does not keep a watch: %s", etcd_describe(etcd->client), why);
  give(etcd, waiting, false, call);
}

int etcd3_stream_pause(struct etcd3 *etcd, const struct etcd_call *call) {
  pthread_mutex_lock(&etcd->lock);
  const deadline next = etcd->next_stream;
  pthread_mutex_unlock(&etcd->lock);
  if (deadline_left(next) == 0) return 0;
  if (flag_pause(call->cancel, deadline_sooner(next, call->until)) < 0)
    return error_set(call->error, RDZV_E_CANCELED, "the watch was canceled");
  if (deadline_left(next) == 0) return 0;
  return error_set(call->error, RDZV_E_TIMEOUT, "etcd at %s does not keep a watch", etcd_describe(etcd->client));
}

void etcd3_stream_lasts(struct etcd3 *etcd, const struct etcd_call *call) { give(etcd, take(etcd, call), true, call); }
