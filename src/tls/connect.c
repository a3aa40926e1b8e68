/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/connect.h"

#include "base/net/net.h"

static int send_output(struct tls_stream *stream, int fd, deadline until, const struct flag *cancel,
                       rdzv_error *error) {
  const rdzv_bytes out = tls_output(stream);
  size_t sent = 0;
  const int result = out.len > 0 ? net_send(fd, out.data, out.len, until, cancel, &sent, error) : 0;
  tls_sent(stream, sent);
  return result;
}

static int shake_hands(struct tls_stream *stream, int fd, deadline until, const struct flag *cancel,
                       rdzv_error *error) {
  uint8_t bytes[TLS_RECORD];
  for (;;) {
    const int result = tls_handshake(stream, error);
    if (result == 1) return 0;
    const int sent = send_output(stream, fd, until, cancel, result < 0 ? NULL : error);
    if (result < 0) return result;
    if (sent < 0) return sent;
    size_t got;
    const int failed = net_recv(fd, bytes, sizeof bytes, until, cancel, &got, error);
    if (failed) return failed;
    tls_feed(stream, bytes, got);
  }
}

int tls_connect(struct tls_client *client, int fd, const char *host, deadline until, const struct flag *cancel,
                struct tls_stream **out, rdzv_error *error) {
  struct tls_context *context;
  struct tls_stream *stream = NULL;
  const char *named = tls_client_names(client)->host;
  int result = tls_client_context(client, &context, error);
  if (result < 0) return result;
  result = tls_open(context, named ? named : host, &stream, error);
  tls_context_drop(context);
  if (result == 0) result = shake_hands(stream, fd, until, cancel, error);
  if (result < 0)
    tls_close(stream);
  else
    *out = stream;
  return result;
}
