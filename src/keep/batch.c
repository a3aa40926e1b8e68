/* SPDX-License-Identifier: BSD-3-Clause */
#include "keep/batch.h"

#include "base/siphash.h"

#include <endian.h>
#include <stdlib.h>

/* ---- names and sums ----------------------------------------------------------------------------------------- */

/* The seed is a part of the format. */
uint64_t record_sum(rdzv_bytes name, rdzv_bytes content) {
  static const struct siphash_seed seed = {{0x7264767a6b656570, 0x7265636f72647331}};
  const uint64_t sums[] = {htole64(siphash_short(&seed, name.data, name.len)),
                           htole64(siphash_short(&seed, content.data, content.len)), htole64(content.len)};
  return siphash_short(&seed, sums, sizeof sums);
}

static void put_number(uint8_t *out, uint64_t number) {
  const uint64_t big = htobe64(number);
  memcpy(out, &big, sizeof big);
}

static uint64_t read_number(const uint8_t *at) {
  uint64_t big;
  memcpy(&big, at, sizeof big);
  return be64toh(big);
}

void record_name(struct record_id id, uint32_t part, uint8_t out[KEEP_MAX_NAME]) {
  const uint32_t big = htobe32(part);
  out[0] = (uint8_t)id.kind;
  put_number(out + 1, id.id);
  put_number(out + 9, id.sub);
  memcpy(out + 17, &big, sizeof big);
}

bool record_read_name(rdzv_bytes name, struct record_id *id, uint32_t *part) {
  const uint8_t *at = name.data;
  uint32_t big;
  if (name.len != KEEP_MAX_NAME || at[0] < RECORD_HEAD || at[0] >= RECORD_KINDS) return false;
  memcpy(&big, at + 17, sizeof big);
  *id = (struct record_id){(enum record_kind)at[0], read_number(at + 1), read_number(at + 9)};
  *part = be32toh(big);
  return true;
}

/* ---- pieces ------------------------------------------------------------------------------------------------- */

/* A change whose bytes may still move: offsets in batch->bytes. */
struct batch_piece {
  size_t name;
  size_t head, head_len; /* the sum, and a short content */
  rdzv_bytes body;       /* a part of a long body */
  bool gone;
};

/* What a slot will be. */
struct batch_renewal {
  struct record_slot *slot, now;
};

/* Makes room for one more in an array. Returns the array, or NULL: no memory. */
static void *room_for_one(void *array, size_t count, size_t *cap, size_t size) {
  if (count < *cap) return array;
  const size_t more = *cap ? 2 * *cap : 64;
  void *grown = realloc(array, more * size);
  if (grown) *cap = more;
  return grown;
}

static bool grow(struct batch *batch) {
  struct batch_piece *pieces = room_for_one(batch->pieces, batch->count, &batch->cap, sizeof *pieces);
  if (pieces) batch->pieces = pieces;
  return pieces != NULL;
}

static struct batch_piece *add(struct batch *batch, struct record_id id, uint32_t part) {
  uint8_t name[KEEP_MAX_NAME];
  record_name(id, part, name);
  const size_t at = batch->bytes.len;
  if (batch->failed || !grow(batch) || !buf_append(&batch->bytes, name, sizeof name)) {
    batch->failed = true;
    return NULL;
  }
  struct batch_piece *piece = &batch->pieces[batch->count++];
  *piece = (struct batch_piece){.name = at, .head = batch->bytes.len};
  return piece;
}

/* Writes the sum before a content that is behind it, or in `body`. */
static uint64_t sum_up(struct batch *batch, struct batch_piece *piece, rdzv_bytes content) {
  const rdzv_bytes name = {batch->bytes.data + piece->name, KEEP_MAX_NAME};
  const uint64_t sum = record_sum(name, content), little = htole64(sum);
  memcpy(batch->bytes.data + piece->head, &little, sizeof little);
  return sum;
}

static bool put_length(struct buf *bytes, uint64_t length) {
  const uint64_t little = htole64(length);
  return buf_append(bytes, &little, sizeof little);
}

/* Part 0. */
static void put_first(struct batch *batch, struct record_id id, rdzv_bytes head, rdzv_bytes body,
                      struct record_slot *slot) {
  struct batch_piece *piece = add(batch, id, 0);
  if (!piece) return;
  struct buf *bytes = &batch->bytes;
  const rdzv_bytes inlined = body.len <= BATCH_INLINE ? body : (rdzv_bytes){0};
  if (!put_length(bytes, 0) || !put_length(bytes, head.len) || !buf_append(bytes, head.data, head.len) ||
      !put_length(bytes, body.len) || !buf_append(bytes, inlined.data, inlined.len)) {
    batch->failed = true;
    return;
  }
  piece->head_len = bytes->len - piece->head;
  const rdzv_bytes content = {bytes->data + piece->head + BATCH_SUM_BYTES, piece->head_len - BATCH_SUM_BYTES};
  slot->sum = sum_up(batch, piece, content);
  slot->parts = 1;
}

