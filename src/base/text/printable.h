/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_TEXT_PRINTABLE_H
#define RDZV_BASE_TEXT_PRINTABLE_H

#include <stddef.h>

enum { PRINTABLE_MOST = 1024 };

/* Makes a sentence of `size` bytes, at most PRINTABLE_MOST, printable where it stands, as rdzv_printable does: it may
 * have texts of others in it. What does not fit any more is cut off. */
void printable_in_place(char *text, size_t size);

#endif
