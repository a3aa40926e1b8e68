/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <rdzv/bytes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct shown shown(const char *text) {
  struct shown out;
  rdzv_printable(rdzv_str(text), out.text, sizeof out.text);
  return out;
}

void complain(const char *command, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "%s: %s\n", command, shown(text).text);
}

int complain_error(const char *command, const rdzv_error *error) {
  complain(command, "%s", error->message);
  return exit_code_of(error->code);
}

int complain_no_memory(const char *command) {
  complain(command, "out of memory");
  return EXIT_IO;
}

int finish_output(const char *command, bool printed) {
  if (printed && fflush(stdout) == 0 && !ferror(stdout)) return EXIT_YES;
  complain(command, "cannot write to stdout: %s", strerror(errno));
  return EXIT_IO;
}

static atomic_bool line_is_open;

void show_open_line(bool shown) { atomic_store(&line_is_open, shown); }

/* The name of the machine, as far as the first dot: of many in a job, which one says it? */
static const char *host(void) {
  static _Thread_local char name[256];
  if (!*name && gethostname(name, sizeof name - 1) < 0) strcpy(name, "?");
  name[strcspn(name, ".")] = '\0';
  return name;
}

/* One write a line, so that lines of several threads do not mix. */
static void write_line(void *command, rdzv_log_level level, const char *line) {
  char time_text[32];
  struct timespec now;
  struct tm utc;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%S", &utc);
  fprintf(stderr, "%s%s.%03ldZ %s %s[%ld]: %s: %s\n", atomic_exchange(&line_is_open, false) ? "\r\033[K" : "",
          time_text, now.tv_nsec / 1000000, host(), (const char *)command, (long)getpid(), rdzv_log_level_name(level),
          shown(line).text);
}

const rdzv_log *stderr_log(const char *command, int level) {
  static rdzv_log log;
  log = (rdzv_log){.size = sizeof log, .write = write_line, .user = (void *)command, .level = (rdzv_log_level)level};
  return &log;
}

int exit_code_of(int error_code) {
  switch (error_code) {
    case RDZV_OK: return EXIT_YES;
    case RDZV_E_EMPTY: return EXIT_NO;
    case RDZV_E_INVALID: return EXIT_USAGE;
    case RDZV_E_CONNECTION:
    case RDZV_E_ADDRESS:
    case RDZV_E_PROTOCOL:
    case RDZV_E_IN_USE:
    case RDZV_E_STOPPED: return EXIT_CONNECT;
    case RDZV_E_TIMEOUT: return EXIT_TIMEOUT;
    case RDZV_E_CLOSED: return EXIT_CLOSED;
    case RDZV_E_OUTCOME_UNKNOWN: return EXIT_UNKNOWN;
    case RDZV_E_IO:
    case RDZV_E_NO_SPACE:
    case RDZV_E_NO_MEMORY: return EXIT_IO;
    default: return EXIT_REFUSED;
  }
}
