/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TLS of one connection, between bytes and bytes: it neither reads nor writes a socket. What the peer has sent is
 * fed to it, and what is for the peer is taken from it. For one thread at a time.
 *
 *   tls_open -> (tls_feed, tls_handshake)* -> (tls_feed, tls_read | tls_write)* -> tls_close
 *
 * After each call, what tls_output shows is to be sent, also after one that failed: it may be an alert that tells the
 * peer.
 */
#ifndef RDZV_TLS_STREAM_H
#define RDZV_TLS_STREAM_H

#include "tls/context.h"

#include <rdzv/bytes.h>
#include <stddef.h>
#include <stdint.h>

struct tls_stream;

enum {
  TLS_FIRST_BYTE = 0x16,  /* of a client's first message: a handshake record, RFC 8446, 5.1 */
  TLS_RECORD = 16 * 1024, /* the longest piece of text that is encrypted as one */
  TLS_MEMORY = 24 * 1024, /* what a connection takes, about */
};

/* The side is that of the context. `host` is for a client: the name or address that the server's certificate has to be
 * for. RDZV_E_NO_MEMORY. */
int tls_open(struct tls_context *context, const char *host, struct tls_stream **out, rdzv_error *error);
void tls_close(struct tls_stream *stream); /* NULL is ignored */

/* Borrows the bytes until they are used up: by the end of tls_read, or of a handshake that goes on. */
void tls_feed(struct tls_stream *stream, const void *data, size_t len);

/* 1: it is complete, and both ends have proved what they have to. 0: the peer has to send more. RDZV_E_PROTOCOL: it
 * failed. */
int tls_handshake(struct tls_stream *stream, rdzv_error *error);

/* Decrypts what was fed. `cap` has to be at least tls_room() of what is fed. *got may be 0.
 * RDZV_E_CONNECTION: the peer has ended the connection, after what was got. RDZV_E_PROTOCOL. */
int tls_read(struct tls_stream *stream, void *out, size_t cap, size_t *got, rdzv_error *error);

/* The most bytes that tls_read can give, once so many are fed; never more than `len` and TLS_RECORD. */
size_t tls_room(const struct tls_stream *stream, size_t len);

/* Encrypts. RDZV_E_NO_MEMORY, RDZV_E_PROTOCOL. */
int tls_write(struct tls_stream *stream, const void *data, size_t len, rdzv_error *error);

/* Bytes for the peer; tls_sent says how many of them are sent. */
rdzv_bytes tls_output(const struct tls_stream *stream);
void tls_sent(struct tls_stream *stream, size_t len);

/* Would a server with that context let the client in again, as far as is known? A secret can be checked. */
bool tls_is_known(const struct tls_stream *stream, const struct tls_context *context);

/* Why it failed: a clause about the peer, in static storage. */
const char *tls_why(const struct tls_stream *stream);

#endif
