/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/own_keys.h"

enum { MAX_REPEATS = 3 };

int own_keys_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count, rdzv_error *error) {
  int result = RDZV_E_OUTCOME_UNKNOWN;
  for (int i = 0; i <= MAX_REPEATS && result == RDZV_E_OUTCOME_UNKNOWN; i++)
    result = rdzv_store_multi_set(store, keys, values, count, error);
  return result;
}
