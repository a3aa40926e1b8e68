/* SPDX-License-Identifier: BSD-3-Clause */
/* "Did you mean …?" */
#ifndef RDZV_BASE_TEXT_NEAREST_H
#define RDZV_BASE_TEXT_NEAREST_H

#include <stddef.h>

/* The name that takes the fewest changes of a letter to become `given`; NULL where none is near. */
const char *nearest_name(const char *given, const char *const *names, size_t count);

#endif
