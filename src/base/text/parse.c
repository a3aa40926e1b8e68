/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/parse.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool parse_number(const char *text, int64_t least, int64_t most, int64_t *out) {
  char *end;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  if (errno || end == text || *end || number < least || number > most) return false;
  *out = number;
  return true;
}

/* A program may have set a locale in which a comma stands before the fraction. */
static double parse_fraction(const char *text, char **end) {
  const locale_t plain = newlocale(LC_NUMERIC_MASK, "C", NULL);
  const double number = plain ? strtod_l(text, end, plain) : strtod(text, end);
  if (plain) freelocale(plain);
  return number;
}

bool parse_seconds(const char *text, int64_t least_ms, int64_t *out_ms) {
  char *end;
  const double seconds = parse_fraction(text, &end);
  if (end == text || *end || !isfinite(seconds) || seconds < (double)least_ms / 1000 || seconds > 1e9) return false;
  *out_ms = (int64_t)llround(seconds * 1000);
  return true;
}

bool parse_choice(const char *choices, const char *text, int *out) {
  const size_t len = strlen(text);
  int index = 0;
  for (const char *at = choices; at; index++) {
    const char *end = strchrnul(at, '|');
    if (len > 0 && (size_t)(end - at) == len && strncasecmp(at, text, len) == 0) {
      *out = index;
      return true;
    }
    at = *end ? end + 1 : NULL;
  }
  return false;
}

static int digit(char c) {
  if (!isxdigit((unsigned char)c)) return -1;
  return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

bool parse_percent(char *text) {
  char *to = text;
  for (const char *from = text; *from; from++) {
    char byte = *from;
    if (byte == '%') {
      const int high = digit(from[1]), low = high < 0 ? -1 : digit(from[2]);
      if (low < 0 || (high | low) == 0) return false;
      byte = (char)(high << 4 | low);
      from += 2;
    }
    *to++ = byte;
  }
  *to = '\0';
  return true;
}
