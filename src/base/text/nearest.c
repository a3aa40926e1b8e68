/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/nearest.h"

#include <string.h>

enum { LONGEST = 64 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The number of letters to insert, to delete, to replace, or to exchange with the next one. */
static size_t distance(const char *a, const char *b) {
  size_t rows[3][LONGEST + 1] = {{0}}, line = 0;
  const size_t width = strlen(b);
  if (width > LONGEST) return LONGEST;
  for (size_t i = 0; i <= width; i++) rows[0][i] = i;
  while (a[line]) {
    const size_t *above = rows[line % 3], *second = rows[(line + 2) % 3];
    size_t *row = rows[++line % 3];
    row[0] = line;
    for (size_t i = 1; i <= width; i++) {
      row[i] = least(above[i - 1] + (a[line - 1] != b[i - 1]), least(above[i], row[i - 1]) + 1);
      if (line > 1 && i > 1 && a[line - 1] == b[i - 2] && a[line - 2] == b[i - 1])
        row[i] = least(row[i], second[i - 2] + 1);
    }
  }
  return rows[line % 3][width];
}

const char *nearest_name(const char *given, const char *const *names, size_t count) {
  const size_t len = strlen(given);
  const char *best = NULL;
  size_t fewest = len < 3 ? 1 : 2 + len / 4; /* as many changes make another word: 'v3' is not a misspelled 'v1' */
  for (size_t i = 0; i < count && len <= LONGEST; i++) {
    const size_t changes = distance(given, names[i]);
    if (changes >= fewest || changes >= strlen(names[i])) continue;
    fewest = changes;
    best = names[i];
  }
  return best;
}
