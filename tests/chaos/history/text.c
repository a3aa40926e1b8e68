/* SPDX-License-Identifier: BSD-3-Clause */
#include "history.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[OP_KINDS] = {"set",  "get",  "check", "add", "append", "cas", "delete",
                                            "getv", "casv", "push",  "pop", "len",    "wipe"};

static const char *shown(const char *text) { return *text ? text : "''"; }

static void print_arguments(FILE *file, const struct op *op) {
  switch (op->kind) {
    case OP_SET:
    case OP_APPEND:
    case OP_PUSH: fprintf(file, " %s", shown(op->value)); break;
    case OP_ADD: fprintf(file, " %" PRId64, op->number); break;
    case OP_COMPARE_SET: fprintf(file, " %s %s", shown(op->expected), shown(op->value)); break;
    case OP_COMPARE_SET_VERSION: fprintf(file, " %" PRIu64 " %s", op->expected_version, shown(op->value)); break;
    default: break;
  }
}

static void print_answer(FILE *file, const struct op *op) {
  switch (op->kind) {
    case OP_GET:
    case OP_COMPARE_SET: fprintf(file, " = %s", shown(op->out)); break;
    case OP_POP: fprintf(file, " = %s", op->outcome == EMPTY ? "empty" : shown(op->out)); break;
    case OP_CHECK:
    case OP_DELETE: fprintf(file, " = %s", op->flag ? "yes" : "no"); break;
    case OP_GET_VERSION: fprintf(file, " = %s %" PRIu64, shown(op->out), op->version); break;
    case OP_COMPARE_SET_VERSION:
      fprintf(file, " = %s %" PRIu64, op->flag ? "swapped" : shown(op->out), op->version);
      break;
    case OP_LEN: fprintf(file, " = %" PRId64, op->number); break;
    case OP_ADD:
      if (op->outcome == NOT_A_NUMBER)
        fputs(" = nan", file);
      else
        fprintf(file, " = %" PRId64, op->sum);
      break;
    default: break;
  }
}

void op_print(FILE *file, const struct op *op) {
  fprintf(file, "%d %" PRId64 " ", op->worker, op->call_us);
  if (op->outcome == UNKNOWN)
    fputc('-', file);
  else
    fprintf(file, "%" PRId64, op->return_us);
  fprintf(file, " %s", names[op->kind]);
  print_arguments(file, op);
  if (op->outcome != UNKNOWN) print_answer(file, op);
  fputc('\n', file);
}

void history_print(FILE *file, const struct op *const *ops, size_t count, const struct check_result *result) {
  for (size_t i = 0; i < count; i++) {
    const bool left_out = ops[i]->outcome == FAILED || (ops[i]->outcome == UNKNOWN && model_is_read(ops[i]->kind));
    if (left_out && model_is_read(ops[i]->kind)) continue;
    if (left_out) fprintf(file, "# did not happen, code %d: ", ops[i]->code);
    op_print(file, ops[i]);
  }
  if (!result) return;
  fprintf(file, "# in this order as far as it goes, %zu of them:\n", result->longest);
  for (size_t i = 0; i < result->longest; i++) {
    fputs("#   ", file);
    op_print(file, result->order[i]);
  }
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static void copy(char *to, const char *word) { snprintf(to, HISTORY_TEXT, "%s", strcmp(word, "''") == 0 ? "" : word); }

/* Splits at blanks; how many words there are. */
static size_t split(char *line, char **words, size_t most) {
  size_t count = 0;
  char *rest = NULL;
  for (char *word = strtok_r(line, " \n", &rest); word && count < most; word = strtok_r(NULL, " \n", &rest))
    words[count++] = word;
  return count;
}

static bool read_kind(const char *word, enum op_kind *kind) {
  for (int i = 0; i < OP_KINDS; i++)
    if (strcmp(word, names[i]) == 0) {
      *kind = (enum op_kind)i;
      return true;
    }
  return false;
}

/* The words before "="; how many there must be. */
static size_t read_arguments(struct op *op, char *const *words, size_t count) {
  switch (op->kind) {
    case OP_SET:
    case OP_APPEND:
    case OP_PUSH:
      if (count == 1) copy(op->value, words[0]);
      return 1;
    case OP_ADD:
      if (count == 1) op->number = strtoll(words[0], NULL, 10);
      return 1;
    case OP_COMPARE_SET:
    case OP_COMPARE_SET_VERSION:
      if (count < 2) return 2;
      copy(op->expected, words[0]);
      op->expected_version = strtoull(words[0], NULL, 10);
      copy(op->value, words[1]);
      return 2;
    default: return 0;
  }
}

/* The words behind it; how many there must be. */
static size_t read_answer(struct op *op, char *const *words, size_t count) {
  if (count > 0) copy(op->out, words[0]);
  if (count > 1) op->version = strtoull(words[1], NULL, 10);
  op->flag = strcmp(op->out, "yes") == 0 || strcmp(op->out, "swapped") == 0;
  if (op->kind == OP_COMPARE_SET_VERSION && op->flag) op->out[0] = '\0';
  if (op->kind == OP_ADD) op->sum = strtoll(op->out, NULL, 10);
  if (op->kind == OP_LEN) op->number = strtoll(op->out, NULL, 10);
  if (op->kind == OP_ADD && strcmp(op->out, "nan") == 0) op->outcome = NOT_A_NUMBER;
  if (op->kind == OP_POP && strcmp(op->out, "empty") == 0) op->outcome = EMPTY;
  switch (op->kind) {
    case OP_GET_VERSION:
    case OP_COMPARE_SET_VERSION: return 2;
    case OP_SET:
    case OP_APPEND:
    case OP_PUSH:
    case OP_WIPE: return 0;
    default: return 1;
  }
}

bool op_parse(const char *line, struct op *op) {
  char text[4 * HISTORY_TEXT], *words[16];
  snprintf(text, sizeof text, "%s", line);
  const size_t count = split(text, words, 12);
  *op = (struct op){0};
  if (count < 4 || !read_kind(words[3], &op->kind)) return false;
  op->worker = (int32_t)strtol(words[0], NULL, 10);
  op->call_us = strtoll(words[1], NULL, 10);
  op->return_us = strtoll(words[2], NULL, 10);
  op->outcome = strcmp(words[2], "-") == 0 ? UNKNOWN : DONE;
  size_t equals = 4;
  while (equals < count && strcmp(words[equals], "=") != 0) equals++;
  if (read_arguments(op, words + 4, equals - 4) != equals - 4) return false;
  if (op->outcome == UNKNOWN) return equals == count;
  const size_t answers = equals < count ? count - equals - 1 : 0;
  return read_answer(op, words + equals + 1, answers) == answers;
}
