/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/os/private_file.h"

#include "base/error.h"

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

int private_file_look(const char *what, const char *path, rdzv_error *error) {
  struct stat file;
  return path && stat(path, &file) == 0 ? private_file_check(&file, what, path, error) : 0;
}
