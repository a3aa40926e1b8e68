/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/guard/folder.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CHUNK = 8192 };

/* As the kernel has it; see getdents(2). */
struct entry {
  uint64_t inode;
  int64_t offset;
  uint16_t len;
  uint8_t type;
  char name[];
};

void folder_each(int fd, bool (*visit)(void *user, int fd, const char *name), void *user) {
  _Alignas(struct entry) char entries[CHUNK];
  long got;
  while ((got = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
    for (long at = 0; at < got;) {
      const struct entry *entry = (const struct entry *)(entries + at);
      at += entry->len;
      if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0) continue;
      if (!visit(user, fd, entry->name)) return;
    }
  }
}