static void put_part(struct batch *batch, struct record_id id, rdzv_bytes part, struct record_slot *slot) {
  struct batch_piece *piece = add(batch, id, slot->parts);
  if (!piece || !put_length(&batch->bytes, 0)) {
    batch->failed = true;
    return;
  }
  piece->head_len = BATCH_SUM_BYTES;
  piece->body = part;
  slot->sum += sum_up(batch, piece, part);
  slot->parts++;
}

static void remove_parts(struct batch *batch, struct record_id id, uint32_t from, uint32_t to) {
  for (uint32_t part = from; part < to; part++) {
    struct batch_piece *piece = add(batch, id, part);
    if (piece) piece->gone = true;
  }
}

static void renew(struct batch *batch, struct record_slot *slot, struct record_slot now) {
  struct batch_renewal *renewals =
      room_for_one(batch->renewals, batch->renewals_count, &batch->renewals_cap, sizeof *renewals);
  if (!renewals) {
    batch->failed = true;
    return;
  }
  batch->renewals = renewals;
  renewals[batch->renewals_count++] = (struct batch_renewal){slot, now};
  batch->tally.count += now.parts - (uint64_t)slot->parts;
  batch->tally.sum += now.sum - slot->sum;
}

void batch_begin(struct batch *batch, const struct record_tally *tally) { batch->tally = *tally; }

void batch_put(struct batch *batch, struct record_id id, rdzv_bytes head, rdzv_bytes body, struct record_slot *slot) {
  struct record_slot now = {0};
  put_first(batch, id, head, body, &now);
  for (size_t at = 0; body.len > BATCH_INLINE && at < body.len && !batch->failed; at += BATCH_PART) {
    const size_t left = body.len - at;
    const rdzv_bytes part = {(const uint8_t *)body.data + at, left < BATCH_PART ? left : BATCH_PART};
    put_part(batch, id, part, &now);
  }
  if (!slot) return;
  remove_parts(batch, id, now.parts, slot->parts);
  renew(batch, slot, now);
}

void batch_remove(struct batch *batch, struct record_id id, struct record_slot *slot) {
  remove_parts(batch, id, 0, slot->parts);
  renew(batch, slot, (struct record_slot){0});
}

/* ---- the whole ---------------------------------------------------------------------------------------------- */

void batch_hold(struct batch *batch, struct blob *blob) {
  struct blob **blobs = room_for_one(batch->blobs, batch->blobs_count, &batch->blobs_cap, sizeof(struct blob *));
  if (!blobs) {
    batch->failed = true;
    return;
  }
  batch->blobs = blobs;
  blobs[batch->blobs_count++] = blob_hold(blob);
}

rdzv_bytes batch_copy(struct batch *batch, rdzv_bytes body) {
  struct blob *blob;
  if (body.len <= BATCH_INLINE) return body;
  batch->copies.max = SIZE_MAX;
  if (blob_new(&batch->copies, body.len, &blob) < 0) {
    batch->failed = true;
    return (rdzv_bytes){0};
  }
  bytes_copy(blob->data, body.data, body.len);
  blob->len = body.len;
  batch_hold(batch, blob);
  blob_drop(blob);
  return batch->failed ? (rdzv_bytes){0} : blob_bytes(blob);
}

bool batch_seal(struct batch *batch, struct record_tally *tally) {
  struct keep_change *changes =
      batch->failed ? NULL : realloc(batch->changes, (batch->count ? batch->count : 1) * sizeof *changes);
  if (!changes) return false;
  batch->changes = changes;
  const uint8_t *bytes = batch->bytes.data;
  for (size_t i = 0; i < batch->count; i++) {
    const struct batch_piece *piece = &batch->pieces[i];
    changes[i] = (struct keep_change){.name = {bytes + piece->name, KEEP_MAX_NAME},
                                      .head = {bytes + piece->head, piece->head_len},
                                      .body = piece->body,
                                      .gone = piece->gone};
  }
  for (size_t i = 0; i < batch->renewals_count; i++) *batch->renewals[i].slot = batch->renewals[i].now;
  *tally = batch->tally;
  return true;
}

size_t batch_bytes(const struct batch *batch) {
  return batch->copies.used + batch->bytes.cap + batch->cap * sizeof *batch->pieces +
         batch->count * sizeof *batch->changes + batch->renewals_cap * sizeof *batch->renewals;
}

void batch_clear(struct batch *batch) {
  enum { LARGE = 1024 * 1024 };
  for (size_t i = 0; i < batch->blobs_count; i++) blob_drop(batch->blobs[i]);
  batch->blobs_count = 0;
  if (batch_bytes(batch) > LARGE) batch_free(batch);
  batch->renewals_count = batch->count = batch->bytes.len = 0;
  batch->failed = false;
}

void batch_free(struct batch *batch) {
  for (size_t i = 0; i < batch->blobs_count; i++) blob_drop(batch->blobs[i]);
  free(batch->blobs);
  free(batch->pieces);
  free(batch->changes);
  free(batch->renewals);
  buf_free(&batch->bytes);
  *batch = (struct batch){0};
}
