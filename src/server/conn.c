/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client's connection.
 *
 * Reading: each event reads once, into a buffer that all connections share, and whole requests are executed in place.
 * Half a request is copied to the connection's own buffer, and further bytes are read there.
 * Sending: the answers to one read are sent at once. What the socket does not take is kept (outbox.c), and nothing more
 * is read or executed for this client until it is sent. So a client that does not read its answers costs the memory of
 * one read's answers.
 * Slices: a client whose requests take longer than a slice is not read from until they are done (schedule.c).
 * Closing: any part of the server may doom a connection. It is closed when no request is in progress, so that no
 * pointer to it is left. Its waits are removed from the keyspace in later iterations of the loop.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/net/foreign.h"
#include "base/net/net.h"
#include "server/server.h"
#include "tls/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

/* ---- closing ---------------------------------------------------------------------------------------------- */

/* At most ten times a second, so that clients cannot fill a disk. */
static void log_refusal(struct rdzv_server *server, const char *peer, const char *why) {
  enum { LINES = 10 };
  const int64_t second = (int64_t)(uv_now(&server->loop) / 1000);
  if (second != server->refusals_second) {
    if (server->refusals > LINES)
      log_line(&server->log, RDZV_LOG_WARNING, "refused %u more clients", server->refusals - LINES);
    server->refusals_second = second;
    server->refusals = 0;
  }
  if (server->refusals++ < LINES)
    log_line(&server->log, RDZV_LOG_WARNING, "closing the connection of %s: %s", peer, why);
}

static void peer_name(const struct conn *conn, char out[ENDPOINT_TEXT_SIZE]) {
  struct sockaddr_storage address = {0};
  socklen_t len = sizeof address;
  getpeername(conn->fd, (struct sockaddr *)&address, &len);
  net_format((const struct sockaddr *)&address, out);
}

void conn_doom(struct conn *conn, int code, const char *why) {
  struct rdzv_server *server = conn->server;
  if (conn->is_doomed) return;
  conn->is_doomed = true;
  conn->doom_code = code;
  conn->doom_why = why;
  LL_PREPEND2(server->doomed, conn,
              doomed_next); /* the active one is the first to be reaped, while its text is valid */
  schedule_work(server);
}

static void free_closed(struct conn *conn) {
  outbox_free(conn);
  buf_free(&conn->in);
  budget_give(&conn->server->budget, conn->charged);
  free(conn);
}

static void on_closed(uv_handle_t *handle) {
  struct conn *conn = (struct conn *)handle;
  conn->is_closed = true;
  if (!conn->is_leaving) free_closed(conn);
}

/* Logs why the connection is closed, and tells an RDZV client if its socket takes it and no answer was lost before. */
static void say_why(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  if (!conn->doom_why) return;
  char peer[ENDPOINT_TEXT_SIZE];
  peer_name(conn, peer);
  if (conn->doom_code != RDZV_E_STOPPED) log_refusal(server, peer, conn->doom_why);
  if (conn->decoder.dialect != WIRE_DIALECT_RDZV || conn->out || conn->doom_code == RDZV_E_CONNECTION) return;
  struct wire_writer *out = &server->aside;
  wire_put_refusal(out, conn->doom_code, conn->doom_why);
  if (!out->failed) outbox_send_now(conn, out->buf.data, out->buf.len);
  out->buf.len = 0;
  out->failed = false;
}

static void reap(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  say_why(conn);
  leave_session(conn);
  keeper_forget(conn);
  natives_lost(conn);
  groups_lost(conn);
  timeouts_forget(conn);
  schedule_forget(conn);
  listing_forget(conn);
  cover_end(conn);
  DL_DELETE(server->conns, conn); /* NOLINT: it is in the list, so the list has a head */
  server_count(server, -1);
  conn->is_leaving = true;
  DL_APPEND(server->leaving, conn);
  uv_close((uv_handle_t *)&conn->poll, on_closed);
  close(conn->fd); /* which uv_close has taken out of the poll set */
}

