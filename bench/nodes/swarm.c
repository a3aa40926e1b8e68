/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes that are connections of an epoll loop. Each says what a native node says (docs/wire.md, src/wire/native.h): a
 * greeting, a join when that is answered, and beats, which are spread over the keep-alive interval. A node of a
 * round in which another one has died joins again (--victim). */
#include "swarm.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  WINDOW = 2048, /* connections of all processes that are not greeted yet: no queue of a server overflows */
  EVENTS = 512,
  ANSWERED = 2, /* of so many beats one is to be answered, as with the default settings of a handler */
  IDLE_MS = 50, /* how late the end may be noticed */
};

const char nodes_name[] = "swarm";
const char nodes_usage[] =
    "Each node is a connection of an event loop. --backend, --conf and --delay-us are not for them.\n";

void nodes_check_options(const struct options *o) {
  if (strcmp(o->backend, "c10d") != 0 || o->delay_us) die("%s", nodes_usage);
}

/* ---- a node --------------------------------------------------------------------------------------------------- */

static void count(atomic_uint_fast64_t *counter, uint64_t more) {
  atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

/* What the speaker has written. It is short, and the socket takes it whole. */
static void node_send(struct swarm *swarm, const struct swarm_node *node) {
  struct wire_writer *out = &swarm->out;
  if (out->failed) die("out of memory");
  const ssize_t n = send(node->fd, out->buf.data, out->buf.len, MSG_NOSIGNAL);
  if (n < 0) die("node %u was lost while writing: %s", node->slot, strerror(errno));
  if ((size_t)n < out->buf.len) die("node %u cannot write: the server does not read", node->slot);
  count(&swarm->board->messages_out, 1);
  count(&swarm->board->sent, (uint64_t)n);
  out->buf.len = 0;
}

static void node_join(struct swarm *swarm, struct swarm_node *node) {
  node->joins++;
  count(&swarm->board->requests[WIRE_OP_NODE_JOIN], 1);
  say_join(swarm, node);
  node_send(swarm, node);
}

static void node_greeted(struct swarm *swarm, struct swarm_node *node) {
  node->phase = PHASE_IN;
  swarm->opening--;
  swarm->board->slots[node->slot].opened = now_ns() - swarm->board->start;
  node_join(swarm, node);
}

/* Each process has a loopback address of its own, as nodes on several machines have, so that it does not compete for
 * ports with those that the kernel keeps for a minute after runs of before. */
static void bind_to_own_address(const struct swarm *swarm, int fd) {
  const int on = 1;
  const struct sockaddr_in *to = (const struct sockaddr_in *)swarm->address->ai_addr;
  if (swarm->address->ai_family != AF_INET || ntohl(to->sin_addr.s_addr) != INADDR_LOOPBACK) return;
  const in_addr_t own = INADDR_LOOPBACK + ((in_addr_t)getpid() & 0xffff) * 256;
  const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(own)};
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  if (bind(fd, (const struct sockaddr *)&from, sizeof from) < 0) die("bind: %s", strerror(errno));
}

