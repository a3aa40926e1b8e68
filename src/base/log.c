/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include "base/text/options.h"
#include "base/text/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {"off", "error", "warning", "info", "debug"};

const char *rdzv_log_level_name(rdzv_log_level level) {
  return (unsigned)level < sizeof names / sizeof names[0] ? names[level] : "unknown";
}

int rdzv_log_level_parse(const char *name) {
  for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
    if (strcmp(name, names[i]) == 0) return i;
  return -1;
}

int log_take(const rdzv_log **log, rdzv_log *own, rdzv_error *error) {
  const int result = options_take(own, sizeof *own, *log, "rdzv_log", error);
  if (result == 0) *log = own;
  return result;
}

void log_line(const rdzv_log *log, rdzv_log_level level, const char *format, ...) {
  if (!log_on(log, level)) return;
  char line[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  printable_in_place(line, sizeof line);
  log->write(log->user, level, line);
}