/* Frees a part of what the oldest closed connection holds. */
static void see_off(struct rdzv_server *server, size_t most) {
  struct conn *conn = server->leaving;
  if (!conn || multi_drop_some(conn) || pending_drop_some(conn, most)) return;
  DL_DELETE(server->leaving, conn);
  conn->is_leaving = false;
  if (conn->is_closed) free_closed(conn);
}

bool conn_reap(struct rdzv_server *server, size_t most) {
  for (size_t n = 0; n < most && server->doomed; n++) {
    struct conn *conn = server->doomed;
    LL_DELETE2(server->doomed, conn, doomed_next);
    reap(conn);
  }
  for (size_t n = 0; n < most && server->leaving; n++) {
    const struct conn *conn = server->leaving;
    see_off(server, SLICE_KEYS);
    if (server->leaving == conn) break; /* that was a slice */
  }
  const bool more = server->doomed || server->leaving;
  if (more) schedule_work(server);
  return more;
}

/* ---- sending ---------------------------------------------------------------------------------------------- */

/* Takes the memory of conn->in from the budget, or gives it back. False: the budget is used up. */
static bool charge(struct conn *conn) {
  struct budget *budget = &conn->server->budget;
  const size_t held = conn->in.cap;
  if (held > conn->charged && !budget_take(budget, held - conn->charged)) return false;
  if (held < conn->charged) budget_give(budget, conn->charged - held);
  conn->charged = held;
  return true;
}

/* Called after bytes were added to the outbox; kept: there was memory for them. */
static void note_kept(struct conn *conn, bool kept) {
  if (!kept)
    conn_doom(conn, RDZV_E_CONNECTION, "no memory is left for its answers");
  else if (outbox_len(conn) > conn->server->limits.max_message + ANSWER_BYTES)
    conn_doom(conn, RDZV_E_CONNECTION, "it does not read its answers");
  else if (conn != conn->server->active)
    schedule_conn(conn);
}

/* `need`: the batch that the bytes depend on. */
static void keep(struct conn *conn, const void *data, size_t len, uint64_t need) {
  struct chain *chain = outbox_chain(conn);
  const bool kept = chain && chain_put(chain, &conn->server->budget, data, len);
  if (kept && conn->server->keeper) outbox_hold(conn, need, len);
  note_kept(conn, kept);
}

/* What is gathered for the active connection depends on all that was done before. */
static void need_all(struct rdzv_server *server) {
  const uint64_t need = keeper_need(server);
  if (need > server->need) server->need = need;
}

/* Sends the gathered answers. What the socket of a doomed connection does not take is dropped. */
static void flush(struct conn *conn) {
  struct wire_writer *answers = &conn->server->answers;
  const uint8_t *data = answers->buf.data;
  size_t len = answers->buf.len;
  if (answers->failed) conn_doom(conn, RDZV_E_CONNECTION, "no memory is left for its answers");
  if (len > 0 && !conn->out && conn->server->need == 0) {
    const size_t sent = (size_t)outbox_send_now(conn, data, len);
    data += sent, len -= sent;
  }
  if (len > 0 && !conn->is_doomed) keep(conn, data, len, conn->server->need);
  conn->server->need = 0;
  answers->buf.len = 0;
  answers->failed = false;
  if (answers->buf.cap > KEEP_ANSWER_BYTES) buf_free(&answers->buf);
  if (conn->out) outbox_flush(conn);
}

/* Moves the gathered answers to the outbox, so that they are sent before what is added next. */
static void seal(struct conn *conn) {
  struct wire_writer *answers = &conn->server->answers;
  if (conn != conn->server->active || answers->buf.len == 0) return;
  keep(conn, answers->buf.data, answers->buf.len, keeper_need(conn->server));
  answers->buf.len = 0;
}

