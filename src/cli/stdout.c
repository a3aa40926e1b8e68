/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static bool was_closed;

void note_closed_stdout(void) { was_closed = fcntl(STDOUT_FILENO, F_GETFD) < 0; }

static ssize_t refuse(void *unused, const char *bytes, size_t count) {
  (void)unused, (void)bytes, (void)count;
  errno = EBADF;
  return 0;
}

void need_stdout(void) {
  FILE *closed = was_closed ? fopencookie(NULL, "w", (cookie_io_functions_t){.write = refuse}) : NULL;
  if (closed) stdout = closed;
  was_closed = false;
}

int finish_output(const char *command, bool printed) {
  if (printed && fflush(stdout) == 0 && !ferror(stdout)) return EXIT_YES;
  complain(command, "cannot write to stdout: %s", strerror(errno));
  clearerr(stdout);
  return EXIT_IO;
}
