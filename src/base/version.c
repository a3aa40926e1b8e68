/* SPDX-License-Identifier: BSD-3-Clause */
#include <rdzv/version.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *rdzv_version(void) {
  return TEXT(RDZV_VERSION_MAJOR) "." TEXT(RDZV_VERSION_MINOR) "." TEXT(RDZV_VERSION_PATCH);
}
