/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each connection has two pipes, one for each direction. What is read into a pipe is cut into pieces, each with the
 * time at which it may be written; the end of the stream is the last piece. A fault is met when so many bytes have gone
 * in:
 *
 *   CUT       both sides are closed; what is in the pipes is lost
 *   RESET     the same, with a reset
 *   LATE      the client is reset; what it had sent is held, and delivered to the server later
 *   DEAF      the server hears the client, and the client hears nothing more, and is reset later
 *   HALF      the end of the stream is told here, and everything is closed later
 *   STALL     nothing passes in this direction for a while; then it goes on, also if the client has given up
 */
#include "proxy.h"
#include "random.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LINKS = 256, MOST_HELD = 4 << 20, TICK_MS = 50 };

enum fault { FAULT_NONE, CUT, RESET, LATE, DEAF, HALF, STALL, FAULTS };
static const char *const fault_names[] = {"none", "cut", "reset", "late", "deaf", "half", "stall"};

enum pieces { AS_THEY_COME, EVERY_BYTE, ANY_LENGTH };

/* Bytes, or with none the end of the stream. */
struct piece {
  struct piece *next;
  int64_t at_ms;
  size_t len, done;
  char data[];
};

struct pipe {
  int from, to; /* -1: closed */
  struct piece *first, **last;
  size_t held;
  int64_t seen;     /* bytes that came */
  int64_t fault_at; /* of `seen`; INT64_MAX: none */
  enum fault fault;
  int64_t floor_ms; /* before this nothing passes */
  bool ended;       /* nothing more is read */
  bool dropped;     /* what is read is thrown away */
};

struct link {
  unsigned number;
  struct random random;
  struct pipe up, down; /* to the server, to the client */
  enum pieces pieces;
  int delay_ms;       /* of each piece, at most */
  int64_t close_ms;   /* everything is closed then; INT64_MAX: never */
  int64_t reset_ms;   /* the client is, then */
  bool used, is_late; /* late: the client is gone, what it sent is not */
};

struct proxy {
  struct proxy_options options;
  int listener, port, wake[2];
  pthread_t thread;
  bool started;
  atomic_bool end, faults, cut, silent, busy;
  atomic_int target;
  atomic_uint connections, fault_count, late;
  struct link links[MOST_LINKS];
};

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void trace(struct proxy *proxy, const struct link *link, const char *what) {
  if (!proxy->options.trace) return;
  fprintf(proxy->options.trace, "proxy: connection %u: %s (%" PRId64 " bytes to the server, %" PRId64 " back)\n",
          link->number, what, link->up.seen, link->down.seen);
  fflush(proxy->options.trace);
}

/* ---- pipes ------------------------------------------------------------------------------------------------------- */

static void pipe_empty(struct pipe *pipe) {
  for (struct piece *piece = pipe->first, *next; piece; piece = next) {
    next = piece->next;
    free(piece);
  }
  pipe->first = NULL;
  pipe->last = &pipe->first;
  pipe->held = 0;
}

static void pipe_put(struct pipe *pipe, const char *data, size_t len, int64_t at_ms) {
  struct piece *piece = malloc(sizeof *piece + len);
  if (!piece) abort();
  *piece = (struct piece){.at_ms = at_ms > pipe->floor_ms ? at_ms : pipe->floor_ms, .len = len};
  if (len > 0) memcpy(piece->data, data, len);
  pipe->floor_ms = piece->at_ms;
  *pipe->last = piece;
  pipe->last = &piece->next;
  pipe->held += len;
}

static size_t next_length(struct link *link, size_t len) {
  if (link->pieces == EVERY_BYTE) return 1;
  if (link->pieces == AS_THEY_COME) return len;
  const size_t some = 1 + (size_t)random_below(&link->random, 16);
  return some < len ? some : len;
}

static void pipe_put_cut(struct link *link, struct pipe *pipe, const char *data, size_t len) {
  for (size_t at = 0, piece; at < len; at += piece) {
    piece = next_length(link, len - at);
    pipe_put(pipe, data + at, piece, now_ms() + random_below(&link->random, link->delay_ms + 1));
  }
}

/* ---- links ---------------------------------------------------------------------------------------------------------
 */

static void reset_at_close(int fd) {
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
}

static void close_client(struct link *link) {
  if (link->up.from >= 0) close(link->up.from);
  link->up.from = link->down.to = -1;
  link->up.ended = true;
  link->down.dropped = true;
  pipe_empty(&link->down);
}

