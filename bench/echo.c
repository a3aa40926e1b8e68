/* SPDX-License-Identifier: BSD-3-Clause */
/* The yardstick of the store benchmark: a raw single-threaded epoll server on loopback. It does what any
 * single-threaded server must do for a request (wait, read, write) and nothing else: what comes is sent back.
 *
 * A client that begins with ECHO_HELLO and two lengths gets `answer` bytes of zeros for each `request` bytes that come,
 * so that a store that answers less or more than it was sent is compared with a server that moves as many bytes.
 *
 *   echo [PORT]    binds 127.0.0.1:PORT (0 or none: a free one), prints the port, ends on SIGTERM or SIGINT
 */
#include "load/echo.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 64 * 1024, MOST_ANSWERED = 1024 * 1024, EVENTS = 1024, MOST_FILES = 64 * 1024 };

struct peer {
  bool known; /* its first bytes have come */
  struct echo_hello hello;
  size_t come; /* of the next request */
  char *rest;  /* what a full socket did not take; NULL nearly always */
  size_t rest_len;
};

static int poller;
static struct peer peers[MOST_FILES]; /* by descriptor */
static char input[READ_SIZE];
static const char zeros[MOST_ANSWERED];

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
  free(peers[fd].rest);
  peers[fd] = (struct peer){0};
  close(fd);
}

/* Sends what it can at once; returns how much, or -1 when the peer is gone. */
static ssize_t send_some(int fd, const char *data, size_t len) {
  const ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
  return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
}

/* Keeps the part the socket did not take, and stops reading from this peer until it has gone out. */
static void peer_keep(int fd, const char *data, size_t len) {
  struct peer *peer = &peers[fd];
  peer->rest = malloc(len);
  if (!peer->rest) die("out of memory");
  memcpy(peer->rest, data, len);
  peer->rest_len = len;
  poller_control(EPOLL_CTL_MOD, fd, EPOLLOUT);
}

static void peer_flush(int fd) {
  struct peer *peer = &peers[fd];
  const ssize_t n = send_some(fd, peer->rest, peer->rest_len);
  if (n < 0) {
    peer_close(fd);
    return;
  }
  peer->rest_len -= (size_t)n;
  memmove(peer->rest, peer->rest + n, peer->rest_len);
  if (peer->rest_len > 0) return;
  free(peer->rest);
  peer->rest = NULL;
  poller_control(EPOLL_CTL_MOD, fd, EPOLLIN);
}

/* Takes the hello off the first bytes of a peer, if it sent one; returns how many bytes that were. */
static size_t peer_meet(struct peer *peer, size_t got) {
  struct echo_hello hello = {0};
  peer->known = true;
  if (got < sizeof hello) return 0;
  memcpy(&hello, input, sizeof hello);
  if (hello.magic != ECHO_HELLO) return 0;
  if (hello.request == 0) die("a client asks for answers to requests of no bytes");
  peer->hello = hello;
  return sizeof hello;
}

/* Sends what the bytes that came are answered with; returns false when the peer is gone. */
static bool peer_answer(int fd, size_t got) {
  struct peer *peer = &peers[fd];
  const size_t skip = peer->known ? 0 : peer_meet(peer, got);
  const char *data = input;
  size_t len = got;
  if (peer->hello.request) {
    peer->come += got - skip;
    data = zeros;
    len = peer->come / peer->hello.request * peer->hello.answer;
    peer->come %= peer->hello.request;
    if (len > sizeof zeros) die("a client asks for answers that are too long");
  }
  if (len == 0) return true;
  const ssize_t sent = send_some(fd, data, len);
  if (sent >= 0 && (size_t)sent < len) peer_keep(fd, data + sent, len - (size_t)sent);
  return sent >= 0;
}

static void peer_read(int fd) {
  const ssize_t got = recv(fd, input, sizeof input, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0 || !peer_answer(fd, (size_t)got)) peer_close(fd);
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
      else if (peers[fd].rest)
        peer_flush(fd);
      else
        peer_read(fd);
    }
  }
}
