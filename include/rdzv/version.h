/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * The version of the library. */
#ifndef RDZV_VERSION_H
#define RDZV_VERSION_H

#include <rdzv/api.h>

/* The build reads the three definitions that follow: the version is defined here only. */
/** Changes when programs have to be changed. */
#define RDZV_VERSION_MAJOR 0
/** Changes when something is added; before 1.0 also when programs have to be changed. */
#define RDZV_VERSION_MINOR 1
/** Changes when something is fixed. */
#define RDZV_VERSION_PATCH 0

/** The version that a program is compiled with, as one number: 100 for 0.1.0. */
#define RDZV_VERSION (RDZV_VERSION_MAJOR * 10000 + RDZV_VERSION_MINOR * 100 + RDZV_VERSION_PATCH)

RDZV_BEGIN

/** Returns the version of the library that runs, as text ("0.1.0"). It may differ from the version that the program was
 * compiled with. Static storage. */
RDZV_API const char *rdzv_version(void);

RDZV_END

#endif
