/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct cause_text cause_of(int errnum) {
  struct cause_text cause;
  struct rlimit limit;
  snprintf(cause.text, sizeof cause.text, "%s", strerror(errnum));
  const size_t len = strlen(cause.text);
  if (errnum == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    snprintf(cause.text + len, sizeof cause.text - len, " (the limit is %llu, see ulimit -n)",
             (unsigned long long)limit.rlim_cur);
  return cause;
}

uint64_t raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return 0;
  const struct rlimit raised = {limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return (uint64_t)limit.rlim_cur;
}
