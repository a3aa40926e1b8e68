/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_TEXT_PRINTABLE_H
#define RDZV_BASE_TEXT_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { PRINTABLE_MOST = 2048 };

/* Has it nothing but printable ASCII? Then there is nothing to do. */
bool is_plain(const char *text);

/* Makes a text printable in place, as rdzv_printable does: it may contain texts of peers. `size` is that of its array,
 * at most PRINTABLE_MOST; what does not fit is cut off. */
void printable_in_place(char *text, size_t size);

#endif
