/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/relay/relay.h"

#include "base/error.h"
#include "base/log.h"
#include "base/net/net.h"
#include "base/wait/thread.h"
#include "tls/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  LINKS_MOST = 1024,
  FIRST_PAUSE_MS = 20,
  LONGEST_PAUSE_MS = 500,
  TRY_MS = 10000,
  PIECE = TLS_RECORD, /* of bytes that are passed on at once */
};

struct relay {
  struct endpoint to;
  struct tls_client *guard;
  const rdzv_log *log;
  struct flag stop;
  int listen_fd, port;
  pthread_t thread;
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t gone;
  size_t links;
};

/* One connection of a worker. */
struct link {
  struct relay *relay;
  int inner, outer; /* to the worker, to the store; -1: none */
  struct tls_stream *tls;
  uint8_t text[2 * PIECE]; /* for the worker */
  size_t text_at, text_len;
  bool inner_ended, outer_ended;
};

/* ---- passing on ----------------------------------------------------------------------------------------------- */

/* 1: done. 0: not now. -1: the connection is lost. */
static int outcome(ssize_t done) {
  if (done > 0) return 1;
  return done < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* From the worker to the store: the next piece, once the one before has left. */
static bool take_inner(struct link *link) {
  uint8_t bytes[PIECE];
  const ssize_t got = recv(link->inner, bytes, sizeof bytes, MSG_DONTWAIT);
  const int what = outcome(got);
  if (what < 0) link->inner_ended = true;
  return what <= 0 || tls_write(link->tls, bytes, (size_t)got, NULL) == 0;
}

static bool push_outer(struct link *link) {
  const rdzv_bytes out = tls_output(link->tls);
  const ssize_t sent = send(link->outer, out.data, out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) tls_sent(link->tls, (size_t)sent);
  return outcome(sent) >= 0;
}

static bool take_outer(struct link *link) {
  uint8_t bytes[PIECE];
  const ssize_t got = recv(link->outer, bytes, sizeof bytes, MSG_DONTWAIT);
  const int what = outcome(got);
  if (what < 0) link->outer_ended = true;
  if (what <= 0) return true;
  tls_feed(link->tls, bytes, (size_t)got);
  link->text_at = 0;
  if (tls_read(link->tls, link->text, sizeof link->text, &link->text_len, NULL) < 0) link->outer_ended = true;
  return true;
}

static bool push_inner(struct link *link) {
  const ssize_t sent = send(link->inner, link->text + link->text_at, link->text_len, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) {
    link->text_at += (size_t)sent;
    link->text_len -= (size_t)sent;
  }
  return outcome(sent) >= 0;
}

/* Either end may close first; what it has sent before is passed on. */
static void pass_on(struct link *link) {
  for (;;) {
    const bool to_outer = tls_output(link->tls).len > 0, to_inner = link->text_len > 0;
    if ((link->inner_ended && !to_outer) || (link->outer_ended && !to_inner)) return;
    const short inner = (short)((to_outer || link->inner_ended ? 0 : POLLIN) | (to_inner ? POLLOUT : 0));
    const short outer = (short)((to_inner || link->outer_ended ? 0 : POLLIN) | (to_outer ? POLLOUT : 0));
    struct pollfd fds[3] = {{.fd = inner ? link->inner : -1, .events = inner},
                            {.fd = outer ? link->outer : -1, .events = outer}};
    if (flag_poll(&link->relay->stop, fds, 2, INT64_MAX) < 0) return;
    const short in = fds[0].revents, out = fds[1].revents;
    if (in && to_inner && !push_inner(link)) return;
    if (out && to_outer && !push_outer(link)) return;
    if (in && (inner & POLLIN) && !take_inner(link)) return;
    if (out && (outer & POLLIN) && !take_outer(link)) return;
  }
}

/* ---- connecting ----------------------------------------------------------------------------------------------- */

static int try_outer(struct link *link, rdzv_error *error) {
  const struct relay *relay = link->relay;
  const deadline until = deadline_after(TRY_MS);
  int result = net_connect(&relay->to, until, &relay->stop, &link->outer, error);
  if (result < 0) return result;
  result = tls_connect(relay->guard, link->outer, relay->to.host, until, &relay->stop, &link->tls, error);
  if (result < 0) {
    close(link->outer);
    link->outer = -1;
  }
  return result;
}

/* Has the worker given up? What it has sent stays. */
static bool is_closed(int fd) {
  char byte;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static bool connect_outer(struct link *link) {
  const struct relay *relay = link->relay;
  struct backoff backoff = {FIRST_PAUSE_MS, LONGEST_PAUSE_MS};
  for (;;) {
    rdzv_error error;
    const int result = try_outer(link, &error);
    if (result == 0) return true;
    const bool again = result == RDZV_E_CONNECTION || result == RDZV_E_TIMEOUT || result == RDZV_E_ADDRESS;
    if (again && !is_closed(link->inner) && flag_pause(&relay->stop, backoff_next(&backoff)) == 0) continue;
    if (result != RDZV_E_CANCELED && !flag_raised(&relay->stop))
      log_line(relay->log, RDZV_LOG_WARNING, "a worker does not reach the workers' store at '%s' port %d: %s",
               relay->to.host, relay->to.port, error.message);
    return false;
  }
}

static void *run_link(void *argument) {
  struct link *link = argument;
  struct relay *relay = link->relay;
  if (connect_outer(link)) pass_on(link);
  tls_close(link->tls);
  if (link->outer >= 0) close(link->outer);
  close(link->inner);
  free(link);
  pthread_mutex_lock(&relay->lock);
  if (--relay->links == 0) pthread_cond_broadcast(&relay->gone);
  pthread_mutex_unlock(&relay->lock);
  return NULL;
}

/* ---- accepting ------------------------------------------------------------------------------------------------ */

/* False: there is no place for it, and it is closed. */
static bool add_link(struct relay *relay, int fd) {
  struct link *link = calloc(1, sizeof *link);
  pthread_t thread;
  if (!link) return false;
  *link = (struct link){.relay = relay, .inner = fd, .outer = -1};
  net_tune(fd);
  pthread_mutex_lock(&relay->lock);
  const bool added = relay->links < LINKS_MOST && thread_start(&thread, run_link, link) == 0;
  if (added) {
    relay->links++;
    pthread_detach(thread);
  }
  pthread_mutex_unlock(&relay->lock);
  if (!added) free(link);
  return added;
}

static void *accept_all(void *argument) {
  struct relay *relay = argument;
  for (;;) {
    struct pollfd fds[2] = {{.fd = relay->listen_fd, .events = POLLIN}};
    if (flag_poll(&relay->stop, fds, 1, INT64_MAX) < 0) return NULL;
    const int fd = accept4(relay->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && add_link(relay, fd)) continue;
    if (fd >= 0) close(fd);
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) continue;
    log_line(relay->log, RDZV_LOG_WARNING,
             "a worker does not reach the workers' store: no descriptor or thread is left");
    if (flag_pause(&relay->stop, deadline_after(LONGEST_PAUSE_MS)) < 0) return NULL;
  }
}

/* ---- opening and closing -------------------------------------------------------------------------------------- */

static int listen_here(struct relay *relay, rdzv_error *error) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof address;
  relay->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (relay->listen_fd >= 0 && bind(relay->listen_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
      listen(relay->listen_fd, SOMAXCONN) == 0 &&
      getsockname(relay->listen_fd, (struct sockaddr *)&address, &len) == 0) {
    relay->port = net_port((struct sockaddr *)&address);
    return 0;
  }
  return error_errno(error, RDZV_E_IO, errno, "cannot listen on 127.0.0.1");
}

static int open_guard(struct relay *relay, const rdzv_protection *from, rdzv_error *error) {
  struct tls_names names = {.secret = from->secret_file, .ca = from->tls_ca};
  if (*from->tls_ca) {
    names.cert = from->tls_cert;
    names.key = from->tls_key;
  }
  tls_names_settle(&names);
  return tls_client_open(&names, &relay->guard, error);
}

static void relay_free(struct relay *relay) {
  if (relay->listen_fd >= 0) close(relay->listen_fd);
  tls_client_drop(relay->guard);
  flag_close(&relay->stop);
  pthread_cond_destroy(&relay->gone);
  pthread_mutex_destroy(&relay->lock);
  free(relay);
}

static int start(struct relay *relay, const rdzv_protection *protection, rdzv_error *error) {
  int result = flag_open(&relay->stop, error);
  if (result == 0) result = flag_need_fd(&relay->stop, error);
  if (result == 0) result = open_guard(relay, protection, error);
  if (result == 0) result = listen_here(relay, error);
  if (result < 0) return result;
  const int failed = thread_start(&relay->thread, accept_all, relay);
  return failed ? error_errno(error, RDZV_E_NO_MEMORY, failed, "cannot start a thread") : 0;
}

int relay_open(const char *host, int port, const rdzv_protection *protection, const rdzv_log *log, struct relay **out,
               rdzv_error *error) {
  struct relay *relay = calloc(1, sizeof *relay);
  if (!relay) return error_no_memory(error);
  *relay = (struct relay){.log = log, .stop = FLAG_NONE, .listen_fd = -1, .to.port = port};
  snprintf(relay->to.host, sizeof relay->to.host, "%s", host);
  pthread_mutex_init(&relay->lock, NULL);
  pthread_cond_init(&relay->gone, NULL);
  const int result = start(relay, protection, error);
  if (result < 0) {
    relay_free(relay);
    return error_prefix(error, result, "cannot relay workers to their store");
  }
  *out = relay;
  return 0;
}

int relay_port(const struct relay *relay) { return relay->port; }

void relay_close(struct relay *relay) {
  if (!relay) return;
  flag_raise(&relay->stop);
  pthread_join(relay->thread, NULL);
  pthread_mutex_lock(&relay->lock);
  while (relay->links > 0) pthread_cond_wait(&relay->gone, &relay->lock);
  pthread_mutex_unlock(&relay->lock);
  relay_free(relay);
}
