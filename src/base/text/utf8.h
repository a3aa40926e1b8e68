/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_TEXT_UTF8_H
#define RDZV_BASE_TEXT_UTF8_H

#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stdint.h>

/* Strict UTF-8: no overlong forms, no surrogates, nothing over U+10FFFF. So the order of the bytes is that of the code
 * points, which is the order of Python's str. */
bool utf8_is_valid(rdzv_bytes text);

/* Returns the length of the first character of `left` > 0 bytes; 0: they do not begin with a character. */
size_t utf8_length(const void *data, size_t left);

/* Takes the first code point off a text, which must be valid and not empty. */
uint32_t utf8_next(rdzv_bytes *text);

#endif
