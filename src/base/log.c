/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include "base/text/log_text.h"
#include "base/text/options.h"
#include "base/text/printable.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 2048 };

static const char *const names[] = {"off", "error", "warning", "info", "debug"};

const char *rdzv_log_level_name(rdzv_log_level level) {
  return (unsigned)level < sizeof names / sizeof names[0] ? names[level] : "unknown";
}

int rdzv_log_level_parse(const char *name) {
  for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
    if (strcmp(name, names[i]) == 0) return i;
  return -1;
}

/* ---- the log of RDZV_LOG -------------------------------------------------------------------------------------- */

/* One write a line, so that lines of several threads and processes do not mix. */
static void write_stderr(void *user, rdzv_log_level level, const char *line) {
  char text[LINE_SIZE + sizeof(struct log_prefix) + 16];
  (void)user;
  const int len = snprintf(text, sizeof text, "%s%s: %s\n", log_prefix(program_invocation_short_name).text,
                           rdzv_log_level_name(level), line);
  (void)!write(STDERR_FILENO, text, (size_t)len);
}

/* One line a process, however many objects it opens. */
static void complain_once(const char *value) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  char line[256];
  if (atomic_flag_test_and_set(&said)) return;
  snprintf(line, sizeof line, "invalid value '%.64s' for RDZV_LOG: expected off, error, warning, info or debug", value);
  printable_in_place(line, sizeof line);
  write_stderr(NULL, RDZV_LOG_ERROR, line);
}

/* A process that runs with more rights than its caller ignores the caller's variable. */
static void take_environment(rdzv_log *own) {
  const char *value = secure_getenv("RDZV_LOG");
  if (!value || !*value) return;
  const int level = rdzv_log_level_parse(value);
  if (level < 0) return complain_once(value);
  own->write = write_stderr;
  own->level = (rdzv_log_level)level;
}

/* ---- logs ----------------------------------------------------------------------------------------------------- */

int log_take(const rdzv_log **log, rdzv_log *own, rdzv_error *error) {
  const int result = options_take(own, sizeof *own, *log, "rdzv_log", error);
  if (result < 0) return result;
  if (!*log) take_environment(own);
  *log = own;
  return 0;
}

void log_line(const rdzv_log *log, rdzv_log_level level, const char *format, ...) {
  if (!log_on(log, level)) return;
  char line[LINE_SIZE];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  printable_in_place(line, sizeof line);
  log->write(log->user, level, line);
}
