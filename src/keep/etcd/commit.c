/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/log.h"
#include "keep/etcd/place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_OPS = ETCD3_MAX_OPS - 1, /* of one write, beside the marker */
  MOST_BYTES = 1 << 20,         /* of one write; etcd's own limit is half as much again */
  AGAIN = 100,                  /* an older try of this server was done meanwhile: restart the write */
  MOST_DISPUTES = 20,           /* of one commit about the marker */
};

/* ---- one write ------------------------------------------------------------------------------------------------ */

bool place_is_own(const struct place_lease *lease, const struct etcd3_result *active) {
  return active->kv_count == 1 && active->kvs[0].create_revision == lease->fence && active->kvs[0].lease == lease->id;
}

static int fail_stale(const struct place *place, const struct etcd3_result *active, rdzv_error *error) {
  char other[256] = "";
  if (active->kv_count > 0) place_read_active(rdzv_value_bytes(&active->kvs[0].value), other, sizeof other);
  return error_set(error, RDZV_E_STALE, "no longer the active server of %s%s%s", place->where,
                   *other ? ", which is now " : "", other);
}

/* Another program deleted the marker, or changed it. This server is the only one that may write it, and knows what it
 * was. A write whose outcome is unknown is done once more, which does no harm. */
static int restore_marker(struct place *place, int64_t revision, rdzv_error *error) {
  const struct etcd3_keys active = {.key = rdzv_str(place->active.text)}, batch = {.key = rdzv_str(place->batch.text)};
  const struct etcd3_compare compares[] = {{active, ETCD3_TARGET_CREATE, ETCD3_EQUAL, place->lease.fence, {0}},
                                           {active, ETCD3_TARGET_LEASE, ETCD3_EQUAL, place->lease.id, {0}},
                                           {batch, ETCD3_TARGET_MOD, ETCD3_EQUAL, revision, {0}}};
  place->marker.fence = place->lease.fence;
  const struct place_text text = place_marker_text(&place->marker);
  const struct etcd3_op put = {ETCD3_OP_PUT, {.put = {batch.key, rdzv_str(text.text), 0, false}}};
  const struct etcd3_txn txn = {compares, 3, &put, 1, NULL, 0, ETCD3_REPEAT_FENCED};
  const struct etcd_call call = place_call(place, error);
  struct etcd3_reply reply;
  log_line(&place->log, RDZV_LOG_WARNING, "another program has %s '%s' in etcd: this server writes it again",
           revision == 0 ? "deleted" : "changed", place->batch.text);
  const int result = etcd3_txn(place->etcd, &txn, &call, &reply);
  if (result != 0) return result;
  if (reply.succeeded) place->marker_revision = reply.revision;
  etcd3_reply_free(&reply);
  return AGAIN;
}

/* The conditions did not hold. 0: it was done by an earlier try. */
static int judge(struct place *place, const struct etcd3_reply *reply, const char *wanted, rdzv_error *error) {
  if (reply->count != 2) return error_set(error, RDZV_E_PROTOCOL, "etcd answers a transaction with too few results");
  const struct etcd3_result *active = &reply->results[0], *batch = &reply->results[1];
  if (!place_is_own(&place->lease, active)) return fail_stale(place, active, error);
  if (place->disputes++ >= MOST_DISPUTES)
    return error_set(error, RDZV_E_IO, "another program keeps changing '%s' in etcd", place->batch.text);
  struct place_marker marker;
  if (batch->kv_count != 1) return restore_marker(place, 0, error);
  const rdzv_bytes text = rdzv_value_bytes(&batch->kvs[0].value);
  if (place_read_marker(text, &marker, error) < 0 || marker.fence != place->lease.fence)
    return restore_marker(place, batch->kvs[0].mod_revision, error);
  place->marker = marker;
  place->marker_revision = batch->kvs[0].mod_revision;
  return wanted && etcd3_holds(batch, rdzv_str(wanted)) ? 0 : AGAIN;
}

/* Does all `ops`, of which one place more is free, and with `next` renews the marker. Nothing is done if this server is
 * deposed, and nothing late: a write without a marker does no harm as long as the marker is the same. */
