/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding out the dialect (docs/wire.md, "Greeting"):
 * - connect and send VALIDATE and a PING whose number no client of PyTorch sends;
 * - our server answers with its own greeting, PyTorch's from 2.5 on echoes the number;
 * - PyTorch 1.x takes it for an impossible request and resets the connection: if that happens twice, connect anew and
 *   ask V1's NUM_KEYS.
 * Failure modes: refused, unreachable, unresolved, closed, silent: tried again after a pause that grows and varies,
 * until the deadline; the last cause is reported. A server of another kind than the one asked for: final.
 */
#include "store/tcp_conn.h"

#include "base/error.h"
#include "base/log.h"
#include "base/net.h"

#include <errno.h>
#include <unistd.h>

enum {
  FIRST_PAUSE_MS = 20,
  LONGEST_PAUSE_MS = 1000,
  PASS_MS = 10000, /* one try; a host that comes up late is found by the next one */
};

/* What a server may send us. */
static const struct wire_limits limits = {
    .max_key = 1u << 20, .max_value = 1u << 30, .max_count = 1u << 24, .max_message = 2u << 30};

void tcp_conn_init(struct tcp_conn *conn, const struct endpoint *endpoint, rdzv_dialect wanted, const rdzv_log *log) {
  *conn = (struct tcp_conn){.endpoint = *endpoint, .wanted = wanted, .log = *log, .fd = -1};
  endpoint_format(endpoint->host, endpoint->port, conn->name);
}

void tcp_conn_drop(struct tcp_conn *conn) {
  if (conn->fd >= 0) close(conn->fd);
  conn->fd = -1;
  conn->cancel_owed = false;
  conn->in.len = 0;
  conn->out.buf.len = 0;
  conn->out.failed = false;
}

