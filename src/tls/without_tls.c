/* SPDX-License-Identifier: BSD-3-Clause */
/* The room in a build without OpenSSL: a connection that is to be protected is refused. */
#include "base/error.h"
#include "tls/stream.h"

static int fail(rdzv_error *error) {
  return error_set(error, RDZV_E_UNSUPPORTED, "this librdzv was built without TLS (RDZV_TLS=OFF)");
}

int tls_context_server(const struct tls_names *names, struct tls_context **out, rdzv_error *error) {
  (void)names, (void)out;
  return fail(error);
}

void tls_context_drop(struct tls_context *context) { (void)context; }

int tls_client_open(const struct tls_names *names, struct tls_client **out, rdzv_error *error) {
  *out = NULL;
  return tls_names_any(names) ? fail(error) : 0;
}

struct tls_client *tls_client_hold(struct tls_client *client) {
  return client;
}
void tls_client_drop(struct tls_client *client) { (void)client; }

const struct tls_names *tls_client_names(const struct tls_client *client) {
  static const struct tls_names none;
  (void)client;
  return &none;
}

int tls_client_context(struct tls_client *client, struct tls_context **out, rdzv_error *error) {
  (void)client, (void)out;
  return fail(error);
}

int tls_open(struct tls_context *context, const char *host, struct tls_stream **out, rdzv_error *error) {
  (void)context, (void)host, (void)out;
  return fail(error);
}

void tls_close(struct tls_stream *stream) { (void)stream; }

void tls_feed(struct tls_stream *stream, const void *data, size_t len) { (void)stream, (void)data, (void)len; }

int tls_handshake(struct tls_stream *stream, rdzv_error *error) {
  (void)stream;
  return fail(error);
}

int tls_read(struct tls_stream *stream, void *out, size_t cap, size_t *got, rdzv_error *error) {
  (void)stream, (void)out, (void)cap, (void)got;
  return fail(error);
}

size_t tls_room(const struct tls_stream *stream, size_t len) {
  (void)stream;
  return len;
}

int tls_write(struct tls_stream *stream, const void *data, size_t len, rdzv_error *error) {
  (void)stream, (void)data, (void)len;
  return fail(error);
}

rdzv_bytes tls_output(const struct tls_stream *stream) {
  (void)stream;
  return (rdzv_bytes){0};
}

void tls_sent(struct tls_stream *stream, size_t len) { (void)stream, (void)len; }

bool tls_is_known(const struct tls_stream *stream, const struct tls_context *context) {
  (void)stream, (void)context;
  return true;
}

const char *tls_why(const struct tls_stream *stream) {
  (void)stream;
  return "";
}
