/* SPDX-License-Identifier: BSD-3-Clause */
/* One barrier of many clients whose connections are open: from the first request until the last client is through. */
#include "load.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

struct barrier {
  const struct options *options;
  char counter[KEY_LEN + 1], done[KEY_LEN + 1];
  int64_t began, last;
  unsigned through;
};

/* A client is counted (8 bytes have come) or through (one byte). PyTorch's _store_based_barrier: the client that is
 * counted last sets the key that all wait for. */
static void barrier_answered(struct loop *loop, struct conn *conn, size_t before, int64_t now) {
  struct barrier *barrier = loop->data;
  const enum dialect dialect = barrier->options->dialect;
  (void)before;
  if (conn->got < conn->want_len) return;
  if (conn->want) {
    barrier->through++;
    barrier->last = now;
    return;
  }
  uint64_t count;
  memcpy(&count, conn->ans, sizeof count);
  uint8_t *end = conn->req;
  if (le64toh(count) == barrier->options->connections) end = wire_set(end, dialect, barrier->done, "1", 1);
  plan_byte(conn, dialect, wire_query(end, dialect, OP_WAIT, barrier->done), 0);
  conn_begin(loop, conn, now);
}

static void plan_client(const struct barrier *barrier, struct conn *conn) {
  const struct options *o = barrier->options;
  if (o->op == OP_BARRIER) {
    plan_byte(conn, o->dialect, wire_barrier(conn->req, o->dialect, barrier->counter, o->connections), 0);
    return;
  }
  const uint8_t *end = wire_add(conn->req, o->dialect, barrier->counter, 1);
  conn_plan(conn, conn->req, (size_t)(end - conn->req), NULL, sizeof(int64_t));
}

static void open_clients(struct loop *loop, const struct barrier *barrier) {
  for (unsigned i = 0; i < loop->count; i++) {
    struct conn *conn = &loop->conns[i];
    uint8_t *end = wire_hello(conn->req, barrier->options->dialect);
    plan_byte(conn, barrier->options->dialect, wire_query(end, barrier->options->dialect, OP_CHECK, barrier->done), 1);
  }
  loop_open(loop, CONNECT_WINDOW);
}

void load_barrier(const struct options *o) {
  struct barrier barrier = {.options = o};
  struct loop loop;
  if (o->op != OP_BARRIER && o->op != OP_ADD) die("--mode barrier needs --op barrier or add");
  if (o->dialect == DIALECT_ECHO || (o->dialect == DIALECT_V1 && o->op == OP_BARRIER))
    die("there is no such barrier in the dialect '%s'", dialect_names[o->dialect]);
  const uint32_t number = fresh_number();
  wire_key(barrier.counter, number, 0);
  wire_key(barrier.done, number, 1);
  loop_init(&loop, o->port, o->connections, MESSAGE_MAX);
  open_clients(&loop, &barrier);

  loop.answered = barrier_answered;
  loop.data = &barrier;
  for (unsigned i = 0; i < loop.count; i++) plan_client(&barrier, &loop.conns[i]);
  barrier.began = now_ns();
  for (unsigned i = 0; i < loop.count; i++) conn_begin(&loop, &loop.conns[i], now_ns());
  loop_drain(&loop);
  if (barrier.through != loop.count) die("only %u of %u are through the barrier", barrier.through, loop.count);
  const double seconds = (double)(barrier.last - barrier.began) / 1e9;
  printf(o->json ? "{\"mode\": \"barrier\", \"op\": \"%s\", \"connections\": %u, \"barrier_s\": %.4f}\n"
                 : "%s: %u clients through the barrier in %.4f s\n",
         op_names[o->op], o->connections, seconds);
  loop_free(&loop);
}
