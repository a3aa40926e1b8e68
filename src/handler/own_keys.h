/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_HANDLER_OWN_KEYS_H
#define RDZV_HANDLER_OWN_KEYS_H

#include <rdzv/store.h>

/* Sets keys that only this node writes, each with one value for good. Then doing it twice is as good as once, and it is
 * repeated where the outcome is unknown: where the connection to a PyTorch server was lost. */
int own_keys_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count, rdzv_error *error);

#endif
