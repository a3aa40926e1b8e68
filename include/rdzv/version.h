/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_VERSION_H
#define RDZV_VERSION_H

#include <rdzv/api.h>

/* The build reads these three lines: they are the one place where the version stands. */
#define RDZV_VERSION_MAJOR 0
#define RDZV_VERSION_MINOR 1
#define RDZV_VERSION_PATCH 0

#define RDZV_VERSION (RDZV_VERSION_MAJOR * 10000 + RDZV_VERSION_MINOR * 100 + RDZV_VERSION_PATCH)

RDZV_BEGIN

/* The version of the library that is running, as text ("0.1.0"); it may differ from the macros a program
 * was compiled with. Static storage. Any thread. */
RDZV_API const char *rdzv_version(void);

RDZV_END

#endif
