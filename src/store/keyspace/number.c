/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers as decimal text. ADD reads and writes one each time, so the usual ones do not go through strtoll and
 * snprintf, which take longer than everything else that an ADD does. */
#include "store/keyspace/parts.h"

#include <errno.h>
#include <stdlib.h>

/* Reads what number_text writes, up to 18 digits. False: it may still be a number. */
static bool parse_plain(rdzv_bytes text, int64_t *number) {
  enum { DIGITS = 18 }; /* any number of so many digits fits */
  const char *at = text.data;
  const bool negative = text.len > 0 && *at == '-';
  const size_t digits = text.len - negative;
  int64_t value = 0;
  if (digits == 0 || digits > DIGITS) return false;
  at += negative;
  for (const char *end = at + digits; at < end; at++) {
    if (*at < '0' || *at > '9') return false;
    value = 10 * value + (*at - '0');
  }
  *number = negative ? -value : value;
  return true;
}

int ks_parse_number(rdzv_bytes text, int64_t *number) {
  const char *start = text.data;
  char *end;
  if (!start) return RDZV_E_NOT_A_NUMBER;
  if (parse_plain(text, number)) return 0;
  errno = 0;
  const long long parsed = strtoll(start, &end, 10);
  if (end == start || errno == ERANGE) return RDZV_E_NOT_A_NUMBER;
  *number = parsed;
  return 0;
}

rdzv_bytes number_text(int64_t number, char out[NUMBER_BYTES]) {
  uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  char *const end = out + NUMBER_BYTES, *at = end;
  do {
    *--at = (char)('0' + left % 10);
    left /= 10;
  } while (left > 0);
  if (number < 0) *--at = '-';
  return (rdzv_bytes){at, (size_t)(end - at)};
}
