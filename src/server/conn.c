/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client's connection.
 *
 * The way in: libuv reads into the server's one buffer; whole requests are executed in place; what is left of a
 * request that has not come whole is copied to the connection's own buffer, and further bytes are read there.
 * The way out: the answers of one read go out in one write. What the socket does not take is kept, and nothing more
 * is read or executed for this client until it is gone: so a client that does not read holds at most one read's
 * answers.
 * Its end: whoever finds a reason dooms the connection; it is closed when no request is under way, so that nobody
 * holds a pointer to it.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/net.h"
#include "server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

static void process(struct conn *conn, const uint8_t *data, size_t len);

/* ---- its end ---------------------------------------------------------------------------------------------- */

void log_refusal(struct rdzv_server *server, const char *peer, const char *why) {
  enum { LINES = 10 };
  const int64_t second = (int64_t)(uv_now(&server->loop) / 1000);
  if (second != server->refusals_second) {
    if (server->refusals > LINES)
      log_line(&server->options.log, RDZV_LOG_WARNING, "refused %u more clients", server->refusals - LINES);
    server->refusals_second = second;
    server->refusals = 0;
  }
  if (server->refusals++ < LINES)
    log_line(&server->options.log, RDZV_LOG_WARNING, "closing the connection of %s: %s", peer, why);
}

static void peer_name(const struct conn *conn, char out[ENDPOINT_TEXT_SIZE]) {
  struct sockaddr_storage address = {0};
  int len = sizeof address;
  uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&address, &len);
  net_format((const struct sockaddr *)&address, out);
}

void conn_doom(struct conn *conn, int code, const char *why) {
  struct rdzv_server *server = conn->server;
  if (conn->is_doomed) return;
  conn->is_doomed = true;
  conn->doom_code = code;
  conn->doom_why = why;
  LL_PREPEND2(server->doomed, conn, doomed_next);
}

static void on_closed(uv_handle_t *handle) {
  struct conn *conn = (struct conn *)handle;
  buf_free(&conn->in);
  buf_free(&conn->out);
  buf_free(&conn->sending);
  budget_give(&conn->server->budget, conn->charged);
  free(conn);
}

/* A client of our dialect is told why, if its socket takes it; the log is told in any case. */
static void say_why(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  if (!conn->doom_why) return;
  char peer[ENDPOINT_TEXT_SIZE];
  peer_name(conn, peer);
  if (conn->doom_code != RDZV_E_STOPPED) log_refusal(server, peer, conn->doom_why);
  if (conn->decoder.dialect == WIRE_RDZV && !conn->writing) refuse(conn, conn->doom_code, conn->doom_why);
}

void conn_reap(struct rdzv_server *server) {
  while (server->doomed) {
    struct conn *conn = server->doomed;
    LL_DELETE2(server->doomed, conn, doomed_next);
    say_why(conn);
    pending_cancel(conn, true);
    leave_session(conn);
    timeouts_forget(conn);
    DL_DELETE(server->conns, conn); /* NOLINT: it is in the list, so the list has a head */
    server_count(server, -1);
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
  }
}

/* ---- the way out ------------------------------------------------------------------------------------------- */

/* Makes the budget know what the connection's buffers hold. False: it is used up. */
static bool charge(struct conn *conn) {
  struct budget *budget = &conn->server->budget;
  const size_t held = conn->in.cap + conn->out.cap + conn->sending.cap;
  if (held > conn->charged && !budget_take(budget, held - conn->charged)) return false;
  if (held < conn->charged) budget_give(budget, conn->charged - held);
  conn->charged = held;
  return true;
}

static void on_written(uv_write_t *request, int status);

static bool start_reading(struct conn *conn);
static void stop_reading(struct conn *conn);

static void send_kept(struct conn *conn) {
  stop_reading(conn);
  conn->sending = conn->out;
  conn->out = (struct buf){0};
  conn->writing = true;
  const uv_buf_t buffer = uv_buf_init((char *)conn->sending.data, (unsigned)conn->sending.len);
  if (uv_write(&conn->write_request, (uv_stream_t *)&conn->tcp, &buffer, 1, on_written) < 0)
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
}

