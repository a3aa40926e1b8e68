/* SPDX-License-Identifier: BSD-3-Clause */
/* torchrun runs everything by Python unless it is told not to. We find out what a program is. */
#include "cli/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

static bool is_python_name(const char *name) {
  const size_t len = strlen(name);
  return len > 3 && strcmp(name + len - 3, ".py") == 0;
}

/* A file that is here is what it is; else a name without a slash is looked for in PATH when it is executed. */
static bool takes_python(const struct program_flags *flags, const char *name) {
  if (flags->module || flags->run_path) return true;
  if (flags->no_python || is_program_file(name)) return !flags->no_python && is_python_name(name);
  return access(name, F_OK) == 0 || is_python_name(name);
}

static const char *python(void) {
  const char *chosen = getenv("PYTHON_EXEC");
  return chosen && *chosen ? chosen : "python3";
}

const char **program_words(const char *command, const struct program_flags *flags, char **words) {
  size_t count = 0, at = 0;
  while (words[count]) count++;
  if (count == 0) {
    complain(command, "there is no program to run; see '%s --help'", command);
    return NULL;
  }
  if (flags->module && flags->no_python) {
    complain(command, "--module and --no-python exclude each other");
    return NULL;
  }
  const char **list = calloc(count + 4, sizeof *list);
  if (!list) {
    complain(command, "out of memory");
    return NULL;
  }
  if (takes_python(flags, words[0])) {
    list[at++] = python();
    list[at++] = "-u";
    if (flags->module) list[at++] = "-m";
  }
  for (size_t i = 0; i < count; i++) list[at++] = words[i];
  return list;
}
