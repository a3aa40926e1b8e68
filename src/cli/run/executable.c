/* SPDX-License-Identifier: BSD-3-Clause */
/* Can a program be started? Checked before other nodes wait for it; the error says what to do. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOT_FOUND = 127, NOT_EXECUTABLE = 126 }; /* as a shell has it */

/* ---- looking for it ------------------------------------------------------------------------------------------- */

static bool is_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* Goes through PATH as execvp does. False: no file can be executed; *path is a file that cannot. */
static bool find_in_path(const char *name, char path[PATH_MAX]) {
  const char *folders = getenv("PATH");
  char candidate[PATH_MAX];
  path[0] = '\0';
  for (const char *at = folders ? folders : "/bin:/usr/bin"; at;) {
    const size_t len = strcspn(at, ":");
    const int all = snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)len, at, len ? "/" : "", name);
    const bool there = all > 0 && all < PATH_MAX && is_file(candidate), fine = there && access(candidate, X_OK) == 0;
    if (fine || (there && !path[0])) snprintf(path, PATH_MAX, "%s", candidate);
    if (fine) return true;
    at = at[len] ? at + len + 1 : NULL;
  }
  return false;
}

bool find_executable(const char *name, char path[PATH_MAX]) {
  if (!strchr(name, '/')) return find_in_path(name, path);
  snprintf(path, PATH_MAX, "%s", name);
  return access(name, X_OK) == 0 && is_file(name);
}

static int find(const char *command, const char *name, const char *cure, char path[PATH_MAX]) {
  struct stat status;
  const bool by_path = strchr(name, '/') != NULL;
  if (find_executable(name, path)) return 0;
  if (by_path && stat(name, &status) < 0) {
    complain(command, "cannot start '%s': %s%s", name, cause_of(errno).text, cure);
    return NOT_FOUND;
  }
  if (by_path && S_ISDIR(status.st_mode)) {
    complain(command, "cannot start '%s': is a directory", name);
    return NOT_EXECUTABLE;
  }
  if (path[0]) {
    complain(command, "cannot start '%s': not executable (chmod +x '%s'?)%s", name, path, cure);
    return NOT_EXECUTABLE;
  }
  if (is_file(name))
    complain(command, "cannot start '%s': not found in PATH (did you mean './%s'?)", name, name);
  else
    complain(command, "cannot start '%s': not found in PATH%s", name, cure);
  return NOT_FOUND;
}

/* ---- the first line of a script ------------------------------------------------------------------------------- */

bool read_first_line(const char *path, char line[FIRST_LINE_SIZE]) {
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? read(fd, line, FIRST_LINE_SIZE - 1) : -1;
  if (fd >= 0) close(fd);
  if (got < 0) return false;
  line[got] = '\0';
  line[strcspn(line, "\n")] = '\0';
  return true;
}

/* The next word of the line; "" at its end. Cuts it off. */
static char *next_word(char **at) {
  char *word = *at + strspn(*at, " \t");
  *at = word + strcspn(word, " \t");
  if (**at) *(*at)++ = '\0';
  return word;
}

/* What `env` is to look for in PATH; NULL: not known. */
static const char *word_of_env(const char *interpreter, char *rest) {
  const char *name = strrchr(interpreter, '/');
  if (!name || strcmp(name, "/env") != 0) return NULL;
  const char *word = next_word(&rest);
  if (strcmp(word, "-S") == 0) word = next_word(&rest);
  return *word && *word != '-' && !strchr(word, '=') ? word : NULL;
}

static int check_interpreter(const char *command, const char *name, const char *path) {
  char line[FIRST_LINE_SIZE], found[PATH_MAX];
  if (!read_first_line(path, line) || strncmp(line, "#!", 2) != 0) return 0;
  const size_t len = strlen(line);
  const bool carriage = line[len - 1] == '\r';
  if (carriage) line[len - 1] = '\0';
  char *rest = line + 2;
  const char *interpreter = next_word(&rest), *word = word_of_env(interpreter, rest);
  if (carriage)
    complain(command,
             "cannot start '%s': its first line ends with a carriage return (convert its Windows line endings)", name);
  else if (*interpreter && access(interpreter, X_OK) < 0)
    complain(command, "cannot start '%s': cannot use the interpreter '%s' of its first line: %s", name, interpreter,
             strerror(errno));
  else if (word && !strchr(word, '/') && !find_in_path(word, found))
    complain(command, "cannot start '%s': the interpreter '%s' of its first line is not in PATH", name, word);
  else
    return 0;
  return NOT_EXECUTABLE;
}

int check_executable(const char *command, const char *name, const char *cure) {
  char path[PATH_MAX];
  const int code = find(command, name, cure, path);
  return code ? code : check_interpreter(command, name, path);
}
