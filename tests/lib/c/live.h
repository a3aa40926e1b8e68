/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the C integration tests share: our own server in a thread of this process, hand-written servers that misbehave
 * in one way each, and waits for events that are bounded and never a sleep to be safe.
 */
#ifndef RDZV_TESTS_LIVE_H
#define RDZV_TESTS_LIVE_H

#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdzv/handler.h>
#include <rdzv/server.h>
#include <rdzv/store.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SOON_MS = 60000 }; /* for anything that should happen soon */

static inline int64_t live_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- bounds that follow the machine ------------------------------------------------------------------------ */

static inline double live_seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* How many times longer a moment of computing takes now than on a quiet machine: 1 or more. */
static inline double slowness(void) {
  const double moment = 0.03, began = live_seconds(CLOCK_MONOTONIC), computed = live_seconds(CLOCK_THREAD_CPUTIME_ID);
  while (live_seconds(CLOCK_THREAD_CPUTIME_ID) - computed < moment) continue;
  return (live_seconds(CLOCK_MONOTONIC) - began) / moment;
}

/* So much time is enough on a quiet machine; more, the busier this one is. */
#define assert_brief(took_ms, bound_ms) assert_brief_((took_ms), (bound_ms), __FILE__, __LINE__)
#define assert_within(began_ms, bound_ms) assert_brief(live_now_ms() - (began_ms), (bound_ms))

static inline void assert_brief_(int64_t took_ms, int64_t bound_ms, const char *file, int line) {
  if (took_ms < bound_ms) return;
  const double slow = slowness();
  if ((double)took_ms < slow * (double)bound_ms) return;
  print_error("it took %lld ms, not %lld ms at most (%.1f times slower than a quiet machine)\n", (long long)took_ms,
              (long long)bound_ms, slow);
  _fail(file, line);
}

/* ---- our server ------------------------------------------------------------------------------------------ */

/* On that port, or on a free one for RDZV_ANY_PORT; it serves when this returns. */
static inline rdzv_server *serve_with(rdzv_server_options options, int port) {
  rdzv_server *server;
  rdzv_error error;
  options.size = sizeof options;
  options.port = port;
  if (rdzv_server_open(&options, &server, &error) < 0) fail_msg("%s", error.message);
  assert_code(rdzv_server_start(server, &error), 0);
  return server;
}

static inline rdzv_server *serve(void) { return serve_with((rdzv_server_options){0}, RDZV_ANY_PORT); }

static inline rdzv_store *connect_with(const char *endpoint, rdzv_tcp_options options) {
  rdzv_store *store;
  rdzv_error error;
  options.size = sizeof options;
  if (options.timeout_ms == 0) options.timeout_ms = SOON_MS;
  if (rdzv_store_open_tcp(endpoint, &options, &store, &error) < 0) fail_msg("%s", error.message);
  return store;
}

static inline rdzv_store *connect_to(const char *endpoint) { return connect_with(endpoint, (rdzv_tcp_options){0}); }

static inline rdzv_store *store_of(const rdzv_server *server) { return connect_to(rdzv_server_address(server)); }

static inline void must_set(rdzv_store *store, const char *key, const char *value) {
  rdzv_error error;
  if (rdzv_store_set(store, rdzv_str(key), rdzv_str(value), &error) < 0) fail_msg("%s", error.message);
}

static inline int64_t must_add(rdzv_store *store, const char *key, int64_t delta) {
  rdzv_error error;
  int64_t sum = 0;
  if (rdzv_store_add(store, rdzv_str(key), delta, &sum, &error) < 0) fail_msg("%s", error.message);
  return sum;
}

#define assert_get(store, key, expected)                                                              \
  do {                                                                                                \
    rdzv_error error_;                                                                                \
    rdzv_value value_;                                                                                \
    if (rdzv_store_get((store), rdzv_str(key), &value_, &error_) < 0) fail_msg("%s", error_.message); \
    assert_bytes(rdzv_value_bytes(&value_), expected);                                                \
    rdzv_value_free(&value_);                                                                         \
  } while (0)

/* ---- a server written by hand ------------------------------------------------------------------------------ */

struct peer;
typedef void peer_script(struct peer *peer);

/* Runs a script in a thread. `reached` tells the test that the script has come to the point it is about; the script
 * may wait for `go_on`. */
struct peer {
  int listener;
  char endpoint[32];
  int port;
  pthread_t thread;
  peer_script *script;
  sem_t reached, go_on;
  void *data; /* the script's */
};

static inline int peer_listen(int backlog, int *port) {
  const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in bound;
  socklen_t len = sizeof bound;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any) == 0 && listen(fd, backlog) == 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&bound, &len), 0);
  *port = ntohs(bound.sin_port);
  return fd;
}

