/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes with real handlers, each a thread.
 *
 * What they say to a TCPStore is counted where it is said (etcd counts for itself). The linker puts the functions
 * below in the place of three that the library calls (--wrap, see bench/CMakeLists.txt), so that the figures are exact:
 * the requests that were written, by operation, and the bytes that went either way. */
#include "nodes.h"

#include "wire/writer.h"

#include <pthread.h>
#include <rdzv/rdzv.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STACK_SIZE = 256 * 1024, LONG_MS = 3600 * 1000 };

const char nodes_name[] = "joiners";
const char nodes_usage[] =
    "Each node is a thread with a handler. --delay-us holds each request to a TCPStore back, as if that was so far "
    "away.\n";

struct node {
  struct board *board;
  const struct options *options;
  unsigned slot;
  pthread_t thread;
  rdzv_handler *_Atomic handler;
  rdzv_result *result; /* kept, as a program does, with its connection */
};

static struct board *the_board;
static unsigned delay_us; /* before each request */

/* ---- counting ------------------------------------------------------------------------------------------------- */

static void count(atomic_uint_fast64_t *counter, uint64_t more) {
  atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

void __real_wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op);
void __wrap_wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op);
ssize_t __real_send(int fd, const void *data, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags);
ssize_t __real_recv(int fd, void *data, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t len, int flags);

void __wrap_wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op) {
  count(&the_board->requests[op], 1);
  __real_wire_put_op(writer, dialect, op);
}

ssize_t __wrap_send(int fd, const void *data, size_t len, int flags) {
  if (delay_us > 0) usleep(delay_us);
  const ssize_t sent = __real_send(fd, data, len, flags);
  if (sent <= 0) return sent;
  count(&the_board->messages_out, 1);
  count(&the_board->sent, (uint64_t)sent);
  return sent;
}

ssize_t __wrap_recv(int fd, void *data, size_t len, int flags) {
  const ssize_t got = __real_recv(fd, data, len, flags);
  if (got <= 0 || flags & MSG_PEEK) return got;
  count(&the_board->messages_in, 1);
  count(&the_board->received, (uint64_t)got);
  return got;
}

/* ---- a node --------------------------------------------------------------------------------------------------- */

static void join(struct node *node, rdzv_handler *handler, unsigned which) {
  rdzv_error error;
  rdzv_result_free(node->result);
  node->result = NULL;
  const int code = rdzv_handler_next(handler, &node->result, &error);
  if (code == RDZV_E_CANCELED) return; /* the end came first */
  if (code < 0) die("%s", error.message);
  const rdzv_result *result = node->result;
  board_place(node->board, node->options, node->slot, which, result->round, result->rank, result->world_size);
}

/* A spare has no first round: it is in when a place is free. */
static void watch(struct node *node, rdzv_handler *handler) {
  rdzv_change *change;
  rdzv_error error;
  for (;;) {
    const int code = rdzv_handler_wait_change(handler, LONG_MS, &change, &error);
    if (code == RDZV_E_CANCELED) return;
    if (code < 0) die("%s", error.message);
    const unsigned what = rdzv_change_what(change);
    rdzv_change_free(change);
    if (!(what & RDZV_CHANGE_DIED)) continue;
    board_know(node->board, node->options, node->slot);
    join(node, handler, 1);
    return;
  }
}

static void *run_node(void *argument) {
  struct node *node = argument;
  const struct options *o = node->options;
  const rdzv_params params = {.size = sizeof params,
                              .backend = o->backend,
                              .endpoint = o->endpoint,
                              .run_id = o->run_id,
                              .min_nodes = o->nodes + o->others,
                              .max_nodes = o->max_nodes,
                              .conf = o->conf,
                              .local_addr = "127.0.0.1"};
  const bool is_spare = node->slot >= o->nodes;
  rdzv_handler *handler;
  rdzv_error error;
  board_count(&node->board->ready, is_spare ? o->nodes + 1 : o->nodes);
  board_await_go(node->board, GO_JOIN);
  if (rdzv_handler_open(&params, &handler, &error) < 0) die("%s", error.message);
  node->board->slots[node->slot].opened = now_ns() - node->board->start;
  atomic_store(&node->handler, handler);
  join(node, handler, is_spare ? 1 : 0);
  if (o->victim && !is_spare) watch(node, handler);
  board_await_go(node->board, GO_END);
  return NULL;
}

/* ---- a process ------------------------------------------------------------------------------------------------ */

static void start_threads(struct node *nodes, unsigned count) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_SIZE);
  for (unsigned i = 0; i < count; i++) {
    const int errnum = pthread_create(&nodes[i].thread, &attributes, run_node, &nodes[i]);
    if (errnum) die("thread %u of %u: %s", i + 1, count, strerror(errnum));
  }
  pthread_attr_destroy(&attributes);
}

void nodes_check_options(const struct options *options) { (void)options; }

void nodes_run(struct board *board, const struct options *o, unsigned first, unsigned count) {
  struct node *nodes = calloc(count, sizeof *nodes);
  if (!nodes) die("out of memory");
  the_board = board;
  delay_us = o->delay_us;
  for (unsigned i = 0; i < count; i++) {
    nodes[i].board = board;
    nodes[i].options = o;
    nodes[i].slot = first + i;
  }
  start_threads(nodes, count);
  board_await_go(board, GO_END);
  for (unsigned i = 0; i < count; i++)
    if (atomic_load(&nodes[i].handler)) rdzv_handler_cancel(atomic_load(&nodes[i].handler));
  for (unsigned i = 0; i < count; i++) pthread_join(nodes[i].thread, NULL);
  for (unsigned i = 0; i < count; i++) {
    rdzv_result_free(nodes[i].result);
    rdzv_handler_free(nodes[i].handler);
  }
  free(nodes);
}
