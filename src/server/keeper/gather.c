/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "server/keeper/keeper.h"
#include "server/native/native.h"
#include "state/native/snapshot.h"

/* ---- gathering ------------------------------------------------------------------------------------------------ */

bool gather_has_changes(const struct keeper *keeper) {
  const struct rdzv_server *server = keeper->server;
  return ks_has_changed(server->ks) || sessions_have_changed(&server->sessions) ||
         coordinator_has_changed(server->natives->coordinator) || keeper->is_fresh;
}

/* Last, since it has the tally of the others. */
static void put_head(struct keeper *keeper, struct batch *batch) {
  const struct rdzv_server *server = keeper->server;
  const struct record_head head = {.instance = server->instance,
                                   .seed = server->sessions.seed,
                                   .issued = server->sessions.issued_kept,
                                   .forgotten = server->sessions.forgotten,
                                   .version = ks_version(server->ks),
                                   .tally = batch->tally};
  struct wire_writer out = {0};
  record_put_head(&out, &head);
  if (out.failed) batch->failed = true;
  batch_put(batch, RECORD_HEAD_ID, (rdzv_bytes){out.buf.data, out.buf.len}, (rdzv_bytes){0}, NULL);
  buf_free(&out.buf);
}

bool gather_batch(struct keeper *keeper) {
  struct rdzv_server *server = keeper->server;
  struct batch *batch = &keeper->batch;
  batch_begin(batch, &keeper->tally);
  ks_collect(server->ks, batch);
  sessions_collect(&server->sessions, batch);
  kept_natives_collect(keeper, batch);
  put_head(keeper, batch);
  if (!batch_seal(batch, &keeper->tally)) {
    batch_clear(batch);
    return false;
  }
  keeper->issued = server->sessions.issued_kept;
  ks_collected(server->ks, keeper->committed + 1);
  sessions_collected(&server->sessions);
  kept_natives_collected(keeper);
  keeper->is_fresh = false;
  return true;
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

struct loading {
  struct keeper *keeper;
  struct ks_loading keys;
  int64_t now;
};

static int fail(int result, const char *what, rdzv_error *error) {
  if (result == RDZV_E_CORRUPT) return error_set(error, result, "the kept state is damaged: %s is invalid", what);
  if (result == RDZV_E_LIMIT)
    return error_set(error, result, "the kept state does not fit into the memory limit (raise --max-memory)");
  return result < 0 ? error_no_memory(error) : 0;
}

static int load_key(struct loading *loading, struct record_id id, rdzv_bytes head, rdzv_bytes body,
                    struct record_slot slot, rdzv_error *error) {
  struct record_key key;
  const int result = record_read_key(head, &key, error);
  if (result < 0) return result;
  return fail(ks_load_key(loading->keeper->server->ks, &loading->keys, id.id, &key, body, slot), "a key", error);
}

static int load_session(struct loading *loading, struct record_id id, rdzv_bytes head, rdzv_bytes body,
                        struct record_slot slot, rdzv_error *error) {
  struct record_session session;
  const int result = record_read_session(head, &session, error);
  if (result < 0) return result;
  return fail(sessions_load(&loading->keeper->server->sessions, id.id, &session, body, slot, loading->now), "a session",
              error);
}

static int load_one(void *user, struct record_id id, rdzv_bytes head, rdzv_bytes body, struct record_slot slot,
                    rdzv_error *error) {
  struct loading *loading = user;
  struct keeper *keeper = loading->keeper;
  switch (id.kind) {
    case RECORD_KEY: return load_key(loading, id, head, body, slot, error);
    case RECORD_ITEM:
      return fail(ks_load_item(keeper->server->ks, &loading->keys, id.id, id.sub, body, slot), "an item", error);
    case RECORD_SESSION: return load_session(loading, id, head, body, slot, error);
    case RECORD_RUN: return kept_natives_load_run(keeper, id, head, body, slot, error);
    default: return kept_natives_load_node(keeper, id, head, slot, error);
  }
}

static void load_head(struct keeper *keeper, const struct record_head *head) {
  struct rdzv_server *server = keeper->server;
  server->instance = head->instance;
  sessions_load_head(&server->sessions, head);
  ks_set_version(server->ks, head->version);
  keeper->tally = head->tally;
}

int gather_load(struct keeper *keeper, rdzv_error *error) {
  struct rdzv_server *server = keeper->server;
  struct loading loading = {.keeper = keeper, .now = (int64_t)uv_now(&server->loop)};
  struct record_head head;
  ks_set_version(server->ks, UINT64_MAX); /* the head tells which one is the last: below */
  int result = load_all(keeper->keep, load_one, &loading, &head, &keeper->is_fresh, error);
  if (result == 0) result = fail(ks_load_end(&loading.keys), "a key", error);
  ks_load_free(&loading.keys);
  if (result < 0) return result;
  ks_set_version(server->ks, 0);
  if (!keeper->is_fresh) load_head(keeper, &head);
  if (server->sessions.left) timeouts_tick(server);
  return kept_natives_loaded(keeper, error);
}
