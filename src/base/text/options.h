/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_TEXT_OPTIONS_H
#define RDZV_BASE_TEXT_OPTIONS_H

#include <rdzv/error.h>
#include <stddef.h>

/* Copies the public struct `name`, whose first field is its size, from a caller that may have been compiled with
 * another version of the header. NULL is all zero. Fields that an older caller does not have are zero. A newer caller
 * may have more fields, if they are all zero. RDZV_E_INVALID: they are not, or the size is not set. The copy has our
 * size. */
int options_take(void *to, size_t to_size, const void *from, const char *name, rdzv_error *error);

#endif
