/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's connection to a TCPStore server: connects, finds the dialect of the server, and sends and receives the
 * bytes of messages. message.h has the messages. */
#ifndef RDZV_STORE_TCP_CONN_H
#define RDZV_STORE_TCP_CONN_H

#include "base/net/foreign.h"
#include "base/wait/flag.h"
#include "store/tcp/choice.h"
#include "store/tcp/session.h"
#include "tls/context.h"
#include "wire/op.h"
#include "wire/scan.h"
#include "wire/writer.h"

#include <rdzv/store.h>

struct tcp_conn {
  struct tcp_choice choice;      /* the server to connect to */
  char name[ENDPOINT_TEXT_SIZE]; /* the endpoint, or the list of them, for messages */
  char peer[ENDPOINT_TEXT_SIZE]; /* the address that answered */
  rdzv_dialect wanted;
  char *run_id;             /* NULL: none */
  bool asks_native;         /* the greeting asks whether the server forms rounds */
  struct tls_client *guard; /* what protects it, which it holds; NULL: nothing */
  rdzv_log log;

  int fd;                    /* -1: not connected */
  struct tls_stream *tls;    /* NULL: not connected, or plain */
  bool is_greeted;           /* connected, and the greeting is done */
  enum wire_dialect dialect; /* of the server, as last seen; kept over a lost connection */
  uint64_t instance;         /* of our server, from the last greeting; 0: PyTorch's server */
  uint64_t known_instance;   /* the one whose keys the caller has seen */
  bool native;               /* our server forms rounds, as the last greeting said */
  struct tcp_session session;
  bool has_offer;                  /* the greeting offered a session */
  uint8_t offer[WIRE_TOKEN_BYTES]; /* its token */
  bool cancel_owed;                /* the answer to a CANCEL_WAIT is still to come */
  int64_t foreign_asked;           /* when the server was last asked for other protocols; 0: never */
  bool sent;                       /* a byte was sent since this was cleared */

  struct wire_writer out; /* the request that is being built */
  struct buf in;          /* what was received and not yet consumed */
  struct wire_scan scan;  /* the last message, in `in` */
};

/* Takes over a hold on the servers. */
void tcp_conn_init(struct tcp_conn *conn, struct tcp_servers *servers, rdzv_dialect wanted, const rdzv_log *log);

/* Connects unless it is connected, to the server that is active of several, and tries again until the deadline. Fails
 * with RDZV_E_CONNECTION, RDZV_E_ADDRESS, RDZV_E_CANCELED, RDZV_E_NO_MEMORY, RDZV_E_UNSUPPORTED (another dialect than
 * the one wanted) and RDZV_E_STALE (the server serves another run). RDZV_E_DATA_LOST: connected, but our server was
 * restarted since the last time. */
int tcp_conn_open(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error);

/* Connects in one try at each of the servers, unless it is connected. RDZV_E_TIMEOUT, too; and whether the server was
 * restarted, `instance` tells. */
int tcp_conn_try(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error);

/* Is another of the servers active by now? Asks them, each for a moment. */
bool tcp_conn_is_left_behind(const struct tcp_conn *conn, deadline until, const struct flag *cancel);

/* Closes the socket and forgets what was half sent or half received. */
void tcp_conn_drop(struct tcp_conn *conn);

/* Drops it if the server has closed it, or sent something unasked, since the last answer. Found before a request is
 * sent, a lost connection costs nothing; found afterwards, it is unknown whether the server has done the request. */
void tcp_conn_drop_if_dead(struct tcp_conn *conn);

/* Drops it and frees its buffers. */
void tcp_conn_free(struct tcp_conn *conn);

/* Sends what was put into `out` and empties it. */
int tcp_conn_send(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error);

/* Receives a message of these fields (wire/scan.h; `items` is the length of a V list). On success `scan` describes it,
 * and its bytes stay in `in` until tcp_conn_consume. Fails with RDZV_E_TIMEOUT, RDZV_E_CONNECTION, RDZV_E_CANCELED,
 * RDZV_E_PROTOCOL, RDZV_E_NO_MEMORY. */
int tcp_conn_receive(struct tcp_conn *conn, const char *fields, uint64_t items, deadline until,
                     const struct flag *cancel, rdzv_error *error);
void tcp_conn_consume(struct tcp_conn *conn);

/* The text of an error for a server that is not a store: "etcd answers there, not a store (did you mean …)". NULL for
 * FOREIGN_UNKNOWN. */
const char *tcp_foreign_text(enum foreign foreign);

#endif
