/* SPDX-License-Identifier: BSD-3-Clause */
/* What `rdzv store` prints: plain for people, one JSON object a line for machines. All return the exit code. Bytes
 * that are not UTF-8 are printed as hexadecimal digits in JSON, under the name with _hex behind it. */
#ifndef RDZV_CLI_STORE_OUTPUT_H
#define RDZV_CLI_STORE_OUTPUT_H

#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stdint.h>

int output_done(bool json);
int output_flag(bool json, const char *name, bool flag); /* plain: nothing; the exit code tells */
int output_number(bool json, const char *name, int64_t number);
int output_value(bool json, bool raw, rdzv_bytes key, rdzv_bytes value);
int output_swap(bool json, bool raw, rdzv_bytes key, rdzv_bytes value, bool swapped);
int output_values(bool json, const rdzv_bytes *keys, const rdzv_value *values, size_t count);
int output_keys(bool json, const rdzv_value *keys, size_t count);

/* To stderr. */
void output_error(bool json, const char *command, const rdzv_error *error);

#endif
