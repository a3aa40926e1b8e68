/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/nearest.h"
#include "base/text/parse.h"
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char flag_letter(const struct flag_extras *extras, const struct cli_flag *flag) {
  const size_t len = strlen(flag->name);
  for (const char *at = extras->letters; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (strncmp(at + 2, flag->name, len) == 0 && (at[2 + len] == ',' || at[2 + len] == '\0')) return at[0];
  return 0;
}

static bool begins_with(const char *name, const char *given, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (name[i] != given[i] && !(name[i] == '-' && given[i] == '_')) return false;
  return true;
}

/* Is it the beginning of the name, or of its older spelling? *whole: it is all of it. */
static bool matches(const char *name, const char *given, size_t len, bool *whole) {
  const char *alias = flag_alias(name), *found = begins_with(name, given, len) ? name : alias;
  if (!found || !begins_with(found, given, len)) return false;
  *whole = !found[len];
  return true;
}

/* Returns the flag of that name, or the only flag whose name begins with it, as argparse does. Else returns NULL, and
 * *others, of `size`, lists the flags whose names begin with it. */
static const struct cli_flag *find(const struct command *command, const char *given, size_t len, char *others,
                                   size_t size) {
  const struct cli_flag *found = NULL;
  size_t count = 0, used = 0;
  *others = '\0';
  for (const struct cli_flag *flag = command->flags; flag->name; flag++) {
    bool whole;
    if (flag->type == FLAG_GROUP || !matches(flag->name, given, len, &whole)) continue;
    if (whole) return flag;
    if (len == 0) continue;
    found = flag;
    if (used < size) used += (size_t)snprintf(others + used, size - used, "%s--%s", count ? ", " : "", flag->name);
    count++;
  }
  return count == 1 ? found : NULL;
}

static const struct cli_flag *find_letter(const struct command *command, const struct flag_extras *extras,
                                          char letter) {
  for (const struct cli_flag *flag = command->flags; flag->name; flag++)
    if (letter && flag_letter(extras, flag) == letter) return flag;
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

static bool store_value(const struct cli_flag *flag, const char *text) {
  switch (flag->type) {
    case FLAG_GROUP: return false;
    case FLAG_SWITCH: return *(bool *)flag->target = true;
    case FLAG_TEXT: return (*(const char **)flag->target = text) != NULL;
    case FLAG_NUMBER: return parse_number(text, INT64_MIN, INT64_MAX, flag->target);
    case FLAG_BYTES: return parse_bytes(text, flag->target);
    case FLAG_SECONDS: return parse_seconds(text, 0, flag->target);
    case FLAG_CHOICE: return parse_choice(flag->placeholder, text, flag->target);
  }
  return false;
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

struct hint did_you_mean(const char *command, const char *dashes, const char *given, const char *const *names,
                         size_t count) {
  struct hint hint;
  const char *near = nearest_name(given, names, count);
  if (near)
    snprintf(hint.text, sizeof hint.text, " (did you mean '%s%s'?)", dashes, near);
  else
    snprintf(hint.text, sizeof hint.text, " (see '%s --help')", command);
  return hint;
}

/* `given` without the dashes and without a value. */
static int fail_unknown(const struct command *command, const char *dashes, const char *given) {
  const char *names[FLAGS_MOST];
  size_t count = 0;
  for (const struct cli_flag *flag = command->flags; flag->name; flag++)
    if (flag->type != FLAG_GROUP) names[count++] = flag->name;
  complain(command->name, "unknown flag '%s%s'%s", dashes, given,
           did_you_mean(command->name, dashes, given, names, strlen(dashes) == 2 ? count : 0).text);
  return -1;
}

static const char *expected(const struct cli_flag *flag) {
  switch (flag->type) {
    case FLAG_NUMBER: return "a whole number";
    case FLAG_BYTES: return "a number of bytes, such as 4096, 64K, 8M or 1G";
    case FLAG_SECONDS: return "a number of seconds, 0 or more";
    default: return flag->placeholder;
  }
}

/* The hint for an invalid value of a flag with choices; "" if no choice is close. */
static struct hint near_choice(const struct cli_flag *flag, const char *value) {
  const char *names[CHOICES_MOST];
  struct hint hint = {""};
  char choices[128], *rest = choices, *one;
  size_t count = 0;
  if (flag->type != FLAG_CHOICE) return hint;
  snprintf(choices, sizeof choices, "%s", flag->placeholder);
  while (count < CHOICES_MOST && (one = strsep(&rest, "|"))) names[count++] = one;
  const char *near = nearest_name(value, names, count);
  if (near) snprintf(hint.text, sizeof hint.text, " (did you mean '%s'?)", near);
  return hint;
}

/* `source`: "--port" or "PET_MASTER_PORT". */
static int fail_value(const struct command *command, const struct cli_flag *flag, const char *source,
                      const char *value) {
  complain(command->name, "invalid value '%s' for %s: expected %s%s", value, source, expected(flag),
           near_choice(flag, value).text);
  return -1;
}

/* ---- parsing -------------------------------------------------------------------------------------------------- */

/* Looks up the flag at argv[i], "--name", "--name=value", "-r" or "-r3"; *value is NULL if it has none of its own. */
static const struct cli_flag *look_up(const struct command *command, const struct flag_extras *extras, const char *word,
                                      const char **value) {
  const bool is_long = word[1] == '-';
  const char *given = word + (is_long ? 2 : 1);
  const size_t len = is_long ? strcspn(given, "=") : 1;
  char name[64], others[256] = "";
  const struct cli_flag *flag =
      is_long ? find(command, given, len, others, sizeof others) : find_letter(command, extras, *given);
  snprintf(name, sizeof name, "%.*s", (int)len, given);
  if (!flag && *others)
    complain(command->name, "ambiguous flag '--%s': it could be %s", name, others);
  else if (!flag)
    fail_unknown(command, is_long ? "--" : "-", name);
  *value = !given[len] ? NULL : given + len + is_long;
  return flag;
}

/* Takes the flag at argv[i]. Returns the index of the next word. */
static int take(const struct command *command, struct flag_extras *extras, int argc, char **argv, int i) {
  char source[64];
  const char *value;
  const struct cli_flag *flag = look_up(command, extras, argv[i], &value);
  if (!flag) return -1;
  extras->given[flag - command->flags] = true;
  snprintf(source, sizeof source, "--%s", flag->name);
  if (flag->type == FLAG_SWITCH) {
    if (value) return complain(command->name, "flag '%s' takes no value", source), -1;
    store_value(flag, NULL);
    return i + 1;
  }
  if (!value && i + 1 >= argc) return complain(command->name, "flag '%s' needs a value", source), -1;
  const char *text = value ? value : argv[i + 1];
  flag_given(flag->name, text);
  if (!store_value(flag, text)) return fail_value(command, flag, source, text);
  return value ? i + 1 : i + 2;
}

/* The value of the variable that is only this command's, "PET_MAX_RESTARTS", or NULL. */
static const char *own_variable(struct flag_extras *extras, const struct cli_flag *flag, char name[64]) {
  if (!extras->environment) return NULL;
  const size_t len = (size_t)snprintf(name, 64, "%s%s", extras->environment, flag->name);
  for (size_t i = 0; i < len && i < 64; i++) name[i] = (char)(name[i] == '-' ? '_' : toupper((unsigned char)name[i]));
  const char *value = getenv(name);
  if (!value) return NULL;
  const size_t used = strlen(extras->taken);
  snprintf(extras->taken + used, sizeof extras->taken - used, "%s%s='%s'", used ? ", " : "", name, value);
  return value;
}

/* The variable of a switch is a number, as for torchrun: 0 leaves it off, and so does an empty one. */
static int take_switch(const struct command *command, const struct cli_flag *flag, const char *name,
                       const char *value) {
  int64_t number = 0;
  if (*value && !parse_number(value, INT64_MIN, INT64_MAX, &number)) {
    complain(command->name, "invalid value '%s' for %s: expected 0 or 1", value, name);
    return -1;
  }
  if (number != 0) store_value(flag, NULL);
  return 0;
}

static int take_variable(const struct command *command, struct flag_extras *extras, const struct cli_flag *flag) {
  char own[64];
  const char *name = own, *value = own_variable(extras, flag, own);
  if (!value) name = flag_variable(flag->name, &value);
  if (!name || !value) return 0;
  if (flag->type == FLAG_SWITCH) return take_switch(command, flag, name, value);
  return store_value(flag, value) ? 0 : fail_value(command, flag, name, value);
}

/* The command line goes before the environment. */
static int take_environment(const struct command *command, struct flag_extras *extras) {
  for (const struct cli_flag *flag = command->flags; flag->name; flag++)
    if (flag->type != FLAG_GROUP && !extras->given[flag - command->flags] && take_variable(command, extras, flag) < 0)
      return -1;
  return 0;
}

int flags_parse_with(const struct command *command, struct flag_extras *extras, int argc, char **argv) {
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

int flags_parse(const struct command *command, int argc, char **argv) {
  struct flag_extras none = {0};
  return flags_parse_with(command, &none, argc, argv);
}

bool no_arguments(const struct command *command, int rest, int argc, char **argv) {
  if (rest < 0 || rest >= argc) return true;
  complain(command->name, "unexpected argument '%s' (see '%s --help')", argv[rest], command->name);
  return false;
}
