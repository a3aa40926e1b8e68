/* SPDX-License-Identifier: BSD-3-Clause */
/* The yardstick of the store benchmark: a raw single-threaded epoll echo server on loopback. It does what any
 * single-threaded server must do for a request (wait, read, write) and nothing else.
 *
 *   echo [PORT]    binds 127.0.0.1:PORT (0 or none: a free one), prints the port, ends on SIGTERM or SIGINT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 64 * 1024, EVENTS = 1024, MOST_FILES = 64 * 1024 };

/* What a full socket did not take; empty nearly always. */
struct rest {
  char *data;
  size_t len;
};

static int poller;
static struct rest rests[MOST_FILES]; /* by descriptor */
static char input[READ_SIZE];

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("echo: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(1);
}

static void poller_control(int op, int fd, uint32_t events) {
  struct epoll_event event = {.events = events, .data.fd = fd};
  if (epoll_ctl(poller, op, fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
}

static void peer_close(int fd) {
  free(rests[fd].data);
  rests[fd] = (struct rest){0};
  close(fd);
}

/* Sends what it can at once; returns how much, or -1 when the peer is gone. */
static ssize_t send_some(int fd, const char *data, size_t len) {
  const ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
  return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
}

/* Keeps the part the socket did not take, and reads no more from this peer until it has gone out. */
static void peer_keep(int fd, const char *data, size_t len) {
  struct rest *rest = &rests[fd];
  rest->data = malloc(len);
  if (!rest->data) die("out of memory");
  memcpy(rest->data, data, len);
  rest->len = len;
  poller_control(EPOLL_CTL_MOD, fd, EPOLLOUT);
}

static void peer_flush(int fd) {
  struct rest *rest = &rests[fd];
  const ssize_t n = send_some(fd, rest->data, rest->len);
  if (n < 0) {
    peer_close(fd);
    return;
  }
  rest->len -= (size_t)n;
  memmove(rest->data, rest->data + n, rest->len);
  if (rest->len > 0) return;
  free(rest->data);
  rest->data = NULL;
  poller_control(EPOLL_CTL_MOD, fd, EPOLLIN);
}

static void peer_read(int fd) {
  const ssize_t got = recv(fd, input, sizeof input, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const ssize_t sent = got > 0 ? send_some(fd, input, (size_t)got) : -1;
  if (sent < 0)
    peer_close(fd);
  else if (sent < got)
    peer_keep(fd, input + sent, (size_t)(got - sent));
}

static void accept_all(int listener) {
  const int on = 1;
  for (;;) {
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && errno == EAGAIN) return;
    if (fd < 0 && (errno == ECONNABORTED || errno == EINTR)) continue;
    if (fd < 0) die("accept: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    poller_control(EPOLL_CTL_ADD, fd, EPOLLIN);
  }
}

static int listen_on(uint16_t port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t len = sizeof address;
  const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket: %s", strerror(errno));
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&address, len) < 0) die("cannot bind 127.0.0.1:%u: %s", port, strerror(errno));
  if (listen(fd, SOMAXCONN) < 0 || getsockname(fd, (struct sockaddr *)&address, &len) < 0)
    die("cannot listen: %s", strerror(errno));
  printf("%u\n", ntohs(address.sin_port));
  fflush(stdout);
  return fd;
}

static int signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, NULL);
  const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) die("signalfd: %s", strerror(errno));
  return fd;
}

static void raise_file_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max < MOST_FILES ? limit.rlim_max : MOST_FILES;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static uint16_t port_argument(const char *text) {
  char *end;
  const long port = strtol(text, &end, 10);
  if (end == text || *end || port < 0 || port > UINT16_MAX) die("'%s' is no port", text);
  return (uint16_t)port;
}

int main(int argc, char **argv) {
  static struct epoll_event events[EVENTS];
  if (argc > 2) die("usage: echo [PORT]");
  raise_file_limit();
  poller = epoll_create1(EPOLL_CLOEXEC);
  if (poller < 0) die("epoll_create1: %s", strerror(errno));
  const int ending = signals(), listener = listen_on(argc == 2 ? port_argument(argv[1]) : 0);
  poller_control(EPOLL_CTL_ADD, ending, EPOLLIN);
  poller_control(EPOLL_CTL_ADD, listener, EPOLLIN);
  for (;;) {
    const int n = epoll_wait(poller, events, EVENTS, -1);
    if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
      const int fd = events[i].data.fd;
      if (fd == ending) return 0;
      if (fd == listener)
        accept_all(listener);
      else if (rests[fd].data)
        peer_flush(fd);
      else
        peer_read(fd);
    }
  }
}
