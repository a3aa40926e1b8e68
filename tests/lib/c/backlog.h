/* SPDX-License-Identifier: BSD-3-Clause */
/* A server whose backlog is full: it leaves connect(2) without an answer. */
#ifndef RDZV_TESTS_BACKLOG_H
#define RDZV_TESTS_BACKLOG_H

#include "live.h"

#include <netinet/tcp.h>

struct backlog {
  int fds[16];
  int count;
};

/* How many connections wait to be accepted, and how many may. */
static inline struct tcp_info backlog_look(int listener) {
  struct tcp_info info = {0};
  socklen_t len = sizeof info;
  assert_int_equal(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
  return info;
}

/* Connects to a listener with a backlog of 0 until it takes no more. */
static inline void backlog_fill(struct backlog *backlog, int listener) {
  struct sockaddr_in address;
  socklen_t len = sizeof address;
  struct tcp_info info;
  assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
  for (backlog->count = 0; info = backlog_look(listener), info.tcpi_unacked <= info.tcpi_sacked;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    backlog->fds[backlog->count++] = fd;
    assert_in_range(backlog->count, 1, 15);
    for (const int64_t until = live_now_ms() + SOON_MS; backlog_look(listener).tcpi_unacked == info.tcpi_unacked;)
      assert_true(live_now_ms() < until);
  }
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
