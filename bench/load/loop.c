/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections and exchanges.
 *
 * An exchange: conn_plan, conn_begin (or the end of connecting) → the bytes are written, the rest when the socket takes
 * it → each read is compared with what is still wanted → `answered`.
 * The loop is edge-triggered: one registration serves connecting, a full socket and answers, and no event costs a call
 * to epoll_ctl, so that the generator has less to do for a request than any server. */
#include "load.h"

#include "tls/connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND 1000000000ll
#define STALL (10 * SECOND)

enum { READ_SIZE = 64 * 1024, EVENTS = 1024, SPARE_FILES = 16 };

static uint8_t input[READ_SIZE], text[READ_SIZE + TLS_RECORD];
static struct tls_client *guard; /* NULL: connections are plain */

static void raise_file_limit(unsigned connections) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) die("getrlimit: %s", strerror(errno));
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < (rlim_t)connections + SPARE_FILES)
    die("%u connections need more open files than the %llu this process may have (ulimit -Hn)", connections,
        (unsigned long long)limit.rlim_cur);
}

void loop_init(struct loop *loop, uint16_t port, unsigned count, size_t size) {
  raise_file_limit(count);
  *loop = (struct loop){.port = port, .count = count, .wait_ms = 1000, .scanned = now_ns()};
  loop->poller = epoll_create1(EPOLL_CLOEXEC);
  loop->conns = calloc(count, sizeof *loop->conns);
  uint8_t *memory = calloc(count, 2 * size);
  if (loop->poller < 0) die("epoll_create1: %s", strerror(errno));
  if (!loop->conns || !memory) die("out of memory for %u connections", count);
  for (unsigned i = 0; i < count; i++) {
    loop->conns[i].fd = -1;
    loop->conns[i].index = i;
    loop->conns[i].req = memory + (size_t)i * 2 * size;
    loop->conns[i].ans = loop->conns[i].req + size;
  }
}

void loop_protect(const char *secret_file) {
  const struct tls_names names = {.secret = secret_file};
  rdzv_error error;
  if (tls_client_open(&names, &guard, &error) < 0) die("%s", error.message);
}

void loop_free(struct loop *loop) {
  for (unsigned i = 0; i < loop->count; i++) {
    tls_close(loop->conns[i].tls);
    if (loop->conns[i].fd >= 0) close(loop->conns[i].fd);
  }
  free(loop->conns[0].req);
  free(loop->conns);
  close(loop->poller);
}

void conn_plan(struct conn *conn, const uint8_t *out, size_t out_len, const uint8_t *want, size_t want_len) {
  conn->out = out;
  conn->out_len = out_len;
  conn->want = want;
  conn->want_len = want_len;
  conn->got = 0;
}

static void conn_write_tls(struct conn *conn) {
  if (tls_write(conn->tls, conn->out, conn->out_len, NULL) < 0) die("connection %u: out of memory", conn->index);
  conn->out_len = 0;
  const rdzv_bytes out = tls_output(conn->tls);
  const ssize_t n =
      send(conn->fd, out.data, out.len, MSG_NOSIGNAL); /* a few kilobytes at most: the socket takes them */
  if (n != (ssize_t)out.len) die("connection %u was lost while writing: %s", conn->index, strerror(errno));
  tls_sent(conn->tls, out.len);
}

static void conn_write(struct conn *conn) {
  if (conn->tls && conn->out_len > 0) {
    conn_write_tls(conn);
    return;
  }
  while (conn->out_len > 0) {
    const ssize_t n = send(conn->fd, conn->out, conn->out_len, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return; /* an edge will come */
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) die("connection %u was lost while writing: %s", conn->index, strerror(errno));
    conn->out += n;
    conn->out_len -= (size_t)n;
  }
}

void conn_begin(struct loop *loop, struct conn *conn, int64_t now) {
  conn->since = now;
  loop->busy++;
  conn_write(conn);
}

/* Each process has a loopback address of its own, so that it does not compete for ports with those that the kernel
 * keeps for a minute after runs of before. */
static void bind_to_own_address(int fd) {
  const int on = 1;
  const in_addr_t own = INADDR_LOOPBACK + ((in_addr_t)getpid() & 0xffff) * 256;
  const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(own)};
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  if (bind(fd, (const struct sockaddr *)&from, sizeof from) < 0) die("bind: %s", strerror(errno));
}

