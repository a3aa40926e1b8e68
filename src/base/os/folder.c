/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/os/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CHUNK = 8192, DEEPEST = 64 /* one chunk of the stack each */ };

/* As the kernel has it; see getdents(2). */
struct folder_entry {
  uint64_t inode;
  int64_t offset;
  uint16_t len;
  uint8_t type;
  char name[];
};

void folder_each(int fd, bool (*visit)(void *user, int fd, const char *name), void *user) {
  _Alignas(struct folder_entry) char entries[CHUNK];
  long got;
  while ((got = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
    for (long at = 0; at < got;) {
      const struct folder_entry *entry = (const struct folder_entry *)(entries + at);
      at += entry->len;
      if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0) continue;
      if (!visit(user, fd, entry->name)) return;
    }
  }
}

struct removal {
  bool files;
  int depth;
  bool removed; /* something */
};

static bool remove_one(void *user, int folder, const char *name);

/* Again as long as something goes: where entries go while a folder is read, some file systems leave others out. */
static void remove_below(int fd, const struct removal *above) {
  struct removal below = {above->files, above->depth + 1, true};
  while (below.removed) {
    below.removed = false;
    lseek(fd, 0, SEEK_SET);
    folder_each(fd, remove_one, &below);
  }
}

/* First as an empty folder, which most are. */
static bool remove_one(void *user, int folder, const char *name) {
  struct removal *removal = user;
  bool gone = unlinkat(folder, name, AT_REMOVEDIR) == 0;
  if (!gone && errno == ENOTDIR) {
    gone = removal->files && unlinkat(folder, name, 0) == 0;
  } else if (!gone && removal->depth < DEEPEST) {
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) remove_below(fd, removal);
    if (fd >= 0) close(fd);
    gone = unlinkat(folder, name, AT_REMOVEDIR) == 0;
  }
  removal->removed |= gone;
  return true;
}

void folder_remove(int parent_fd, const char *name) { remove_one(&(struct removal){.files = true}, parent_fd, name); }
void folder_remove_empty(int parent_fd, const char *name) { remove_one(&(struct removal){0}, parent_fd, name); }
