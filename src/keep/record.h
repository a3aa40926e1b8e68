/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is kept, as bytes: the head and body of each kind of object (keep/batch.h). Pure. Readers take hostile bytes:
 * they return RDZV_E_CORRUPT for what no writer has written, and what they return points into the bytes.
 *
 * The format has a number, RECORD_FORMAT, which is in the head. A change that an older reader would misread raises it;
 * a reader refuses a higher one. The join in a node and the answer in a run are in the form of the wire
 * (wire/native.h), so a change there is a change here.
 */
#ifndef RDZV_KEEP_RECORD_H
#define RDZV_KEEP_RECORD_H

#include "base/siphash.h"
#include "keep/batch.h"
#include "state/native/snapshot.h"
#include "wire/writer.h"

enum { RECORD_FORMAT = 1 };

/* One for a keep; its id is RECORD_HEAD_ID. It has no body. */
struct record_head {
  uint64_t instance;         /* of the server, as its clients know it */
  struct siphash_seed seed;  /* of the tokens of sessions */
  uint64_t issued;           /* no session has a higher number */
  uint64_t forgotten;        /* sessions up to this one, without a record, are forgotten */
  uint64_t version;          /* no key has a higher one */
  struct record_tally tally; /* of all other records */
};
#define RECORD_HEAD_ID ((struct record_id){.kind = RECORD_HEAD})

/* A key; the id is the server's. The body is the value. version 0: it has no value, but a queue. */
struct record_key {
  uint64_t version;
  rdzv_bytes key;
};

/* An item of a queue: the id is that of its key, sub its number. The head is empty, the body is the item. */

/* A session of a client: the id is its number. The body is the value that a pop took. */
struct record_session {
  uint64_t epoch, done, result;
  enum wire_op op;
};

/* Write a head; the writer is marked as failed if there is no memory. */
void record_put_head(struct wire_writer *out, const struct record_head *head);
void record_put_key(struct wire_writer *out, const struct record_key *key);
void record_put_session(struct wire_writer *out, const struct record_session *session);

/* A run has a body, and a node has not. */
void record_put_run(struct wire_writer *head, struct wire_writer *body, const struct native_run_snapshot *run);
void record_put_node(struct wire_writer *out, const struct native_node_snapshot *node);

/* RDZV_E_CORRUPT; RDZV_E_UNSUPPORTED: the head is of a newer format. */
int record_read_head(rdzv_bytes head, struct record_head *out, rdzv_error *error);
int record_read_key(rdzv_bytes head, struct record_key *out, rdzv_error *error);
int record_read_session(rdzv_bytes head, struct record_session *out, rdzv_error *error);

/* `gone` and `how` have room for STATE_MAX_NODES. */
int record_read_run(rdzv_bytes head, rdzv_bytes body, uint32_t *gone, uint8_t *how, struct native_run_snapshot *out,
                    rdzv_error *error);
int record_read_node(rdzv_bytes head, struct native_node_snapshot *out, rdzv_error *error);

#endif
