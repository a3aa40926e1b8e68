/* SPDX-License-Identifier: BSD-3-Clause */
#include "server/cover/cover.h"

#include "base/error.h"
#include "base/log.h"
#include "server/server.h"
#include "wire/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <utlist.h>

enum {
  HANDSHAKE_MS = 10000,
  UNPROVEN_MOST = 4096,
  TEXT_BYTES = READ_BYTES + TLS_RECORD,
  CHARGE = TLS_MEMORY + TLS_RECORD, /* to the budget, for each connection */
};

/* ---- the server's files --------------------------------------------------------------------------------------- */

static bool copy_name(const char **to, const char *from) {
  *to = from ? strdup(from) : NULL;
  return *to || !from;
}

static bool copy_names(struct tls_names *to, const struct tls_names *from) {
  return copy_name(&to->secret, from->secret) && copy_name(&to->cert, from->cert) && copy_name(&to->key, from->key) &&
         copy_name(&to->client_ca, from->client_ca);
}

int cover_open(struct rdzv_server *server, rdzv_error *error) {
  const rdzv_server_options *options = &server->options;
  struct cover *cover = &server->cover;
  struct tls_names names = {.secret = options->secret_file,
                            .cert = options->tls_cert,
                            .key = options->tls_key,
                            .client_ca = options->tls_client_ca};
  tls_names_settle(&names);
  int result =
      options->allow_plain ? networks_parse(options->allow_plain, cover->plain, &cover->plain_count, error) : 0;
  if (result < 0) return error_prefix(error, result, "cannot allow plain clients");
  if (!tls_names_any(&names)) return 0;
  cover->text = malloc(TEXT_BYTES);
  if (!cover->text || !copy_names(&cover->names, &names)) return error_no_memory(error);
  result = tls_context_server(&cover->names, &cover->context, error);
  return result < 0 ? error_prefix(error, result, "cannot protect the server") : 0;
}

void cover_free(struct rdzv_server *server) {
  struct cover *cover = &server->cover;
  tls_context_drop(cover->context);
  free((char *)cover->names.secret);
  free((char *)cover->names.cert);
  free((char *)cover->names.key);
  free((char *)cover->names.client_ca);
  free(cover->text);
}

/* A client whose secret has been taken out of the file goes. It is not told: it may have the new one, and comes back.
 */
static void close_revoked(struct rdzv_server *server) {
  struct conn *conn;
  DL_FOREACH(server->conns, conn)
  if (conn->tls && !tls_is_known(conn->tls, server->cover.context))
    conn_doom(conn, RDZV_E_CONNECTION, "its secret was removed from the secret file");
  conn_reap(server, REAP_AT_ONCE);
}

void cover_reload(struct rdzv_server *server) {
  struct cover *cover = &server->cover;
  struct tls_context *fresh;
  rdzv_error error;
  if (!cover->context) return;
  if (tls_context_server(&cover->names, &fresh, &error) < 0) {
    log_line(&server->log, RDZV_LOG_ERROR, "the old secret and certificates remain in use: %s", error.message);
    return;
  }
  tls_context_drop(cover->context);
  cover->context = fresh;
  close_revoked(server);
  log_line(&server->log, RDZV_LOG_INFO, "reloaded the secret and the certificates");
}

/* ---- clients that have not proved anything -------------------------------------------------------------------- */

static void proven(struct conn *conn) {
  struct cover *cover = &conn->server->cover;
  if (!conn->is_unproven) return;
  DL_DELETE2(cover->unproven, conn, unproven_prev, unproven_next); /* NOLINT: it is in the list */
  conn->is_unproven = false;
  cover->unproven_count--;
}

static void doubt(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  struct cover *cover = &server->cover;
  if (conn->is_unproven) return;
  conn->is_unproven = true;
  conn->began = (int64_t)uv_now(&server->loop);
  DL_APPEND2(cover->unproven, conn, unproven_prev, unproven_next);
  cover->unproven_count++;
  if (cover->unproven_count > UNPROVEN_MOST) {
    struct conn *oldest = cover->unproven;
    proven(oldest);
    conn_doom(oldest, RDZV_E_CONNECTION, "too many clients have not finished their handshakes");
  }
  timeouts_tick(server);
}

void cover_tick(struct rdzv_server *server, int64_t now) {
  const int64_t requests = server->options.request_timeout_ms,
                longest = requests < HANDSHAKE_MS ? requests : HANDSHAKE_MS;
  struct conn *conn;
  while ((conn = server->cover.unproven) && now - conn->began >= longest) {
    proven(conn);
    conn_doom(conn, RDZV_E_CONNECTION, "it did not finish its handshake in time");
  }
}

