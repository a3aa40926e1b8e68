/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * Macros that the other headers use. */
#ifndef RDZV_API_H
#define RDZV_API_H

/** Marks a function that the library exports. All other symbols are hidden. */
#define RDZV_API __attribute__((visibility("default")))

/** Makes the compiler check the arguments of a printf-like function. */
#define RDZV_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

#ifdef __cplusplus
#define RDZV_BEGIN extern "C" {
#define RDZV_END }
#else
#define RDZV_BEGIN
#define RDZV_END
#endif

#endif
