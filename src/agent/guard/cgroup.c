/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/guard/cgroup.h"

#include "base/os/folder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 1000000 };

/* ---- finding our own ------------------------------------------------------------------------------------------ */

/* "0::/user.slice/…" */
static bool own_path(char path[PATH_MAX]) {
  char line[PATH_MAX];
  bool found = false;
  FILE *file = fopen("/proc/self/cgroup", "re");
  while (file && !found && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    found = strncmp(line, "0::/", 4) == 0;
    if (found) snprintf(path, PATH_MAX, "%s", line + 3);
  }
  if (file) fclose(file);
  return found;
}

/* Where the hierarchy of v2 is mounted, and which part of it: "… root mount-point … - cgroup2 …". */
static bool mount_point(char root[PATH_MAX], char point[PATH_MAX]) {
  char *line = NULL;
  size_t size = 0;
  bool found = false;
  FILE *file = fopen("/proc/self/mountinfo", "re");
  while (file && !found && getline(&line, &size, file) > 0) {
    const char *kind = strstr(line, " - ");
    found = kind && strncmp(kind, " - cgroup2 ", 11) == 0 &&
            sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) == 2; /* PATH_MAX - 1 */
  }
  free(line);
  if (file) fclose(file);
  return found;
}

static int open_own(void) {
  char root[PATH_MAX], point[PATH_MAX], path[PATH_MAX], all[2 * PATH_MAX];
  if (!own_path(path) || !mount_point(root, point)) return -1;
  const size_t skip = strcmp(root, "/") == 0 ? 0 : strlen(root);
  if (skip && strncmp(path, root, skip) != 0) return -1; /* it is not in what we see */
  snprintf(all, sizeof all, "%s%s", point, path + skip);
  return open(all, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* ---- making and leaving --------------------------------------------------------------------------------------- */

void cgroup_open(struct cgroup *cgroup) {
  uint32_t random = 0;
  *cgroup = CGROUP_NONE;
  cgroup->parent_fd = open_own();
  if (cgroup->parent_fd < 0) return;
  if (getrandom(&random, sizeof random, 0) < 0) random = (uint32_t)clock_wall_us();
  snprintf(cgroup->name, sizeof cgroup->name, "rdzv-%ld-%08" PRIx32, (long)getpid(), random);
  const bool made = mkdirat(cgroup->parent_fd, cgroup->name, 0755) == 0;
  if (made) cgroup->fd = openat(cgroup->parent_fd, cgroup->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (cgroup->fd >= 0) return;
  if (made) unlinkat(cgroup->parent_fd, cgroup->name, AT_REMOVEDIR);
  cgroup_close(cgroup);
}

static bool write_to(int folder, const char *file, const char *text) {
  const int fd = openat(folder, file, O_WRONLY | O_CLOEXEC);
  const bool wrote = fd >= 0 && write(fd, text, strlen(text)) > 0;
  if (fd >= 0) close(fd);
  return wrote;
}

void cgroup_join(const struct cgroup *cgroup) {
  if (cgroup->fd >= 0) write_to(cgroup->fd, "cgroup.procs", "0");
}

void cgroup_close(struct cgroup *cgroup) {
  if (cgroup->fd >= 0) close(cgroup->fd);
  if (cgroup->parent_fd >= 0) close(cgroup->parent_fd);
  *cgroup = CGROUP_NONE;
}

/* ---- killing -------------------------------------------------------------------------------------------------- */

/* Reads the beginning of a file, as a text. */
static bool read_from(int folder, const char *file, char *out, size_t size) {
  const int fd = openat(folder, file, O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? read(fd, out, size - 1) : -1;
  if (fd >= 0) close(fd);
  out[got > 0 ? got : 0] = '\0';
  return got >= 0;
}

static bool is_empty(const struct cgroup *cgroup) {
  char text[256];
  if (!read_from(cgroup->fd, "cgroup.events", text, sizeof text)) return true; /* there is nothing that we can do */
  return strstr(text, "populated 0") != NULL;
}

/* Before Linux 5.14. */
static void kill_each(const struct cgroup *cgroup) {
  char text[4096];
  if (!read_from(cgroup->fd, "cgroup.procs", text, sizeof text)) return;
  char *whole = strrchr(text, '\n'); /* the last number may be cut: it is in the next look */
  if (whole) *whole = '\0';
  for (char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
    const long pid = strtol(at, NULL, 10);
    if (pid > 1) kill((pid_t)pid, SIGKILL);
  }
}

void cgroup_kill(const struct cgroup *cgroup, deadline until) {
  const struct timespec look = {.tv_nsec = LOOK_NS};
  if (cgroup->fd < 0) return;
  while (!is_empty(cgroup)) {
    if (!write_to(cgroup->fd, "cgroup.kill", "1")) kill_each(cgroup);
    if (deadline_left(until) == 0) return;
    nanosleep(&look, NULL);
  }
}

void cgroup_remove(const struct cgroup *cgroup) {
  if (cgroup->fd >= 0) folder_remove_empty(cgroup->parent_fd, cgroup->name);
}
