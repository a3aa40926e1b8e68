/* SPDX-License-Identifier: BSD-3-Clause */
/* The help of a command, in lines of at most 80 columns. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, HELP_COLUMN = 31 };

/* Where the lines after the first one begin: below the last column of a list ("  get K      wait for the key"). */
static int hanging(const char *line, size_t len) {
  size_t column = 0;
  if (line[0] != ' ') return 0;
  for (size_t i = 2; i + 2 < len; i++)
    if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ') column = i + 2;
  return (int)column;
}

/* Prints the words of one line. `column` is where the cursor is, `indent` where further lines begin. */
static void wrap(FILE *to, const char *line, size_t len, int column, int indent) {
  const char *end = line + len;
  for (bool first = true; line < end; first = false) {
    const size_t spaces = strspn(line, " "), word = strcspn(line + spaces, " \n");
    const int width = (int)(spaces + word);
    if (first || column + width <= WIDTH) {
      fprintf(to, "%.*s", width, line);
      column += width;
    } else {
      fprintf(to, "\n%*s%.*s", indent, "", (int)word, line + spaces);
      column = indent + (int)word;
    }
    line += width;
  }
  fputc('\n', to);
}

void print_wrapped(FILE *to, const char *text) {
  while (*text) {
    const size_t len = strcspn(text, "\n");
    wrap(to, text, len, 0, hanging(text, len));
    text += len + (text[len] == '\n');
  }
}

static void print_flag(const struct cli_flag *flag, char letter_char) {
  char left[96], letter[8] = "";
  if (flag->type == FLAG_GROUP) {
    printf("\n%s:\n", flag->name);
    return;
  }
  if (letter_char) snprintf(letter, sizeof letter, "-%c, ", letter_char);
  snprintf(left, sizeof left, "%s--%s%s%s", letter, flag->name, flag->placeholder ? " " : "",
           flag->placeholder ? flag->placeholder : "");
  const bool wide = strlen(left) > 28;
  printf("  %-28s%s", left, wide ? "\n                               " : " ");
  wrap(stdout, flag->help, strlen(flag->help), HELP_COLUMN, HELP_COLUMN);
}

void print_help(const struct command *command, const struct flag_extras *extras) {
  need_stdout();
  printf("usage: %s [FLAG...]%s%s\n\n", command->name, *command->synopsis ? " " : "", command->synopsis);
  print_wrapped(stdout, command->summary);
  if (command->flags->type != FLAG_GROUP) printf("\nflags:\n");
  for (const struct cli_flag *flag = command->flags; flag->name; flag++) print_flag(flag, flag_letter(extras, flag));
  printf("  %-28s %s\n", "--help", "print this and exit");
  if (command->more) printf("\n");
  if (command->more) print_wrapped(stdout, command->more);
}
