/* SPDX-License-Identifier: BSD-3-Clause */
/* In a build without SQLite. */
#include "base/error.h"
#include "keep/keep.h"

int keep_open_folder(const char *path, struct keep **out, rdzv_error *error) {
  (void)out;
  return error_set(error, RDZV_E_UNSUPPORTED, "cannot keep the state in '%s': this rdzv was built without SQLite",
                   path);
}
