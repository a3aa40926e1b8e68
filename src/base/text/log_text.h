/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_TEXT_LOG_TEXT_H
#define RDZV_BASE_TEXT_LOG_TEXT_H

/* What a log line on stderr begins with: the time, the host as far as its first dot, a name and the process id. */
struct log_prefix {
  char text[384]; /* "2026-11-18T09:41:07.123Z node0 rdzv serve[4711]: " */
};
struct log_prefix log_prefix(const char *name);

/* The same for a terminal, which its user knows: "09:41:07Z rdzv serve: ". */
struct log_prefix log_prefix_short(const char *name);

#endif
