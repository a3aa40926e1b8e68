/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool check_port(const char *command, int64_t port) {
  if (port >= 0 && port <= 65535) return true;
  complain(command, "invalid value '%lld' for --port: expected 0 to 65535", (long long)port);
  return false;
}

/* By another name first, so that a reader never sees half of it. */
int write_port_file(const char *command, const char *path, int port) {
  char other[4096];
  if (snprintf(other, sizeof other, "%s.%ld", path, (long)getpid()) >= (int)sizeof other) {
    complain(command, "cannot write '%s': the path is too long", path);
    return -1;
  }
  FILE *file = fopen(other, "w");
  bool written = file && fprintf(file, "%d\n", port) > 0;
  if (file && fclose(file) != 0) written = false;
  if (written && rename(other, path) == 0) return 0;
  complain(command, "cannot write '%s': %s", path, cause_of(errno).text);
  unlink(other);
  return -1;
}
