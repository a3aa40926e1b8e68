/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the room: what context.c and stream.c share. */
#ifndef RDZV_TLS_PARTS_H
#define RDZV_TLS_PARTS_H

#include "base/buf.h"
#include "tls/context.h"
#include "tls/openssl.h"
#include "tls/secret.h"
#include "tls/stream.h"

#include <stdatomic.h>
#include <stdint.h>

struct tls_context {
  atomic_int holders;
  bool is_server;
  SSL_CTX *ssl;
  struct secret *secret;  /* NULL: certificates */
  char *secret_file, *ca; /* for messages; may be NULL */
};

struct tls_context *tls_context_hold(struct tls_context *context);

struct tls_stream {
  SSL *ssl;
  struct tls_context *context;
  char *host;          /* whose certificate it has to be; a client's */
  const uint8_t *feed; /* bytes of the peer that OpenSSL has not taken yet */
  size_t feed_len;
  size_t held;                             /* bytes of a record that is not whole, at most */
  struct buf out;                          /* bytes for the peer */
  bool no_memory;                          /* there was none for `out` */
  bool is_done;                            /* the handshake is */
  bool is_stranger;                        /* the client offered a secret that the server does not know */
  bool has_identity;                       /* or one that it knows: */
  uint8_t identity[SECRET_IDENTITY_BYTES]; /* this one */
  const char *why;
};

/* Fills `why` and the error after a call of OpenSSL that failed. fail.c. */
int tls_fail(struct tls_stream *stream, rdzv_error *error);

#endif