static int write_fenced(struct place *place, struct etcd3_op *ops, size_t count, const struct place_marker *next,
                        rdzv_error *error) {
  const struct etcd3_keys active = {.key = rdzv_str(place->active.text)}, batch = {.key = rdzv_str(place->batch.text)};
  const struct etcd3_compare compares[] = {{active, ETCD3_TARGET_CREATE, ETCD3_EQUAL, place->lease.fence, {0}},
                                           {active, ETCD3_TARGET_LEASE, ETCD3_EQUAL, place->lease.id, {0}},
                                           {batch, ETCD3_TARGET_MOD, ETCD3_EQUAL, place->marker_revision, {0}}};
  const struct etcd3_op look[] = {{ETCD3_OP_RANGE, {.range = {.keys = active}}},
                                  {ETCD3_OP_RANGE, {.range = {.keys = batch}}}};
  struct place_text text = {""};
  if (next) {
    text = place_marker_text(next);
    ops[count++] = (struct etcd3_op){ETCD3_OP_PUT, {.put = {batch.key, rdzv_str(text.text), 0, false}}};
  }
  const struct etcd3_txn txn = {compares, 3, ops, count, look, 2, next ? ETCD3_REPEAT_FENCED : ETCD3_REPEAT_FREELY};
  const struct etcd_call call = place_call(place, error);
  struct etcd3_reply reply;
  int result = etcd3_txn(place->etcd, &txn, &call, &reply);
  if (result != 0) return result;
  if (!reply.succeeded) {
    result = judge(place, &reply, next ? text.text : NULL, error);
  } else if (next) {
    place->marker = *next;
    place->marker_revision = reply.revision;
  }
  etcd3_reply_free(&reply);
  return result;
}

static struct place_marker next_marker(struct place *place, uint32_t staged) {
  return (struct place_marker){++place->number, place->lease.fence, staged};
}

/* ---- changes as operations ------------------------------------------------------------------------------------ */

/* A write that is being put together. Its keys and values are in `bytes`, which does not move. */
struct writing {
  struct etcd3_op ops[ETCD3_MAX_OPS];
  struct place_name keys[ETCD3_MAX_OPS];
  size_t count;
  struct buf bytes;
};

static struct writing *writing_new(size_t bytes, rdzv_error *error) {
  struct writing *writing = calloc(1, sizeof *writing);
  if (writing && buf_reserve_exactly(&writing->bytes, bytes)) return writing;
  free(writing);
  error_no_memory(error);
  return NULL;
}

static void writing_free(struct writing *writing) {
  if (!writing) return;
  buf_free(&writing->bytes);
  free(writing);
}

static bool writing_has_room(const struct writing *writing, const struct keep_change *change) {
  return writing->count < MOST_OPS && writing->bytes.len + change->head.len + change->body.len <= writing->bytes.cap;
}

static void writing_add(struct writing *writing, const struct place *place, const struct keep_change *change) {
  struct place_name *key = &writing->keys[writing->count];
  struct etcd3_op *op = &writing->ops[writing->count++];
  *key = place_record(place->prefix, change->name);
  if (change->gone) {
    *op = (struct etcd3_op){ETCD3_OP_DELETE, {.remove = {{.key = rdzv_str(key->text)}, false}}};
    return;
  }
  const rdzv_bytes value = {writing->bytes.data + writing->bytes.len, change->head.len + change->body.len};
  buf_append(&writing->bytes, change->head.data, change->head.len);
  buf_append(&writing->bytes, change->body.data, change->body.len);
  *op = (struct etcd3_op){ETCD3_OP_PUT, {.put = {rdzv_str(key->text), value, 0, false}}};
}

/* ---- putting a staged batch in place -------------------------------------------------------------------------- */

static int flush(struct place *place, struct writing *writing, rdzv_error *error) {
  const int result = writing->count > 0 ? write_fenced(place, writing->ops, writing->count, NULL, error) : 0;
  writing->count = 0;
  writing->bytes.len = 0;
  return result;
}

