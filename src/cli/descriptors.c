/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <sys/resource.h>

uint64_t raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return 0;
  const struct rlimit raised = {limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return (uint64_t)limit.rlim_cur;
}
