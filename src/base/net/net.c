/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/net.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>

int net_send(int fd, const void *data, size_t len, deadline until, const struct flag *cancel, size_t *sent,
             rdzv_error *error) {
  *sent = 0;
  while (*sent < len) {
    const ssize_t n = send(fd, (const char *)data + *sent, len - *sent, MSG_NOSIGNAL);
    if (n >= 0) {
      *sent += (size_t)n;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return error_errno(error, RDZV_E_CONNECTION, errno, "the connection was lost");
    struct pollfd fds[2] = {{.fd = fd, .events = POLLOUT}};
    const int result = flag_poll(cancel, fds, 1, until);
    if (result < 0) return error_set(error, result, "%s", rdzv_error_text(result));
  }
  return 0;
}

int net_recv(int fd, void *data, size_t cap, deadline until, const struct flag *cancel, size_t *got,
             rdzv_error *error) {
  for (;;) {
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}};
    const int result = flag_poll(cancel, fds, 1, until);
    if (result < 0) return error_set(error, result, "%s", rdzv_error_text(result));
    const ssize_t n = recv(fd, data, cap, 0);
    if (n > 0) {
      *got = (size_t)n;
      return 0;
    }
    if (n == 0) return error_set(error, RDZV_E_CONNECTION, "the peer closed the connection");
    if (errno != EINTR && errno != EAGAIN)
      return error_errno(error, RDZV_E_CONNECTION, errno, "the connection was lost");
  }
}

int net_port(const struct sockaddr *address) {
  if (address->sa_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port);
  if (address->sa_family == AF_INET) return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
  return 0;
}

void net_format(const struct sockaddr *address, char out[ENDPOINT_TEXT_SIZE]) {
  char host[INET6_ADDRSTRLEN] = "?";
  if (address->sa_family == AF_INET6) {
    const struct sockaddr_in6 *v6 = (const void *)address;
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    endpoint_format(host, net_port(address), out);
  } else if (address->sa_family == AF_INET) {
    const struct sockaddr_in *v4 = (const void *)address;
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    endpoint_format(host, net_port(address), out);
  } else {
    snprintf(out, ENDPOINT_TEXT_SIZE, "?");
  }
}

void net_tune(int fd) {
  const int on = 1, idle = 30, interval = 10, count = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}