static int put_in_place(struct place *place, rdzv_bytes packed, rdzv_error *error) {
  struct writing *writing = writing_new(MOST_BYTES, error);
  struct keep_change change;
  if (!writing) return RDZV_E_NO_MEMORY;
  int result, flushed = 0;
  while ((result = place_unpack(&packed, &change, error)) == 1) {
    if (!writing_has_room(writing, &change)) flushed = flush(place, writing, error);
    if (flushed != 0) break;
    writing_add(writing, place, &change);
  }
  if (result == 0) flushed = flush(place, writing, error);
  writing_free(writing);
  return result < 0 ? result : flushed;
}

static int settle_part(struct place *place, uint32_t part, rdzv_error *error) {
  const struct place_name key = place_staged(place->prefix, place->marker.number, part);
  const struct etcd3_range range = {.keys = {.key = rdzv_str(key.text)}};
  const struct etcd_call call = place_call(place, error);
  struct etcd3_reply reply;
  int result = etcd3_range(place->etcd, &range, &call, &reply);
  if (result != 0) return result;
  if (reply.results[0].kv_count == 1)
    result = put_in_place(place, rdzv_value_bytes(&reply.results[0].kvs[0].value), error);
  else
    result = error_set(error, RDZV_E_CORRUPT, "'%s' in etcd is gone", key.text);
  etcd3_reply_free(&reply);
  return result;
}

static int settle_once(struct place *place, rdzv_error *error) {
  const struct place_name all = place_key(place->prefix, "/staged/");
  char end[sizeof all.text];
  int result = 0;
  for (uint32_t i = 0; result == 0 && i < place->marker.staged; i++) result = settle_part(place, i, error);
  if (result != 0) return result;
  struct etcd3_op ops[2] = {{ETCD3_OP_DELETE, {.remove = {etcd3_prefix(rdzv_str(all.text), end), false}}}};
  const struct place_marker next = next_marker(place, 0);
  return write_fenced(place, ops, 1, &next, error);
}

/* Afterwards no staged batch counts. */
static int settle(struct place *place, rdzv_error *error) {
  int result = 0;
  while (result == 0 && place->marker.staged > 0) {
    result = settle_once(place, error);
    if (result == AGAIN) result = 0;
  }
  return result;
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct keep_change *changes, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += place_packed_size(&changes[i]);
  return bytes;
}

static int send_at_once(struct place *place, const struct keep_change *changes, size_t count, size_t bytes,
                        rdzv_error *error) {
  struct writing *writing = writing_new(bytes, error);
  if (!writing) return RDZV_E_NO_MEMORY;
  for (size_t i = 0; i < count; i++) writing_add(writing, place, &changes[i]);
  const struct place_marker next = next_marker(place, 0);
  const int result = write_fenced(place, writing->ops, writing->count, &next, error);
  writing_free(writing);
  return result;
}

/* Packs as many as fit into one part; at least one. */
static size_t pack_part(const struct keep_change *changes, size_t count, struct buf *out) {
  size_t taken = 0;
  out->len = 0;
  while (taken < count && (taken == 0 || out->len + place_packed_size(&changes[taken]) <= MOST_BYTES))
    if (!place_pack(out, &changes[taken++])) return 0;
  return taken;
}

/* The last part makes all of them count. */
static int send_staged(struct place *place, const struct keep_change *changes, size_t count, rdzv_error *error) {
  struct place_marker next = next_marker(place, 0);
  struct buf packed = {0};
  int result = 0;
  while (result == 0 && count > 0) {
    const size_t taken = pack_part(changes, count, &packed);
    const struct place_name key = place_staged(place->prefix, next.number, next.staged++);
    struct etcd3_op ops[2] = {{ETCD3_OP_PUT, {.put = {rdzv_str(key.text), {packed.data, packed.len}, 0, false}}}};
    changes += taken;
    count -= taken;
    result = taken == 0 ? error_no_memory(error) : write_fenced(place, ops, 1, count == 0 ? &next : NULL, error);
  }
  buf_free(&packed);
  return result;
}

