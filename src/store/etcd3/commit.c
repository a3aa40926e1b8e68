/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/etcd3/commit.h"

#include "base/error.h"
#include "store/etcd3/etcd3_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
  END_MS = 500,
  LEASE_S = 600,                 /* of a writer: far longer than any write takes */
  RENEW_MS = LEASE_S * 1000 / 2, /* after that it is renewed by the next write */
  AGAIN = 100,                   /* no code of etcd3: the writer or its lease was gone: restart the write */
  LATE,                          /* nor this: the write before has been done in the meantime, and this one cannot be */
};

void etcd3_writer_open(struct etcd3_writer *writer) { pthread_mutex_init(&writer->lock, NULL); }

void etcd3_writer_close(struct etcd3_writer *writer) {
  pthread_mutex_destroy(&writer->lock);
  rdzv_value_free(&writer->key);
}

void etcd3_writer_end(struct etcd3_writer *writer, struct etcd3 *etcd, const struct flag *cancel) {
  const struct etcd_call call = {deadline_after(END_MS), cancel, NULL};
  if (writer->lease != 0 && !flag_raised(cancel)) etcd3_lease_revoke(etcd, writer->lease, &call);
}

/* ---- the writer ----------------------------------------------------------------------------------------------- */

static void forget(struct etcd3_writer *writer) {
  rdzv_value_free(&writer->key);
  writer->revision = writer->lease = 0;
  writer->unsure = false;
}

static int name_writer(struct etcd3_store *store, rdzv_error *error) {
  uint64_t nonce[2];
  char name[40];
  if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
    return error_set(error, RDZV_E_IO, "cannot get random numbers");
  snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64, nonce[0], nonce[1]);
  store->writer.key = etcd3_name(store->shared->prefix, "/writers/", name);
  return store->writer.key.data ? 0 : error_no_memory(error);
}

/* A lease of its own, where the store has none. */
static int hold_lease(struct etcd3_store *store, const struct etcd_call *call) {
  struct etcd3_writer *writer = &store->writer;
  struct etcd3_lease lease;
  if (store->shared->lease || (writer->lease != 0 && deadline_left(writer->renew) > 0)) return 0;
  int result = writer->lease != 0 ? etcd3_lease_keep_alive(store->etcd, writer->lease, call, NULL) : ETCD3_LEASE_GONE;
  if (result == ETCD3_LEASE_GONE) {
    forget(writer);
    result = etcd3_lease_grant(store->etcd, LEASE_S, call, &lease);
    if (result == 0) writer->lease = lease.id;
  }
  if (result == 0) writer->renew = deadline_after(RENEW_MS);
  return result;
}

/* Of a write that was not answered: was it done? Anyhow it cannot be from the next write on. */
static int find_out(struct etcd3_store *store, const struct etcd_call *call) {
  const struct etcd3_range range = {.keys = {rdzv_value_bytes(&store->writer.key), {0}}};
  struct etcd3_reply reply;
  const int result = etcd3_range(store->etcd, &range, call, &reply);
  if (result != 0) return result;
  if (reply.results[0].kv_count == 0 && store->writer.revision != 0)
    forget(&store->writer); /* its lease has ended */
  else
    store->writer.revision = reply.results[0].kv_count > 0 ? reply.results[0].kvs[0].mod_revision : 0;
  store->writer.unsure = false;
  etcd3_reply_free(&reply);
  return 0;
}

static int make_ready(struct etcd3_store *store, const struct etcd_call *call) {
  int result = hold_lease(store, call);
  if (result == 0 && store->writer.unsure) result = find_out(store, call);
  if (result == 0 && !store->writer.key.data) result = name_writer(store, call->error);
  return result;
}

/* ---- the write ------------------------------------------------------------------------------------------------ */

/* A write as it is sent: what is wanted, and the writer's part. */
struct sending {
  struct etcd3_compare compares[ETCD3_MAX_OPS];
  struct etcd3_op then[ETCD3_MAX_OPS], otherwise[2];
  char number[24], before[24]; /* of this write, of the one before */
  struct etcd3_txn txn;
};

static void fill(struct sending *sending, const struct etcd3_writer *writer, const struct etcd3_commit *commit,
                 int64_t lease) {
  const struct etcd3_keys key = {rdzv_value_bytes(&writer->key), {0}};
  const size_t looked = commit->look ? 1 : 0;
  snprintf(sending->number, sizeof sending->number, "%" PRIu64, writer->number);
  snprintf(sending->before, sizeof sending->before, "%" PRIu64, writer->number - 1);
  for (size_t i = 0; i < commit->compare_count; i++) sending->compares[i] = commit->compares[i];
  sending->compares[commit->compare_count] =
      (struct etcd3_compare){key, ETCD3_TARGET_MOD, ETCD3_EQUAL, writer->revision, {0}};
  for (size_t i = 0; i < commit->count; i++) {
    sending->then[i] = commit->then[i];
    if (commit->then[i].kind == ETCD3_OP_PUT) sending->then[i].put.lease = lease;
  }
  sending->then[commit->count] = (struct etcd3_op){
      ETCD3_OP_PUT, {.put = {key.key, rdzv_str(sending->number), lease != 0 ? lease : writer->lease, false}}};
  if (commit->look) sending->otherwise[0] = *commit->look;
  sending->otherwise[looked] = (struct etcd3_op){ETCD3_OP_RANGE, {.range = {.keys = key}}};
  sending->txn = (struct etcd3_txn){sending->compares,  commit->compare_count + 1, sending->then,
                                    commit->count + 1,  sending->otherwise,        looked + 1,
                                    ETCD3_REPEAT_FENCED};
}

