/* SPDX-License-Identifier: BSD-3-Clause */
/* torchrun runs everything with Python unless --no-python is given. rdzv run detects what a program is. */
#include "cli/run/run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

static bool is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Python runs a folder by the file of that name. */
static bool is_folder_without_main(const char *path) {
  char main_file[PATH_MAX];
  const int len = snprintf(main_file, sizeof main_file, "%s/__main__.py", path);
  return is_folder(path) && len < PATH_MAX && access(main_file, F_OK) < 0;
}

static bool ends_in(const char *name, const char *ending) {
  const size_t len = strlen(name), tail = strlen(ending);
  return len > tail && strcmp(name + len - tail, ending) == 0;
}

/* A file that lacks its run bit. torchrun gives any to Python; a program or a script for another interpreter would only
 * fail there. Python also runs a folder or an archive. */
static bool looks_like_python(const char *path) {
  char line[FIRST_LINE_SIZE];
  if (is_folder(path)) return true;
  if (!read_first_line(path, line)) return true; /* which says why */
  if (strncmp(line, "#!", 2) == 0) return strstr(line, "python") != NULL;
  return strncmp(line, "\177ELF", 4) != 0 && !ends_in(path, ".sh");
}

/* A file that is here is what it is; else a name without a slash is looked for in PATH when it is executed. */
static bool takes_python(const struct program_flags *flags, const char *name) {
  if (flags->module || flags->run_path) return true;
  if (flags->no_python) return false;
  if (ends_in(name, ".py")) return true;
  return !is_program_file(name) && access(name, F_OK) == 0 && looks_like_python(name);
}

static const char *python(void) {
  const char *chosen = getenv("PYTHON_EXEC");
  return chosen && *chosen ? chosen : "python3";
}

static bool uses_python;

const char *program_python_used(void) {
  static char path[PATH_MAX];
  if (!uses_python) return NULL;
  return find_executable(python(), path) ? path : python();
}

/* Gives an exit code. A name that each worker has another of is not looked for. */
static int check(const char *command, const struct program_flags *flags, bool by_python, const char *name) {
  const bool differs = strstr(name, "${local_rank}") != NULL;
  const char *cure =
      flags->no_python || is_program_file(name) || access(name, F_OK) < 0 ? "" : " (--run-path runs it with Python)";
  if (!by_python) return differs || check_executable(command, name, cure) == 0 ? EXIT_YES : EXIT_IO;
  if (check_executable(command, python(), " (PYTHON_EXEC names Python's interpreter)") != 0) return EXIT_IO;
  if (flags->module || differs || (access(name, R_OK) == 0 && !is_folder_without_main(name))) return EXIT_YES;
  complain(command, "cannot start '%s': %s", name, is_folder(name) ? "a folder without __main__.py" : strerror(errno));
  return EXIT_IO;
}

int program_words(const char *command, const struct program_flags *flags, char **words, const char ***out) {
  size_t count = 0, at = 0;
  while (words[count]) count++;
  if (count == 0) {
    complain(command, "no program given (see '%s --help')", command);
    return EXIT_USAGE;
  }
  if (flags->module && flags->no_python) {
    complain(command, "--module and --no-python cannot be used together");
    return EXIT_USAGE;
  }
  const bool by_python = takes_python(flags, words[0]);
  const int code = check(command, flags, by_python, words[0]);
  if (code != EXIT_YES) return code;
  const char **list = calloc(count + 4, sizeof *list);
  if (!list) return complain_no_memory(command);
  if (by_python) {
    uses_python = true;
    list[at++] = python();
    list[at++] = "-u";
    if (flags->module) list[at++] = "-m";
  }
  for (size_t i = 0; i < count; i++) list[at++] = words[i];
  *out = list;
  return EXIT_YES;
}
