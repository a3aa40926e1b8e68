/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/options.h"

#include "base/error.h"

#include <string.h>

int options_copy(void *to, size_t to_size, const void *from, rdzv_error *error) {
  memset(to, 0, to_size);
  if (!from) return 0;
  size_t size;
  memcpy(&size, from, sizeof size);
  if (size < sizeof size) return error_set(error, RDZV_E_INVALID, "invalid options: their size is not set");
  memcpy(to, from, size < to_size ? size : to_size);
  return 0;
}
