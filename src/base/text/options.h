/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_TEXT_OPTIONS_H
#define RDZV_BASE_TEXT_OPTIONS_H

#include <rdzv/error.h>
#include <stddef.h>

/* Copies an options struct, whose first member is its size, from a caller that may have been compiled with another
 * version of the header: what the caller does not know is zero. `from` may be NULL. RDZV_E_INVALID where its size is
 * none. */
int options_copy(void *to, size_t to_size, const void *from, rdzv_error *error);

#endif