static void keep(struct conn *conn, const void *data, size_t len) {
  const size_t most = conn->server->limits.max_message + ANSWER_BYTES;
  if (len > most || conn->out.len > most - len) {
    conn_doom(conn, RDZV_E_LIMIT, "it does not read its answers");
  } else if (!buf_append(&conn->out, data, len) || !charge(conn)) {
    conn_doom(conn, RDZV_E_LIMIT, "no memory is left for its answers");
  } else if (!conn->writing) {
    send_kept(conn);
  }
}

/* What can be sent at once is, without libuv's queue; the rest is kept. What a doomed connection's socket does not take
 * is dropped. */
static void write_out(struct conn *conn, const char *data, size_t len) {
  if (!conn->writing) {
    const ssize_t sent = send(conn->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) conn_doom(conn, RDZV_E_CONNECTION, NULL);
    if (sent > 0) data += sent, len -= (size_t)sent;
  }
  if (len > 0 && !conn->is_doomed) keep(conn, data, len);
}

static void flush(struct conn *conn) {
  struct wire_writer *answers = &conn->server->answers;
  if (answers->failed) conn_doom(conn, RDZV_E_NO_MEMORY, "no memory is left for its answers");
  if (answers->buf.len > 0) write_out(conn, (const char *)answers->buf.data, answers->buf.len);
  answers->buf.len = 0;
  answers->failed = false;
  if (answers->buf.cap > KEEP_ANSWER_BYTES) buf_free(&answers->buf);
}

void conn_send(struct conn *conn, const void *data, size_t len) {
  if (conn == conn->server->active) {
    wire_put(&conn->server->answers, data, len);
    if (conn->server->answers.buf.len >= ANSWER_BYTES) flush(conn); /* one request may wake many of its own waits */
  } else {
    write_out(conn, data, len);
    if (!conn->is_doomed) timeouts_note(conn);
  }
}

/* ---- the way in -------------------------------------------------------------------------------------------- */

/* A little more than what is there already, so that a client must send what it wants memory for. */
static size_t room_for_more(const struct conn *conn) {
  enum { LEAST = 4 * 1024, FIRST = 64 * 1024 };
  const size_t want = conn->decoder.scan.want;
  const size_t missing = want > conn->in.len ? want - conn->in.len : 0;
  const size_t most = conn->in.len > FIRST ? conn->in.len : FIRST;
  return missing < LEAST ? LEAST : missing < most ? missing : most;
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
  (void)suggested;
  struct conn *conn = (struct conn *)handle;
  if (conn->in.len == 0) {
    *out = uv_buf_init(conn->server->read_buffer, READ_BYTES);
  } else if (buf_reserve(&conn->in, room_for_more(conn)) && charge(conn)) {
    *out = uv_buf_init((char *)conn->in.data + conn->in.len, (unsigned)(conn->in.cap - conn->in.len));
  } else {
    *out = uv_buf_init(NULL, 0); /* libuv then reports UV_ENOBUFS */
  }
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer) {
  struct conn *conn = (struct conn *)stream;
  struct rdzv_server *server = conn->server;
  if (got == 0) return;
  if (got == UV_ENOBUFS) {
    conn_doom(conn, RDZV_E_LIMIT, "no memory is left for its request");
  } else if (got < 0) {
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
  } else if (conn->in.len == 0) {
    process(conn, (const uint8_t *)buffer->base, (size_t)got);
  } else {
    conn->in.len += (size_t)got;
    process(conn, conn->in.data, conn->in.len);
  }
  conn_reap(server);
}

static bool start_reading(struct conn *conn) {
  if (conn->reading) return true;
  conn->reading = uv_read_start((uv_stream_t *)&conn->tcp, on_room, on_read) == 0;
  return conn->reading;
}

static void stop_reading(struct conn *conn) {
  if (conn->reading) uv_read_stop((uv_stream_t *)&conn->tcp);
  conn->reading = false;
}

