/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/stream.h"

#include "base/error.h"
#include "tls/parts.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- OpenSSL's view of the connection ------------------------------------------------------------------------- */

static int feed_read(BIO *bio, char *out, int room) {
  struct tls_stream *stream = openssl.BIO_get_data(bio);
  openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  if (stream->feed_len == 0 || room <= 0) {
    openssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    return -1;
  }
  const size_t len = stream->feed_len < (size_t)room ? stream->feed_len : (size_t)room;
  memcpy(out, stream->feed, len);
  stream->feed += len;
  stream->feed_len -= len;
  return (int)len;
}

static int output_write(BIO *bio, const char *data, int len) {
  struct tls_stream *stream = openssl.BIO_get_data(bio);
  openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  if (len > 0 && buf_append(&stream->out, data, (size_t)len)) return len;
  stream->no_memory = len > 0;
  return -1;
}

static long control(BIO *bio, int what, long number, void *pointer) {
  (void)bio, (void)number, (void)pointer;
  return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method;

static void make_method(void) {
  method = openssl.BIO_meth_new(BIO_TYPE_SOURCE_SINK | 100, "rdzv");
  if (!method) return;
  openssl.BIO_meth_set_read(method, feed_read);
  openssl.BIO_meth_set_write(method, output_write);
  openssl.BIO_meth_set_ctrl(method, control);
}

static BIO *bio_new(struct tls_stream *stream) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_method);
  BIO *bio = method ? openssl.BIO_new(method) : NULL;
  if (!bio) return NULL;
  openssl.BIO_set_data(bio, stream);
  openssl.BIO_set_init(bio, 1);
  return bio;
}

/* ---- opening and closing -------------------------------------------------------------------------------------- */

/* A name is also sent, for servers with several certificates; an address must not be. */
static bool expect_host(const struct tls_stream *stream) {
  if (openssl.X509_VERIFY_PARAM_set1_ip_asc(openssl.SSL_get0_param(stream->ssl), stream->host) == 1) return true;
  openssl.ERR_clear_error();
  return openssl.SSL_set1_host(stream->ssl, stream->host) == 1 &&
         openssl.SSL_ctrl(stream->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, stream->host) == 1;
}

static bool open_ssl(struct tls_stream *stream, const char *host) {
  stream->ssl = openssl.SSL_new(stream->context->ssl);
  BIO *bio = stream->ssl ? bio_new(stream) : NULL;
  if (!bio) return false;
  openssl.SSL_set_bio(stream->ssl, bio, bio);
  openssl.SSL_set_ex_data(stream->ssl, 0, stream);
  if (stream->context->is_server) {
    openssl.SSL_set_accept_state(stream->ssl);
    return true;
  }
  openssl.SSL_set_connect_state(stream->ssl);
  stream->host = strdup(host);
  return stream->host && (stream->context->secret || expect_host(stream));
}

int tls_open(struct tls_context *context, const char *host, struct tls_stream **out, rdzv_error *error) {
  struct tls_stream *stream = calloc(1, sizeof *stream);
  if (!stream) return error_no_memory(error);
  stream->context = tls_context_hold(context);
  openssl.ERR_clear_error();
  if (!open_ssl(stream, host)) {
    tls_close(stream);
    openssl.ERR_clear_error();
    return error_no_memory(error);
  }
  *out = stream;
  return 0;
}

void tls_close(struct tls_stream *stream) {
  if (!stream) return;
  if (stream->ssl) openssl.SSL_free(stream->ssl);
  tls_context_drop(stream->context);
  buf_free(&stream->out);
  free(stream->host);
  free(stream);
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

void tls_feed(struct tls_stream *stream, const void *data, size_t len) {
  stream->feed = data;
  stream->feed_len = len;
}

rdzv_bytes tls_output(const struct tls_stream *stream) { return (rdzv_bytes){stream->out.data, stream->out.len}; }

void tls_sent(struct tls_stream *stream, size_t len) {
  buf_consume(&stream->out, len);
  if (stream->out.len == 0) buf_free(&stream->out);
}

bool tls_is_known(const struct tls_stream *stream, const struct tls_context *context) {
  if (!stream->has_identity) return true;
  const rdzv_bytes identity = {stream->identity, sizeof stream->identity};
  return context->secret && secret_find(context->secret, identity);
}

const char *tls_why(const struct tls_stream *stream) { return stream->why ? stream->why : "it does not speak TLS 1.3"; }

/* A client with a secret is not content with a server that proved something else. */
static int check_peer(struct tls_stream *stream, rdzv_error *error) {
  if (stream->context->is_server || !stream->context->secret || openssl.SSL_session_reused(stream->ssl)) return 1;
  return tls_fail(stream, error);
}

int tls_handshake(struct tls_stream *stream, rdzv_error *error) {
  if (stream->is_done) return 1;
  openssl.ERR_clear_error();
  const int done = openssl.SSL_do_handshake(stream->ssl);
  if (done != 1) {
    const int what = openssl.SSL_get_error(stream->ssl, done);
    return what == SSL_ERROR_WANT_READ ? 0 : tls_fail(stream, error);
  }
  const int result = check_peer(stream, error);
  stream->is_done = result == 1;
  return result;
}

size_t tls_room(const struct tls_stream *stream, size_t len) { return stream->held + len; }

/* Notes how much of a record that is not whole OpenSSL may hold. */
static void note_held(struct tls_stream *stream, size_t fed) {
  const size_t held = openssl.SSL_has_pending(stream->ssl) ? stream->held + fed : 0;
  stream->held = held < TLS_RECORD ? held : TLS_RECORD;
}

static int read_all(struct tls_stream *stream, uint8_t *out, size_t cap, size_t *got, rdzv_error *error) {
  while (*got < cap) {
    const size_t room = cap - *got;
    const int len = openssl.SSL_read(stream->ssl, out + *got, room < INT_MAX ? (int)room : INT_MAX);
    if (len > 0) {
      *got += (size_t)len;
      if (stream->feed_len == 0 && !openssl.SSL_has_pending(stream->ssl)) return 0; /* all is used up */
      continue;
    }
    const int what = openssl.SSL_get_error(stream->ssl, len);
    if (what == SSL_ERROR_WANT_READ) return 0;
    if (what != SSL_ERROR_ZERO_RETURN) return tls_fail(stream, error);
    return error_set(error, RDZV_E_CONNECTION, "the peer closed the connection");
  }
  return 0;
}

int tls_read(struct tls_stream *stream, void *out, size_t cap, size_t *got, rdzv_error *error) {
  const size_t fed = stream->feed_len;
  *got = 0;
  openssl.ERR_clear_error();
  const int result = read_all(stream, out, cap, got, error);
  note_held(stream, fed);
  return result;
}

int tls_write(struct tls_stream *stream, const void *data, size_t len, rdzv_error *error) {
  for (size_t at = 0; at < len;) {
    const size_t left = len - at;
    const int done = openssl.SSL_write(stream->ssl, (const char *)data + at, left < INT_MAX ? (int)left : INT_MAX);
    if (done <= 0) return tls_fail(stream, error);
    at += (size_t)done;
  }
  return 0;
}
