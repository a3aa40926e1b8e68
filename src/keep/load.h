/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a whole keep: checks every record, puts parts together, and gives objects to the caller. */
#ifndef RDZV_KEEP_LOAD_H
#define RDZV_KEEP_LOAD_H

#include "keep/record.h"

/* Takes an object that is not the head; the bytes are valid during the call, the slot is to be kept with the object.
 * Below 0: the load ends with that code, and the caller has filled the error. */
typedef int load_take(void *user, struct record_id id, rdzv_bytes head, rdzv_bytes body, struct record_slot slot,
                      rdzv_error *error);

/* Puts parts together. Pure; all zero: nothing has come yet. */
struct loader {
  load_take *take;
  void *user;
  size_t max_body; /* a longer body is corrupt; 0: any */
  struct record_tally tally;
  struct record_head head;
  bool has_head;

  /* The object whose parts are coming. */
  struct record_id id;
  struct record_slot slot;
  struct buf first, body; /* its head and body */
  size_t body_len;
  bool open;
};

/* A keep_take, with the loader as its user. */
int loader_take(void *loader, rdzv_bytes name, rdzv_bytes value, rdzv_error *error);

/* All records have come. RDZV_E_CORRUPT: parts are missing, the tally is wrong, or there are records without a head. */
int loader_end(struct loader *loader, rdzv_error *error);
void loader_free(struct loader *loader);

/* Loads a keep: *head and *tally are filled in if it has records. *is_new: it has none. */
int load_all(struct keep *keep, load_take *take, void *user, struct record_head *head, bool *is_new, rdzv_error *error);

#endif
