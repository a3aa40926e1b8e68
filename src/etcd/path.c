/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/path.h"

#include <stdlib.h>
#include <string.h>

/* Takes the last name off the first `len` bytes; gives what is left of them. */
static size_t parent(const char *path, size_t len) {
  while (len > 0 && path[len - 1] != '/') len--;
  return len > 0 ? len - 1 : 0;
}

char *etcd_path_clean(const char *given) {
  char *path = malloc(strlen(given) + 2);
  size_t len = 0;
  while (path && *(given += strspn(given, "/"))) {
    const size_t name = strcspn(given, "/");
    if (name == 2 && strncmp(given, "..", 2) == 0) {
      len = parent(path, len);
    } else if (name != 1 || *given != '.') {
      path[len] = '/';
      memcpy(path + len + 1, given, name);
      len += name + 1;
    }
    given += name;
  }
  if (path) path[len] = '\0';
  return path;
}

bool etcd_path_below(rdzv_bytes key, const char *folder, rdzv_bytes *rest) {
  size_t len = strlen(folder);
  const char *text = key.data;
  if (key.len < len || (len > 0 && memcmp(text, folder, len) != 0)) return false;
  if (len == 0 || folder[len - 1] != '/') {
    if (key.len == len || text[len] != '/') return false;
    len++;
  }
  *rest = (rdzv_bytes){text + len, key.len - len};
  return true;
}