/* The compares did not hold: the caller's, or the writer's. */
static int judge(struct etcd3_writer *writer, const struct sending *sending, struct etcd3_reply *reply,
                 int64_t *revision, rdzv_error *error) {
  if (reply->count != sending->txn.otherwise_count)
    return error_set(error, RDZV_E_PROTOCOL, "etcd answers a transaction with too few results");
  const struct etcd3_result *own = &reply->results[reply->count - 1];
  const int64_t now = own->kv_count > 0 ? own->kvs[0].mod_revision : 0;
  if (etcd3_holds(own, rdzv_str(sending->number))) { /* an earlier try was done */
    writer->revision = *revision = now;
    return 0;
  }
  if (now == writer->revision) return 1;
  if (etcd3_holds(own, rdzv_str(sending->before))) {
    writer->revision = *revision = now;
    return LATE;
  }
  forget(writer);
  if (!reply->unsure) return AGAIN;
  return error_set(error, RDZV_E_OUTCOME_UNKNOWN,
                   "it may or may not have taken effect: the answer was lost, and the marker that would show the "
                   "outcome no longer exists");
}

static int send(struct etcd3_store *store, const struct etcd3_commit *commit, int64_t lease,
                const struct etcd_call *call, int64_t *revision, struct etcd3_reply *reply) {
  struct etcd3_writer *writer = &store->writer;
  struct sending *sending = malloc(sizeof *sending);
  if (!sending) return error_no_memory(call->error);
  writer->number++;
  writer->unsure = true;
  fill(sending, writer, commit, lease);
  int result = etcd3_txn(store->etcd, &sending->txn, call, reply);
  if (result == 0) {
    writer->unsure = false;
    if (reply->succeeded)
      writer->revision = *revision = reply->revision;
    else
      result = judge(writer, sending, reply, revision, call->error);
    if (result != 1) etcd3_reply_free(reply);
  }
  free(sending);
  return result;
}

/* A write was refused, but an earlier try of it may still be under way. Raises the number, so that this try is never
 * done. 1: so it is, and the write is refused. 0: it was done before, at *revision. */
static int settle(struct etcd3_store *store, int64_t lease, const struct etcd_call *call, int64_t *revision) {
  const struct etcd3_commit nothing = {0};
  struct etcd3_reply reply = {0};
  int64_t raised = 0;
  const int result = send(store, &nothing, lease, call, &raised, &reply);
  if (result == 1) etcd3_reply_free(&reply);
  if (result == 0) return 1;
  if (result == LATE) *revision = raised;
  if (result == LATE) return 0;
  if (result == RDZV_E_CANCELED || result == RDZV_E_DATA_LOST) return result;
  if (result > 0)
    error_set(call->error, RDZV_E_OUTCOME_UNKNOWN, "the marker that would show the outcome no longer exists");
  if (call->error) call->error->code = RDZV_E_OUTCOME_UNKNOWN;
  return error_prefix(call->error, RDZV_E_OUTCOME_UNKNOWN, "it may or may not take effect: an answer was lost");
}

static int commit_once(struct etcd3_store *store, const struct etcd3_commit *commit, const struct etcd_call *call,
                       int64_t *revision, struct etcd3_reply *reply) {
  int64_t lease = 0;
  int result = etcd3_store_lease_id(store->shared->lease, call, &lease);
  if (result == 0) result = make_ready(store, call);
  if (result == 0) result = send(store, commit, lease, call, revision, reply);
  if (result == 1 && reply->unsure) {
    result = settle(store, lease, call, revision);
    if (result != 1) etcd3_reply_free(reply);
  }
  if (result == LATE) result = AGAIN;
  if (result == RDZV_E_DATA_LOST) forget(&store->writer);
  if (result != ETCD3_LEASE_GONE) return result;
  forget(&store->writer);
  if (lease == 0) return AGAIN;
  etcd3_store_lease_forget(store->shared->lease, lease);
  return error_set(call->error, RDZV_E_DATA_LOST, "the lease of the store has ended, and its keys with it");
}

int etcd3_store_commit(rdzv_store *base, const struct etcd3_commit *commit, const struct etcd_call *call,
                       int64_t *revision, struct etcd3_reply *found) {
  struct etcd3_store *store = etcd3_store_of(base);
  struct etcd3_reply reply = {0};
  int64_t at = 0;
  int result, tries = 0;
  pthread_mutex_lock(&store->writer.lock);
  do result = commit_once(store, commit, call, &at, &reply);
  while (result == AGAIN && ++tries < 3);
  pthread_mutex_unlock(&store->writer.lock);
  if (result == AGAIN) return error_set(call->error, RDZV_E_PROTOCOL, "etcd drops each new lease at once");
  if (result == 0 && revision) *revision = at;
  if (result == 1 && found)
    *found = reply;
  else
    etcd3_reply_free(&reply);
  return result;
}
