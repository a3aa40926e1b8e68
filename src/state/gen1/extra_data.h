/* SPDX-License-Identifier: BSD-3-Clause */
/* The extra data of a round of the first-generation rendezvous: one JSON object, whose values are texts for us. */
#ifndef RDZV_STATE_GEN1_EXTRA_DATA_H
#define RDZV_STATE_GEN1_EXTRA_DATA_H

#include <rdzv/bytes.h>
#include <rdzv/error.h>

/* The object (NULL: an empty one) with that name set, as text to be freed. NULL: it is not an object, or no memory. */
char *extra_with(const char *object, const char *key, const char *value);

/* 1: *out is the text under that name, or the JSON of another value; 0: there is none. RDZV_E_CORRUPT,
 * RDZV_E_NO_MEMORY. */
int extra_of(const char *object, const char *key, rdzv_value *out, rdzv_error *error);

#endif
