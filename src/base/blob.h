/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes with several holders, such as a value that a store has, that a watcher is to be told of and that is on its way
 * to a client. The last holder that lets go frees them. Not for several threads at once.
 */
#ifndef RDZV_BASE_BLOB_H
#define RDZV_BASE_BLOB_H

#include "base/budget.h"

#include <rdzv/bytes.h>

struct blob {
  struct budget *budget; /* which has it all: the struct and cap */
  size_t holders;
  size_t len; /* used, <= cap */
  size_t cap;
  char data[];
};

/* Room for cap bytes, len 0, one holder. RDZV_E_LIMIT (budget), RDZV_E_NO_MEMORY. */
int blob_new(struct budget *budget, size_t cap, struct blob **out);

/* Other room for a blob that has one holder; its bytes are kept as far as they fit. On an error nothing is changed. */
int blob_resize(struct blob **blob, size_t cap);

/* NULL is fine for all of these. */
static inline struct blob *blob_hold(struct blob *blob) {
  if (blob) blob->holders++;
  return blob;
}
void blob_drop(struct blob *blob);

static inline rdzv_bytes blob_bytes(const struct blob *blob) {
  return blob ? (rdzv_bytes){blob->data, blob->len} : (rdzv_bytes){0};
}

#endif