static void close_link(struct link *link) {
  close_client(link);
  if (link->up.to >= 0) close(link->up.to);
  pipe_empty(&link->up);
  link->used = false;
}

static void pipe_init(struct pipe *pipe, int from, int to) {
  *pipe = (struct pipe){.from = from, .to = to, .fault_at = INT64_MAX};
  pipe->last = &pipe->first;
}

/* The next fault of this link, in one of its directions. About as many come early as late: a greeting has 10 bytes, a
 * request some dozens. */
static void plan_fault(struct proxy *proxy, struct link *link) {
  const int64_t mean = proxy->options.mean_bytes;
  struct pipe *pipe = random_chance(&link->random, 50) ? &link->up : &link->down;
  pipe->fault = CUT + (enum fault)random_below(&link->random, FAULTS - CUT);
  pipe->fault_at = pipe->seen + random_below(&link->random, random_chance(&link->random, 25) ? 64 : 2 * mean);
}

static void plan(struct proxy *proxy, struct link *link) {
  const int how = (int)random_below(&link->random, 4);
  const bool slow = random_chance(&link->random, 30), stalls_first = random_chance(&link->random, 5);
  link->pieces = how == 0 ? EVERY_BYTE : how == 1 ? ANY_LENGTH : AS_THEY_COME;
  link->delay_ms = slow ? 1 + (int)random_below(&link->random, 8) : 0;
  plan_fault(proxy, link);
  if (stalls_first) link->up.floor_ms = now_ms() + random_below(&link->random, proxy->options.late_ms);
}

static int connect_to(int port) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

static struct link *free_link(struct proxy *proxy) {
  for (int i = 0; i < MOST_LINKS; i++)
    if (!proxy->links[i].used) return &proxy->links[i];
  return NULL;
}

static void accept_client(struct proxy *proxy) {
  const int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (client < 0) return;
  struct link *link = free_link(proxy);
  const int server = link ? connect_to(atomic_load(&proxy->target)) : -1;
  const unsigned number = atomic_fetch_add(&proxy->connections, 1);
  if (server < 0) {
    close(client);
    return;
  }
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  *link = (struct link){.number = number, .close_ms = INT64_MAX, .reset_ms = INT64_MAX, .used = true};
  link->random = random_of(proxy->options.seed, number);
  pipe_init(&link->up, client, server);
  pipe_init(&link->down, server, client);
  if (atomic_load(&proxy->faults)) plan(proxy, link);
}

/* ---- faults --------------------------------------------------------------------------------------------------------
 */

/* Whatever the client has sent by now. */
static void drain_client(struct proxy *proxy, struct link *link) {
  char data[65536];
  ssize_t got;
  while (link->up.held < MOST_HELD && (got = recv(link->up.from, data, sizeof data, MSG_DONTWAIT)) > 0)
    pipe_put_cut(link, &link->up, data, (size_t)got);
  atomic_fetch_add(&proxy->late, (unsigned)link->up.held);
}

static void be_late(struct proxy *proxy, struct link *link) {
  const int64_t late = proxy->options.late_ms;
  link->up.floor_ms = now_ms() + 1 + random_below(&link->random, late);
  for (struct piece *piece = link->up.first; piece; piece = piece->next)
    if (piece->at_ms < link->up.floor_ms) piece->at_ms = link->up.floor_ms;
  drain_client(proxy, link);
  link->is_late = true;
  link->close_ms = link->up.floor_ms + 100 + random_below(&link->random, late);
  reset_at_close(link->up.from);
  close_client(link);
}

/* Where `rest` bytes behind the fault have come already. */
static void do_fault(struct proxy *proxy, struct link *link, struct pipe *pipe, const char *rest, size_t len) {
  const int64_t later = now_ms() + 1 + random_below(&link->random, proxy->options.late_ms);
  pipe->fault_at = INT64_MAX;
  atomic_fetch_add(&proxy->fault_count, 1);
  if (proxy->options.resets && (pipe->fault == CUT || pipe->fault == HALF)) pipe->fault = RESET;
  trace(proxy, link, fault_names[pipe->fault]);
  switch (pipe->fault) {
    case RESET:
      reset_at_close(link->up.from);
      reset_at_close(link->up.to);
      close_link(link);
      return;
    case LATE:
      if (pipe == &link->up) pipe_put_cut(link, pipe, rest, len);
      be_late(proxy, link);
      return;
    case DEAF:
      if (pipe == &link->up) pipe_put_cut(link, pipe, rest, len);
      link->down.dropped = true;
      link->reset_ms = later;
      return;
    case HALF:
      pipe_put(pipe, NULL, 0, 0);
      pipe->dropped = true;
      link->close_ms = later;
      return;
    case STALL:
      pipe->floor_ms = later;
      plan_fault(proxy, link);
      pipe_put_cut(link, pipe, rest, len);
      return;
    default: close_link(link);
  }
}

