/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool stderr_is_terminal(void) { return isatty(STDERR_FILENO); }

bool stderr_takes_codes(void) {
  const char *term = getenv("TERM");
  return stderr_is_terminal() && !(term && strcmp(term, "dumb") == 0);
}

static bool is_painted(rdzv_log_level level) {
  const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */
  return (level == RDZV_LOG_ERROR || level == RDZV_LOG_WARNING) && !(no_color && *no_color) && stderr_takes_codes();
}

struct paint paint(rdzv_log_level level) {
  if (!is_painted(level)) return (struct paint){"", ""};
  return (struct paint){level == RDZV_LOG_ERROR ? "\033[31m" : "\033[33m", "\033[m"};
}
