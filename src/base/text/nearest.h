/* SPDX-License-Identifier: BSD-3-Clause */
/* "Did you mean …?" */
#ifndef RDZV_BASE_TEXT_NEAREST_H
#define RDZV_BASE_TEXT_NEAREST_H

#include <stddef.h>

/* Returns the name that differs from `given` by the fewest letters; NULL: none is near. */
const char *nearest_name(const char *given, const char *const *names, size_t count);

#endif
