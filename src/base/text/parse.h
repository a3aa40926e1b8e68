/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of flags and options. Each function takes the whole text or fails, and writes *out on success only. */
#ifndef RDZV_BASE_TEXT_PARSE_H
#define RDZV_BASE_TEXT_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* A whole number in decimal, from `least` to `most`. */
bool parse_number(const char *text, int64_t least, int64_t most, int64_t *out);

/* A number of seconds with or without a fraction, from `least_ms` to 10^9 s (thirty years), in milliseconds. */
bool parse_seconds(const char *text, int64_t least_ms, int64_t *out_ms);

/* The index of the text in a list such as "tcp|file", in upper or lower case. */
bool parse_choice(const char *choices, const char *text, int *out);

/* Decodes "%40" to "@" in place. Fails where two hexadecimal digits do not follow a '%', and for the byte 0. */
bool parse_percent(char *text);

#endif
