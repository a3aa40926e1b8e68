/* SPDX-License-Identifier: BSD-3-Clause */
/* Fills an rdzv_error. The functions take a NULL error, too, and return the code, so that a caller can write
 * `return error_set(error, RDZV_E_..., ...)`. */
#ifndef RDZV_BASE_ERROR_H
#define RDZV_BASE_ERROR_H

#include <rdzv/error.h>
#include <stdint.h>

/* A text that is too long lacks its middle: what was tried is its begin, the innermost cause its end. */
int error_set(rdzv_error *error, int code, const char *format, ...) RDZV_PRINTF(3, 4);

/* Like error_set, and appends ": " and the text of errnum; for EMFILE with the limit. */
int error_errno(rdzv_error *error, int code, int errnum, const char *format, ...) RDZV_PRINTF(4, 5);

/* Puts "text: " before the message, so that the innermost cause stays last, and returns the code of the error. An error
 * that is still empty (its code is 0) gets `code` and its general text. For NULL `code` is returned. */
int error_prefix(rdzv_error *error, int code, const char *format, ...) RDZV_PRINTF(3, 4);

/* Appends a text to the message. */
void error_append(rdzv_error *error, const char *format, ...) RDZV_PRINTF(2, 3);

int error_no_memory(rdzv_error *error);

/* RDZV_E_INVALID: the argument `name` of `call` is NULL and must not be. */
int error_null(rdzv_error *error, const char *call, const char *name);

/* RDZV_E_INVALID: a timeout must not be negative. */
int error_timeout(rdzv_error *error, int64_t timeout_ms);

#endif
