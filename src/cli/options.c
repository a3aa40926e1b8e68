/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const struct command *command) {
  printf("usage: %s [OPTION...]%s%s\n\n%s\n\noptions:\n", command->name, *command->synopsis ? " " : "",
         command->synopsis, command->summary);
  for (const struct option *option = command->options; option->name; option++) {
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", option->name, option->placeholder ? " " : "",
             option->placeholder ? option->placeholder : "");
    const bool wide = strlen(left) > 28;
    printf("  %-28s%s%s\n", left, wide ? "\n                               " : " ", option->help);
  }
  printf("  %-28s %s\n", "--help", "print this and exit");
  if (command->more) printf("\n%s", command->more);
}

static bool same_name(const char *name, const char *given, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (name[i] != given[i] && !(name[i] == '-' && given[i] == '_')) return false;
  return name[len] == '\0';
}

static const struct option *find(const struct command *command, const char *given, size_t len) {
  for (const struct option *option = command->options; option->name; option++)
    if (same_name(option->name, given, len)) return option;
  return NULL;
}

/* "64", "64K", "64M", "64G". */
static bool parse_bytes(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  if (errno || end == text || number < 0) return false;
  const char *units = "KMG";
  const char *unit = *end ? strchr(units, *end) : NULL;
  if (*end && (!unit || end[1])) return false;
  const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
  if (number > INT64_MAX >> shift) return false;
  *out = number << shift;
  return true;
}

static bool parse_seconds(const char *text, int64_t *out) {
  char *end;
  const double seconds = strtod(text, &end);
  if (end == text || *end || !isfinite(seconds) || seconds < 0 || seconds > 1e9) return false;
  *out = (int64_t)llround(seconds * 1000);
  return true;
}

static bool parse_number(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  if (errno || end == text || *end) return false;
  *out = number;
  return true;
}

static bool parse_choice(const char *choices, const char *text, int *out) {
  const size_t len = strlen(text);
  int index = 0;
  for (const char *at = choices; at; at = strchr(at, '|'), at = at ? at + 1 : NULL, index++) {
    if (strncmp(at, text, len) != 0 || (at[len] != '|' && at[len] != '\0') || len == 0) continue;
    *out = index;
    return true;
  }
  return false;
}

static bool store_value(const struct option *option, const char *text) {
  switch (option->type) {
    case OPTION_FLAG: return *(bool *)option->target = true;
    case OPTION_TEXT: return (*(const char **)option->target = text) != NULL;
    case OPTION_NUMBER: return parse_number(text, option->target);
    case OPTION_BYTES: return parse_bytes(text, option->target);
    case OPTION_SECONDS: return parse_seconds(text, option->target);
    case OPTION_CHOICE: return parse_choice(option->placeholder, text, option->target);
  }
  return false;
}

static const char *what_it_takes(const struct option *option) {
  switch (option->type) {
    case OPTION_NUMBER: return "a whole number";
    case OPTION_BYTES: return "a number of bytes, with K, M or G behind it if you like";
    case OPTION_SECONDS: return "a number of seconds that is not negative";
    default: return option->placeholder;
  }
}

static int wrong(const struct command *command, const char *given, const char *why) {
  complain(command->name, "%s: %s; see '%s --help'", given, why, command->name);
  return -1;
}

/* Takes the option at argv[i]; gives the index of the next word. */
static int take(const struct command *command, int argc, char **argv, int i) {
  const char *given = argv[i] + 2;
  const char *equals = strchr(given, '=');
  const size_t len = equals ? (size_t)(equals - given) : strlen(given);
  const struct option *option = find(command, given, len);
  if (!option) return wrong(command, argv[i], "there is no such option");
  if (option->type == OPTION_FLAG) {
    if (equals) return wrong(command, argv[i], "this option takes no value");
    store_value(option, NULL);
    return i + 1;
  }
  if (!equals && i + 1 >= argc) return wrong(command, argv[i], "its value is missing");
  const char *value = equals ? equals + 1 : argv[i + 1];
  if (!store_value(option, value)) {
    complain(command->name, "--%s: invalid value '%s': it takes %s", option->name, value, what_it_takes(option));
    return -1;
  }
  return equals ? i + 1 : i + 2;
}

int options_parse(const struct command *command, int argc, char **argv) {
  int i = 1;
  while (i < argc && argv[i][0] == '-' && argv[i][1] != '\0') {
    if (strcmp(argv[i], "--") == 0) return i + 1;
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      print_help(command);
      return -2;
    }
    if (argv[i][1] != '-') return wrong(command, argv[i], "there is no such option");
    i = take(command, argc, argv, i);
    if (i < 0) return i;
  }
  return i;
}
