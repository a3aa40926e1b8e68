/* SPDX-License-Identifier: BSD-3-Clause */
/* A server whose backlog is full: it leaves connect(2) without an answer. */
#ifndef RDZV_TESTS_BACKLOG_H
#define RDZV_TESTS_BACKLOG_H

#include "live.h"

struct backlog {
  int fds[16];
  int count;
};

/* Connects to a listener with a backlog of 0 until it takes no more. */
static inline void backlog_fill(struct backlog *backlog, int port) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
  for (backlog->count = 0; backlog->count < 16; backlog->count++) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    connect(fd, (const struct sockaddr *)&address, sizeof address);
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    backlog->fds[backlog->count] = fd;
    if (poll(&poll_fd, 1, 100) == 1) continue;
    close(fd);
    break;
  }
  assert_in_range(backlog->count, 1, 15);
}

static inline void backlog_free(struct backlog *backlog) {
  for (int i = 0; i < backlog->count; i++) close(backlog->fds[i]);
}

/* Waits until a socket is on its way to that port. */
static inline void await_connecting_to(int port) {
  const struct timespec moment = {0, 1000000};
  char line[512], target[16];
  bool found = false;
  snprintf(target, sizeof target, ":%04X 02 ", port);
  for (const int64_t until = live_now_ms() + SOON_MS; !found; nanosleep(&moment, NULL)) {
    assert_true(live_now_ms() < until);
    FILE *file = fopen("/proc/net/tcp", "re");
    assert_non_null(file);
    while (!found && fgets(line, sizeof line, file)) found = strstr(line, target) != NULL;
    fclose(file);
  }
}

#endif
