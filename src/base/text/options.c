/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/options.h"

#include "base/error.h"

#include <rdzv/version.h>
#include <stdbool.h>
#include <string.h>

static bool is_zero(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i]) return false;
  return true;
}

int options_take(void *to, size_t to_size, const void *from, const char *name, rdzv_error *error) {
  memset(to, 0, to_size);
  memcpy(to, &to_size, sizeof to_size);
  if (!from) return 0;
  size_t size;
  memcpy(&size, from, sizeof size);
  if (size < sizeof size)
    return error_set(error, RDZV_E_INVALID, "%s.size is %zu: set it to sizeof(%s)", name, size, name);
  if (size > to_size && !is_zero((const unsigned char *)from + to_size, size - to_size))
    return error_set(error, RDZV_E_INVALID,
                     "%s has a field set that librdzv %s does not have: the program was compiled for a newer version "
                     "of the library (%s.size is %zu, this version has %zu)",
                     name, rdzv_version(), name, size, to_size);
  memcpy(to, from, size < to_size ? size : to_size);
  memcpy(to, &to_size, sizeof to_size);
  return 0;
}
