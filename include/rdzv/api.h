/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_API_H
#define RDZV_API_H

/* What the shared library exports; everything else in it is hidden. */
#define RDZV_API __attribute__((visibility("default")))

/* The compiler checks the arguments of a printf-like function. */
#define RDZV_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

#ifdef __cplusplus
#define RDZV_BEGIN extern "C" {
#define RDZV_END }
#else
#define RDZV_BEGIN
#define RDZV_END
#endif

#endif
