/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_LOG_H
#define RDZV_BASE_LOG_H

#include <rdzv/error.h>
#include <rdzv/log.h>
#include <stdbool.h>

/* Takes a log over from a caller's options: a copy in *own, to which *log points then. A caller that gives no log
 * (NULL) has the log of RDZV_LOG, if that is set. Fails as options_take does. */
int log_take(const rdzv_log **log, rdzv_log *own, rdzv_error *error);

static inline bool log_on(const rdzv_log *log, rdzv_log_level level) { return log->write && level <= log->level; }

/* Formats and writes a line if the log wants that level. */
void log_line(const rdzv_log *log, rdzv_log_level level, const char *format, ...) RDZV_PRINTF(3, 4);

#endif
