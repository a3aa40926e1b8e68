/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A relay between clients and a server that loses the connection where a test wants it to: before a request reaches the
 * server, or after it has, before the answer reaches the client.
 */
#ifndef RDZV_TESTS_PROXY_H
#define RDZV_TESTS_PROXY_H

#include "live.h"

#include <stdatomic.h>

enum proxy_cut {
  CUT_NOTHING,
  CUT_REQUEST, /* the next bytes from a client are dropped and its connection closed */
  CUT_ANSWER,  /* the next bytes from the server are */
  CUT_AT_ONCE, /* the next connection is closed when its first bytes have come */
  CUT_LATE,    /* the next bytes from a client that has greeted are held, and its connection closed; the server has them
                  when proxy_deliver is called */
  CUT_ANSWER_THEN_LATE,
};

enum { PROXY_PAIRS = 32 };

struct proxy {
  int listener, port;
  char endpoint[32];
  atomic_int server_port;
  atomic_int cut;       /* enum proxy_cut; CUT_NOTHING again when it was done */
  atomic_int greetings; /* that are still to be cut: the next connections which begin with a V2 greeting are closed */
  atomic_int accepted;
  atomic_int relayed;      /* pieces from clients that have reached the server */
  atomic_int swallow_from; /* of every connection but the first, that piece and later ones never do; 0: all do */
  atomic_int swallowed;
  const char *text;     /* NULL: none */
  atomic_int with_text; /* pieces from clients that have it in them, and have reached the server */
  atomic_bool silent;   /* nothing is relayed, and nobody is told */
  atomic_bool end;
  pthread_t thread;
  struct {
    int client, server; /* -1: free */
    bool is_new, is_first;
    int pieces; /* from the client */
  } pairs[PROXY_PAIRS];
  char late[1024]; /* what is held, and for whom */
  size_t late_len;
  int late_server;
};

static inline void proxy_drop(struct proxy *proxy, int i) {
  close(proxy->pairs[i].client);
  close(proxy->pairs[i].server);
  proxy->pairs[i].client = proxy->pairs[i].server = -1;
}

static inline void proxy_accept(struct proxy *proxy) {
  const int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
  if (client < 0) return;
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                      .sin_port = htons((uint16_t)atomic_load(&proxy->server_port))};
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int i = 0;
  while (i < PROXY_PAIRS && proxy->pairs[i].client >= 0) i++;
  SCRIPT_CHECK(i < PROXY_PAIRS);
  proxy->pairs[i].is_first = atomic_fetch_add(&proxy->accepted, 1) == 0;
  proxy->pairs[i].pieces = 0;
  proxy->pairs[i].client = client;
  proxy->pairs[i].server = server;
  proxy->pairs[i].is_new = true;
  if (connect(server, (const struct sockaddr *)&address, sizeof address) < 0) proxy_drop(proxy, i);
}

static inline void proxy_hold(struct proxy *proxy, int i, const char *data, size_t len) {
  SCRIPT_CHECK(len <= sizeof proxy->late);
  memcpy(proxy->late, data, len);
  proxy->late_len = len;
  proxy->late_server = proxy->pairs[i].server;
  close(proxy->pairs[i].client);
  proxy->pairs[i].client = proxy->pairs[i].server = -1;
  atomic_store(&proxy->cut, CUT_NOTHING);
}

/* Is this the moment to lose the connection? */
static inline bool proxy_cuts(struct proxy *proxy, int i, bool from_client) {
  const int cut = atomic_load(&proxy->cut);
  const bool now = (cut == CUT_REQUEST && from_client) ||
                   ((cut == CUT_ANSWER || cut == CUT_ANSWER_THEN_LATE) && !from_client) ||
                   (cut == CUT_AT_ONCE && from_client && proxy->pairs[i].is_new);
  if (now) atomic_store(&proxy->cut, cut == CUT_ANSWER_THEN_LATE ? CUT_LATE : CUT_NOTHING);
  return now;
}

/* Is this a greeting that is to be cut? Other connections pass, as that of a client which then tries V1. */
static inline bool proxy_cuts_greeting(struct proxy *proxy, int i, bool from_client, const char *data) {
  const bool greeting = from_client && proxy->pairs[i].is_new && data[0] == 0;
  if (!greeting || atomic_load(&proxy->greetings) == 0) return false;
  atomic_fetch_sub(&proxy->greetings, 1);
  return true;
}

