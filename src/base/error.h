/* SPDX-License-Identifier: BSD-3-Clause */
/* How the library fills an rdzv_error. All of these take a NULL error and return the code, so that a caller can
 * write `return error_set(error, RDZV_E_..., ...)`. */
#ifndef RDZV_BASE_ERROR_H
#define RDZV_BASE_ERROR_H

#include <rdzv/error.h>

int error_set(rdzv_error *error, int code, const char *format, ...) RDZV_PRINTF(3, 4);

/* As error_set, with ": " and the text of errnum behind. */
int error_errno(rdzv_error *error, int code, int errnum, const char *format, ...) RDZV_PRINTF(4, 5);

/* Puts "text: " before the message that is there, so that the innermost cause stays last. Returns the error's code. An
 * error that nobody filled (its code is 0) gets `code` and its general text; `code` is returned where error is NULL. */
int error_prefix(rdzv_error *error, int code, const char *format, ...) RDZV_PRINTF(3, 4);

/* Puts a text behind the message that is there. */
void error_append(rdzv_error *error, const char *format, ...) RDZV_PRINTF(2, 3);

int error_no_memory(rdzv_error *error);

/* RDZV_E_INVALID: the argument `name` of `call` is NULL and must not be. */
int error_null(rdzv_error *error, const char *call, const char *name);

#endif
