/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's end of a TCPStore connection: finding the server, finding out which dialect it speaks, and carrying
 * messages. It knows nothing of what they mean; store/tcp/tcp.c does.
 */
#ifndef RDZV_STORE_TCP_CONN_H
#define RDZV_STORE_TCP_CONN_H

#include "base/net/endpoint.h"
#include "base/wait/flag.h"
#include "store/tcp/session.h"
#include "wire/op.h"
#include "wire/scan.h"
#include "wire/writer.h"

#include <rdzv/store.h>

struct tcp_conn {
  struct endpoint endpoint;
  char name[ENDPOINT_TEXT_SIZE]; /* the endpoint, for messages */
  char peer[ENDPOINT_TEXT_SIZE]; /* the address that answered */
  rdzv_dialect wanted;
  char *run_id; /* NULL: none */
  rdzv_log log;

  int fd;                    /* -1: not connected */
  enum wire_dialect dialect; /* of the server, as last seen; kept until another one is */
  uint64_t instance;         /* of our server, as the last greeting told; 0: another's server */
  uint64_t known_instance;   /* the one whose keys our caller knows of */
  struct tcp_session session;
  bool has_offer;                  /* the greeting brought a session */
  uint8_t offer[WIRE_TOKEN_BYTES]; /* its token */
  bool cancel_owed;                /* the server will still answer a CANCEL_WAIT */
  int64_t foreign_asked;           /* when it was last asked whether it is a server of another protocol; 0: never */
  bool sent;                       /* a byte of what was put into `out` since sent was cleared has left */

  struct wire_writer out; /* the request that is being built */
  struct buf in;          /* what was received and not yet consumed */
  struct wire_scan scan;  /* the last message, in `in` */
};

void tcp_conn_init(struct tcp_conn *conn, const struct endpoint *endpoint, rdzv_dialect wanted, const rdzv_log *log);

/* Connects if it is not connected, again and again until the deadline. A message is left in error on failure:
 * RDZV_E_CONNECTION, RDZV_E_ADDRESS, RDZV_E_CANCELED, RDZV_E_NO_MEMORY, RDZV_E_UNSUPPORTED (another dialect than the
 * one wanted), RDZV_E_STALE (it is for another run), and RDZV_E_DATA_LOST: connected, but to another instance of our
 * server than before. */
int tcp_conn_open(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error);

/* Closes the socket and forgets what was half sent or half received. */
void tcp_conn_drop(struct tcp_conn *conn);

/* Drops it if the server has closed it, or said something unasked, since the last answer: found out before a request
 * is sent, it costs nothing; afterwards nobody knows whether the request was done. */
void tcp_conn_drop_if_dead(struct tcp_conn *conn);

/* Drops it and frees its buffers. */
void tcp_conn_free(struct tcp_conn *conn);

/* Sends what was put into `out` and empties it. */
int tcp_conn_send(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error);

/* Receives a message of these fields (wire/scan.h; `items` is the length of a V list). On success `scan` has it, and
 * its bytes are in `in` until tcp_conn_consume. RDZV_E_TIMEOUT, RDZV_E_CONNECTION, RDZV_E_CANCELED, RDZV_E_PROTOCOL,
 * RDZV_E_NO_MEMORY. */
int tcp_conn_receive(struct tcp_conn *conn, const char *fields, uint64_t items, deadline until,
                     const struct flag *cancel, rdzv_error *error);
void tcp_conn_consume(struct tcp_conn *conn);

#endif