static inline void proxy_relay(struct proxy *proxy, int i, bool from_client) {
  char data[65536];
  const int from = from_client ? proxy->pairs[i].client : proxy->pairs[i].server;
  const int to = from_client ? proxy->pairs[i].server : proxy->pairs[i].client;
  const ssize_t got = recv(from, data, sizeof data, 0);
  if (got <= 0 || proxy_cuts(proxy, i, from_client) || proxy_cuts_greeting(proxy, i, from_client, data)) {
    proxy_drop(proxy, i);
    return;
  }
  if (from_client && !proxy->pairs[i].is_new && atomic_load(&proxy->cut) == CUT_LATE) {
    proxy_hold(proxy, i, data, (size_t)got);
    return;
  }
  proxy->pairs[i].is_new = false;
  const int from_piece = atomic_load(&proxy->swallow_from);
  if (from_client && from_piece > 0 && !proxy->pairs[i].is_first && ++proxy->pairs[i].pieces >= from_piece) {
    atomic_fetch_add(&proxy->swallowed, 1);
    return;
  }
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t n = send(to, data + sent, (size_t)(got - sent), MSG_NOSIGNAL);
    if (n <= 0) {
      proxy_drop(proxy, i);
      return;
    }
    sent += n;
  }
  if (from_client && proxy->text && memmem(data, (size_t)got, proxy->text, strlen(proxy->text)))
    atomic_fetch_add(&proxy->with_text, 1);
  if (from_client) atomic_fetch_add(&proxy->relayed, 1);
}

static inline void *proxy_run(void *arg) {
  struct proxy *proxy = arg;
  while (!atomic_load(&proxy->end)) {
    if (atomic_load(&proxy->silent)) {
      poll(NULL, 0, 10);
      continue;
    }
    struct pollfd fds[1 + 2 * PROXY_PAIRS] = {{.fd = proxy->listener, .events = POLLIN}};
    for (int i = 0; i < PROXY_PAIRS; i++) {
      fds[1 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].client, .events = POLLIN};
      fds[2 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].server, .events = POLLIN};
    }
    if (poll(fds, 1 + 2 * PROXY_PAIRS, 10) <= 0) continue;
    for (int i = 0; i < PROXY_PAIRS; i++) {
      if (fds[1 + 2 * i].revents) proxy_relay(proxy, i, true);
      if (fds[2 + 2 * i].revents && proxy->pairs[i].server >= 0) proxy_relay(proxy, i, false);
    }
    if (fds[0].revents) proxy_accept(proxy);
  }
  for (int i = 0; i < PROXY_PAIRS; i++)
    if (proxy->pairs[i].client >= 0) proxy_drop(proxy, i);
  return NULL;
}

static inline void proxy_start_with(struct proxy *proxy, int server_port, const char *text) {
  memset(proxy, 0, sizeof *proxy);
  proxy->text = text;
  for (int i = 0; i < PROXY_PAIRS; i++) proxy->pairs[i].client = proxy->pairs[i].server = -1;
  proxy->listener = peer_listen(16, &proxy->port);
  snprintf(proxy->endpoint, sizeof proxy->endpoint, "127.0.0.1:%d", proxy->port);
  atomic_store(&proxy->server_port, server_port);
  assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_run, proxy), 0);
}

static inline void proxy_start(struct proxy *proxy, int server_port) { proxy_start_with(proxy, server_port, NULL); }

static inline void proxy_await_count(const atomic_int *counter, int count) {
  const struct timespec moment = {0, 1000000};
  for (const int64_t until = live_now_ms() + SOON_MS; atomic_load(counter) < count; nanosleep(&moment, NULL))
    assert_true(live_now_ms() < until);
}

/* Waits until that many pieces from clients have reached the server. */
static inline void proxy_await(struct proxy *proxy, int relayed) { proxy_await_count(&proxy->relayed, relayed); }

/* Delivers what was held, and waits until the server answers or closes; call it when nothing is held any more. */
static inline void proxy_deliver(struct proxy *proxy) {
  SCRIPT_CHECK(send(proxy->late_server, proxy->late, proxy->late_len, MSG_NOSIGNAL) == (ssize_t)proxy->late_len);
  assert_true(await_readable(proxy->late_server));
  close(proxy->late_server);
}

static inline void proxy_end(struct proxy *proxy) {
  atomic_store(&proxy->end, true);
  pthread_join(proxy->thread, NULL);
  close(proxy->listener);
}

#endif
