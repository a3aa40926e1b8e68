/* SPDX-License-Identifier: BSD-3-Clause */
/* Times as PyTorch's state has them: microseconds since 1970 in UTC, within what Python's datetime can say. */
#ifndef RDZV_STATE_PICKLE_DATETIME_H
#define RDZV_STATE_PICKLE_DATETIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATETIME_NONE INT64_MIN                        /* where Python has None */
#define DATETIME_MIN (INT64_C(-62135596800) * 1000000) /* 0001-01-01T00:00:00.000000 */
#define DATETIME_MAX (INT64_C(253402300800) * 1000000 - 1)

enum { DATETIME_PACKED = 10 }; /* bytes of Python's own packed form */

/* Both are false for what is no time between DATETIME_MIN and DATETIME_MAX, and then write nothing. */
bool datetime_pack(int64_t time, uint8_t packed[DATETIME_PACKED]);
bool datetime_unpack(const uint8_t packed[DATETIME_PACKED], int64_t *time);

/* Python's `fold`, one bit of the packed form, tells two times of one hour in autumn apart. In UTC there is no such
 * hour: the bit says nothing, and Python carries it along. */
static inline void datetime_set_fold(uint8_t packed[DATETIME_PACKED]) { packed[2] |= 0x80; }
static inline bool datetime_fold(const uint8_t packed[DATETIME_PACKED]) { return packed[2] & 0x80; }

#endif