static void node_open(struct swarm *swarm, struct swarm_node *node) {
  const int on = 1;
  node->fd = socket(swarm->address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (node->fd < 0) die("socket: %s", strerror(errno));
  bind_to_own_address(swarm, node->fd);
  setsockopt(node->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(node->fd, swarm->address->ai_addr, swarm->address->ai_addrlen) < 0 && errno != EINPROGRESS)
    die("node %u cannot connect: %s", node->slot, strerror(errno));
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = node};
  if (epoll_ctl(swarm->poller, EPOLL_CTL_ADD, node->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
  node->phase = PHASE_CONNECTING;
  swarm->opening++;
}

static void node_connected(struct swarm *swarm, struct swarm_node *node) {
  int error = 0;
  socklen_t len = sizeof error;
  getsockopt(node->fd, SOL_SOCKET, SO_ERROR, &error, &len);
  if (error) die("node %u cannot connect: %s", node->slot, strerror(error));
  node->phase = PHASE_GREETING;
  count(&swarm->board->requests[WIRE_OP_VALIDATE], 1);
  say_greeting(swarm);
  node_send(swarm, node);
}

/* ---- what the server says ------------------------------------------------------------------------------------- */

static void node_joined(struct swarm *swarm, struct swarm_node *node, rdzv_bytes body) {
  struct native_joined joined;
  rdzv_error error;
  if (wire_native_joined(body, &joined, &error) < 0) die("node %u: %s", node->slot, error.message);
  if (joined.number != node->joins) die("node %u got the answer to another join", node->slot);
  const bool again = node->joins > 1 || node->slot >= swarm->options->nodes;
  board_place(swarm->board, swarm->options, node->slot, again ? 1 : 0, joined.round, joined.rank, joined.world_size);
}

static void node_news(struct swarm *swarm, struct swarm_node *node, rdzv_bytes body) {
  struct native_news news;
  rdzv_error error;
  if (wire_native_news(body, &news, &error) < 0) die("node %u: %s", node->slot, error.message);
  if (!swarm->options->victim || !(news.what & ENGINE_NEWS_PARTICIPANT_DIED) || node->joins > 1) return;
  board_know(swarm->board, swarm->options, node->slot);
  node_join(swarm, node);
}

static void node_take(struct swarm *swarm, struct swarm_node *node, const struct wire_native_message *message) {
  if (message->code)
    die("node %u was refused (%d): %.*s", node->slot, message->code, (int)message->body.len,
        (const char *)message->body.data);
  switch (message->kind) {
    case WIRE_NATIVE_JOINED: node_joined(swarm, node, message->body); break;
    case WIRE_NATIVE_NEWS: node_news(swarm, node, message->body); break;
    case WIRE_NATIVE_BEAT: break;
    default: die("node %u got a message of the kind %d", node->slot, (int)message->kind);
  }
}

/* Gives how much of the stream is done with. */
static size_t node_parse(struct swarm *swarm, struct swarm_node *node, const uint8_t *data, size_t len) {
  size_t done = 0, want;
  struct wire_native_message message;
  if (node->phase == PHASE_GREETING) {
    done = hear_greeting(node, data, len);
    if (done == 0) return 0;
    node_greeted(swarm, node);
  }
  while (done < len) {
    const enum wire_result result = wire_native_next(data + done, len - done, SWARM_INPUT, &message, &want);
    if (result == WIRE_RESULT_MORE) break;
    if (result != WIRE_RESULT_DONE) die("node %u got something that is no message", node->slot);
    node_take(swarm, node, &message);
    done += message.size;
  }
  return done;
}

/* What is left of a message waits for the rest of it. */
static void node_read(struct swarm *swarm, struct swarm_node *node) {
  const size_t kept = node->kept.len;
  bytes_copy(swarm->input, node->kept.data, kept);
  const ssize_t n = recv(node->fd, swarm->input + kept, SWARM_INPUT - kept, 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n < 0) die("node %u was lost: %s", node->slot, strerror(errno));
  if (n == 0) die("the server closed the connection of node %u", node->slot);
  count(&swarm->board->messages_in, 1);
  count(&swarm->board->received, (uint64_t)n);
  const size_t len = kept + (size_t)n, done = node_parse(swarm, node, swarm->input, len);
  node->kept.len = 0;
  if (!buf_append(&node->kept, swarm->input + done, len - done)) die("out of memory");
}

static void node_event(struct swarm *swarm, struct swarm_node *node, uint32_t events) {
  if (node->phase == PHASE_CONNECTING) node_connected(swarm, node);
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) node_read(swarm, node);
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

/* The nodes take turns, so that each beats once in an interval. Gives the ms until the next beat is due. */
static int beat(struct swarm *swarm) {
  const int64_t now = now_ns(), step = swarm->options->keep_alive_ms * (SECOND / 1000) / swarm->count;
  if (swarm->opening > 0 || swarm->opened < swarm->count) return IDLE_MS;
  if (swarm->next_beat == 0) swarm->next_beat = now + step;
  for (; swarm->next_beat <= now; swarm->next_beat += step) {
    const uint64_t turn = swarm->beaten / swarm->count;
    wire_put_native_beat(&swarm->out, turn % ANSWERED == 0, -1);
    node_send(swarm, &swarm->nodes[swarm->beaten++ % swarm->count]);
  }
  const int64_t ms = (swarm->next_beat - now) / 1000000 + 1;
  return ms < IDLE_MS ? (int)ms : IDLE_MS;
}

static void loop(struct swarm *swarm) {
  struct epoll_event events[EVENTS];
  const unsigned window = WINDOW / swarm->options->processes;
  while (atomic_load_explicit(&swarm->board->go, memory_order_relaxed) != GO_END) {
    while (swarm->opened < swarm->count && swarm->opening < window) node_open(swarm, &swarm->nodes[swarm->opened++]);
    const int n = epoll_wait(swarm->poller, events, EVENTS, beat(swarm));
    if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++) node_event(swarm, events[i].data.ptr, events[i].events);
  }
}

static struct addrinfo *resolve(const char *endpoint) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
  struct addrinfo *found;
  char *host = strdup(endpoint), *port = host ? strrchr(host, ':') : NULL;
  if (!port) die("--endpoint takes HOST:PORT, not '%s'", endpoint);
  *port++ = 0;
  const int code = getaddrinfo(host, port, &hints, &found);
  if (code) die("cannot resolve %s: %s", endpoint, gai_strerror(code));
  free(host);
  return found;
}

void nodes_run(struct board *board, const struct options *o, unsigned first, unsigned count) {
  struct swarm swarm = {.board = board, .options = o, .count = count, .address = resolve(o->endpoint)};
  swarm.poller = epoll_create1(EPOLL_CLOEXEC);
  swarm.nodes = calloc(count, sizeof *swarm.nodes);
  swarm.input = malloc(SWARM_INPUT);
  if (swarm.poller < 0 || !swarm.nodes || !swarm.input) die("out of memory");
  for (unsigned i = 0; i < count; i++) {
    swarm.nodes[i].slot = first + i;
    board_count(&board->ready, o->nodes);
  }
  board_await_go(board, GO_JOIN);
  loop(&swarm);
  for (unsigned i = 0; i < swarm.opened; i++) {
    close(swarm.nodes[i].fd);
    buf_free(&swarm.nodes[i].kept);
  }
  buf_free(&swarm.out.buf);
  freeaddrinfo(swarm.address);
  close(swarm.poller);
  free(swarm.input);
  free(swarm.nodes);
}
