/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * Where log lines go: each object writes to the log in its options. Without one, the environment variable RDZV_LOG
 * decides. */
#ifndef RDZV_LOG_H
#define RDZV_LOG_H

#include <rdzv/api.h>
#include <stddef.h>

/** How important a log line is. */
typedef enum rdzv_log_level {
  RDZV_LOG_OFF = 0, /**< No lines. */
  RDZV_LOG_ERROR,   /**< Something failed, and no call returns it. */
  RDZV_LOG_WARNING, /**< Something needs attention: a wait that takes long, a retry. */
  RDZV_LOG_INFO,    /**< Steps that an operator wants to see. */
  RDZV_LOG_DEBUG,   /**< Decisions of the rendezvous. */
} rdzv_log_level;

/**
 * A log. Options name it by pointer, and the object copies it, so two users of the library in one process share
 * nothing.
 *
 * NULL, the default: if RDZV_LOG is set to a level ("error", "warning", "info", "debug"), the object writes lines of
 * this level and above to stderr, each with the time, the host and the process. If it is unset, empty or "off", the
 * object writes none. The variable is read when the object is opened; a process with the rights of another user
 * (set-user-ID) ignores it. A log whose `write` is NULL writes none in any case.
 *
 * Threads: `write` may be called from every thread that uses the object and from the threads of the object, from
 * several at once. It must not call back into the object.
 */
typedef struct rdzv_log {
  size_t size;                                                       /**< sizeof(rdzv_log) */
  void (*write)(void *user, rdzv_log_level level, const char *line); /**< Writes one line, which has no line end. */
  void *user;                                                        /**< Passed to `write`. */
  rdzv_log_level level;                                              /**< The least important level that is written. */
} rdzv_log;

RDZV_BEGIN

/** Returns the name of a level: "off", "error", "warning", "info", "debug". Static storage. */
RDZV_API const char *rdzv_log_level_name(rdzv_log_level level);

/** Returns the level of that name, or -1. */
RDZV_API int rdzv_log_level_parse(const char *name);

RDZV_END

#endif
