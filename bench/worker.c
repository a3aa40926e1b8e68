/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker of a launcher that is measured: the first it does is to look at the clock, which it appends to a file.
 *   worker             ends at once
 *   worker FILE        "attempt rank pid ns", and ends
 *   worker FILE stay   stays, in the first attempt, until a signal ends it
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc == 1) return 0;
  struct timespec now;
  char line[128];
  clock_gettime(CLOCK_MONOTONIC, &now);
  const char *attempt = getenv("TORCHELASTIC_RESTART_COUNT"), *rank = getenv("RANK");
  if (!attempt || !rank) return fprintf(stderr, "usage: a launcher's worker [FILE [stay]]\n"), 2;
  const int len = snprintf(line, sizeof line, "%s %s %ld %lld\n", attempt, rank, (long)getpid(),
                           (long long)now.tv_sec * 1000000000 + now.tv_nsec);
  const int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (fd < 0 || write(fd, line, (size_t)len) != len) return perror(argv[1]), 1; /* one write: lines do not mix */
  while (argc > 2 && strcmp(attempt, "0") == 0) pause();
  return 0;
}