/* The memory is the connection's from its first byte on. */
void cover_begin(struct conn *conn, const struct sockaddr *peer) {
  const struct cover *cover = &conn->server->cover;
  if (!cover->context) return;
  conn->cover = COVER_UNKNOWN;
  conn->may_be_plain = networks_have(cover->plain, cover->plain_count, peer);
  if (!conn->may_be_plain) doubt(conn);
}

void cover_end(struct conn *conn) {
  proven(conn);
  if (!conn->tls) return;
  tls_close(conn->tls);
  conn->tls = NULL;
  budget_give(&conn->server->budget, CHARGE);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

static void begin_tls(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  doubt(conn);
  conn->cover = COVER_TLS;
  if (!budget_take(&server->budget, CHARGE)) {
    conn_doom(conn, RDZV_E_CONNECTION, "no memory is left for its handshake");
    return;
  }
  if (tls_open(server->cover.context, NULL, &conn->tls, NULL) == 0) return;
  budget_give(&server->budget, CHARGE);
  conn_doom(conn, RDZV_E_CONNECTION, "no memory is left for its handshake");
}

/* The first bytes. */
static void decide(struct conn *conn, rdzv_bytes data) {
  if (*(const uint8_t *)data.data == TLS_FIRST_BYTE) {
    begin_tls(conn);
  } else if (conn->may_be_plain) {
    conn->cover = COVER_NONE;
  } else if (probe_is_greeting(data)) { /* a client that has TLS, when we were silent */
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
  } else {
    conn_doom(conn, RDZV_E_CONNECTION, "it did not start TLS, which this server requires");
  }
}

/* A part of the handshake, or an alert. They are short, and nothing else is on its way then. */
static void send_output(struct conn *conn) {
  const rdzv_bytes out = tls_output(conn->tls);
  if (out.len == 0) return;
  const ssize_t sent = send(conn->fd, out.data, out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == (ssize_t)out.len)
    tls_sent(conn->tls, out.len);
  else
    conn_doom(conn, RDZV_E_CONNECTION, "it does not read its handshake");
}

static void decrypt(struct conn *conn, size_t got) {
  struct rdzv_server *server = conn->server;
  size_t len = 0;
  tls_feed(conn->tls, server->read_buffer, got);
  int result = tls_handshake(conn->tls, NULL);
  if (result == 1) proven(conn);
  if (result == 1) result = tls_read(conn->tls, server->cover.text, TEXT_BYTES, &len, NULL);
  send_output(conn);
  if (len > 0 && !conn->is_doomed) conn_take(conn, server->cover.text, len);
  if (result < 0) conn_doom(conn, RDZV_E_CONNECTION, result == RDZV_E_CONNECTION ? NULL : tls_why(conn->tls));
}

void cover_read(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  const ssize_t got = recv(conn->fd, server->read_buffer, READ_BYTES, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
    return;
  }
  if (conn->cover == COVER_UNKNOWN) decide(conn, (rdzv_bytes){server->read_buffer, (size_t)got});
  if (conn->is_doomed) return;
  if (conn->cover == COVER_NONE)
    conn_take(conn, server->read_buffer, (size_t)got);
  else
    decrypt(conn, (size_t)got);
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* Encrypts the begin of the pieces; conn->promised is how much. */
static bool encrypt(struct conn *conn, const struct iovec *pieces, size_t count) {
  for (size_t i = 0; i < count && conn->promised < TLS_RECORD; i++) {
    const size_t room = TLS_RECORD - conn->promised;
    const size_t len = pieces[i].iov_len < room ? pieces[i].iov_len : room;
    if (tls_write(conn->tls, pieces[i].iov_base, len, NULL) < 0) return false;
    conn->promised += len;
  }
  return true;
}

static size_t length(const struct iovec *pieces, size_t count) {
  size_t len = 0;
  for (size_t i = 0; i < count; i++) len += pieces[i].iov_len;
  return len;
}

/* What was encrypted and has not left is the begin of what comes next: it stays in the outbox until then, so that a
 * socket that is full looks the same with TLS and without. */
ssize_t cover_send(struct conn *conn, const struct iovec *pieces, size_t count) {
  if (!conn->tls || (conn->promised == 0 && !encrypt(conn, pieces, count))) {
    errno = ECONNABORTED;
    return -1;
  }
  const rdzv_bytes out = tls_output(conn->tls);
  if (out.len > 0) {
    const ssize_t sent = send(conn->fd, out.data, out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return -1;
    tls_sent(conn->tls, (size_t)sent);
    if ((size_t)sent < out.len) {
      errno = EAGAIN;
      return -1;
    }
  }
  const size_t all = length(pieces, count), done = conn->promised < all ? conn->promised : all;
  conn->promised -= done;
  return (ssize_t)done;
}
