/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/log_text.h"
#include "cli/cli.h"
#include "cli/rendezvous/event_log.h"
#include "cli/terminal.h"

#include <errno.h>
#include <rdzv/bytes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct shown shown(const char *text) {
  struct shown out;
  rdzv_printable(rdzv_str(text), out.text, sizeof out.text);
  return out;
}

/* ---- as JSON -------------------------------------------------------------------------------------------------- */

static bool as_json;

void write_messages_as_json(void) { as_json = true; }

static void write_json_line(rdzv_log_level level, const char *line) {
  char time_text[40], host[256] = "";
  format_time(now_us(), time_text);
  gethostname(host, sizeof host - 1);
  write_object(STDERR_FILENO, json_pack("{s:s, s:s, s:i, s:s, s:s}", "time", time_text, "host", host, "pid",
                                        (int)getpid(), "level", rdzv_log_level_name(level), "message", line));
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

static void print_message(const char *command, rdzv_log_level level, const char *line) {
  const struct paint color = paint(level);
  if (as_json)
    write_json_line(level, line);
  else
    fprintf(stderr, "%s%s: %s%s\n", color.begin, command, line, color.end);
}

void complain(const char *command, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  char line[sizeof text + sizeof(struct hint)];
  snprintf(line, sizeof line, "%s%s", shown(text).text, source_of_value(text).text);
  print_message(command, RDZV_LOG_ERROR, line);
}

void remark(const char *command, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  print_message(command, RDZV_LOG_INFO, shown(text).text);
}

int complain_error(const char *command, const rdzv_error *error) {
  complain(command, "%s", error->message);
  return exit_code_of(error->code);
}

int complain_no_memory(const char *command) {
  complain(command, "out of memory");
  return EXIT_IO;
}

/* ---- the log -------------------------------------------------------------------------------------------------- */

static atomic_bool line_is_open;

void show_open_line(bool shown) { atomic_store(&line_is_open, shown); }

static atomic_int least_severe = RDZV_LOG_DEBUG;

void limit_log(rdzv_log_level level) { atomic_store(&least_severe, (int)level); }

/* One write a line, so that lines of several threads do not mix. */
static void write_line(void *command, rdzv_log_level level, const char *line) {
  if ((int)level > atomic_load(&least_severe)) return;
  if (as_json) {
    write_json_line(level, line);
    return;
  }
  const bool terminal = stderr_is_terminal();
  const struct paint color = paint(level);
  const char *name = terminal && level == RDZV_LOG_INFO ? "" : rdzv_log_level_name(level);
  fprintf(stderr, "%s%s%s%s%s%s%s\n", atomic_exchange(&line_is_open, false) ? "\r\033[K" : "", color.begin,
          (terminal ? log_prefix_short : log_prefix)(command).text, name, *name ? ": " : "", shown(line).text,
          color.end);
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
