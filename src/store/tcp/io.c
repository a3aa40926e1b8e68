/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/io.h"

#include "base/error.h"
#include "base/net/net.h"
#include "tls/connect.h"

#include <errno.h>
#include <sys/socket.h>

enum { CIPHER_BYTES = TLS_RECORD + 512 }; /* received at once */

/* ---- TLS ------------------------------------------------------------------------------------------------------ */

static int send_output(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  const rdzv_bytes out = tls_output(conn->tls);
  size_t sent = 0;
  const int result = out.len > 0 ? net_send(conn->fd, out.data, out.len, until, cancel, &sent, error) : 0;
  if (sent > 0) conn->sent = true;
  tls_sent(conn->tls, sent);
  return result;
}

int tcp_io_begin(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  if (!conn->guard) return 0;
  const int result = tls_connect(conn->guard, conn->fd, conn->choice.endpoint.host, until, cancel, &conn->tls, error);
  return result < 0 ? error_prefix(error, result, "no protected connection to '%s'", conn->name) : 0;
}

void tcp_io_end(struct tcp_conn *conn) {
  tls_close(conn->tls);
  conn->tls = NULL;
}

static int decrypt(struct tcp_conn *conn, const uint8_t *bytes, size_t len, rdzv_error *error) {
  size_t got = 0;
  if (!buf_reserve(&conn->in, tls_room(conn->tls, len))) return error_no_memory(error);
  tls_feed(conn->tls, bytes, len);
  const int result = tls_read(conn->tls, conn->in.data + conn->in.len, conn->in.cap - conn->in.len, &got, error);
  conn->in.len += got;
  return got > 0 ? 0 : result; /* an end comes again */
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

static int encrypt(struct tcp_conn *conn, rdzv_error *error) {
  struct buf *out = &conn->out.buf;
  if (!conn->tls || out->len == 0) return 0;
  const int result = tls_write(conn->tls, out->data, out->len, error);
  out->len = 0;
  return result;
}

int tcp_io_send(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  if (conn->tls) {
    const int result = encrypt(conn, error);
    return result < 0 ? result : send_output(conn, until, cancel, error);
  }
  size_t sent;
  const int result = net_send(conn->fd, conn->out.buf.data, conn->out.buf.len, until, cancel, &sent, error);
  if (sent > 0) conn->sent = true;
  conn->out.buf.len = 0;
  return result;
}

static int fail_io(const struct tcp_conn *conn, int errnum, rdzv_error *error) {
  return error_errno(error, RDZV_E_CONNECTION, errnum, "the connection to '%s' was lost", conn->name);
}

static rdzv_bytes waiting_to_leave(const struct tcp_conn *conn) {
  return conn->tls ? tls_output(conn->tls) : (rdzv_bytes){conn->out.buf.data, conn->out.buf.len};
}

int tcp_io_send_some(struct tcp_conn *conn, rdzv_error *error) {
  const int result = encrypt(conn, error);
  if (result < 0) return result;
  for (rdzv_bytes out = waiting_to_leave(conn); out.len > 0; out = waiting_to_leave(conn)) {
    const ssize_t sent = send(conn->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN ? 0 : fail_io(conn, errno, error);
    if (conn->tls)
      tls_sent(conn->tls, (size_t)sent);
    else
      buf_consume(&conn->out.buf, (size_t)sent);
  }
  buf_free(&conn->out.buf);
  return 0;
}

bool tcp_io_is_full(const struct tcp_conn *conn) {
  return conn->out.buf.len > 0 || (conn->tls && tls_output(conn->tls).len > 0);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

static int receive_plain(struct tcp_conn *conn, size_t room, deadline until, const struct flag *cancel,
                         rdzv_error *error) {
  size_t got;
  if (!buf_reserve(&conn->in, room)) return error_no_memory(error);
  const int result =
      net_recv(conn->fd, conn->in.data + conn->in.len, conn->in.cap - conn->in.len, until, cancel, &got, error);
  if (result == 0) conn->in.len += got;
  return result;
}

int tcp_io_receive(struct tcp_conn *conn, size_t room, deadline until, const struct flag *cancel, rdzv_error *error) {
  if (!conn->tls) return receive_plain(conn, room, until, cancel, error);
  const size_t before = conn->in.len;
  while (conn->in.len == before) {
    uint8_t bytes[CIPHER_BYTES];
    size_t got;
    int result = net_recv(conn->fd, bytes, sizeof bytes, until, cancel, &got, error);
    if (result == 0) result = decrypt(conn, bytes, got, error);
    if (result < 0) return result;
  }
  return 0;
}

static ssize_t receive_once(struct tcp_conn *conn, void *to, size_t cap, rdzv_error *error) {
  const ssize_t got = recv(conn->fd, to, cap, MSG_DONTWAIT);
  if (got > 0) return got;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (got < 0) return fail_io(conn, errno, error);
  return error_set(error, RDZV_E_CONNECTION, "the server at '%s' has closed the connection", conn->name);
}

int tcp_io_receive_some(struct tcp_conn *conn, size_t room, rdzv_error *error) {
  if (conn->tls) {
    uint8_t bytes[CIPHER_BYTES];
    const ssize_t got = receive_once(conn, bytes, sizeof bytes, error);
    return got <= 0 ? (int)got : decrypt(conn, bytes, (size_t)got, error);
  }
  struct buf *in = &conn->in;
  if (!buf_reserve(in, room)) return error_no_memory(error);
  const ssize_t got = receive_once(conn, in->data + in->len, in->cap - in->len, error);
  if (got > 0) in->len += (size_t)got;
  return got < 0 ? (int)got : 0;
}
