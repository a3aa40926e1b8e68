/* SPDX-License-Identifier: BSD-3-Clause */
/* Times as text: "2026-11-15T20:00:00.000000Z". */
#ifndef RDZV_TESTS_DATETIME_TEXT_H
#define RDZV_TESTS_DATETIME_TEXT_H

#include "state/pickle/datetime.h"

enum { DATETIME_TEXT = sizeof "2026-11-15T20:00:00.000000Z" - 1 };

/* Both are false for what is no time between DATETIME_MIN and DATETIME_MAX, and then write nothing. */
bool datetime_format(int64_t time, char text[DATETIME_TEXT + 1]);
bool datetime_parse(const char *text, size_t len, int64_t *time); /* takes this one form only */

#endif