static inline void *peer_thread(void *arg) {
  struct peer *peer = arg;
  peer->script(peer);
  return NULL;
}

static inline void peer_start(struct peer *peer, peer_script *script, void *data) {
  *peer = (struct peer){.script = script, .data = data};
  peer->listener = peer_listen(16, &peer->port);
  snprintf(peer->endpoint, sizeof peer->endpoint, "127.0.0.1:%d", peer->port);
  sem_init(&peer->reached, 0, 0);
  sem_init(&peer->go_on, 0, 0);
  assert_int_equal(pthread_create(&peer->thread, NULL, peer_thread, peer), 0);
}

/* Waits for the script's end. */
static inline void peer_end(struct peer *peer) {
  pthread_join(peer->thread, NULL);
  close(peer->listener);
  sem_destroy(&peer->reached);
  sem_destroy(&peer->go_on);
}

static inline void await_sem(sem_t *sem) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += SOON_MS / 1000;
  while (sem_timedwait(sem, &until) < 0)
    if (errno != EINTR) fail_msg("what the test waits for did not happen");
}

static inline bool await_readable(int fd) {
  struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
  return poll(&poll_fd, 1, SOON_MS) > 0;
}

/* For scripts: a failure ends the test program, which says where. */
#define SCRIPT_CHECK(condition)                                                    \
  do {                                                                             \
    if (!(condition)) {                                                            \
      fprintf(stderr, "%s:%d: in a script: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                    \
    }                                                                              \
  } while (0)

static inline int peer_accept(struct peer *peer) {
  SCRIPT_CHECK(await_readable(peer->listener));
  const int fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
  SCRIPT_CHECK(fd >= 0);
  return fd;
}

static inline void peer_read(int fd, void *data, size_t len) {
  for (size_t got = 0; got < len;) {
    SCRIPT_CHECK(await_readable(fd));
    const ssize_t n = recv(fd, (char *)data + got, len - got, 0);
    SCRIPT_CHECK(n > 0);
    got += (size_t)n;
  }
}

static inline void peer_write(int fd, const void *data, size_t len) {
  SCRIPT_CHECK(send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len);
}

/* Waits until the client has closed its end, and closes ours. */
static inline void peer_close_after_client(int fd) {
  char rest[4096];
  ssize_t n = 1;
  while (n > 0) {
    SCRIPT_CHECK(await_readable(fd));
    n = recv(fd, rest, sizeof rest, 0);
  }
  close(fd);
}

enum { HELLO_BYTES = 15 };

static inline void peer_take_hello(int fd) {
  const uint8_t expected[HELLO_BYTES] = {0,    0xce, 0xf7, 0x85, 0x3c, 13,   0xff, 0xff,
                                         0xff, 0xff, 13,   0xfe, 0xff, 0xff, 0xff};
  uint8_t hello[HELLO_BYTES];
  peer_read(fd, hello, sizeof hello);
  SCRIPT_CHECK(memcmp(hello, expected, sizeof hello) == 0);
}

/* Answers our client's greeting as a server of ours without sessions does. */
static inline void peer_greet(int fd, uint64_t instance) {
  uint8_t answer[17] = {'r', 'd', 'z', 1, [13] = 0xfe, 0xff, 0xff, 0xff};
  peer_take_hello(fd);
  memcpy(answer + 4, &instance, sizeof instance);
  peer_write(fd, answer, sizeof answer);
}

/* Answers it with a session whose token is that digit 16 times. */
static inline void peer_greet_session(int fd, uint64_t instance, char digit) {
  uint8_t answer[33] = {'r', 'd', 'z', 1, [13] = 's', 'e', 's', 1};
  peer_take_hello(fd);
  memcpy(answer + 4, &instance, sizeof instance);
  memset(answer + 17, digit, 16);
  peer_write(fd, answer, sizeof answer);
}

/* ---- what a node hears of its round, as a value ------------------------------------------------------------ */

struct heard {
  unsigned what;
  char who[512]; /* the first node that left or died; "" none */
  size_t count;  /* of those nodes */
};

/* As rdzv_handler_wait_change. */
static inline int hear(rdzv_handler *handler, int64_t timeout_ms, struct heard *out, rdzv_error *error) {
  rdzv_change *change;
  const int result = rdzv_handler_wait_change(handler, timeout_ms, &change, error);
  if (result < 0) return result;
  *out = (struct heard){.what = rdzv_change_what(change), .count = rdzv_change_node_count(change)};
  if (out->count > 0) snprintf(out->who, sizeof out->who, "%s", rdzv_change_node(change, 0));
  rdzv_change_free(change);
  return 0;
}

#endif
