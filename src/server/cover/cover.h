/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cover of connections at a protected server: TLS between the socket and what conn.c and outbox.c know.
 *
 * The first byte of a client tells whether it speaks TLS. One that does has some seconds for the handshake; until it is
 * complete nothing of the client is executed and nothing of the store is answered. One that does not is closed without
 * a word, unless its address is allowed to be plain. Clients that have not proved anything yet are bounded in number:
 * beyond, the oldest of them goes.
 */
#ifndef RDZV_SERVER_COVER_COVER_H
#define RDZV_SERVER_COVER_COVER_H

#include "base/net/network.h"
#include "tls/stream.h"

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <uv.h>

struct conn;
struct rdzv_server;

enum cover_kind {
  COVER_NONE,    /* plain */
  COVER_UNKNOWN, /* no byte has come yet */
  COVER_TLS,
};

/* Of the server. */
struct cover {
  struct tls_context *context; /* NULL: the server is not protected */
  struct tls_names names;      /* own copies */
  struct network plain[NETWORKS_MOST];
  size_t plain_count;
  uint8_t *text;         /* what was decrypted last, of any client */
  struct conn *unproven; /* oldest first */
  size_t unproven_count;
};

/* Reads the files that the options name. */
int cover_open(struct rdzv_server *server, rdzv_error *error);
void cover_reload(struct rdzv_server *server); /* reads them again */
void cover_free(struct rdzv_server *server);

/* A client has come from there. */
void cover_begin(struct conn *conn, const struct sockaddr *peer);
void cover_end(struct conn *conn);

/* Reads from the socket, and hands what it decrypts to conn_take. For a connection that is not COVER_NONE. */
void cover_read(struct conn *conn);

/* Like sendmsg, for a connection that is COVER_TLS. What is counted as sent has left for good. What is not has to be
 * the begin of the next call. */
ssize_t cover_send(struct conn *conn, const struct iovec *pieces, size_t count);

/* Closes those that have not proved anything in time. */
void cover_tick(struct rdzv_server *server, int64_t now);

#endif
