/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_LOG_H
#define RDZV_LOG_H

#include <rdzv/api.h>
#include <stddef.h>

typedef enum rdzv_log_level {
  RDZV_LOG_OFF = 0,
  RDZV_LOG_ERROR,
  RDZV_LOG_WARNING,
  RDZV_LOG_INFO,
  RDZV_LOG_DEBUG,
} rdzv_log_level;

/*
 * Where an object's log lines go. Each object that logs takes a pointer to one in its options, and copies it; NULL,
 * the default, is nowhere. So two users of the library in one process share nothing.
 *
 * write() gets one line without a line end. It may be called from any thread that uses the object and from the
 * object's own threads, from several at once; it must not call back into that object.
 */
typedef struct rdzv_log {
  size_t size; /* sizeof(rdzv_log) */
  void (*write)(void *user, rdzv_log_level level, const char *line);
  void *user;
  rdzv_log_level level; /* the most talkative level that is written */
} rdzv_log;

RDZV_BEGIN

/* "error", "warning", "info", "debug", "off". Static storage. */
RDZV_API const char *rdzv_log_level_name(rdzv_log_level level);

/* The level of that name, or -1. */
RDZV_API int rdzv_log_level_parse(const char *name);

RDZV_END

#endif
