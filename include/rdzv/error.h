/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * Errors. Every function of this library that can fail returns 0 or one of these negative codes, and fills an optional
 * rdzv_error. Its message says what was tried, on what, and why it failed, with the innermost cause last. Everything
 * here can be used from any thread, and has no effect on the process. */
#ifndef RDZV_ERROR_H
#define RDZV_ERROR_H

#include <rdzv/api.h>
#include <stdint.h>

/** What a caller can do about an error. */
typedef enum rdzv_error_class {
  RDZV_ERROR_CLASS_OK = 0,    /**< No error. */
  RDZV_ERROR_CLASS_RETRYABLE, /**< Nothing was changed, or a repetition does no harm: the same call may succeed later.
                               */
  RDZV_ERROR_CLASS_DEFINITE,  /**< The same call fails again until something else changes. */
  RDZV_ERROR_CLASS_UNCERTAIN, /**< The call may have taken effect, or data that was written before is lost. Read before
                                 you continue. */
} rdzv_error_class;

/** All errors: name, number, class, general text. */
#define RDZV_ERROR_LIST(X)                                                                                            \
  X(INVALID, -1, DEFINITE, "invalid argument")                                                                        \
  X(NO_MEMORY, -2, RETRYABLE, "out of memory")                                                                        \
  X(TIMEOUT, -3, RETRYABLE, "timed out")                                                                              \
  X(CANCELED, -4, DEFINITE, "canceled")                                                                               \
  X(CONNECTION, -5, RETRYABLE, "connection failed")                                                                   \
  X(ADDRESS, -6, RETRYABLE, "address cannot be resolved")                                                             \
  X(OUTCOME_UNKNOWN, -7, UNCERTAIN, "the connection was lost before the answer: it may or may not have taken effect") \
  X(PROTOCOL, -8, DEFINITE, "the peer broke the protocol")                                                            \
  X(UNSUPPORTED, -9, DEFINITE, "not supported")                                                                       \
  X(NOT_A_NUMBER, -10, DEFINITE, "the value is not a number")                                                         \
  X(LIMIT, -11, DEFINITE, "over a limit")                                                                             \
  X(EMPTY, -12, RETRYABLE, "the queue is empty")                                                                      \
  X(IO, -13, DEFINITE, "input or output failed")                                                                      \
  X(NO_SPACE, -14, RETRYABLE, "no space left")                                                                        \
  X(CORRUPT, -15, DEFINITE, "the data is corrupt")                                                                    \
  X(STALE, -16, DEFINITE, "left over from another run")                                                               \
  X(IN_USE, -17, RETRYABLE, "the address is in use")                                                                  \
  X(STOPPED, -18, RETRYABLE, "the server is stopping")                                                                \
  X(DATA_LOST, -19, UNCERTAIN, "the server was restarted and has forgotten its keys")                                 \
  X(CLOSED, -20, DEFINITE, "the rendezvous is closed")                                                                \
  X(GRACEFUL_EXIT, -21, DEFINITE, "the rendezvous was closed while this node was a spare")

/** The error codes: RDZV_E_INVALID and so on, one for each entry of RDZV_ERROR_LIST. */
typedef enum rdzv_error_code {
  RDZV_OK = 0, /**< Success. */
#define RDZV_ERROR_ENUM(name, number, class_, text) RDZV_E_##name = number,
  RDZV_ERROR_LIST(RDZV_ERROR_ENUM)
#undef RDZV_ERROR_ENUM
} rdzv_error_code;

/** The size of a message in bytes, with the zero byte at its end. */
#define RDZV_MESSAGE_SIZE 988

/**
 * Why a call failed. A plain value in the caller's memory: there is nothing to initialise and nothing to free. A call
 * that fails writes all of it; a call that succeeds leaves it untouched.
 *
 * It has 1024 bytes in every version of this library. A later version may give a meaning to the reserved part, which is
 * zero until then.
 */
typedef struct rdzv_error {
  int code;                        /**< RDZV_E_…; what the call has returned */
  char message[RDZV_MESSAGE_SIZE]; /**< A sentence, printable, on one line. A long message lacks its middle
                                      ("..."); the innermost cause is its end. */
  uint32_t reserved[8];            /**< Zero. */
} rdzv_error;

RDZV_BEGIN

/** Returns the general text of a code ("timed out"), or "unknown error". Static storage. */
RDZV_API const char *rdzv_error_text(int code);

/** Returns the name of a code as in RDZV_ERROR_LIST ("TIMEOUT"), or "UNKNOWN". Static storage. */
RDZV_API const char *rdzv_error_name(int code);

/** Returns the class of a code; RDZV_ERROR_CLASS_UNCERTAIN for a number that is not a code. */
RDZV_API rdzv_error_class rdzv_error_class_of(int code);

RDZV_END

#endif
