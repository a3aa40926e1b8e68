/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The changes of one commit. The server keeps objects: a key with its value, an item of a queue, a session, a run, a
 * node. An object is one record, or if its body is long, several: the parts of the object. Pure.
 *
 * The name of a record: the kind (1 byte), the id and the second id of the object, 8 bytes each, and the part, 4 bytes;
 * all numbers with the highest byte first, so that the order of names is that of kinds, ids and parts. The value: a
 * check sum of name and content (8 bytes), then the content. The content of part 0 is the length of the head, the head,
 * the length of the body, and the body if it is short. A long body follows in parts of BATCH_PART bytes.
 *
 * The tally is the number of all records but the head, and the sum of their check sums. It is stored in the head of
 * each batch, so a load notices records that are missing, or that have come back.
 */
#ifndef RDZV_KEEP_BATCH_H
#define RDZV_KEEP_BATCH_H

#include "base/blob.h"
#include "base/buf.h"
#include "keep/keep.h"

enum {
  BATCH_INLINE = 16 * 1024,
  BATCH_PART = 512 * 1024,
  BATCH_SUM_BYTES = 8,
};

/* The numbers are in the names of records. */
enum record_kind {
  RECORD_HEAD = 1,
  RECORD_KEY,
  RECORD_ITEM,
  RECORD_SESSION,
  RECORD_RUN,
  RECORD_NODE,
  RECORD_KINDS,
};

struct record_id {
  enum record_kind kind;
  uint64_t id, sub; /* sub: of an item in its queue, of a node in its run; else 0 */
};

/* What the server remembers of an object that is kept. All zero: it is not. */
struct record_slot {
  uint64_t sum;   /* of its records, added up */
  uint32_t parts; /* number of its records */
};

struct record_tally {
  uint64_t count, sum;
};

/* The check sum that a record has. */
uint64_t record_sum(rdzv_bytes name, rdzv_bytes content);

/* Writes the name of a record; reads one. False: it is not one. */
void record_name(struct record_id id, uint32_t part, uint8_t out[KEEP_MAX_NAME]);
bool record_read_name(rdzv_bytes name, struct record_id *id, uint32_t *part);

struct batch_piece;
struct batch_renewal;

/* All zero: empty. */
struct batch {
  struct record_tally tally;   /* as it will be */
  struct keep_change *changes; /* valid after batch_seal */
  struct batch_piece *pieces;
  size_t count, cap;
  struct batch_renewal *renewals;
  size_t renewals_count, renewals_cap;
  struct blob **blobs;
  size_t blobs_count, blobs_cap;
  struct buf bytes;     /* names, check sums and short contents */
  struct budget copies; /* of batch_copy; without a limit */
  bool failed;          /* no memory: the batch must not be committed */
};

/* Begins an empty batch, on top of what is kept. */
void batch_begin(struct batch *batch, const struct record_tally *tally);

/* The object is to be that. A body longer than BATCH_INLINE is not copied: the caller has it stay the same until
 * batch_clear, or lets the batch hold its blob. The slot is read now and written by batch_seal. The head has none:
 * NULL. */
void batch_put(struct batch *batch, struct record_id id, rdzv_bytes head, rdzv_bytes body, struct record_slot *slot);
void batch_remove(struct batch *batch, struct record_id id, struct record_slot *slot);

/* Holds a blob until batch_clear. */
void batch_hold(struct batch *batch, struct blob *blob);

/* Makes a copy of a long body that lives until batch_clear; a short body is copied by batch_put. */
rdzv_bytes batch_copy(struct batch *batch, rdzv_bytes body);

/* Makes `changes`, and brings the slots and *tally up to date. False: there was no memory, and nothing is changed. */
bool batch_seal(struct batch *batch, struct record_tally *tally);

/* The bytes that the batch holds, about. */
size_t batch_bytes(const struct batch *batch);

/* Empties it, and keeps some memory for the next one; batch_free frees all. */
void batch_clear(struct batch *batch);
void batch_free(struct batch *batch);

#endif
