/* SPDX-License-Identifier: BSD-3-Clause */
/* What is measured once and not per second: many connecting at once, many woken at once, many staying. */
#include "load.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

uint32_t fresh_number(void) { return (uint32_t)getpid() << 16 ^ (uint32_t)(now_ns() >> 10); }

void plan_byte(struct conn *conn, enum dialect dialect, const uint8_t *end, uint8_t answer) {
  const size_t len = (size_t)(end - conn->req);
  conn->ans[0] = answer;
  if (dialect == DIALECT_ECHO)
    conn_plan(conn, conn->req, len, conn->req, len);
  else
    conn_plan(conn, conn->req, len, conn->ans, 1);
}

/* From the first connect() until each of the connections, all begun at once, has had an ADD on its key answered. */
void load_connect(const struct options *o) {
  struct loop loop;
  char key[KEY_LEN + 1];
  const uint32_t number = fresh_number();
  loop_init(&loop, o->port, o->connections, MESSAGE_MAX);
  for (unsigned i = 0; i < loop.count; i++) {
    struct conn *conn = &loop.conns[i];
    wire_key(key, number, i);
    const uint8_t *end = wire_add(wire_hello(conn->req, o->dialect), o->dialect, key, 1);
    plan_byte(conn, o->dialect, end, 0);
    if (o->dialect == DIALECT_ECHO) continue;
    wire_number(conn->ans, 1);
    conn->want_len = sizeof(int64_t);
  }
  const int64_t began = now_ns();
  loop_open(&loop, loop.count);
  const double seconds = (double)(now_ns() - began) / 1e9;
  printf(o->json ? "{\"mode\": \"connect\", \"connections\": %u, \"connect_s\": %.4f}\n"
                 : "%u connections connected, validated and answered in %.4f s\n",
         o->connections, seconds);
  loop_free(&loop);
}

struct waiters {
  int64_t set_at, last;
  unsigned setter;
  struct hist hist;
};

static void waiter_answered(struct loop *loop, struct conn *conn, size_t before, int64_t now) {
  struct waiters *waiters = loop->data;
  (void)before;
  if (conn->index == waiters->setter) return;
  waiters->last = now;
  hist_add(&waiters->hist, now - waiters->set_at, 1);
}

/* Each waiter writes WAIT and behind it a CHECK of the same absent key. A WAIT that is pending is answered later, so
 * the CHECK's answer comes first, and as a server takes the requests of a connection in order, it shows that the WAIT
 * is registered. A CHECK before the WAIT, or on another connection, would not show that. */
static void plan_waiters(struct loop *loop, enum dialect dialect, const char *key) {
  for (unsigned i = 0; i < loop->count; i++) {
    struct conn *conn = &loop->conns[i];
    uint8_t *end = wire_hello(conn->req, dialect);
    if (i < loop->count - 1) end = wire_query(end, dialect, OP_WAIT, key);
    plan_byte(conn, dialect, wire_query(end, dialect, OP_CHECK, key), 1);
  }
}

/* From the write of the SET until the last waiter has its byte. The last connection is the one that sets.
 * The generator does not sleep meanwhile: all waiters are this one process, and a server that writes a byte to a
 * sleeping process spends as long on waking it as on the byte, thousands of times over. Real waiters are elsewhere. */
void load_waiters(const struct options *o) {
  static struct waiters waiters;
  struct loop loop;
  char key[KEY_LEN + 1];
  if (o->dialect == DIALECT_ECHO) die("an echo server has no waiters: --mode waiters needs --dialect v1 or v2");
  wire_key(key, fresh_number(), 0);
  loop_init(&loop, o->port, o->connections + 1, MESSAGE_MAX);
  plan_waiters(&loop, o->dialect, key);
  loop_open(&loop, CONNECT_WINDOW);

  struct conn *setter = &loop.conns[o->connections];
  waiters.setter = setter->index;
  loop.answered = waiter_answered;
  loop.data = &waiters;
  loop.spin = true;
  waiters.set_at = now_ns();
  for (unsigned i = 0; i < o->connections; i++) {
    plan_byte(&loop.conns[i], o->dialect, loop.conns[i].req, 0);
    conn_begin(&loop, &loop.conns[i], waiters.set_at);
  }
  uint8_t *end = wire_set(setter->req, o->dialect, key, "up", 2);
  plan_byte(setter, o->dialect, wire_query(end, o->dialect, OP_CHECK, key), 0);
  waiters.set_at = now_ns();
  conn_begin(&loop, setter, waiters.set_at);
  loop_drain(&loop);
  const double ms = (double)(waiters.last - waiters.set_at) / 1e6;
  printf(o->json ? "{\"mode\": \"waiters\", \"connections\": %u, \"last_ms\": %.3f, \"p50_ms\": %.3f}\n"
                 : "%u waiters: the last woken %.3f ms after the SET, half of them within %.3f ms\n",
         o->connections, ms, hist_quantile(&waiters.hist, 0.5) / 1e3);
  loop_free(&loop);
}

/* Until stdin closes. Whatever comes from the server meanwhile is an error, and said. */
static void stay(struct loop *loop) {
  char byte;
  struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = loop->poller, .events = POLLIN}};
  for (;;) {
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents) loop_turn(loop);
    if (fds[0].revents && read(STDIN_FILENO, &byte, 1) <= 0) return;
  }
}

/* Each asks once for a key that is not there, so that the store keeps nothing of it. */
void load_idle(const struct options *o) {
  struct loop loop;
  char key[KEY_LEN + 1];
  wire_key(key, fresh_number(), 0);
  loop_init(&loop, o->port, o->connections, MESSAGE_MAX);
  for (unsigned i = 0; i < loop.count; i++) {
    uint8_t *end = wire_hello(loop.conns[i].req, o->dialect);
    plan_byte(&loop.conns[i], o->dialect, wire_query(end, o->dialect, OP_CHECK, key), 1);
  }
  loop_open(&loop, CONNECT_WINDOW);
  puts("ready");
  fflush(stdout);
  stay(&loop);
  loop_free(&loop);
}
