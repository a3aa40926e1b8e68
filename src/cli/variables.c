/* SPDX-License-Identifier: BSD-3-Clause */
/* What flags of the same name have in common in all commands: an older spelling, and a variable of the environment. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  const char *flag, *alias, *variable;
  bool by_library;   /* the library reads the variable: it knows what the options of the rendezvous name */
  bool used;         /* the variable */
  const char *given; /* on the command line */
} shared[] = {
    {.flag = "rdzv-endpoint", .alias = "endpoint", .variable = "RDZV_ENDPOINT"},
    {.flag = "secret-file", .variable = "RDZV_SECRET_FILE", .by_library = true},
    {.flag = "state-etcd", .variable = "RDZV_STATE_ETCD"},
    {.flag = "log-level", .variable = "RDZV_LOG"},
};

enum { SHARED = sizeof shared / sizeof shared[0] };

static int row_of(const char *flag) {
  for (int i = 0; i < SHARED; i++)
    if (strcmp(shared[i].flag, flag) == 0) return i;
  return -1;
}

static const char *value_of(int row) {
  const char *value = getenv(shared[row].variable);
  return value && *value ? value : NULL;
}

const char *flag_alias(const char *flag) {
  const int row = row_of(flag);
  return row < 0 ? NULL : shared[row].alias;
}

const char *flag_variable(const char *flag, const char **value) {
  const int row = row_of(flag);
  *value = row < 0 ? NULL : value_of(row);
  if (!*value) return NULL;
  shared[row].used = true;
  return shared[row].by_library ? NULL : shared[row].variable;
}

bool flag_by_variable(const char *flag) {
  const int row = row_of(flag);
  return row >= 0 && shared[row].used;
}

void flag_given(const char *flag, const char *value) {
  const int row = row_of(flag);
  if (row >= 0) shared[row].given = value;
}

/* A variable is easily forgotten: it is named in all errors. */
struct hint source_of_value(const char *message) {
  struct hint hint = {""};
  for (int i = 0; i < SHARED; i++) {
    const char *given = strstr(message, "invalid ") ? shared[i].given : NULL;
    if (strstr(message, shared[i].variable) || strstr(message, shared[i].flag)) continue;
    if (shared[i].used && strstr(message, value_of(i)))
      snprintf(hint.text, sizeof hint.text, " (from %s)", shared[i].variable);
    else if (given && *given && strstr(message, given))
      snprintf(hint.text, sizeof hint.text, " (from --%s)", shared[i].flag);
  }
  return hint;
}
