/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/log_text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *host(void) {
  static _Thread_local char name[256];
  if (!*name && gethostname(name, sizeof name - 1) < 0) strcpy(name, "?");
  name[strcspn(name, ".")] = '\0';
  return name;
}

struct log_prefix log_prefix(const char *name) {
  struct log_prefix prefix;
  struct timespec now;
  struct tm utc;
  char seconds[24];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(prefix.text, sizeof prefix.text, "%s.%03ldZ %s %.64s[%ld]: ", seconds, now.tv_nsec / 1000000, host(), name,
           (long)getpid());
  return prefix;
}

struct log_prefix log_prefix_short(const char *name) {
  struct log_prefix prefix;
  struct tm utc;
  char seconds[16];
  const time_t now = time(NULL);
  gmtime_r(&now, &utc);
  strftime(seconds, sizeof seconds, "%H:%M:%S", &utc);
  snprintf(prefix.text, sizeof prefix.text, "%sZ %.64s: ", seconds, name);
  return prefix;
}