/* ---- bytes
 * ----------------------------------------------------------------------------------------------------------- */

static void take_in(struct proxy *proxy, struct link *link, struct pipe *pipe, const char *data, size_t len) {
  const int64_t before = pipe->fault_at - pipe->seen;
  if (pipe->dropped) return;
  if (!atomic_load(&proxy->faults) || (int64_t)len < before) {
    pipe->seen += (int64_t)len;
    pipe_put_cut(link, pipe, data, len);
    return;
  }
  const size_t whole = before > 0 ? (size_t)before : 0;
  pipe->seen += (int64_t)len;
  pipe_put_cut(link, pipe, data, whole);
  do_fault(proxy, link, pipe, data + whole, len - whole);
}

static void read_pipe(struct proxy *proxy, struct link *link, struct pipe *pipe) {
  char data[65536];
  const ssize_t got = recv(pipe->from, data, sizeof data, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    take_in(proxy, link, pipe, data, (size_t)got);
    return;
  }
  pipe->ended = true;
  pipe_put(pipe, NULL, 0, 0);
}

/* Writes what is due. False: the other side is gone. */
static bool write_pipe(struct pipe *pipe, int64_t now) {
  while (pipe->first && pipe->first->at_ms <= now && pipe->to >= 0) {
    struct piece *piece = pipe->first;
    if (piece->len == 0) {
      shutdown(pipe->to, SHUT_WR);
    } else {
      const ssize_t sent = send(pipe->to, piece->data + piece->done, piece->len - piece->done, MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      pipe->held -= (size_t)sent;
      piece->done += (size_t)sent;
      if (piece->done < piece->len) return true;
    }
    pipe->first = piece->next;
    if (!pipe->first) pipe->last = &pipe->first;
    free(piece);
  }
  return true;
}

/* A client that has closed its end while bytes are held is gone; what it sent comes late. */
static bool is_over(const struct link *link) {
  if (link->is_late) return false; /* until close_ms */
  return (link->up.ended && !link->up.first && link->down.ended && !link->down.first) || link->up.to < 0;
}

static void turn_link(struct proxy *proxy, struct link *link, int64_t now) {
  if (!write_pipe(&link->up, now)) {
    close_link(link);
    return;
  }
  if (!write_pipe(&link->down, now)) close_client(link);
  if (link->up.from < 0 && !link->is_late && link->close_ms == INT64_MAX) {
    link->is_late = true;
    link->close_ms = (link->up.floor_ms > now ? link->up.floor_ms : now) + proxy->options.late_ms;
  }
  if (now >= link->reset_ms && link->up.from >= 0) {
    reset_at_close(link->up.from);
    close_client(link);
    link->reset_ms = INT64_MAX;
  }
  if (now >= link->close_ms || is_over(link)) close_link(link);
}

/* ---- the loop
 * ---------------------------------------------------------------------------------------------------------- */

static bool wants_to_read(const struct pipe *pipe) { return pipe->from >= 0 && !pipe->ended && pipe->held < MOST_HELD; }

static int64_t next_time(const struct link *link, int64_t next) {
  const int64_t times[] = {link->up.first ? link->up.first->at_ms : INT64_MAX,
                           link->down.first ? link->down.first->at_ms : INT64_MAX, link->close_ms, link->reset_ms};
  for (int i = 0; i < 4; i++)
    if (times[i] < next) next = times[i];
  return next;
}

static bool holds(const struct link *link) { return link->used && (link->up.first || link->down.first); }

static void serve_links(struct proxy *proxy, const struct pollfd *fds) {
  const bool silent = atomic_load(&proxy->silent);
  bool busy = false;
  for (int i = 0; i < MOST_LINKS; i++) {
    struct link *link = &proxy->links[i];
    if (link->used && fds[2 + 2 * i].revents) read_pipe(proxy, link, &link->up);
    if (link->used && fds[3 + 2 * i].revents) read_pipe(proxy, link, &link->down);
    if (link->used && !silent) turn_link(proxy, link, now_ms());
    busy |= holds(link);
  }
  atomic_store(&proxy->busy, busy);
}

static void await_bytes(struct proxy *proxy, struct pollfd *fds) {
  const int64_t now = now_ms();
  int64_t next = now + TICK_MS;
  fds[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
  fds[1] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
  for (int i = 0; i < MOST_LINKS; i++) {
    struct link *link = &proxy->links[i];
    fds[2 + 2 * i] =
        (struct pollfd){.fd = link->used && wants_to_read(&link->up) ? link->up.from : -1, .events = POLLIN};
    fds[3 + 2 * i] =
        (struct pollfd){.fd = link->used && wants_to_read(&link->down) ? link->down.from : -1, .events = POLLIN};
    if (link->used) next = next_time(link, next);
  }
  poll(fds, 2 + 2 * MOST_LINKS, next > now ? (int)(next - now) : 1);
}

void proxy_run(struct proxy *proxy) {
  struct pollfd fds[2 + 2 * MOST_LINKS];
  while (!atomic_load(&proxy->end)) {
    await_bytes(proxy, fds);
    serve_links(proxy, fds);
    if (atomic_exchange(&proxy->cut, false))
      for (int i = 0; i < MOST_LINKS; i++)
        if (proxy->links[i].used) close_link(&proxy->links[i]);
    if (fds[0].revents) accept_client(proxy);
    char ignored[64];
    if (fds[1].revents && read(proxy->wake[0], ignored, sizeof ignored) < 0) continue;
  }
}

static void *run_in_thread(void *arg) {
  proxy_run(arg);
  return NULL;
}

/* ---- from outside
 * -------------------------------------------------------------------------------------------------------- */

static int listen_on(int port, int *bound_port) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
  socklen_t len = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 128) < 0 ||
      getsockname(fd, (struct sockaddr *)&address, &len) < 0) {
    close(fd);
    return -1;
  }
  *bound_port = ntohs(address.sin_port);
  return fd;
}

