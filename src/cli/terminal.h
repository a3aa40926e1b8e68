/* SPDX-License-Identifier: BSD-3-Clause */
/* What may be written to stderr beside text. */
#ifndef RDZV_CLI_TERMINAL_H
#define RDZV_CLI_TERMINAL_H

#include <rdzv/log.h>
#include <stdbool.h>

bool stderr_is_terminal(void);

/* Is it a terminal that understands escape sequences? Not with TERM=dumb. */
bool stderr_takes_codes(void);

/* What goes before and after a line: an error is red, a warning yellow. Both are empty without a terminal that takes
 * codes, and with NO_COLOR. */
struct paint {
  const char *begin, *end;
};
struct paint paint(rdzv_log_level level);

#endif