static void conn_connect(struct loop *loop, struct conn *conn) {
  const int on = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(loop->port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  conn->since = now_ns();
  conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (conn->fd < 0) die("socket: %s", strerror(errno));
  bind_to_own_address(conn->fd);
  setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(conn->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
    die("connection %u: cannot connect to 127.0.0.1:%u: %s", conn->index, loop->port, strerror(errno));
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = conn};
  if (epoll_ctl(loop->poller, EPOLL_CTL_ADD, conn->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
  conn->connecting = true;
  loop->busy++;
}

static void conn_connected(struct loop *loop, struct conn *conn) {
  int error = 0;
  socklen_t len = sizeof error;
  getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len);
  if (error) die("connection %u: cannot connect to 127.0.0.1:%u: %s", conn->index, loop->port, strerror(error));
  conn->connecting = false;
  rdzv_error why;
  if (guard && tls_connect(guard, conn->fd, "127.0.0.1", deadline_after(10000), NULL, &conn->tls, &why) < 0)
    die("connection %u: %s", conn->index, why.message);
}

__attribute__((noreturn)) static void wrong_answer(const struct conn *conn, const uint8_t *data, size_t len) {
  size_t i = 0;
  while (conn->want && i < len && conn->got + i < conn->want_len && data[i] == conn->want[conn->got + i]) i++;
  if (!conn->want || conn->got + i >= conn->want_len)
    die("connection %u got %zu bytes more than the %zu of its answers", conn->index, conn->got + len - conn->want_len,
        conn->want_len);
  die("connection %u got a wrong answer: byte %zu of %zu is 0x%02x, not 0x%02x", conn->index, conn->got + i,
      conn->want_len, data[i], conn->want[conn->got + i]);
}

static void conn_take(struct loop *loop, struct conn *conn, const uint8_t *data, size_t len) {
  const size_t before = conn->got;
  if (len > conn->want_len - before || (conn->want && memcmp(data, conn->want + before, len) != 0))
    wrong_answer(conn, data, len);
  if (!conn->want) memcpy(conn->ans + before, data, len);
  conn->got += len;
  if (conn->got == conn->want_len) loop->busy--;
  if (loop->answered) loop->answered(loop, conn, before, now_ns());
}

static void conn_read(struct loop *loop, struct conn *conn) {
  for (;;) {
    const ssize_t n = recv(conn->fd, input, sizeof input, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) die("connection %u was lost: %s", conn->index, strerror(errno));
    if (n == 0) die("the server closed connection %u", conn->index);
    if (conn->tls) {
      size_t got;
      tls_feed(conn->tls, input, (size_t)n);
      if (tls_read(conn->tls, text, sizeof text, &got, NULL) < 0) die("connection %u: broken TLS", conn->index);
      if (got > 0) conn_take(loop, conn, text, got);
    } else {
      conn_take(loop, conn, input, (size_t)n);
    }
    if ((size_t)n < sizeof input) return; /* drained: whatever comes now is a new edge */
  }
}

static void conn_event(struct loop *loop, struct conn *conn, uint32_t events) {
  if (conn->connecting) conn_connected(loop, conn);
  if (events & EPOLLOUT && conn->out_len > 0) conn_write(conn);
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) conn_read(loop, conn);
}

static void find_stalls(struct loop *loop) {
  const int64_t now = now_ns();
  if (now - loop->scanned < SECOND) return;
  loop->scanned = now;
  for (unsigned i = 0; i < loop->count; i++) {
    const struct conn *conn = &loop->conns[i];
    if (conn->fd < 0 || (!conn->connecting && conn->got == conn->want_len) || now - conn->since < STALL) continue;
    if (conn->connecting) die("connection %u was not accepted for 10 s", i);
    die("connection %u got no answer for 10 s (%zu of %zu bytes came)", i, conn->got, conn->want_len);
  }
}

void loop_turn(struct loop *loop) {
  static struct epoll_event events[EVENTS];
  const int n = epoll_wait(loop->poller, events, EVENTS, loop->spin ? 0 : loop->wait_ms);
  if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
  for (int i = 0; i < n; i++) conn_event(loop, events[i].data.ptr, events[i].events);
  find_stalls(loop);
}

void loop_drain(struct loop *loop) {
  while (loop->busy > 0) loop_turn(loop);
}

void loop_open(struct loop *loop, unsigned window) {
  unsigned opened = 0;
  while (opened < loop->count || loop->busy > 0) {
    while (opened < loop->count && loop->busy < window) conn_connect(loop, &loop->conns[opened++]);
    loop_turn(loop);
  }
}