void conn_send(struct conn *conn, const void *data, size_t len) {
  if (conn == conn->server->active) {
    need_all(conn->server);
    wire_put(&conn->server->answers, data, len);
    if (conn->server->answers.buf.len >= ANSWER_BYTES)
      flush(conn); /* one request may wake many waits of its own client */
  } else if (!conn->is_doomed && len > 0) {
    keep(conn, data, len, keeper_need(conn->server));
  }
}

void conn_send_chain(struct conn *conn, struct chain *chain) {
  seal(conn);
  struct chain *out = conn->is_doomed ? NULL : outbox_chain(conn);
  const size_t len = chain->len;
  if (out)
    chain_move(out, chain);
  else
    chain_free(chain, &conn->server->budget);
  if (out && conn->server->keeper) outbox_hold(conn, keeper_need(conn->server), len);
  note_kept(conn, out || conn->is_doomed);
}

void conn_send_blob(struct conn *conn, struct blob *blob) {
  if (blob->len < SHARED_BYTES) {
    conn_send(conn, blob->data, blob->len);
    blob_drop(blob);
    return;
  }
  struct chain chain = {0};
  const bool kept = chain_put_blob(&chain, &conn->server->budget, blob);
  if (kept)
    conn_send_chain(conn, &chain);
  else
    note_kept(conn, false);
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

/* How much memory to add for a request that has not come whole: about as much as has come, so that a client must send
 * bytes to make the server use memory. A request over 1 MB gets most of its memory at once, since each step copies it.
 */
static size_t room_for_more(const struct conn *conn) {
  enum { LEAST = 4 * 1024, FIRST = 64 * 1024, LARGE = 1024 * 1024 };
  const size_t want = conn->decoder.scan.want;
  const size_t missing = want > conn->in.len ? want - conn->in.len : 0;
  const size_t most = conn->in.len > LARGE ? 8 * conn->in.len : conn->in.len > FIRST ? conn->in.len : FIRST;
  return missing < LEAST ? LEAST : missing < most ? missing : most;
}

static void process(struct conn *conn, uint8_t *data, size_t len);

/* Where to read to: the buffer that all connections share or, behind half a request, the connection's own. NULL: no
 * memory. */
static uint8_t *room_to_read(struct conn *conn, size_t *size) {
  if (conn->in.len == 0) {
    *size = READ_BYTES;
    return conn->server->read_buffer;
  }
  if (!buf_reserve_exactly(&conn->in, room_for_more(conn)) || !charge(conn)) return NULL;
  const size_t room = conn->in.cap - conn->in.len;
  *size = room < SLICE_BYTES ? room : SLICE_BYTES;
  return conn->in.data + conn->in.len;
}

void conn_take(struct conn *conn, uint8_t *data, size_t len) {
  slice_begin(conn->server);
  if (conn->in.len == 0) {
    process(conn, data, len);
    return;
  }
  const size_t room = room_for_more(conn);
  if (!buf_reserve_exactly(&conn->in, room > len ? room : len) || !buf_append(&conn->in, data, len) || !charge(conn))
    conn_doom(conn, RDZV_E_LIMIT, "no memory is left for its request");
  else
    process(conn, conn->in.data, conn->in.len);
}

static void on_readable(struct conn *conn) {
  if (conn->cover != COVER_NONE) {
    cover_read(conn);
    return;
  }
  size_t size;
  uint8_t *data = room_to_read(conn, &size);
  if (!data) {
    conn_doom(conn, RDZV_E_LIMIT, "no memory is left for its request");
    return;
  }
  const ssize_t got = recv(conn->fd, data, size, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
    return;
  }
  slice_begin(conn->server);
  if (conn->in.len == 0) {
    process(conn, data, (size_t)got);
  } else {
    conn->in.len += (size_t)got;
    process(conn, conn->in.data, conn->in.len);
  }
}

/* Do all answers to the client wait for a commit? */
static bool is_waiting(const struct conn *conn) {
  return conn->is_held && !outbox_is_stuck(conn) && !outbox_can_send(conn);
}

static void poll_for(struct conn *conn, int events);

/* The socket is polled for reading or, while it is full, for writing. On an error libuv stops polling and passes a
 * status; recv or send then returns the error. */
static void on_event(uv_poll_t *poll, int status, int events) {
  struct conn *conn = (struct conn *)poll;
  (void)events;
  if (status < 0) conn->polled = 0;
  if (is_waiting(conn))
    poll_for(conn, 0); /* what has come is read when the answers have left */
  else if (!outbox_is_stuck(conn))
    on_readable(conn);
  else if (outbox_unstick(conn))
    conn_go_on(conn);
  conn_settle(conn);
  conn_reap(conn->server, REAP_AT_ONCE);
}

/* Is a request in progress that the next requests wait for? */
static bool is_held(const struct conn *conn) { return conn->multi || conn->asking || conn->holder; }

/* Can the server work for this client without waiting for an event? */
static bool can_go_on(const struct conn *conn) {
  if (conn->out) return outbox_can_send(conn);
  return conn->multi || (conn->has_more && !is_held(conn));
}

static void poll_for(struct conn *conn, int events) {
  if (events == conn->polled) return;
  conn->polled = events;
  if (events == 0)
    uv_poll_stop(&conn->poll);
  else if (uv_poll_start(&conn->poll, events, on_event) < 0)
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
}

/* The server reads from a client only when nothing else is to be done for it. */
void conn_settle(struct conn *conn) {
  if (conn->is_doomed) return;
  if (can_go_on(conn)) schedule_conn(conn);
  conn->reading = !conn->out && !conn->is_ready && !conn->has_more && !is_held(conn);
  if (is_waiting(conn) && conn->polled == UV_READABLE) return; /* for a moment: it is polled again soon */
  poll_for(conn, conn->reading ? UV_READABLE : outbox_is_stuck(conn) ? UV_WRITABLE : 0);
  timeouts_note(conn);
}

/* Closes a client whose request is invalid. For a limit, the reason has the size and the limit. */
static void doom_for_request(struct conn *conn, rdzv_bytes rest) {
  struct rdzv_server *server = conn->server;
  const struct wire_scan *scan = &conn->decoder.scan;
  if (conn->decoder.requests == 0 && foreign_is_question(rest)) { /* a client of this library, when we were silent */
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
    return;
  }
  if (!scan->over_limit) {
    const bool is_tls = conn->decoder.requests == 0 && rest.len > 0 && *(const uint8_t *)rest.data == TLS_FIRST_BYTE;
    conn_doom(conn, RDZV_E_PROTOCOL,
              is_tls ? "it started TLS, and this server has no secret or certificate" : scan->why);
    return;
  }
  snprintf(server->doom_text, sizeof server->doom_text, "%s: %llu (limit %llu)", scan->why,
           (unsigned long long)scan->size, (unsigned long long)scan->limit);
  conn_doom(conn, RDZV_E_LIMIT, server->doom_text);
}

/* Executes whole requests, as long as the client takes its answers and its slice lasts. Returns the number of bytes
 * used; has_more says whether requests may be left. */
static size_t execute_all(struct conn *conn, uint8_t *data, size_t len) {
  struct rdzv_server *server = conn->server;
  size_t used = 0;
  conn->has_more = true;
  while (!conn->is_doomed && !conn->out) {
    struct wire_request request;
    const enum wire_result result = wire_decode(&conn->decoder, &server->limits, data + used, len - used, &request);
    if (result != WIRE_RESULT_DONE) conn->has_more = false;
    if (result == WIRE_RESULT_BAD) doom_for_request(conn, (rdzv_bytes){data + used, len - used});
    if (result != WIRE_RESULT_DONE) break;
    if (server->options.renew_groups) groups_rename(conn, &request, data + used);
    const size_t answered = server->answers.buf.len;
    const bool done = execute(conn, &request, data + used);
    if (done || !conn->multi) used += request.size; /* a request done in slices stays at the front */
    if (server->again || ks_is_busy(server->ks)) schedule_wake(server);
    if (!done || slice_is_over(server, request.size + server->answers.buf.len - answered)) break;
    if (server->answers.buf.len >= ANSWER_BYTES) flush(conn);
  }
  return used;
}

static void save_rest(struct conn *conn, const uint8_t *data, size_t used, size_t len) {
  if (data != conn->in.data) {
    if (!buf_append(&conn->in, data + used, len - used))
      conn_doom(conn, RDZV_E_NO_MEMORY, "no memory is left for its request");
  } else if (used > 0) {
    buf_consume(&conn->in, used);
  }
  if (conn->in.len == 0) {
    conn->has_more = false;
    if (conn->in.cap > 0) buf_free(&conn->in);
  }
  if (!charge(conn)) conn_doom(conn, RDZV_E_LIMIT, "no memory is left for its request");
}

static void process(struct conn *conn, uint8_t *data, size_t len) {
  conn->server->active = conn;
  conn->server->served++;
  const size_t used = execute_all(conn, data, len);
  flush(conn);
  conn->server->active = NULL;
  if (conn->is_doomed) return;
  if (used < len || data == conn->in.data)
    save_rest(conn, data, used, len);
  else
    conn->has_more = false;
}

bool conn_take_front(struct conn *conn, size_t size, struct buf *out) {
  struct buf rest = {0};
  if (!buf_append(&rest, conn->in.data + size, conn->in.len - size)) return false;
  *out = conn->in;
  out->len = size;
  conn->in = rest;
  charge(conn); /* which gives back more than it takes */
  if (budget_take(&conn->server->budget, out->cap)) return true;
  buf_free(out);
  return false;
}

/* Continues the request at the front of conn->in. */
static void go_on_with_multi(struct conn *conn) {
  struct multi *multi = conn->multi;
  const size_t size = multi->size;
  if (multi->op == WIRE_OP_WAIT || multi->op == WIRE_OP_GET_WAIT) {
    const struct multi wait = *multi;
    free(multi);
    conn->multi = NULL;
    pending_begin_large(conn, wait.op, size, wait.at, wait.left);
    save_rest(conn, conn->in.data, 0, conn->in.len);
  } else if (multi_go_on(conn)) {
    save_rest(conn, conn->in.data, size, conn->in.len);
  }
}

void conn_go_on(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  slice_begin(server);
  server->active = conn;
  if (conn->out) outbox_flush(conn);
  if (!conn->is_doomed && !conn->out && conn->multi) {
    go_on_with_multi(conn);
    need_all(server);
    schedule_wake(server);
  }
  if (!conn->is_doomed && !conn->out && !is_held(conn) && conn->in.len > 0)
    process(conn, conn->in.data, conn->in.len);
  else
    flush(conn);
  server->active = NULL;
  conn_settle(conn);
}

/* ---- accepting -------------------------------------------------------------------------------------------- */

static void greet(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  net_tune(conn->fd);
  if (server->conns_count > server->options.max_connections)
    conn_doom(conn, RDZV_E_LIMIT, "the limit of connections is reached");
  else
    conn_settle(conn);
}

void conn_refuse(struct rdzv_server *server, int fd, const struct sockaddr *address, const char *why) {
  char peer[ENDPOINT_TEXT_SIZE];
  net_format(address, peer);
  log_refusal(server, peer, why);
  close(fd);
}

void conn_begin(struct rdzv_server *server, int fd, const struct sockaddr *peer) {
  struct conn *conn = calloc(1, sizeof *conn);
  if (!conn) {
    conn_refuse(server, fd, peer, "no memory is left for it");
    return;
  }
  conn->server = server;
  conn->fd = fd;
  const int failed = uv_poll_init(&server->loop, &conn->poll, fd);
  if (failed) {
    free(conn);
    conn_refuse(server, fd, peer, uv_strerror(failed));
    return;
  }
  DL_APPEND(server->conns, conn);
  server_count(server, 1);
  cover_begin(conn, peer);
  greet(conn);
  conn_reap(server, REAP_AT_ONCE);
}
