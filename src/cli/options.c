/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The letter that stands for the option; 0: none. */
static char letter_of(const struct option_extras *extras, const struct option *option) {
  const size_t len = strlen(option->name);
  for (const char *at = extras->letters; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (strncmp(at + 2, option->name, len) == 0 && (at[2 + len] == ',' || at[2 + len] == '\0')) return at[0];
  return 0;
}

static void print_option(const struct option *option, char letter_char) {
  char left[64], letter[8] = "";
  if (option->type == OPTION_GROUP) {
    printf("\n%s:\n", option->name);
    return;
  }
  if (letter_char) snprintf(letter, sizeof letter, "-%c, ", letter_char);
  snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->placeholder ? " " : "",
           option->placeholder ? option->placeholder : "");
  const bool wide = strlen(left) > 28;
  printf("  %-28s%s%s\n", left, wide ? "\n                               " : " ", option->help);
}

static void print_help(const struct command *command, const struct option_extras *extras) {
  printf("usage: %s [OPTION...]%s%s\n\n%s\n", command->name, *command->synopsis ? " " : "", command->synopsis,
         command->summary);
  if (command->options->type != OPTION_GROUP) printf("\noptions:\n");
  for (const struct option *option = command->options; option->name; option++)
    print_option(option, letter_of(extras, option));
  printf("  %-28s %s\n", "--help", "print this and exit");
  if (command->more) printf("\n%s", command->more);
}

static bool begins_with(const char *name, const char *given, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (name[i] != given[i] && !(name[i] == '-' && given[i] == '_')) return false;
  return true;
}

/* The option of that name, or the only one whose name begins so, as argparse has it. NULL: there is none; *others, of
 * `size`, then names those that it could be. */
static const struct option *find(const struct command *command, const char *given, size_t len, char *others,
                                 size_t size) {
  const struct option *found = NULL;
  size_t count = 0, used = 0;
  *others = '\0';
  for (const struct option *option = command->options; option->name; option++) {
    if (option->type == OPTION_GROUP || !begins_with(option->name, given, len)) continue;
    if (!option->name[len]) return option;
    if (len == 0) continue;
    found = option;
    if (used < size) used += (size_t)snprintf(others + used, size - used, "%s--%s", count ? ", " : "", option->name);
    count++;
  }
  return count == 1 ? found : NULL;
}

static const struct option *find_letter(const struct command *command, const struct option_extras *extras,
                                        char letter) {
  for (const struct option *option = command->options; option->name; option++)
    if (letter && letter_of(extras, option) == letter) return option;
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
    case OPTION_GROUP: return false;
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

static int give(const struct command *command, const struct option *option, const char *value) {
  if (store_value(option, value)) return 0;
  complain(command->name, "--%s: invalid value '%s': it takes %s", option->name, value, what_it_takes(option));
  return -1;
}

/* Takes the option at argv[i]; gives the index of the next word. */
static int take(const struct command *command, struct option_extras *extras, int argc, char **argv, int i) {
  const bool is_long = argv[i][1] == '-';
  const char *given = argv[i] + (is_long ? 2 : 1);
  const char *equals = is_long ? strchr(given, '=') : NULL;
  const size_t len = equals ? (size_t)(equals - given) : strlen(given);
  char others[256] = "", why[300];
  const struct option *option =
      is_long ? find(command, given, len, others, sizeof others) : find_letter(command, extras, *given);
  snprintf(why, sizeof why, *others ? "it could be %s" : "there is no such option", others);
  if (!option) return wrong(command, argv[i], why);
  extras->given[option - command->options] = true;
  const char *value = equals ? equals + 1 : !is_long && given[1] ? given + 1 : NULL; /* "-r3" */
  if (option->type == OPTION_FLAG) {
    if (value) return wrong(command, argv[i], "this option takes no value");
    store_value(option, NULL);
    return i + 1;
  }
  if (!value && i + 1 >= argc) return wrong(command, argv[i], "its value is missing");
  if (give(command, option, value ? value : argv[i + 1]) < 0) return -1;
  return value ? i + 1 : i + 2;
}

/* A flag's variable is a number: 0 leaves it off. */
static int take_variable(const struct command *command, struct option_extras *extras, const struct option *option) {
  char name[64];
  const size_t len = (size_t)snprintf(name, sizeof name, "%s%s", extras->environment, option->name);
  for (size_t i = 0; i < len && i < sizeof name; i++)
    name[i] = (char)(name[i] == '-' ? '_' : toupper((unsigned char)name[i]));
  const char *value = getenv(name);
  if (!value || (option->type == OPTION_FLAG && atoi(value) == 0)) return 0;
  const size_t used = strlen(extras->taken);
  snprintf(extras->taken + used, sizeof extras->taken - used, "%s%s='%s'", used ? ", " : "", name, value);
  if (store_value(option, value)) return 0;
  complain(command->name, "%s: invalid value '%s': it takes %s", name, value, what_it_takes(option));
  return -1;
}

/* Only where the command line has nothing to say. */
static int take_environment(const struct command *command, struct option_extras *extras) {
  for (const struct option *option = command->options; extras->environment && option->name; option++)
    if (option->type != OPTION_GROUP && !extras->given[option - command->options] &&
        take_variable(command, extras, option) < 0)
      return -1;
  return 0;
}

int options_parse_with(const struct command *command, struct option_extras *extras, int argc, char **argv) {
  int i = 1;
  while (i < argc && argv[i][0] == '-' && argv[i][1] != '\0') {
    if (strcmp(argv[i], "--") == 0) {
      i++;
      break;
    }
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      print_help(command, extras);
      return -2;
    }
    i = take(command, extras, argc, argv, i);
    if (i < 0) return i;
  }
  return take_environment(command, extras) < 0 ? -1 : i;
}

int options_parse(const struct command *command, int argc, char **argv) {
  struct option_extras none = {0};
  return options_parse_with(command, &none, argc, argv);
}