void tcp_conn_drop_if_dead(struct tcp_conn *conn) {
  char byte;
  if (conn->fd < 0) return;
  const bool quiet = recv(conn->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
  if (!quiet || conn->in.len > 0) tcp_conn_drop(conn);
}

void tcp_conn_free(struct tcp_conn *conn) {
  tcp_conn_drop(conn);
  buf_free(&conn->in);
  buf_free(&conn->out.buf);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

int tcp_conn_send(struct tcp_conn *conn, deadline until, const struct cancel *cancel, rdzv_error *error) {
  if (conn->out.failed) return error_no_memory(error);
  size_t sent;
  const int result = net_send(conn->fd, conn->out.buf.data, conn->out.buf.len, until, cancel, &sent, error);
  if (sent > 0) conn->sent = true;
  conn->out.buf.len = 0;
  return result;
}

/* Room for what the message still wants, but never much more than what has really come. */
static size_t room(const struct tcp_conn *conn) {
  enum { LEAST = 16 * 1024 };
  const size_t missing = conn->scan.want > conn->in.len ? conn->scan.want - conn->in.len : 0;
  const size_t most = conn->in.len > LEAST ? conn->in.len : LEAST;
  return missing > most || missing < LEAST ? most : missing;
}

int tcp_conn_receive(struct tcp_conn *conn, const char *fields, uint64_t items, deadline until,
                     const struct cancel *cancel, rdzv_error *error) {
  wire_scan_start(&conn->scan, fields, 0);
  conn->scan.items = items;
  for (;;) {
    const enum wire_result result = wire_scan(&conn->scan, &limits, conn->in.data, conn->in.len);
    if (result == WIRE_DONE) return 0;
    if (result == WIRE_BAD)
      return error_set(error, RDZV_E_PROTOCOL, "the answer of %s is no TCPStore's: %s", conn->peer, conn->scan.why);
    if (!buf_reserve(&conn->in, room(conn))) return error_no_memory(error);
    size_t got;
    const int failed =
        net_recv(conn->fd, conn->in.data + conn->in.len, conn->in.cap - conn->in.len, until, cancel, &got, error);
    if (failed) return failed;
    conn->in.len += got;
  }
}

void tcp_conn_consume(struct tcp_conn *conn) {
  enum { KEEP = 64 * 1024 };
  buf_consume(&conn->in, conn->scan.pos);
  if (conn->in.len == 0 && conn->in.cap > KEEP) buf_free(&conn->in);
}

/* ---- the greeting ------------------------------------------------------------------------------------------ */

struct attempt {
  deadline until;
  const struct cancel *cancel;
  rdzv_error *error;
};

static int dial(struct tcp_conn *conn, const struct attempt *at) {
  tcp_conn_drop(conn);
  const int result = net_connect(&conn->endpoint, at->until, at->cancel, &conn->fd, at->error);
  if (result < 0) return result;
  struct sockaddr_storage address = {0};
  socklen_t len = sizeof address;
  getpeername(conn->fd, (struct sockaddr *)&address, &len);
  net_format((struct sockaddr *)&address, conn->peer);
  return 0;
}

/* Sends what was put into `out` and receives a number of 4 or 8 bytes. */
static int ask(struct tcp_conn *conn, const char *fields, uint64_t *number, const struct attempt *at) {
  int result = conn->out.buf.len ? tcp_conn_send(conn, at->until, at->cancel, at->error) : 0;
  if (result == 0) result = tcp_conn_receive(conn, fields, 0, at->until, at->cancel, at->error);
  if (result < 0) return result;
  *number = conn->scan.field[0].number;
  tcp_conn_consume(conn);
  return 0;
}

static void put_validate(struct tcp_conn *conn) {
  wire_put_op(&conn->out, WIRE_V2, WIRE_VALIDATE);
  wire_put32(&conn->out, WIRE_MAGIC);
}

static int greet_v2(struct tcp_conn *conn, const struct attempt *at) {
  put_validate(conn);
  wire_put_op(&conn->out, WIRE_V2, WIRE_PING);
  wire_put32(&conn->out, WIRE_HELLO_NONCE);
  uint64_t answer;
  int result = ask(conn, "w", &answer, at);
  if (result < 0) return result;
  if (answer == WIRE_HELLO_NONCE) {
    conn->dialect = WIRE_V2;
    return 0;
  }
  if (answer != WIRE_HELLO_ANSWER)
    return error_set(at->error, RDZV_E_PROTOCOL, "%s answers the greeting as no TCPStore does", conn->peer);
  conn->dialect = WIRE_RDZV;
  return ask(conn, "n", &conn->instance, at);
}

/* A server that closed on our greeting twice and answers this is PyTorch's of 1.x, or ours, which speaks V1 too: full
 * for a moment, say. So it is greeted once more; who closes on that as well is 1.x's. */
static int greet_v1(struct tcp_conn *conn, const struct attempt *at) {
  int result = dial(conn, at);
  if (result < 0) return result;
  wire_put_op(&conn->out, WIRE_V1, WIRE_NUM_KEYS);
  uint64_t unused;
  result = ask(conn, "n", &unused, at);
  if (result == RDZV_E_CONNECTION)
    error_prefix(at->error, result,
                 "%s closes every connection: it is full, or stopping, or PyTorch 2.2 to 2.4 (then choose dialect v2)",
                 conn->peer);
  if (result < 0) return result;
  result = dial(conn, at);
  if (result == 0) result = greet_v2(conn, at);
  if (result != RDZV_E_CONNECTION) return result;
  conn->dialect = WIRE_V1;
  return dial(conn, at);
}

static int greet(struct tcp_conn *conn, const struct attempt *at) {
  conn->instance = 0;
  if (conn->wanted == RDZV_DIALECT_V1) {
    conn->dialect = WIRE_V1;
    return 0;
  }
  if (conn->wanted == RDZV_DIALECT_V2) {
    conn->dialect = WIRE_V2;
    put_validate(conn);
    return tcp_conn_send(conn, at->until, at->cancel, at->error);
  }
  int result = greet_v2(conn, at);
  if (conn->wanted == RDZV_DIALECT_RDZV) {
    if (result == 0 && conn->dialect != WIRE_RDZV)
      result = error_set(at->error, RDZV_E_UNSUPPORTED, "the server at %s is not an rdzv server", conn->peer);
    return result;
  }
  if (result != RDZV_E_CONNECTION) return result;
  /* Once may be an accident; and our own server would answer V1 too. */
  result = dial(conn, at);
  if (result == 0) result = greet_v2(conn, at);
  return result == RDZV_E_CONNECTION ? greet_v1(conn, at) : result;
}

/* ---- connecting -------------------------------------------------------------------------------------------- */

static bool is_worth_another_try(int code) {
  return code == RDZV_E_CONNECTION || code == RDZV_E_ADDRESS || code == RDZV_E_TIMEOUT;
}

static int try_once(struct tcp_conn *conn, deadline until, const struct cancel *cancel, rdzv_error *error) {
  const deadline pass = deadline_after(PASS_MS);
  const struct attempt at = {pass < until ? pass : until, cancel, error};
  int result = dial(conn, &at);
  if (result == 0) {
    result = greet(conn, &at);
    if (result == RDZV_E_TIMEOUT) error_set(error, result, "%s does not answer the greeting", conn->peer);
  }
  if (result < 0) tcp_conn_drop(conn);
  return result;
}

static int report(struct tcp_conn *conn, int result, int tries, int64_t waited, rdzv_error *error) {
  if (result == RDZV_E_TIMEOUT) {
    result = RDZV_E_CONNECTION;
    if (error) error->code = result;
  }
  return error_prefix(error, result, "cannot connect to '%s' (%d %s in %lld ms)", conn->name, tries,
                      tries == 1 ? "try" : "tries", (long long)waited);
}

/* Another instance of our server has none of the keys that the one before had. */
static int compare_instance(struct tcp_conn *conn, rdzv_error *error) {
  const bool changed = conn->known_instance != 0 && conn->instance != conn->known_instance;
  conn->known_instance = conn->instance;
  if (!changed) return 0;
  return error_set(error, RDZV_E_DATA_LOST, "the server at '%s' was restarted and has forgotten its keys", conn->name);
}

int tcp_conn_open(struct tcp_conn *conn, deadline until, const struct cancel *cancel, rdzv_error *error) {
  if (conn->fd >= 0) return 0;
  rdzv_error own, *cause = error ? error : &own;
  const int64_t began = clock_now_ms();
  int64_t pause = FIRST_PAUSE_MS;
  for (int tries = 1;; tries++) {
    int result = try_once(conn, until, cancel, cause);
    if (result == 0) return compare_instance(conn, error);
    const deadline next = deadline_after(jitter(pause));
    if (is_worth_another_try(result) && next < until) {
      log_line(&conn->log, tries == 1 ? RDZV_LOG_INFO : RDZV_LOG_DEBUG, "cannot connect to '%s' yet: %s", conn->name,
               cause->message);
      if (cancel_pause(cancel, next) == 0) {
        pause = pause * 8 / 5 < LONGEST_PAUSE_MS ? pause * 8 / 5 : LONGEST_PAUSE_MS;
        continue;
      }
      result = error_set(cause, RDZV_E_CANCELED, "connecting was canceled");
    }
    return report(conn, result, tries, clock_now_ms() - began, cause);
  }
}
