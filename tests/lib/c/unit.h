/* SPDX-License-Identifier: BSD-3-Clause */
/* What the C tests share: cmocka with the headers it wants, and short names for bytes and errors. */
#ifndef RDZV_TESTS_UNIT_H
#define RDZV_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* A literal as bytes, zero bytes inside it included. */
#define BYTES(literal) ((rdzv_bytes){(literal), sizeof(literal) - 1})

#define assert_bytes(bytes, literal) assert_bytes_((bytes), BYTES(literal), __FILE__, __LINE__)

static inline void assert_bytes_(rdzv_bytes actual, rdzv_bytes expected, const char *file, int line) {
  if (actual.len == expected.len && (actual.len == 0 || memcmp(actual.data, expected.data, actual.len) == 0)) return;
  print_error("'%.*s' (%zu bytes) is not '%.*s' (%zu bytes)\n", (int)actual.len, (const char *)actual.data, actual.len,
              (int)expected.len, (const char *)expected.data, expected.len);
  _fail(file, line);
}

/* An error code, shown by name. */
#define assert_code(actual, expected) assert_code_((actual), (expected), #actual, __FILE__, __LINE__)

static inline void assert_code_(int actual, int expected, const char *what, const char *file, int line) {
  if (actual == expected) return;
  print_error("%s is %s, not %s\n", what, rdzv_error_name(actual), rdzv_error_name(expected));
  _fail(file, line);
}

/* As assert_code, and the error's own code and a sentence that has `part` in it. */
#define assert_error(actual, expected, error, part) \
  assert_error_((actual), (expected), (error), (part), #actual, __FILE__, __LINE__)

static inline void assert_error_(int actual, int expected, const rdzv_error *error, const char *part, const char *what,
                                 const char *file, int line) {
  if (actual != expected && error->code == actual) print_error("%s\n", error->message);
  assert_code_(actual, expected, what, file, line);
  assert_code_(error->code, expected, "the error's code", file, line);
  if (strstr(error->message, part)) return;
  print_error("'%s' is not in '%s'\n", part, error->message);
  _fail(file, line);
}

/* How the time that code takes grows with what it is given: the least processor time of several runs, in microseconds;
 * the machine may be busy with other things. */
static inline double growth_time(void (*run)(void *argument), void *argument) {
  double least = 1e12;
  for (int i = 0; i < 7; i++) {
    struct timespec began, ended;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    run(argument);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    const double took = (double)(ended.tv_sec - began.tv_sec) * 1e6 + (double)(ended.tv_nsec - began.tv_nsec) / 1e3;
    if (took < least) least = took;
  }
  return least;
}

/* Of four times as much: O(n log n) takes about 5 times as long, O(n²) 16 times. */
static inline void assert_not_quadratic(double small, double large) {
  if (large > 10 * small) fail_msg("%.0f us for n, %.0f us for 4 n", small, large);
}

#endif
