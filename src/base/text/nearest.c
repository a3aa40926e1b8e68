/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/nearest.h"

#include <string.h>

enum { LONGEST = 64 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* How many letters must be put in, taken out or replaced (Levenshtein). */
static size_t distance(const char *a, const char *b) {
  size_t row[LONGEST + 1];
  const size_t width = strlen(b);
  if (width > LONGEST) return LONGEST;
  for (size_t i = 0; i <= width; i++) row[i] = i;
  for (size_t line = 1; a[line - 1]; line++) {
    size_t corner = row[0];
    row[0] = line;
    for (size_t i = 1; i <= width; i++) {
      const size_t replaced = corner + (a[line - 1] != b[i - 1]);
      corner = row[i];
      row[i] = least(replaced, least(row[i], row[i - 1]) + 1);
    }
  }
  return row[width];
}

const char *nearest_name(const char *given, const char *const *names, size_t count) {
  const size_t len = strlen(given);
  const char *best = NULL;
  size_t fewest = 2 + len / 4; /* more changes than that make another word */
  for (size_t i = 0; i < count && len <= LONGEST; i++) {
    const size_t changes = distance(given, names[i]);
    if (changes >= fewest || changes >= strlen(names[i])) continue;
    fewest = changes;
    best = names[i];
  }
  return best;
}
