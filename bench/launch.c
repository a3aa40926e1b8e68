/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command and writes to a file when it was started, when it ended, the most memory it had, and how it ended:
 *   launch FILE COMMAND ARG...     "start_ns end_ns kib status"
 * A small program of its own, for what a process had before its exec counts as its most memory too.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv) {
  struct rusage used;
  int status;
  if (argc < 3) return fprintf(stderr, "usage: launch FILE COMMAND ARG...\n"), 2;
  const pid_t parent = getpid();
  const long long start = now_ns();
  const pid_t pid = fork();
  if (pid < 0) return perror("launch: fork"), 1;
  if (pid == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent) execvp(argv[2], argv + 2);
    perror(argv[2]);
    _exit(127);
  }
  if (wait4(pid, &status, 0, &used) != pid) return perror("launch: wait4"), 1;
  const long long end = now_ns();
  FILE *file = fopen(argv[1], "w");
  if (!file) return perror(argv[1]), 1;
  fprintf(file, "%lld %lld %ld %d\n", start, end, used.ru_maxrss, status);
  return fclose(file) == 0 ? 0 : 1;
}
