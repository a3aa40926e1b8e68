/* SPDX-License-Identifier: BSD-3-Clause */
/* For LD_PRELOAD: notes what is written to the files of the folder $WRITE_LOG_OF, and when it is synced, in the file
 * $WRITE_LOG. From that, tests/chaos/test_power.py makes what a disk may have after a power loss.
 *
 * A record is a kind ('w'rite, 't'runcate, 's'ync, 'u'nlink), the length of the file's name, the name (none: the folder
 * itself), an offset, a length, and the bytes of a write. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int log_fd = -1;
static char folder[512];

__attribute__((constructor)) static void begin(void) {
  const char *log = getenv("WRITE_LOG"), *of = getenv("WRITE_LOG_OF");
  if (!log || !of || strlen(of) >= sizeof folder) return;
  strcpy(folder, of); /* NOLINT: it fits */
  log_fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* The part of a path behind the folder; NULL: it is elsewhere. */
static const char *name_in(const char *path) {
  const size_t len = strlen(folder);
  if (log_fd < 0 || strncmp(path, folder, len) != 0) return NULL;
  return path[len] == 0 ? "" : path[len] == '/' ? path + len + 1 : NULL;
}

static void note_name(char kind, const char *name, int64_t offset, const void *data, int64_t len) {
  if (!name) return;
  uint8_t head[2] = {(uint8_t)kind, (uint8_t)strlen(name)};
  int64_t numbers[2] = {offset, len};
  const struct iovec parts[] = {
      {head, sizeof head}, {(void *)name, head[1]}, {numbers, sizeof numbers}, {(void *)data, data ? (size_t)len : 0}};
  if (writev(log_fd, parts, 4) < 0) abort(); /* one write: whole, whatever ends the process */
}

static void note(char kind, int fd, int64_t offset, const void *data, int64_t len) {
  char link[64], path[1024];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t got = readlink(link, path, sizeof path - 1);
  if (got < 0) return;
  path[got] = 0;
  note_name(kind, name_in(path), offset, data, len);
}

/* Before it is done: a disk may have bytes of a write that never returned. */
SHOWN ssize_t pwrite64(int fd, const void *data, size_t len, off64_t offset) {
  note('w', fd, offset, data, (int64_t)len);
  return REAL(pwrite64)(fd, data, len, offset);
}

SHOWN ssize_t pwrite(int fd, const void *data, size_t len, off_t offset) {
  note('w', fd, offset, data, (int64_t)len);
  return REAL(pwrite)(fd, data, len, offset);
}

SHOWN int ftruncate64(int fd, off64_t len) {
  note('t', fd, len, NULL, 0);
  return REAL(ftruncate64)(fd, len);
}

SHOWN int ftruncate(int fd, off_t len) {
  note('t', fd, len, NULL, 0);
  return REAL(ftruncate)(fd, len);
}

SHOWN int unlink(const char *path) {
  note_name('u', name_in(path), 0, NULL, 0);
  return REAL(unlink)(path);
}

/* After it is done. */
static int synced(int fd, int result) {
  if (result == 0) note('s', fd, 0, NULL, 0);
  return result;
}

SHOWN int fdatasync(int fd) { return synced(fd, REAL(fdatasync)(fd)); }
SHOWN int fsync(int fd) { return synced(fd, REAL(fsync)(fd)); }
