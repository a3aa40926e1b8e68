/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is the judge any good?
 *
 *   chaos_judge FILE    the histories of the file (see histories.txt): each must be found to be what it says it is
 */
#include "history.h"

#include <stdlib.h>
#include <string.h>

struct case_ {
  char name[256];
  bool good;
  struct dialect_rules rules;
  struct op ops[HISTORY_OPS];
  const struct op *list[HISTORY_OPS];
  size_t count;
};

static const char *past(const char *line, const char *word) {
  const size_t len = strlen(word);
  return strncmp(line, word, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
}

/* "good NAME", "bad queue NAME", … */
static bool read_title(const char *line, struct case_ *one) {
  const char *rest = past(line, "good"), *more;
  one->good = rest != NULL;
  if (!rest) rest = past(line, "bad");
  if (!rest) return false;
  one->count = 0;
  one->rules = (struct dialect_rules){0};
  if ((more = past(rest, "queue"))) one->rules.queue = true;
  if (!more && (more = past(rest, "file"))) one->rules.delete_says_yes = one->rules.empty_is_a_zero = true;
  snprintf(one->name, sizeof one->name, "%.*s", (int)strcspn(more ? more : rest, "\n"), more ? more : rest);
  return true;
}

/* 1 where it is judged wrongly. */
static int judge(struct case_ *one) {
  if (one->name[0] == '\0') return 0;
  for (size_t i = 0; i < one->count; i++) one->list[i] = &one->ops[i];
  const struct check_result result = history_check(one->list, one->count, one->rules);
  if (result.verdict == (one->good ? LINEARIZABLE : NOT_LINEARIZABLE)) return 0;
  printf("FAIL %s: found %s\n", one->name, one->good ? "bad" : "good");
  history_print(stdout, one->list, one->count, &result);
  return 1;
}

int main(int argc, char **argv) {
  static struct case_ one;
  char line[2048];
  int wrong = 0, good = 0, bad = 0;
  FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!file) return fputs("usage: chaos_judge FILE\n", stderr), 2;
  for (int number = 1; fgets(line, sizeof line, file); number++) {
    if (line[0] == '#' || line[0] == '\n') continue;
    if (strncmp(line, "good ", 5) == 0 || strncmp(line, "bad ", 4) == 0) {
      wrong += judge(&one);
      read_title(line, &one);
      *(one.good ? &good : &bad) += 1;
    } else if (one.count == HISTORY_OPS || !op_parse(line, &one.ops[one.count++])) {
      return fprintf(stderr, "%s:%d: not an operation: %s", argv[1], number, line), 2;
    }
  }
  wrong += judge(&one);
  fclose(file);
  printf("%d good and %d bad histories, %d judged wrongly\n", good, bad, wrong);
  return wrong > 0 || good == 0 || bad == 0;
}