/* A request that cannot be read. What is over a limit is told with its size and the limit. */
static void doom_for_request(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  const struct wire_scan *scan = &conn->decoder.scan;
  if (!scan->over_limit) {
    conn_doom(conn, RDZV_E_PROTOCOL, scan->why);
    return;
  }
  snprintf(server->doom_text, sizeof server->doom_text, "%s: %llu, and at most %llu are allowed", scan->why,
           (unsigned long long)scan->size, (unsigned long long)scan->limit);
  conn_doom(conn, RDZV_E_LIMIT, server->doom_text);
}

/* Executes what has come whole, as long as the client takes its answers. Gives the number of bytes used. */
static size_t execute_all(struct conn *conn, const uint8_t *data, size_t len) {
  struct rdzv_server *server = conn->server;
  size_t used = 0;
  while (!conn->is_doomed && !conn->writing) {
    struct wire_request request;
    const enum wire_result result = wire_decode(&conn->decoder, &server->limits, data + used, len - used, &request);
    if (result == WIRE_BAD) doom_for_request(conn);
    if (result != WIRE_DONE) break;
    execute(conn, &request, data + used);
    used += request.size;
    if (server->again) pending_run(server);
    if (server->answers.buf.len >= ANSWER_BYTES) flush(conn);
  }
  return used;
}

static void keep_rest(struct conn *conn, const uint8_t *data, size_t used, size_t len) {
  if (data == conn->in.data)
    buf_consume(&conn->in, used);
  else if (!buf_append(&conn->in, data + used, len - used))
    conn_doom(conn, RDZV_E_NO_MEMORY, "no memory is left for its request");
  if (conn->in.len == 0 && conn->in.cap > 0) buf_free(&conn->in);
  if (!charge(conn)) conn_doom(conn, RDZV_E_LIMIT, "no memory is left for its request");
}

static void process(struct conn *conn, const uint8_t *data, size_t len) {
  conn->server->active = conn;
  const size_t used = execute_all(conn, data, len);
  flush(conn);
  conn->server->active = NULL;
  if (conn->is_doomed) return;
  if (used < len || data == conn->in.data) keep_rest(conn, data, used, len);
  timeouts_note(conn);
}

/* The socket has taken what was kept: go on with what came meanwhile, and read again. */
static void on_written(uv_write_t *request, int status) {
  struct conn *conn = (struct conn *)request->handle;
  struct rdzv_server *server = conn->server;
  conn->writing = false;
  buf_free(&conn->sending);
  charge(conn);
  timeouts_restart(conn);
  if (status == UV_ECANCELED) return; /* it is being closed */
  if (status < 0) conn_doom(conn, RDZV_E_CONNECTION, NULL);
  if (!conn->is_doomed && conn->out.len > 0) send_kept(conn);
  if (!conn->is_doomed && !conn->writing) process(conn, conn->in.data, conn->in.len);
  if (!conn->is_doomed && !conn->writing && !start_reading(conn)) conn_doom(conn, RDZV_E_CONNECTION, NULL);
  if (!conn->is_doomed) timeouts_note(conn);
  conn_reap(server);
}

/* ---- its beginning ----------------------------------------------------------------------------------------- */

static void greet(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  net_tune(conn->fd);
  if (server->conns_count > server->options.max_connections)
    conn_doom(conn, RDZV_E_LIMIT, "there are as many connections as allowed");
  else if (!start_reading(conn))
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
  else
    timeouts_note(conn);
}

static void refuse_newcomer(struct rdzv_server *server, int fd, const struct sockaddr *address, const char *why) {
  char peer[ENDPOINT_TEXT_SIZE];
  net_format(address, peer);
  log_refusal(server, peer, why);
  close(fd);
}

void conn_begin(struct rdzv_server *server, int fd, const struct sockaddr *peer) {
  struct conn *conn = calloc(1, sizeof *conn);
  if (!conn) {
    refuse_newcomer(server, fd, peer, "no memory is left for it");
    return;
  }
  conn->server = server;
  conn->fd = fd;
  uv_tcp_init(&server->loop, &conn->tcp);
  const int failed = uv_tcp_open(&conn->tcp, fd);
  if (failed) refuse_newcomer(server, fd, peer, uv_strerror(failed));
  DL_APPEND(server->conns, conn);
  server_count(server, 1);
  if (failed)
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
  else
    greet(conn);
  conn_reap(server);
}
