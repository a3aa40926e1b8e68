/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts a command N times, and says how long it took until each has written a line:
 *   crowd N COMMAND ARG...         {"processes": N, "started_s": S, "seconds": S, "failed": F}
 * The time begins before the first is started. The lines go to stderr, one after the other. Then all are ended by
 * SIGTERM. Code 1: not all have written a line.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096, LIMIT_S = 60, LINE = 64 * 1024 };

struct member {
  pid_t pid;
  char *line; /* what has come of it */
  size_t len;
};

static struct member members[MOST];
static struct pollfd fds[MOST];
static int started;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void signal_all(void) {
  for (int i = 0; i < started; i++) kill(members[i].pid, SIGTERM);
}

/* Gives how many did not end with code 0. */
static int end_all(void) {
  int failed = 0;
  signal_all();
  for (int i = 0; i < started; i++) {
    int status = 0;
    if (waitpid(members[i].pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) failed++;
  }
  return failed;
}

static void on_signal(int number) {
  signal_all();
  _exit(128 + number);
}

__attribute__((noreturn)) static void fail(const char *what, int error) {
  fprintf(stderr, "crowd: %s: %s\n", what, strerror(error));
  end_all();
  exit(1);
}

static void start_one(char **argv) {
  struct member *member = &members[started];
  posix_spawn_file_actions_t actions;
  int ends[2];
  member->line = malloc(LINE);
  if (!member->line || pipe2(ends, O_CLOEXEC) < 0) fail("pipe", errno);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int error = posix_spawnp(&member->pid, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error) fail(argv[0], error);
  fds[started++] = (struct pollfd){.fd = ends[0], .events = POLLIN};
}

/* Has its line come, or will none come? */
static int take(struct member *member, int fd) {
  const ssize_t n = read(fd, member->line + member->len, LINE - member->len);
  if (n < 0 && errno == EINTR) return 0;
  if (n > 0) member->len += (size_t)n;
  return n <= 0 || member->len == LINE || member->line[member->len - 1] == '\n';
}

static void await_lines(int count) {
  for (int left = count; left > 0;) {
    if (poll(fds, (nfds_t)count, -1) < 0) continue;
    for (int i = 0; i < count; i++) {
      if (fds[i].fd < 0 || !fds[i].revents || !take(&members[i], fds[i].fd)) continue;
      fds[i].fd = -1; /* poll leaves it out */
      left--;
    }
  }
}

/* Gives how many there are. */
static int print_lines(int count) {
  int lines = 0;
  for (int i = 0; i < count; i++) {
    fwrite(members[i].line, 1, members[i].len, stderr);
    lines += members[i].len > 0 && members[i].line[members[i].len - 1] == '\n';
  }
  return lines;
}

int main(int argc, char **argv) {
  const int count = argc > 2 ? atoi(argv[1]) : 0;
  if (count < 1 || count > MOST) return fprintf(stderr, "usage: crowd N COMMAND ARG...\n"), 2;
  signal(SIGALRM, on_signal);
  signal(SIGTERM, on_signal);
  alarm(LIMIT_S);
  const double start = now();
  while (started < count) start_one(argv + 2);
  const double all_started = now();
  await_lines(count);
  const double seconds = now() - start;
  const int failed = end_all(), lines = print_lines(count);
  printf("{\"processes\": %d, \"lines\": %d, \"started_s\": %.4f, \"seconds\": %.4f, \"failed\": %d}\n", count, lines,
         all_started - start, seconds, failed);
  return lines == count ? 0 : 1;
}