int place_commit(struct keep *keep, const struct keep_change *changes, size_t count, rdzv_error *error) {
  struct place *place = place_of(keep);
  const size_t bytes = bytes_of(changes, count);
  const bool fits = count <= MOST_OPS && bytes <= MOST_BYTES;
  place->written += (int64_t)bytes * (fits ? 1 : 2);
  place->disputes = 0;
  rdzv_error own = {0};
  int result;
  do {
    result = settle(place, &own);
    if (result == 0)
      result = fits ? send_at_once(place, changes, count, bytes, &own) : send_staged(place, changes, count, &own);
  } while (result == AGAIN);
  result = place_conclude(place, result, "write to", &own);
  if (result < 0 && error) *error = own;
  return result;
}

bool place_rest(struct keep *keep) {
  struct place *place = place_of(keep);
  rdzv_error error = {0};
  place->disputes = 0;
  if (settle(place, &error) < 0) /* the next commit tries again, and tells */
    log_line(&place->log, RDZV_LOG_DEBUG, "a batch in %s is not in place yet: %s", place->where, error.message);
  return false;
}

/* ---- taking a place up ---------------------------------------------------------------------------------------- */

/* How many keys are there below the prefix? *named: the first one has the name of a record. */
static int count_keys(struct place *place, const char *below, int64_t *count, bool *named, rdzv_error *error) {
  const struct place_name all = place_key(place->prefix, below);
  char end[sizeof all.text];
  const struct etcd3_range range = {.keys = etcd3_prefix(rdzv_str(all.text), end), .limit = 1};
  const struct etcd_call call = place_call(place, error);
  uint8_t name[KEEP_MAX_NAME];
  size_t len;
  struct etcd3_reply reply;
  const int result = etcd3_range(place->etcd, &range, &call, &reply);
  if (result != 0) return result;
  const struct etcd3_result *found = &reply.results[0];
  *count = found->count;
  *named = found->kv_count > 0 && place_read_record(place->prefix, rdzv_value_bytes(&found->kvs[0].key), name, &len);
  etcd3_reply_free(&reply);
  return 0;
}

/* There is no marker. The place is new, or the marker was deleted: then there is no staged batch that could count, and
 * a load finds out whether all records are there. What is not of rdzv is left alone. */
static int check_unmarked(struct place *place, rdzv_error *error) {
  int64_t count = 0, records = 0;
  bool named;
  int result = count_keys(place, "/", &count, &named, error);
  if (result == 0) result = count_keys(place, "/records/", &records, &named, error);
  if (result != 0 || count <= 1) return result; /* the key `active` */
  if (named && records == count - 1) {
    log_line(&place->log, RDZV_LOG_WARNING, "'%s' in etcd is gone: this server writes it again", place->batch.text);
    return 0;
  }
  return error_set(error, RDZV_E_UNSUPPORTED,
                   "there are %" PRId64
                   " keys below '%s/' in etcd that rdzv did not write (choose "
                   "another --state-prefix)",
                   count - 1, place->prefix);
}

static int take_up(struct place *place, rdzv_error *error) {
  const struct etcd3_range range = {.keys = {.key = rdzv_str(place->batch.text)}};
  const struct place_name all = place_key(place->prefix, "/staged/");
  char end[sizeof all.text];
  const struct etcd_call call = place_call(place, error);
  struct etcd3_reply reply;
  int result = etcd3_range(place->etcd, &range, &call, &reply);
  if (result != 0) return result;
  const struct etcd3_result *found = &reply.results[0];
  if (found->kv_count == 0) {
    result = check_unmarked(place, error);
  } else {
    result = place_read_marker(rdzv_value_bytes(&found->kvs[0].value), &place->marker, error);
    place->marker_revision = found->kvs[0].mod_revision;
    place->number = place->marker.number;
  }
  etcd3_reply_free(&reply);
  if (result != 0) return result;
  if (place->marker.staged > 0) return settle(place, error);
  /* A batch that was never finished does not count. */
  struct etcd3_op ops[2] = {{ETCD3_OP_DELETE, {.remove = {etcd3_prefix(rdzv_str(all.text), end), false}}}};
  const struct place_marker next = next_marker(place, 0);
  return write_fenced(place, ops, 1, &next, error);
}

int place_take_up(struct place *place, rdzv_error *error) {
  rdzv_error own = {0};
  const int result = place_conclude(place, take_up(place, &own), "take up", &own);
  if (result < 0 && error) *error = own;
  return result;
}
