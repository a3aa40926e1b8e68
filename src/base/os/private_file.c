/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/os/private_file.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int check_regular(const struct stat *file, const char *what, const char *path, rdzv_error *error) {
  if (S_ISREG(file->st_mode)) return 0;
  return error_set(error, RDZV_E_INVALID, "cannot use %s '%s': it is not a regular file", what, path);
}

int private_file_check(const struct stat *file, const char *what, const char *path, rdzv_error *error) {
  const int result = check_regular(file, what, path, error);
  if (result < 0) return result;
  if (file->st_mode & (S_IRWXG | S_IRWXO))
    return error_set(error, RDZV_E_INVALID,
                     "cannot use %s '%s': other users have access to it, its mode is %04o (chmod 600 '%s')", what, path,
                     (unsigned)(file->st_mode & 07777), path);
  if (file->st_uid != geteuid() && file->st_uid != 0)
    return error_set(error, RDZV_E_INVALID, "cannot use %s '%s': it belongs to another user", what, path);
  return 0;
}

int regular_file_look(const char *what, const char *path, rdzv_error *error) {
  struct stat file;
  return path && stat(path, &file) == 0 ? check_regular(&file, what, path, error) : 0;
}

/* As OpenSSL finds it: at the beginning of a line. */
static bool has_private_key(const char *path) {
  static const char begin[] = "-----BEGIN ";
  char line[256];
  bool found = false;
  FILE *file = fopen(path, "re");
  while (file && !found && fgets(line, sizeof line, file))
    found = strncmp(line, begin, sizeof begin - 1) == 0 && strstr(line, "PRIVATE KEY-----");
  if (file) fclose(file);
  return found;
}

int certificate_file_look(const char *what, const char *path, rdzv_error *error) {
  struct stat file;
  char both[128];
  const int result = regular_file_look(what, path, error);
  if (result < 0 || !path || stat(path, &file) < 0 || !has_private_key(path)) return result;
  snprintf(both, sizeof both, "%s with a private key", what);
  return private_file_check(&file, both, path, error);
}

int private_file_look(const char *what, const char *path, rdzv_error *error) {
  struct stat file;
  return path && stat(path, &file) == 0 ? private_file_check(&file, what, path, error) : 0;
}
