/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes with several holders: a value in a store may also be on its way to a watcher and to a client. The last holder
 * that drops the blob frees it. Not thread-safe.
 */
#ifndef RDZV_BASE_BLOB_H
#define RDZV_BASE_BLOB_H

#include "base/budget.h"

#include <rdzv/bytes.h>

struct blob {
  struct budget *budget; /* counts the struct and cap */
  size_t holders;
  size_t len; /* used, <= cap */
  size_t cap;
  char data[];
};

/* Allocates room for cap bytes; len is 0, and there is one holder. RDZV_E_LIMIT (budget), RDZV_E_NO_MEMORY. */
int blob_new(struct budget *budget, size_t cap, struct blob **out);

/* Changes the capacity of a blob with one holder; bytes that do not fit are cut off. On failure nothing changes. */
int blob_resize(struct blob **blob, size_t cap);

/* These take NULL, too. */
static inline struct blob *blob_hold(struct blob *blob) {
  if (blob) blob->holders++;
  return blob;
}
void blob_drop(struct blob *blob);

static inline rdzv_bytes blob_bytes(const struct blob *blob) {
  return blob ? (rdzv_bytes){blob->data, blob->len} : (rdzv_bytes){0};
}

#endif
