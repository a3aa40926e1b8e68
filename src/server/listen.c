/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The listening socket, which the server binds or inherits.
 *
 * Clients are accepted in groups, and other clients are served in between. When the process has no descriptor left for
 * a client, a descriptor kept in reserve is closed for a moment, and the client is accepted, closed and logged.
 * Otherwise it would stay in the kernel's queue without an answer.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/net/net.h"
#include "base/net/resolve.h"
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RESOLVE_MS = 10000 };

static void on_acceptable(uv_poll_t *listener, int status, int events);

static int fail_bind(const struct sockaddr *address, int errnum, rdzv_error *error) {
  char text[ENDPOINT_TEXT_SIZE];
  net_format(address, text);
  return error_errno(error, errnum == EADDRINUSE ? RDZV_E_IN_USE : RDZV_E_IO, errnum, "cannot listen on %s", text);
}

static int bind_one(const struct addrinfo *address, int *out, rdzv_error *error) {
  const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_bind(address->ai_addr, errno, error);
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0) {
    const int errnum = errno;
    close(fd);
    return fail_bind(address->ai_addr, errnum, error);
  }
  *out = fd;
  return 0;
}

/* Binds the first usable address of the name. */
static int bind_name(const char *name, const rdzv_server_options *options, int *fd, rdzv_error *error) {
  struct endpoint endpoint;
  if (endpoint_parse(name, 0, &endpoint, error) < 0)
    return error_prefix(error, RDZV_E_INVALID, "cannot listen on '%s'", name);
  if (endpoint.port != 0)
    return error_set(error, RDZV_E_INVALID,
                     "cannot listen on '%s': the address must not include a port, which is a separate option", name);
  endpoint.port = options->port == RDZV_ANY_PORT ? 0 : options->port;
  struct addrinfo *list;
  int result = resolve(&endpoint, deadline_after(RESOLVE_MS), NULL, &list, error);
  if (result < 0) return result;
  result = RDZV_E_ADDRESS;
  for (const struct addrinfo *at = list; at && result < 0; at = at->ai_next) result = bind_one(at, fd, error);
  freeaddrinfo(list);
  return result;
}

static int bind_own(const rdzv_server_options *options, int *fd, rdzv_error *error) {
  if (strcmp(options->bind, "*") != 0) return bind_name(options->bind, options, fd, error);
  const int result = bind_name("::", options, fd, error);
  return result < 0 && result != RDZV_E_IN_USE ? bind_name("0.0.0.0", options, fd, error) : result; /* without IPv6 */
}

static int check_inherited(int fd, rdzv_error *error) {
  int listening = 0, family = 0;
  socklen_t len = sizeof listening;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 ||
      getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) < 0)
    return error_errno(error, RDZV_E_INVALID, errno, "cannot use descriptor %d", fd);
  if (!listening || (family != AF_INET && family != AF_INET6))
    return error_set(error, RDZV_E_INVALID, "cannot use descriptor %d: it is not a listening TCP socket", fd);
  return 0;
}

static int note_address(struct rdzv_server *server, int fd, rdzv_error *error) {
  struct sockaddr_storage address = {0};
  socklen_t len = sizeof address;
  if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot read the address of descriptor %d", fd);
  char text[ENDPOINT_TEXT_SIZE];
  net_format((struct sockaddr *)&address, text);
  snprintf(server->address, sizeof server->address, "%s", text);
  server->port = net_port((struct sockaddr *)&address);
  return 0;
}

/* ---- accepting --------------------------------------------------------------------------------------------- */

static int open_reserve(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

static int accept_one(const struct rdzv_server *server, struct sockaddr_storage *peer) {
  socklen_t len = sizeof *peer;
  return accept4(server->listen_fd, (struct sockaddr *)peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* Accepts and closes the next client, when no descriptor is left. False: that failed, too. */
static bool refuse_next(struct rdzv_server *server, int errnum) {
  rdzv_error why;
  if (server->reserve_fd < 0) return false;
  close(server->reserve_fd);
  struct sockaddr_storage address = {0};
  const int fd = accept_one(server, &address);
  error_errno(&why, RDZV_E_LIMIT, errnum, "the process cannot open more descriptors");
  if (fd >= 0) conn_refuse(server, fd, (struct sockaddr *)&address, why.message);
  server->reserve_fd = open_reserve();
  return fd >= 0;
}

/* Stops accepting until the next tick: the socket stays readable, and trying at once would fail again. */
static void rest(struct rdzv_server *server, int errnum) {
  rdzv_error error;
  error_errno(&error, RDZV_E_IO, errnum, "cannot accept a connection");
  log_line(&server->log, RDZV_LOG_ERROR, "%s", error.message);
  uv_poll_stop(&server->listener);
  server->accept_rests = true;
  timeouts_tick(server);
}

void listen_again(struct rdzv_server *server) {
  if (!server->accept_rests) return;
  server->accept_rests = false;
  if (server->reserve_fd < 0) server->reserve_fd = open_reserve();
  uv_poll_start(&server->listener, UV_READABLE, on_acceptable);
}

static void on_acceptable(uv_poll_t *listener, int status, int events) {
  enum { AT_ONCE = 64 };
  struct rdzv_server *server = listener->data;
  (void)status, (void)events;
  for (int i = 0; i < AT_ONCE; i++) {
    struct sockaddr_storage peer = {0};
    const int fd = accept_one(server, &peer);
    if (fd >= 0) {
      conn_begin(server, fd, (const struct sockaddr *)&peer);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE || errno == ENFILE) {
      const int errnum = errno;
      if (!refuse_next(server, errnum)) return rest(server, errnum);
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      return rest(server, errno);
    } /* else the client has closed its connection */
  }
}

static int open_socket(struct rdzv_server *server, rdzv_error *error) {
  int fd = server->options.listen_fd;
  const int result = fd > 0 ? check_inherited(fd, error) : bind_own(&server->options, &fd, error);
  if (result < 0) return result;
  server->options.listen_fd = 0; /* the server owns it from here on, also on failure */
  server->listen_fd = fd;
  return note_address(server, fd, error);
}

int server_listen(struct rdzv_server *server, rdzv_error *error) {
  int result = server->listen_fd < 0 ? open_socket(server, error) : 0;
  if (result < 0) return result;
  server->listener.data = server;
  result = uv_poll_init(&server->loop, &server->listener, server->listen_fd);
  if (result == 0) result = uv_poll_start(&server->listener, UV_READABLE, on_acceptable);
  if (result < 0) return error_errno(error, RDZV_E_IO, -result, "cannot listen on %s", server->address);
  if (server->reserve_fd < 0) server->reserve_fd = open_reserve();
  return 0;
}