struct proxy *proxy_open(const struct proxy_options *options) {
  struct proxy *proxy = calloc(1, sizeof *proxy);
  if (!proxy) return NULL;
  proxy->options = *options;
  proxy->listener = listen_on(options->port, &proxy->port);
  if (proxy->listener < 0 || pipe2(proxy->wake, O_CLOEXEC | O_NONBLOCK) < 0) {
    free(proxy);
    return NULL;
  }
  atomic_store(&proxy->faults, options->mean_bytes > 0);
  atomic_store(&proxy->target, options->target_port);
  return proxy;
}

int proxy_port(const struct proxy *proxy) { return proxy->port; }

bool proxy_start(struct proxy *proxy) {
  proxy->started = pthread_create(&proxy->thread, NULL, run_in_thread, proxy) == 0;
  return proxy->started;
}

static void wake(struct proxy *proxy) {
  if (write(proxy->wake[1], "", 1) < 0 && errno != EAGAIN) abort();
}

void proxy_set_faults(struct proxy *proxy, bool on) { atomic_store(&proxy->faults, on); }
void proxy_set_target(struct proxy *proxy, int port) { atomic_store(&proxy->target, port); }

void proxy_cut_all(struct proxy *proxy) {
  atomic_store(&proxy->cut, true);
  wake(proxy);
}

void proxy_set_silent(struct proxy *proxy, bool on) {
  atomic_store(&proxy->silent, on);
  wake(proxy);
}

bool proxy_is_idle(struct proxy *proxy) { return !atomic_load(&proxy->busy); }

struct proxy_counts proxy_counts(struct proxy *proxy) {
  return (struct proxy_counts){atomic_load(&proxy->connections), atomic_load(&proxy->fault_count),
                               atomic_load(&proxy->late)};
}

void proxy_end(struct proxy *proxy) {
  if (!proxy) return;
  atomic_store(&proxy->end, true);
  wake(proxy);
  if (proxy->started) pthread_join(proxy->thread, NULL);
  for (int i = 0; i < MOST_LINKS; i++)
    if (proxy->links[i].used) close_link(&proxy->links[i]);
  close(proxy->listener);
  close(proxy->wake[0]);
  close(proxy->wake[1]);
  free(proxy);
}
